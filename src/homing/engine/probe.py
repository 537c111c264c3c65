"""Probes: the single attempt that a disabled endpoint gets every ten minutes.

The time of the next probe is committed before a probe is sent, so a crash never leads to a second
probe ahead of time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from homing.engine.core import Core
from homing.engine.decide import Misrouted
from homing.engine.dispatch import Dispatcher
from homing.engine.load import AGAIN_MS
from homing.engine.queue import EndpointQueue
from homing.engine.settle import Settler
from homing.errors import HomingError, StaleEndpoints
from homing.model import Lane, Order, State, Subscription, Work
from homing.policy.pause import as_of
from homing.policy.receiver import is_over
from homing.policy.slots import TRUSTED, LaneSlots

log = structlog.get_logger("homing.probe")


class Prober:
    """Chooses a delivery and sends it outside the lanes; tenants share the slots for probes."""

    def __init__(
        self,
        core: Core,
        dispatcher: Dispatcher,
        settler: Settler,
        *,
        may_expire: Callable[[int], bool],
    ) -> None:
        self._flow, self._clock, self._catalog = core.flow, core.clock, core.catalog
        self._dispatcher, self._settler, self._options = dispatcher, settler, core.options
        self._may_expire, self._ownership = may_expire, core.ownership
        self._slots: LaneSlots[EndpointQueue] = LaneSlots(core.options.probe_slots)
        self._tasks: set[asyncio.Task[None]] = set()
        self.may_send: Callable[[], bool]  # set by the engine; returns False during an outage

    def probe(self, queue: EndpointQueue) -> None:
        """Queue a probe of this endpoint."""
        queue.begin_probe()
        self._slots.add(queue.endpoint.tenant, queue)
        self.go_on()

    def go_on(self) -> None:
        """Start the next probes, unless they must wait."""
        slots, limit = self._slots, self._options.probe_searches_max
        while slots.free > 0 and self.may_send() and len(self._tasks) < limit:
            queue = slots.next()
            if queue is None:
                break
            slots.discard(queue)
            slots.take(queue.endpoint.tenant, TRUSTED)
            task = asyncio.get_running_loop().create_task(self._take(queue))
            self._tasks.add(task)
            task.add_done_callback(self._taken)

    def ended(self, tenant: str) -> None:
        """A probe is settled, or none was sent: its slot is free."""
        self._slots.give(tenant, TRUSTED)
        self.go_on()

    def _taken(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.go_on()

    async def _take(self, queue: EndpointQueue) -> None:
        found = None
        try:
            async with self._settler.lock:
                found = await self._choose(queue)
        except StaleEndpoints:
            self._dispatcher.reload_endpoint(queue.endpoint.id)
            await asyncio.sleep(AGAIN_MS / 1000)  # If its row is gone, nothing else slows the loop.
        except HomingError as error:
            log.warning("no delivery could be chosen for a probe; trying again", error=str(error))
            await asyncio.sleep(AGAIN_MS / 1000)
        now = self._clock.now()
        if found is None or queue.closed or now >= self._ownership.good_until:
            queue.end_probe()
            self.ended(queue.endpoint.tenant)
            self._dispatcher.reschedule(queue)
        else:
            work, subscription = found
            newest = await self._in_order(queue, work, subscription)
            if newest is None:
                queue.end_probe()
                self.ended(queue.endpoint.tenant)
                self._dispatcher.reschedule(queue)
                return
            work, now = newest, self._clock.now()
            self._dispatcher.send(queue, work, Lane.PROBE, subscription, now)

    async def _in_order(
        self, queue: EndpointQueue, work: Work, subscription: Subscription
    ) -> Work | None:
        """The delivery to probe with, of a subscription with an order; None if it must not start.

        It waits until no request of a former owner can overlap with the probe. A newer event of
        its key supersedes it.
        """
        delivery = work.delivery
        if not delivery.order_key or subscription.order is Order.NONE:
            return work
        erased = self._catalog.erased(delivery.tenant)
        wait_ms = self._ownership.ordered_from(delivery.bucket) - self._clock.now()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
        if subscription.order is Order.LATEST:
            fences = self._ownership.fences([delivery.bucket])
            newest: Work | int = 0
            try:
                while isinstance(newest, int):  # More must be superseded first.
                    now = self._clock.now()
                    found = await self._flow.newest([delivery], now=now, fences=fences, wait=False)
                    newest = found.get(delivery.id, work)
            except HomingError as error:
                log.warning("newer events could not be read for a probe", error=str(error))
                await asyncio.sleep(AGAIN_MS / 1000)
                return None
            work = newest
        may_start = (
            self._catalog.get(delivery.subscription_id) is subscription  # nothing was changed
            and self._catalog.erased(delivery.tenant) == erased
            and not queue.closed
            and not self._dispatcher.draining
            and self._clock.now() < self._ownership.good_until
            and queue.endpoint.health.state is State.DISABLED
            and work.delivery.endpoint_id == queue.endpoint.id
        )
        return work if may_start else None

    async def _choose(self, queue: EndpointQueue) -> tuple[Work, Subscription] | None:
        """Choose a delivery that can be sent; those of deleted subscriptions are cancelled."""
        endpoint, now = queue.endpoint, self._clock.now()
        if endpoint.health.state is not State.DISABLED or self._dispatcher.draining:
            return None
        if queue.closed or queue.suspended or now >= self._ownership.good_until:
            return None
        next_probe_at = now + self._options.rules_of(endpoint.tenant).probe_every_ms
        # Cleared before the search: an event published during it is noted and not forgotten.
        more_fresh, next_due = queue.forget_stored()
        work, held = None, self._ownership.epochs[endpoint.bucket]
        erased = self._catalog.erased(endpoint.tenant)
        try:
            work, more = await self._take_one(queue, next_probe_at, now)
            nothing = work is None and not queue.in_flight and not more
        except BaseException:
            nothing = False
            raise
        finally:
            if not nothing:
                queue.note_in_store(more_fresh=more_fresh, next_due=next_due)
        if work is None:
            return None
        delivery = work.delivery
        queue.set_endpoint(
            msgspec.structs.replace(
                endpoint, next_probe_at=next_probe_at, probe_after_id=delivery.id
            )
        )
        if self._catalog.erased(endpoint.tenant) > erased:
            return None  # It may be one of those that were erased meanwhile.
        subscription = self._catalog.get(delivery.subscription_id)
        if delivery.id in queue.in_flight or delivery.subscription_id in queue.paused:
            return None  # An earlier attempt is still in flight, or it was paused meanwhile.
        if (
            subscription is None
            or subscription.endpoint_id != endpoint.id
            or is_over(subscription, delivery)
        ):
            self._settler.add(Misrouted(delivery, held))
            return None
        now_due = as_of(delivery, subscription.pauses, now)
        return msgspec.structs.replace(work, delivery=now_due), subscription

    async def _take_one(
        self, queue: EndpointQueue, next_probe_at: int, now: int
    ) -> tuple[Work | None, bool]:
        """The delivery for a probe; the second value says that the search must go on."""
        endpoint = queue.endpoint
        epoch = self._ownership.fence(endpoint.bucket)
        skip_expired = self._may_expire(now)
        if not queue.paused:
            work = await self._flow.take_probe(
                endpoint,
                next_probe_at=next_probe_at,
                now=now,
                skip_expired=skip_expired,
                epoch=epoch,
            )
            return work, False
        paused = queue.paused
        taken = await self._flow.take_unpaused_probe(
            endpoint,
            next_probe_at=next_probe_at,
            now=now,
            skip_expired=skip_expired,
            paused=paused,
            seen=queue.seen,
            epoch=epoch,
        )
        if queue.paused == paused:
            queue.read_up_to(taken.seen)
        return taken.work, taken.more
