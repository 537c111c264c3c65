"""Chooses the next attempts: a heap orders endpoints by time, tenants take turns in each lane.

The heap holds endpoints, never deliveries: a million deliveries to one disabled URL are one entry.
Rows are read from the store for many endpoints in one statement, a few for each. A slot is taken
when an attempt starts. A success frees it at once; any other outcome frees it when that outcome is
settled, so that the next attempt starts with the decision known: the endpoint may be disabled,
held, or back to one slot.

The state of one endpoint is in its ``EndpointQueue``; this module only calls its methods.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Set

import structlog
from msgspec import Struct
from msgspec.structs import replace

from homing.engine.attempt import CompletedAttempt, RequestTemplates, refused
from homing.engine.capacity import Capacity
from homing.engine.core import Core
from homing.engine.decide import Deferred, Item, Misrouted, Report, Terminated
from homing.engine.latest import NewestFirst, Starting
from homing.engine.load import Loader
from homing.engine.pace import RateLimits
from homing.engine.queue import LANES, EndpointQueue, QueueTotals, place_of, within_reach
from homing.model import (
    Delivery,
    Endpoint,
    Failure,
    Lane,
    Order,
    Outcome,
    Phases,
    Reason,
    Status,
    Subscription,
    Work,
    bucket_of,
    show_id,
)
from homing.policy.outcome import judge
from homing.policy.pause import as_of, waits
from homing.policy.receiver import GONE, is_over
from homing.policy.slots import TRUSTED
from homing.ports import EndpointStart, Response

log = structlog.get_logger("homing.dispatch")

STARTS_COST_MAX = 256  # the sum of START_COST that may begin in one turn of the event loop
START_COST = (1, 4, 4)  # by rank: only a trusted endpoint is likely to have an open connection
# Python 3.11 looks up a member of an enum slowly, so the hot path uses these.
_FRESH, _PROBE, _DELIVERED = Lane.FRESH, Lane.PROBE, Outcome.DELIVERED
_FORBIDDEN = Failure.FORBIDDEN_ADDRESS
_NO_ORDER, _LATEST = Order.NONE, Order.LATEST


class Settled(Struct, frozen=True, gc=False):
    """Outcomes that are written or given up, and the changes to their endpoints."""

    items: list[Item]
    endpoints: tuple[Endpoint, ...] = ()  # the changed rows
    enabled: set[int] = set()  # endpoints that were enabled just now
    pending: list[Delivery] = []  # deliveries that wait in the store


class Dispatcher:
    """Queues, lanes and the heap. Everything here runs on the event loop, in small steps."""

    def __init__(self, core: Core) -> None:
        self._options, self._clock, self._sender = core.options, core.clock, core.sender
        self._catalog, self._ownership, self._mine = (
            core.catalog,
            core.ownership,
            core.ownership.mine,
        )
        self.capacity = Capacity(core.options)
        self._turns = self.capacity.turns
        self.totals = QueueTotals(self.capacity.memory)
        self.queues: dict[int, EndpointQueue] = {}
        self._rates = RateLimits(core, self.queues, self.capacity)
        self._loader = Loader(
            core.flow,
            core.clock,
            self.capacity,
            on_start=self.add_endpoint,
            reschedule=self.reschedule,
        )
        self._buckets_in_read: frozenset[int] = frozenset()
        self.reload_endpoint = self._loader.endpoint  # reads the row, for the first time or again
        self._templates = RequestTemplates(
            deadline_of=core.options.deadline_of,
            signer_of=core.catalog.signer_of,
            trace_share=None if core.tracing is None else core.tracing.share,
        )
        self._newest_first = NewestFirst(
            core,
            send=self._send_newest,
            give_back=self._give_back,
            ask_again=self._ask_again,
        )
        self.paused = False  # the store cannot settle: nothing new starts
        self.draining = False
        self._heap: list[tuple[int, int, EndpointQueue]] = []
        self._tick = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._soon: asyncio.Handle | None = None
        # Set by the engine: the functions that take outcomes, and endpoints that are due.
        self.on_completed: Callable[[CompletedAttempt], None]
        self.on_unsendable: Callable[[Misrouted | Terminated | Deferred], None]
        self.on_time: Callable[[EndpointQueue, int], None]
        self.on_probe_ended: Callable[[str], None]
        self.may_expire: Callable[[int], bool]
        # Set by outage detection: an endpoint was read from the store, or went to another process.
        self.on_added: Callable[[EndpointQueue], None] = lambda _: None
        self.on_gone: Callable[[int], None] = lambda _: None
        core.catalog.on_paused = self.pauses_changed

    @property
    def ready_count(self) -> int:
        """Deliveries in the queues, not counting those set aside until their rate allows them."""
        return self.totals.memory.count - self.totals.aside

    # --- endpoints ---------------------------------------------------------------------------

    def add_endpoint(self, start: EndpointStart) -> None:
        """Add an endpoint as the store has it, or bring its queue up to date."""
        queue = self.queues.get(start.endpoint.id)
        if queue is None and not self._mine[start.endpoint.bucket]:
            self._ownership.notify_owner(start.endpoint.bucket, start.endpoint.id)
            return
        if queue is None:
            rules = self._options.rules_of(start.endpoint.tenant)
            queue = self._add(within_reach(start.endpoint, rules, now=self._clock.now()))
        elif start.endpoint.generation > queue.endpoint.generation:
            since = queue.endpoint.health.enabled_since
            again = start.endpoint.health.enabled_since != since
            self.update_endpoint(start.endpoint, enabled=again)
        # Otherwise the row in memory is the newer one.
        queue.note_outdated(queue.outdated and self._loader.is_asked_for(start.endpoint.id))
        queue.read_again()
        if start.first:
            queue.note_in_store(more_fresh=True, next_due=start.endpoint.created_at)
        elif start.oldest_id is not None and start.next_due is None:  # All are blocked.
            queue.note_blocked(0)
        queue.note_in_store(next_due=start.next_due)
        self.reschedule(queue)

    def update_endpoint(self, endpoint: Endpoint, *, enabled: bool = False) -> None:
        """Act on a committed row of an endpoint. ``enabled``: it was enabled just now."""
        self._update(endpoint, enabled=enabled)
        queue = self.queues.get(endpoint.id)
        if queue is not None:
            self.reschedule(queue)

    def _update(self, endpoint: Endpoint, *, enabled: bool) -> None:
        queue = self.queues.get(endpoint.id)
        if queue is None and not self._mine[endpoint.bucket]:
            self._ownership.notify_owner_of_change(endpoint.bucket, endpoint.id)
        elif queue is None:  # Keep this row: a read that is still running may return an older one.
            self._add(endpoint)
            self.reload_endpoint(endpoint.id)
        elif queue.update(endpoint, enabled=enabled, now=self._clock.now()):
            self._loader.go()  # There may be memory for other endpoints now.

    def _add(self, endpoint: Endpoint) -> EndpointQueue:
        fair = bool(self._options.fair_by_of(endpoint.tenant))
        queue = self.queues[endpoint.id] = EndpointQueue(endpoint, self.totals, fair=fair)
        if self._catalog.paused or self._catalog.moves:
            self._note_pauses(queue)
        self.on_added(queue)
        return queue

    def _forget(self, endpoint_id: int) -> None:
        queue = self.queues.pop(endpoint_id, None)
        if queue is not None:
            queue.forgotten()

    def pauses_changed(self, subscription: Subscription) -> None:
        """Act on a paused or resumed subscription, or on a change of another at its endpoint."""
        queue = self.queues.get(subscription.endpoint_id)
        if queue is not None:
            self._note_pauses(queue)
            self.reschedule(queue)
        elif (
            subscription.url
            and self._mine[bucket_of(subscription.tenant, subscription.url)]
            and not self._catalog.all_paused_at(subscription.endpoint_id)
        ):
            self.reload_endpoint(subscription.endpoint_id)  # Its deliveries may be due.

    def _note_pauses(self, queue: EndpointQueue) -> None:
        endpoint_id = queue.endpoint.id
        queue.set_paused(
            self._catalog.paused_at(endpoint_id),
            everything=self._catalog.all_paused_at(endpoint_id),
            now=self._clock.now(),
            moving=queue.endpoint.tenant in self._catalog.moves,
        )

    # --- tenants that move to or from another installation -------------------------------------

    def tenant_moves(self, tenant: str) -> None:
        """Act on a move that begins, goes on or ends: start nothing, forget all, or start again."""
        move = self._catalog.moves.get(tenant)
        queues = [it for it in self.queues.values() if it.endpoint.tenant == tenant]
        if move is not None and move.is_gone:
            self.forget_endpoints([it.endpoint.id for it in queues])
            return
        for queue in queues:
            self._note_pauses(queue)
            self.reschedule(queue)
        if move is None:  # Its rows may have come from the other installation.
            for subscription in self._catalog.of_tenant(tenant):
                bucket = bucket_of(tenant, subscription.url) if subscription.url else None
                if bucket is not None and self._mine[bucket]:
                    self.reload_endpoint(subscription.endpoint_id)

    def is_tenant_busy(self, tenant: str) -> bool:
        """Whether an attempt or other work of a tenant is running, or is not settled."""
        return any(
            it.busy or it.reporting for it in self.queues.values() if it.endpoint.tenant == tenant
        )

    # --- deliveries that come in, move or go -------------------------------------------------

    def accept(self, works: Iterable[Work], version: int, position: int = 0) -> None:
        """Queue deliveries that were just committed, as far as there is memory for them.

        ``version`` is that of the catalog when they were made, ``position`` that of their commit in
        the order of acceptance (0: unknown).
        """
        if version != self._catalog.version:
            works = self._unchanged(works, version)
        touched: dict[EndpointQueue, None] = {}
        mine, queues, capacity = self._mine, self.queues, self.capacity
        paused = self._catalog.paused  # Other processes read their rows when they are resumed.
        for work in works:
            delivery = work.delivery
            if not mine[delivery.bucket]:
                if delivery.subscription_id not in paused:
                    self._notify_owner(delivery, position)
                continue
            queue = queues.get(delivery.endpoint_id)
            if queue is None:
                self._loader.endpoint(delivery.endpoint_id)
                continue
            touched[queue] = None
            if queue.rate_limited:
                self._rates.release_shared(queue)
            if queue.takes(delivery) and capacity.may_add(queue):
                queue.add(work)
            else:
                queue.left_in_store(delivery, position)
        now = self._clock.now()
        for queue in touched:
            if queue.in_store or not queue.ready(_FRESH, now):
                self.reschedule(queue)
            else:  # The short form of ``reschedule`` for this case.
                self._turns[_FRESH].add(queue.endpoint.tenant, queue, queue.rank)
                self._pump_soon()

    def _unchanged(self, works: Iterable[Work], version: int) -> list[Work]:
        """Leave to the store the deliveries whose tenant has changed since this version.

        A change of URL may have moved them, and by now they may be finished or erased.
        """
        kept: list[Work] = []
        changed, erased = self._catalog.changed, self._catalog.erased
        for work in works:
            tenant = work.event.tenant
            if max(changed(tenant), erased(tenant)) > version:
                self.left_in_store(work.delivery)
            else:
                kept.append(work)
        return kept

    def ordered(self, free: Iterable[Delivery], blocked: Iterable[Delivery]) -> None:
        """Note new deliveries with a key; the blocked ones wait for others of their key.

        The blocked ones are read when they are unblocked. Until then, if their endpoint is not
        enabled, a search finds those whose window has ended.
        """
        for delivery in free:
            subscription = self._catalog.get(delivery.subscription_id)
            if subscription is not None and subscription.order is _LATEST:
                self._newest_first.accepted(delivery)
        for delivery in blocked:
            self._newest_first.blocked(delivery)
            queue = self.queues.get(delivery.endpoint_id)
            if queue is not None and self._mine[delivery.bucket]:
                queue.note_blocked(delivery.expires_at)
                if not queue.enabled:
                    self.reschedule(queue)

    def left_in_store(self, delivery: Delivery) -> None:
        """Note that the store has a delivery that is not in memory."""
        queue = self.queues.get(delivery.endpoint_id)
        if not self._mine[delivery.bucket]:
            self._notify_owner(delivery)
        elif queue is None:
            self.reload_endpoint(delivery.endpoint_id)
        else:
            queue.left_in_store(delivery)
            if delivery.is_first and delivery.subscription_id not in queue.paused:
                queue.put_back()  # Those that are queued may have been accepted after it.
            self.reschedule(queue)

    def _notify_owner(self, delivery: Delivery, position: int = 0) -> None:
        from_ = place_of(delivery, position)
        self._ownership.notify_owner(delivery.bucket, delivery.endpoint_id, *from_)

    def read_now(self) -> None:
        """Retry the failed reads at once: the store works again."""
        self._loader.try_now()

    @property
    def superseded(self) -> int:
        """Deliveries that newer ones have replaced before an attempt."""
        return self._newest_first.superseded

    def is_in_flight(self, delivery_id: int, endpoint_id: int) -> bool:
        queue = self.queues.get(endpoint_id)
        return queue is not None and delivery_id in queue.in_flight

    def check_store(self, endpoint_id: int) -> None:
        """Read the store for this endpoint: it may have deliveries that are not known here.

        Queued deliveries are read again, too: they may have been accepted after the unknown ones.
        """
        self._newest_first.forget()
        queue = self.queues.get(endpoint_id)
        if queue is None:
            self.reload_endpoint(endpoint_id)
            return
        queue.put_back()
        queue.read_again()
        queue.note_in_store(more_fresh=True, next_due=self._clock.now(), expires_at=0)
        self.reschedule(queue)

    def remove_subscription(self, subscription_id: int, endpoint_id: int) -> None:
        """Take the deliveries of a subscription off the queue: the store moves or cancels them."""
        queue = self.queues.get(endpoint_id)
        if queue is not None:
            queue.remove_subscription(subscription_id)
            self.reschedule(queue)

    def remove_delivery(self, delivery_id: int, endpoint_id: int) -> None:
        """Take off the queue a delivery that was cancelled in the store."""
        queue = self.queues.get(endpoint_id)
        if queue is not None:
            queue.remove_delivery(delivery_id)
            self.reschedule(queue)

    # --- changes by other processes ----------------------------------------------------------

    def published_elsewhere(self, endpoint_id: int, due_at: int = 0, position: int = 0) -> None:
        """Note that another process published for this endpoint, from this time or position on.

        The rows are not read while the endpoint is disabled, frozen or held.
        """
        queue = self.queues.get(endpoint_id)
        if queue is None:
            self.reload_endpoint(endpoint_id)
            return
        now = self._clock.now()
        queue.read_again(due_at, position)
        expires_at = now + self._options.window_min_ms
        queue.note_in_store(more_fresh=True, next_due=now, expires_at=expires_at)
        self.reschedule(queue)

    def changed_elsewhere(self, endpoint_id: int) -> None:
        """Read an endpoint and its queued rows again: another process has changed them."""
        queue = self.queues.get(endpoint_id)
        if queue is not None:
            queue.put_back()
            queue.read_again()
            queue.note_outdated(True)
            self.reschedule(queue)
            self.reload_endpoint(endpoint_id)

    def forget_erased(self, tenant: str, *, used: Set[int] | None = None) -> None:
        """Read the queued rows of a tenant again: some of them were erased.

        If everything was, endpoints other than those in ``used`` are forgotten, unless an attempt
        is in flight there.
        """
        for queue in list(self.queues.values()):  # ``reschedule`` may forget one.
            if queue.endpoint.tenant == tenant:
                queue.forget_erased()
                self.reschedule(queue)
                endpoint_id = queue.endpoint.id
                if used is not None and endpoint_id not in used and not queue.busy:
                    self.forget_endpoints([endpoint_id])

    def read_buckets(self, buckets: Iterable[int]) -> None:
        """Forget no endpoint of these buckets until the next call: they are being read."""
        self._buckets_in_read = frozenset(buckets)

    def in_buckets(self, buckets: Iterable[int]) -> list[EndpointQueue]:
        wanted = set(buckets)
        return [it for it in self.queues.values() if it.endpoint.bucket in wanted]

    def close(self, buckets: Iterable[int]) -> None:
        """Start nothing new in these buckets; attempts in flight are still settled."""
        for queue in self.in_buckets(buckets):
            self._close(queue)

    def _close(self, queue: EndpointQueue) -> None:
        queue.put_back()
        self.reschedule(queue)
        queue.close()
        for turns in self._turns.values():
            turns.discard(queue)

    def reopen(self, buckets: Iterable[int]) -> None:
        """Let attempts start again in these buckets, which stay with this process."""
        for queue in self.in_buckets(buckets):
            queue.reopen()
            self.reschedule(queue)

    def busy(self, buckets: Iterable[int]) -> set[int]:
        """The buckets among these in which attempts or other work are still running."""
        return {it.endpoint.bucket for it in self.in_buckets(buckets) if it.busy}

    def forget_endpoints(self, endpoint_ids: Iterable[int]) -> None:
        """Forget endpoints that are no longer in the store."""
        for endpoint_id in endpoint_ids:
            queue = self.queues.get(endpoint_id)
            if queue is not None:
                self._close(queue)
                self._forget(endpoint_id)
                self.on_gone(endpoint_id)

    def forget_buckets(self, buckets: Iterable[int]) -> None:
        """Forget buckets that another process owns; their attempts in flight end by themselves."""
        buckets = set(buckets)
        self.close(buckets)
        for queue in self.in_buckets(buckets):
            self._forget(queue.endpoint.id)
            self.on_gone(queue.endpoint.id)

    # --- starting attempts -------------------------------------------------------------------

    def reschedule(self, queue: EndpointQueue) -> None:
        """Bring the lanes, the loader and the heap up to date with the state of a queue."""
        if queue.closed:
            return  # The bucket goes to another process.
        now = self._clock.now()
        waiting = queue.fresh or queue.retry or queue.in_store
        for lane, turns in self._turns.items():
            if waiting and queue.ready(lane, now):
                turns.add(queue.endpoint.tenant, queue, queue.rank)
                self._pump_soon()
            elif queue in turns:
                turns.discard(queue)
                self._loader.ask_next_postponed(queue)
            if waiting and queue.wants(lane, now):
                self._loader.rows(queue, lane)
        at = queue.next_time(now)
        if at != queue.wake_at:
            queue.wake_up_at(at)
            if at is not None:
                self._tick += 1
                heapq.heappush(self._heap, (at, self._tick, queue))
                self._set_timer()
        crowded = len(self.queues) > self._options.queues_max
        if crowded and queue.idle and not self._is_being_read(queue.endpoint):
            self._forget(queue.endpoint.id)

    def _is_being_read(self, endpoint: Endpoint) -> bool:
        """Whether a read is under way that may return an older row than the one in memory."""
        return endpoint.id in self._loader.reading or endpoint.bucket in self._buckets_in_read

    def _pump_soon(self) -> None:
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self.pump)

    def pump(self) -> None:
        """Start all attempts that may start now."""
        self._soon = None
        self._start_ready()
        self._loader.go()  # There may be memory again.

    def _start_ready(self) -> None:
        if self.paused or self.draining or self._clock.now() >= self._ownership.good_until:
            return
        self._wake_due()
        if self.capacity.outage:
            return
        left = STARTS_COST_MAX
        for lane in LANES:
            turns = self._turns[lane]
            while self.capacity.has_slot(lane):
                if left <= 0:
                    self._pump_soon()
                    return
                queue = turns.next()
                if queue is None:
                    break
                now = self._clock.now()
                if now >= self._ownership.good_until:
                    break  # Checked each time: the process may have been suspended meanwhile.
                rank = queue.rank
                left -= START_COST[rank]
                self.start(queue, lane, now, rank)
        if self._rates.next_at is not None:
            self._set_timer()

    def start(self, queue: EndpointQueue, lane: Lane, now: int, rank: int) -> None:
        """Send the next delivery of a lane, or settle or defer it if it cannot be sent."""
        work = queue.take(lane)
        delivery = work.delivery
        subscription = self._catalog.get(delivery.subscription_id)
        if subscription is not None and subscription.pauses is not None:
            work = replace(work, delivery=as_of(delivery, subscription.pauses, now))
            delivery = work.delivery
        if (
            subscription is None
            or subscription.endpoint_id != queue.endpoint.id
            or (subscription.receiver and is_over(subscription, delivery))
        ):
            queue.claim(delivery.id, lane)
            self.on_unsendable(Misrouted(delivery, self._ownership.epochs[delivery.bucket]))
        elif subscription.pauses is not None and waits(delivery, subscription, now=now):
            self._wait_after_pause(queue, delivery, lane, subscription)
        elif (
            delivery.expires_at <= now
            and (
                queue.held_too_long(delivery, subscription.pauses, now)
                or queue.endpoint.guard_refused_at
            )
            and self.may_expire(now)
        ):
            queue.claim(delivery.id, lane)
            epoch = self._ownership.epochs[delivery.bucket]
            self.on_unsendable(Terminated(delivery, Status.DROPPED, Reason.EXPIRED, epoch))
        elif delivery.order_key and now < self._ordered_from(delivery, subscription):
            queue.claim(delivery.id, lane)
            ordered_from = self._ownership.ordered_from(delivery.bucket)
            epoch = self._ownership.epochs[delivery.bucket]
            self.on_unsendable(Deferred(delivery, ordered_from, epoch))
        elif (subscription.rate_per_second or self._rates.host_rate) and (
            pace := self._rates.take(subscription, queue, lane, now)
        ) is not None:
            if (later := self._rates.wait(pace, queue, work, lane, now)) is not None:
                self.on_unsendable(later)
        else:
            self._turns[lane].take(delivery.tenant, rank)
            self._send_or_newest(queue, work, lane, subscription, now, rank)
        self._started(queue, lane, now)

    def _started(self, queue: EndpointQueue, lane: Lane, now: int) -> None:
        """Bring the lanes and the loader up to date after a delivery was taken off a lane."""
        if not queue.ready(lane, now):
            self._turns[lane].discard(queue)
            if queue.in_store:
                self.reschedule(queue)
        if self._loader.postponed:
            self._loader.ask_next_postponed(queue)

    def _ordered_from(self, delivery: Delivery, subscription: Subscription) -> int:
        """When a delivery with a key may be attempted: never alongside a former owner's request."""
        if subscription.order is _NO_ORDER:
            return 0
        return self._ownership.ordered_from(delivery.bucket)

    def _send_or_newest(
        self,
        queue: EndpointQueue,
        work: Work,
        lane: Lane,
        subscription: Subscription,
        now: int,
        rank: int,
    ) -> None:
        """Send a delivery; where only the newest of its key is wanted, look that one up first."""
        if (
            work.delivery.order_key
            and subscription.order is _LATEST
            and not self._newest_first.is_newest(work.delivery)
        ):
            queue.begin_attempt(work.delivery.id, lane)
            self.capacity.begin_attempt()
            canary = self.capacity.outage
            self._newest_first.add(Starting(queue, work, lane, subscription, rank, canary))
        else:
            self.send(queue, work, lane, subscription, now, rank)

    async def wait_to_test(self, subscription: Subscription) -> bool:
        """Take a turn of its host for a test send; whether it waited. Raises TooMany."""
        return await self._rates.take_for_test(subscription, on_wait=self._set_timer)

    def _wait_after_pause(
        self, queue: EndpointQueue, delivery: Delivery, lane: Lane, subscription: Subscription
    ) -> None:
        """Give a delivery the time to which a pause has moved it; during a pause its row stays."""
        if subscription.paused_since is None:
            queue.claim(delivery.id, lane)
            epoch = self._ownership.epochs[delivery.bucket]
            self.on_unsendable(Deferred(delivery, delivery.due_at, epoch))

    def send(
        self,
        queue: EndpointQueue,
        work: Work,
        lane: Lane,
        subscription: Subscription,
        now: int,
        rank: int = TRUSTED,
    ) -> None:
        """Make one attempt and give it to ``on_completed``; ``rank`` is that of its slot."""
        queue.begin_attempt(work.delivery.id, lane)
        self.capacity.begin_attempt()
        self._transmit(queue, work, lane, subscription, now, rank)

    def _send_newest(self, it: Starting, work: Work) -> None:
        """Send the newest delivery of a key, unless its attempt must not start any more."""
        queue, older, newest, now = it.queue, it.work.delivery, work.delivery, self._clock.now()
        if newest.id != older.id:
            if newest.id in queue.in_flight:  # A load has read it meanwhile, and it was started.
                self._free_unsent(it)
                return
            queue.swap(older.id, newest.id, it.lane)
            it = replace(it, work=work)
        endpoint = queue.endpoint
        if (
            self.queues.get(endpoint.id) is not queue
            or queue.closed
            or newest.endpoint_id != endpoint.id
            or not queue.enabled
            or now < endpoint.hold_until
            or queue.slots_taken[it.lane] > queue.ramp.slots  # A failure has reduced them.
            or self.paused
            or self.draining
            or (self.capacity.outage and not it.canary)
            or now >= self._ownership.good_until
            or self._catalog.get(it.subscription.id) is not it.subscription
        ):
            self._give_back(it)
        else:
            self._transmit(queue, work, it.lane, it.subscription, now, it.rank)

    def _give_back(self, it: Starting) -> None:
        """Free the slot of an attempt that was not sent; its delivery waits in the store."""
        delivery = it.work.delivery
        self._free_unsent(it)
        if self.queues.get(it.queue.endpoint.id) is it.queue and not it.queue.closed:
            self.check_store(it.queue.endpoint.id)
        if delivery.endpoint_id != it.queue.endpoint.id:
            self.left_in_store(delivery)

    def _ask_again(self, it: Starting, at: int) -> None:
        """Free the slot of an attempt that must wait until this time, as the store has it."""
        self._free_unsent(it)
        self.left_in_store(replace(it.work.delivery, due_at=at))

    def _free_unsent(self, it: Starting) -> None:
        delivery = it.work.delivery
        it.queue.abandon(delivery.id, it.lane)
        self.capacity.end_attempts(1)
        self._turns[it.lane].give(delivery.tenant, it.rank)
        self._pump_soon()

    def _transmit(
        self,
        queue: EndpointQueue,
        work: Work,
        lane: Lane,
        subscription: Subscription,
        now: int,
        rank: int,
    ) -> None:
        delivery = work.delivery
        number = delivery.attempts + 1
        endpoint_id, epoch = queue.endpoint.id, self._ownership.epochs[queue.endpoint.bucket]
        lines = b""

        def done(response: Response) -> None:
            outcome, ended = judge(response.code, response.failure), self._clock.now()
            if response.failure is _FORBIDDEN:
                outcome, response = refused(response, queue.endpoint, self._options.guard)
            if outcome is _DELIVERED and lane is not _PROBE:
                self._free(queue, lane, rank, ended)
            attempt = CompletedAttempt(
                work, endpoint_id, lane, number, now, ended, lines, response, outcome, epoch, rank
            )
            if response.retry_after is not None:  # A date in it refers to the wall clock.
                attempt = replace(attempt, wall_ahead_ms=self._clock.state().ahead_ms)
            if response.code == GONE:
                attempt = replace(attempt, version=subscription.version)
            self.on_completed(attempt)

        try:
            template = self._templates.of(subscription)
            wall = self._clock.wall()  # Read each time: the wall clock may be set at any moment.
            request, lines = template.write(work, number=number, now=now, wall=wall)
            if request.credentials is not None:
                request = replace(request, is_wanted=self._is_wanted(queue, subscription))
            self._sender.send(request, done)
        except Exception as error:
            log.exception("an attempt could not be made", delivery=show_id("dlv", delivery.id))
            fault = Response(None, Failure.SENDER_FAULT, type(error).__name__, None, Phases())
            asyncio.get_running_loop().call_soon(done, fault)

    def _is_wanted(self, queue: EndpointQueue, subscription: Subscription) -> Callable[[], bool]:
        """Whether nothing was changed or erased since now that a request is about."""
        catalog, erasures = self._catalog, queue.erasures
        return lambda: catalog.get(subscription.id) is subscription and queue.erasures == erasures

    def _free(self, queue: EndpointQueue, lane: Lane, rank: int, now: int) -> None:
        """Free the slot of a success; one more delivery of this endpoint may start."""
        queue.free_slot(lane)
        turns = self._turns[lane]
        turns.give(queue.endpoint.tenant, rank)
        if self._loader.postponed:
            self._loader.ask_next_postponed(queue)
        if queue.in_store:
            self.reschedule(queue)
        elif (
            (queue.fresh or queue.retry)
            and queue not in turns
            and not queue.closed
            and queue.ready(lane, now)
        ):
            turns.add(queue.endpoint.tenant, queue, queue.rank)
        if self._soon is None and self.ready_count:
            self._pump_soon()

    # --- settled outcomes --------------------------------------------------------------------

    def settled(self, batch: Settled) -> None:
        """Bring the queues up to date with a commit."""
        slots_max = self._options.endpoint_slots
        for endpoint in batch.endpoints:
            self._update(endpoint, enabled=endpoint.id in batch.enabled)
        fenced, ended = self._ownership.fenced, 0
        for item in batch.items:
            queue = self.queues.get(item.endpoint_id)
            if queue is not None and fenced and not self.owns(item):
                queue = None
            if type(item) is CompletedAttempt:
                ended += 1
                if queue is not None:
                    just_enabled = item.endpoint_id in batch.enabled
                    queue.settled(item, slots_max=slots_max, just_enabled=just_enabled)
                if item.outcome is not _DELIVERED or item.lane is _PROBE:
                    self._end_attempt(item)
            else:
                self._settled_unsent(queue, item)
        self.capacity.end_attempts(ended)  # Also attempts whose bucket was lost.
        self._pump_soon()
        touched = dict.fromkeys([item.endpoint_id for item in batch.items])
        touched.update(dict.fromkeys([endpoint.id for endpoint in batch.endpoints]))
        for endpoint_id in touched:
            queue = self.queues.get(endpoint_id)
            if queue is not None:
                self.reschedule(queue)
        for delivery in batch.pending:
            self.left_in_store(delivery)

    def _settled_unsent(self, queue: EndpointQueue | None, item: Item) -> None:
        match item:
            case Terminated() | Misrouted() | Deferred() if queue is not None:
                queue.settled_unsent(item.delivery.id)
            case Report() if queue is not None:
                queue.end_report()
        if isinstance(item, Terminated) and item.written is not None:
            item.written()

    def owns(self, item: Item) -> bool:
        """Whether this process still has the lease under which an outcome came about."""
        epochs = self._ownership.epochs
        match item:
            case CompletedAttempt():
                return item.epoch == epochs[item.work.delivery.bucket]
            case Terminated() | Misrouted() | Deferred():
                return item.epoch == epochs[item.delivery.bucket]
            case Report():
                return item.endpoint_id in self.queues

    def _end_attempt(self, attempt: CompletedAttempt) -> None:
        """Free the slot that an attempt held until it was settled."""
        if attempt.lane is _PROBE:
            self.on_probe_ended(attempt.work.delivery.tenant)
        else:
            self._turns[attempt.lane].give(attempt.work.delivery.tenant, attempt.rank)

    def pause(self) -> None:
        """Start nothing new: the store cannot settle."""
        self.paused = True
        self._loader.pause()

    def resume(self) -> None:
        """Start attempts again: the store settles."""
        self.paused = False
        self._pump_soon()
        self._loader.resume()

    # --- time ------------------------------------------------------------------------------

    def _wake_due(self) -> None:
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now:
            at, _, queue = heapq.heappop(self._heap)
            # Otherwise the queue has another time by now, or was forgotten.
            if self.queues.get(queue.endpoint.id) is queue and queue.wakes(at):
                self.on_time(queue, now)
                self.reschedule(queue)
        for queue in self._rates.due(now):
            self.reschedule(queue)
        self._set_timer()

    @property
    def next_at(self) -> int | None:
        """The time of the next timer; None if there is none."""
        times = [self._heap[0][0]] if self._heap else []
        if self._rates.next_at is not None:
            times.append(self._rates.next_at)
        return min(times, default=None)

    def _set_timer(self) -> None:
        at = self.next_at
        if at is None:
            return
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        wait_ms = max(at - self._clock.now(), 0)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._rings)

    def _rings(self) -> None:
        self._timer = None
        self._pump_soon()

    def stop(self) -> None:
        """Stop timers and loads, and start no more attempts."""
        self.draining = True
        self._loader.pause()
        if self._timer is not None:
            self._timer.cancel()
