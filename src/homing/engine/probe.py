"""Probes: the single attempt that a disabled endpoint gets every ten minutes.

The next probe's time is committed before a probe is sent, so a crash never makes two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from homing.engine.core import Core
from homing.engine.decide import Stray
from homing.engine.dispatch import Dispatcher
from homing.engine.load import AGAIN_MS
from homing.engine.settle import Settler
from homing.engine.station import Station
from homing.errors import HomingError, StaleEndpoints
from homing.model import Lane, State, Subscription, Work
from homing.policy.slots import TRUSTED, LaneSlots

log = structlog.get_logger("homing.probe")


class Prober:
    """Takes a delivery and sends it past the lanes. Its slots are shared out by tenant."""

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
        self._may_expire, self._held = may_expire, core.held
        self._slots: LaneSlots[Station] = LaneSlots(core.options.probes_in_flight)
        self._tasks: set[asyncio.Task[None]] = set()
        self.may_send: Callable[[], bool]  # set by the engine: False while the gate is closed

    def probe(self, station: Station) -> None:
        """Its probe is due."""
        station.begin_probe()
        self._slots.add(station.endpoint.tenant, station)
        self.go_on()

    def go_on(self) -> None:
        """Take the next, unless they must wait."""
        slots, most = self._slots, self._options.probe_slots
        while slots.free > 0 and self.may_send() and len(self._tasks) < most:
            station = slots.next()
            if station is None:
                break
            slots.discard(station)
            slots.take(station.endpoint.tenant, TRUSTED)
            task = asyncio.get_running_loop().create_task(self._take(station))
            self._tasks.add(task)
            task.add_done_callback(self._taken)

    def ended(self, tenant: str) -> None:
        """A probe is settled, or none was sent: its slot is free."""
        self._slots.give(tenant, TRUSTED)
        self.go_on()

    def _taken(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.go_on()

    async def _take(self, station: Station) -> None:
        found = None
        try:
            async with self._settler.lock:
                found = await self._choose(station)
        except StaleEndpoints:
            self._dispatcher.read_again(station.endpoint.id)
        except HomingError as error:
            log.warning("no probe could be taken", error=str(error))
            await asyncio.sleep(AGAIN_MS / 1000)
        now = self._clock.now()
        if found is None or station.closed or now >= self._held.good_until:
            station.end_probe()
            self.ended(station.endpoint.tenant)
            self._dispatcher.look(station)
        else:
            work, subscription = found
            self._dispatcher.send(station, work, Lane.PROBE, subscription, now)

    async def _choose(self, station: Station) -> tuple[Work, Subscription] | None:
        """A delivery that can be sent; those of deleted subscriptions are cancelled on the way."""
        endpoint, now = station.endpoint, self._clock.now()
        if endpoint.health.state is not State.DISABLED or self._dispatcher.draining:
            return None
        if station.closed or now >= self._held.good_until:
            return None
        next_probe_at = now + self._options.rules_of(endpoint.tenant).probe_every_ms
        # What is published while the store looks must not be forgotten when it finds nothing.
        more_fresh, next_due = station.more_fresh, station.next_due
        station.more_fresh, station.next_due = False, None
        work, held = None, self._held.epochs[endpoint.bucket]
        try:
            work = await self._flow.take_probe(
                endpoint,
                next_probe_at=next_probe_at,
                now=now,
                skip_expired=self._may_expire(now),
                epoch=self._held.fence(endpoint.bucket),
            )
            nothing = work is None and not station.in_flight
        except BaseException:
            nothing = False
            raise
        finally:
            if not nothing:
                station.restore(more_fresh=more_fresh, next_due=next_due)
        if work is None:
            return None
        delivery = work.delivery
        station.set_endpoint(
            msgspec.structs.replace(
                endpoint, next_probe_at=next_probe_at, probe_after_id=delivery.id
            )
        )
        subscription = self._catalog.get(delivery.subscription_id)
        if delivery.id in station.in_flight:
            return None  # It is on its way already, from before the endpoint was disabled.
        if subscription is None or subscription.endpoint_id != endpoint.id:
            self._settler.add(Stray(delivery, held))
            return None
        return work, subscription
