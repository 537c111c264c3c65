"""Settling: the outcomes of a batch of attempts, decided and written in one commit.

Writing many outcomes together costs far less, so a commit waits until 256 outcomes have arrived, a
queued delivery needs a slot, or 20 ms have passed. If it would hold more than successes, it starts
when no more outcomes are expected. (A success can wait: its slot is already free. At low rates
several then share a commit.) Outcomes that arrive while a commit runs go into the next. While the
store cannot commit, no new attempt starts, and finished outcomes wait here.

Commits are bounded, and tenants have their share of each (``settle_queue``). A batch is decided in
one turn of the event loop and applied in another, so the bound also limits how long a turn takes.
More and smaller turns would let a stream of publishes starve the outcomes, because all other tasks
run between two turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import structlog
from msgspec.structs import replace

from homing.engine.attempt import CompletedAttempt
from homing.engine.core import Core
from homing.engine.decide import Decision, Deferred, Item, Misrouted, Report, Terminated
from homing.engine.dispatch import Dispatcher, Settled
from homing.engine.latency import LONG_S, SHORT_S, Histogram
from homing.engine.recent import Recent
from homing.engine.settle_queue import SettleQueue
from homing.errors import (
    DatabaseBehind,
    Fenced,
    HomingError,
    LostLeases,
    NotFound,
    StaleCatalog,
    StaleEndpoints,
    Unavailable,
)
from homing.model import Attempt, Event, Outcome, Status, Subscription, Work, show_id
from homing.policy.audit import Who
from homing.policy.causes import class_of
from homing.policy.receiver import set_gone
from homing.policy.trace import trace_id_of
from homing.ports import SettleBatch, SettleResult
from homing.ports.audit import acting

log = structlog.get_logger("homing.settle")

ENOUGH = 256  # outcomes start a commit …
SOON_MS = 20  # … or this time after the first of them
FEW = 64  # of several tenants: if more wait, only ENOUGH successes or SOON_MS start a commit
AGAIN_MS = (100, 200, 500, 1_000, 2_000)
THE_RECEIVER = Who("the receiver")
_ARRIVED = Status.DELIVERED
_DELIVERED = Outcome.DELIVERED  # Python 3.11 looks up a member of an enum slowly.


class Settler:
    """The group commit of outcomes."""

    def __init__(self, core: Core, dispatcher: Dispatcher) -> None:
        self._core, self._dispatcher = core, dispatcher
        self._flow, self._clock, self._ownership = core.flow, core.clock, core.ownership
        self._waiting = SettleQueue()
        self._task: asyncio.Task[None] | None = None
        self._gathering: asyncio.Future[None] | None = None  # waits for more outcomes
        self.lock = asyncio.Lock()  # held by everything that changes endpoints
        self._stale: frozenset[int] = frozenset()  # endpoints to read again
        self._log = log.bind()  # Bound once: an attempt that is not logged costs very little.
        self._logs_all = self._log.is_enabled_for(logging.DEBUG)
        self._logs = self._logs_all or self._log.is_enabled_for(logging.INFO)
        self.store_ok = True
        self.since: int | None = None  # when the running commit began
        self.being_written = 0  # outcomes of that commit
        self.commits = 0
        self.finished: Counter[str] = Counter()
        self.attempts: Counter[tuple[str, str, str]] = Counter()
        self.attempt_latency = Histogram(SHORT_S, per_second=1_000_000)
        self.delivery_latency = Histogram(LONG_S, per_second=1_000)
        self.recent = Recent(after=core.ids.take(core.clock.now()))
        self.late = 0  # outcomes dropped because their bucket had gone to another process
        self.on_accepted: Callable[[list[Work], int], None]  # with the catalog's version
        self.on_lost: Callable[[frozenset[int]], None]
        self._retry: asyncio.Event | None = None  # set: a batch is tried again
        self.on_behind: Callable[[DatabaseBehind], None] = lambda _: None  # commits were lost
        self.on_people_notices: Callable[[], None] = lambda: None  # records were written
        self.on_gone: Callable[[], object]  # a cleanup job was created
        self.accepting: Callable[[], bool] = lambda: False  # whether events are being written

    @property
    def unsettled(self) -> int:
        return len(self._waiting)

    @property
    def idle_now(self) -> bool:
        """Whether all outcomes are written."""
        return self._task is None

    def add(self, item: Item) -> None:
        self._waiting.add(
            item, item.finished_at if type(item) is CompletedAttempt else self._clock.now()
        )
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._settle_all())
        elif self._gathering is not None and self._enough():
            self._go()

    def _enough(self) -> bool:
        """Whether to commit now: enough outcomes wait, a slot is needed, or no more are coming."""
        dispatcher, waiting = self._dispatcher, len(self._waiting)
        if self._waiting.shared(self._clock.now()) and not dispatcher.draining:
            # A commit takes one ration of failures, so waiting deliveries do not start it early.
            if self._waiting.light >= ENOUGH:
                return True
            if waiting > FEW:
                return False
        elif waiting >= ENOUGH or dispatcher.ready_count > 0:
            return True
        if waiting == self._waiting.light and not dispatcher.draining:
            return False  # Nothing depends on these successes.
        return dispatcher.capacity.in_flight <= waiting and not self.accepting()

    async def _more(self) -> None:
        loop = asyncio.get_running_loop()
        self._gathering = loop.create_future()
        timer = loop.call_later(SOON_MS / 1000, self._go)
        try:
            await self._gathering
        finally:
            timer.cancel()
            self._gathering = None

    async def _pause(self, wait_ms: int) -> None:
        """Wait before the next try, or until ``try_now`` is called."""
        self._retry = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._retry.wait()
        self._retry = None

    def try_now(self) -> None:
        """Retry now a batch that could not be written: the store works again."""
        if self._retry is not None:
            self._retry.set()

    def hurry(self) -> None:
        """Write the waiting outcomes now: the process stops."""
        self._go()

    def _go(self) -> None:
        if self._gathering is not None and not self._gathering.done():
            self._gathering.set_result(None)

    async def idle(self) -> None:
        """Wait until all outcomes are written."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _settle_all(self) -> None:
        try:
            while self._waiting:
                if not self._enough():
                    await self._more()
                rationed = not self._dispatcher.draining
                items = self._waiting.take(self._clock.now(), rationed=rationed)
                self.being_written = len(items)
                async with self.lock:
                    await self._settle(items)
                self.since, self.being_written = None, 0
        finally:
            self._task = self.since = None

    async def _settle(self, items: list[Item]) -> None:
        """Write a batch, however many tries it takes; outcomes of lost buckets are dropped."""
        number = self._core.ids.take(self._clock.now())
        with contextlib.ExitStack() as matched:
            await self._settle_as(number, items, matched)

    async def _settle_as(
        self, number: int, items: list[Item], matched: contextlib.ExitStack
    ) -> None:
        """The same; ``matched`` is a group of publishes while its notices are being written."""
        grace = self._core.grace
        batch: SettleBatch | None = None
        fences: Sequence[tuple[int, int]] = ()
        failures = 0
        while True:
            try:
                if batch is None:
                    items = self._still_owned(items)
                    if not items:
                        return
                    # Read before any await: if a lease is lost and taken again meanwhile, the
                    # new lease must not cover attempts that began under the old one.
                    fences = self._ownership.fences(map(_bucket_of, items))
                    items = await self._with_endpoints(items)
                    if not items:
                        self._worked()
                        return
                    decision = await self._decide(items)
                    if decision.gone:  # After that the batch is decided again.
                        await self._set_gone(decision.gone)
                        continue
                    batch = decision.batch(number, fences, fence=grace.fence)
                    if batch.notices:
                        matched.enter_context(grace.group(decision.version, grace.fence))
                # A retry has the same number, so that the batch is written only once.
                self.since = self._clock.now()
                result = await self._flow.settle(batch)
            except (StaleEndpoints, LostLeases, DatabaseBehind, Fenced) as error:
                matched.close()
                batch = None
                await self._outdated(error, fences)
            except Exception as error:  # noqa: BLE001 - bugs, too: keep the batch and log
                self.since = None
                self._failed(error, first=failures == 0)
                await self._pause(AGAIN_MS[min(failures, len(AGAIN_MS) - 1)])
                failures += 1
            else:
                self.commits += 1
                self._worked()
                self._apply(items, decision, batch, result)
                return

    async def _act_again(self, fence: int) -> None:
        """Read the catalog before outcomes are written: nobody waited for this process to do so."""
        try:
            await self._core.grace.act_again(fence)
        except HomingError as error:
            log.debug("this process cannot act again yet", error=str(error))
            await self._pause(AGAIN_MS[0])

    async def _set_gone(self, gone: Mapping[int, CompletedAttempt]) -> None:
        """Set subscriptions inactive whose receivers responded with 410."""
        for subscription_id, attempt in gone.items():
            subscription = self._core.catalog.get(subscription_id)
            if subscription is None:
                continue
            try:
                await self._set_one_gone(subscription, attempt)
            except (StaleCatalog, NotFound):  # A person has changed or deleted it: decide again.
                await self._core.catalog.refresh()

    async def _set_one_gone(self, before: Subscription, attempt: CompletedAttempt) -> None:
        core, now = self._core, self._clock.now()
        version = core.catalog.version
        endpoint = self._dispatcher.queues[attempt.endpoint_id].endpoint
        subscription = set_gone(before, now=now)
        notice = core.notices.gone(endpoint, subscription.id, now=now)
        for_people = core.people.gone(endpoint, subscription.id, now=now)
        try:
            with (
                acting(THE_RECEIVER, "subscriptions.gone"),
                core.grace.group(version, core.grace.fence),
            ):
                await core.admin.subscription_gone(
                    subscription,
                    cleanup_job_id=core.ids.take(now),
                    notices=(notice,),
                    for_people=for_people,
                    bucket=endpoint.bucket,
                    epoch=self._ownership.fence(endpoint.bucket),
                )
        except Unavailable:  # The change may have been written without a reply.
            self.on_gone()
            for delivery in notice.deliveries:
                self._dispatcher.check_store(delivery.endpoint_id)
            await core.catalog.refresh()
            raise
        # Before the catalog is read, which may fail: the change is written.
        self.on_accepted([Work(it, notice.event) for it in notice.deliveries], version)
        if for_people:
            self.on_people_notices()
        self.on_gone()
        self._ownership.notify_peers("catalog")
        await core.catalog.refresh()
        self._dispatcher.remove_subscription(subscription.id, endpoint.id)
        self._dispatcher.check_store(endpoint.id)
        self._log.warning(
            "a receiver responded with 410 and its subscription is inactive now: activate it once "
            "the URL works again",
            subscription=show_id("sub", subscription.id),
            url=subscription.url,
            tenant=subscription.tenant,
        )

    async def _outdated(
        self,
        error: StaleEndpoints | LostLeases | DatabaseBehind | Fenced,
        fences: Sequence[tuple[int, int]],
    ) -> None:
        """Note that the data on which a batch was decided has changed: it is decided again."""
        match error:
            case StaleEndpoints():
                self._stale = error.endpoint_ids
            case LostLeases():  # Outcomes of these buckets are dropped, the others written.
                self.on_lost(self._lost(error.buckets, fences))
            case DatabaseBehind():
                self.on_behind(error)
            case Fenced():
                await self._act_again(self._core.grace.fence)
        self._worked()  # The store works, even if nothing is left to settle.

    def _lost(self, buckets: frozenset[int], fences: Sequence[tuple[int, int]]) -> frozenset[int]:
        """The buckets that were lost, without those that were taken again during the call."""
        asked, epochs = dict(fences), self._ownership.epochs
        return frozenset(it for it in buckets if epochs[it] == asked.get(it))

    def _failed(self, error: Exception, *, first: bool) -> None:
        self.store_ok = False
        self._dispatcher.pause()
        if first:
            trace = not isinstance(error, HomingError)
            log.error(
                "outcomes cannot be written; no new attempt starts",
                error=str(error),
                exc_info=trace,
            )

    def _worked(self) -> None:
        if not self.store_ok:
            self.store_ok = True
            log.info("outcomes can be written again")
            self._dispatcher.resume()

    def _still_owned(self, items: list[Item]) -> list[Item]:
        """Drop outcomes of attempts under a lost lease: the new owner makes them again."""
        if not self._ownership.fenced:
            return items
        kept: list[Item] = []
        lost: list[Item] = []
        for item in items:
            (kept if self._dispatcher.owns(item) else lost).append(item)
        if lost:
            self.late += len(lost)
            self._dispatcher.settled(Settled(lost))
        return kept

    async def _with_endpoints(self, items: list[Item]) -> list[Item]:
        """Read endpoints that are not in memory; drop outcomes of those that were erased."""
        queues = self._dispatcher.queues
        unread = {it.endpoint_id for it in items if it.endpoint_id not in queues} | self._stale
        if not unread:
            return items
        starts = await self._flow.endpoints(sorted(unread))
        for start in starts:
            self._dispatcher.add_endpoint(start)
        self._stale = frozenset()
        gone = unread - {it.endpoint.id for it in starts}
        if gone:
            self._dispatcher.settled(Settled([it for it in items if it.endpoint_id in gone]))
            self._dispatcher.forget_endpoints(gone)
        return [it for it in items if it.endpoint_id not in gone]

    async def _decide(self, items: list[Item]) -> Decision:
        if self._ownership.fenced and any(type(item) is not CompletedAttempt for item in items):
            # An unknown subscription may have been created by another process just now.
            await self._core.catalog.refresh()
        queues = self._dispatcher.queues
        endpoints = {it.endpoint_id: queues[it.endpoint_id].endpoint for it in items}
        decision = Decision(endpoints, self._core)
        decision.take(items)
        return decision

    # --- after the commit --------------------------------------------------------------------

    def _apply(
        self, items: list[Item], decision: Decision, batch: SettleBatch, result: SettleResult
    ) -> None:
        """Bring the queues up to date with the commit."""
        gone = result.gone
        left = gone | result.superseded if result.superseded else gone
        pending = [row for row in batch.waiting if row.id not in left]
        self._dispatcher.settled(Settled(items, batch.endpoints, decision.enabled, pending))
        for new in batch.notices:
            self.on_accepted([Work(it, new.event) for it in new.deliveries], decision.version)
        if batch.for_people:
            self.on_people_notices()
        for delivery in result.unblocked:
            self._dispatcher.left_in_store(delivery)
        if result.superseded:
            self.finished["superseded"] += len(result.superseded)
        if not result.known:
            keyed = [it.delivery for it in batch.finished if it.delivery.order_key]
            self.find_unblocked({it.subscription_id for it in keyed})
        self._count(batch, gone)
        attempts = [it for it in items if type(it) is CompletedAttempt]
        if self._core.tracing is not None:
            self._core.tracing.attempted(attempts)
        self._report(attempts, batch)

    def find_unblocked(self, subscription_ids: Iterable[int]) -> None:
        """Search these subscriptions: a call without a reply may have unblocked deliveries."""
        for subscription_id in subscription_ids:
            subscription = self._core.catalog.get(subscription_id)
            if subscription is not None and subscription.endpoint_id:
                bucket = self._core.fan_out.bucket(subscription)
                if self._ownership.mine[bucket]:
                    self._dispatcher.check_store(subscription.endpoint_id)
                else:
                    self._ownership.notify_owner(bucket, subscription.endpoint_id)

    def _trace_id(self, event: Event) -> str:
        tracing = self._core.tracing
        return trace_id_of(event, share=0.0 if tracing is None else tracing.share)

    def _count(self, batch: SettleBatch, gone: frozenset[int]) -> None:
        self.finished.update([it.status for it in batch.finished if it.delivery.id not in gone])
        self.attempts.update(
            [
                (
                    it.lane,
                    it.outcome,
                    "" if it.outcome is _DELIVERED else class_of(it.failure, it.code),
                )
                for it in batch.attempts
            ]
        )
        self.attempt_latency.add([it.phases.total_us for it in batch.attempts])
        self.delivery_latency.add(
            [
                took if (took := it.finished_at - it.delivery.accepted_at) > 0 else 0
                for it in batch.finished
                if it.status is _ARRIVED and it.delivery.id not in gone
            ]
        )
        attempts: Sequence[Attempt] = batch.attempts
        if gone:  # Cancelled, or erased: then nothing of the response is kept, not even here.
            attempts = [_bare(it) if it.delivery_id in gone else it for it in attempts]
        self.recent.add(attempts)

    def _report(self, attempts: list[CompletedAttempt], batch: SettleBatch) -> None:
        """Log the outcomes of the commit."""
        for it, attempt in zip(attempts, batch.attempts, strict=True) if self._logs else ():
            if attempt.outcome is not _DELIVERED:
                self._log.info("attempt", **_logged(attempt, self._trace_id(it.work.event)))
            elif self._logs_all:
                self._log.debug("attempt", **_logged(attempt, self._trace_id(it.work.event)))
        for endpoint in batch.endpoints if batch.guarded else ():
            if endpoint.id in batch.guarded and endpoint.guard_refused_at:
                self._log.warning(
                    "changed settings refuse an endpoint and its deliveries wait: compare allow_* "
                    "and deny_ports with those before the last start",
                    endpoint=show_id("ep", endpoint.id),
                    url=endpoint.url,
                    tenant=endpoint.tenant,
                )
        for change in batch.transitions:
            self._log.warning(
                "endpoint changed",
                endpoint=show_id("ep", change.endpoint_id),
                before=change.before.value,
                after=change.after.value,
                rule=change.rule,
                **change.numbers,
            )


def _bare(attempt: Attempt) -> Attempt:
    return replace(attempt, request_headers=b"", response_headers=b"", excerpt=b"", detail="")


def _logged(attempt: Attempt, trace_id: str) -> dict[str, Any]:
    """One line with everything that was decided: one grep finds the history of a delivery."""
    line = {
        "delivery": show_id("dlv", attempt.delivery_id),
        "number": attempt.number,
        "endpoint": show_id("ep", attempt.endpoint_id),
        "lane": attempt.lane.value,
        "outcome": attempt.outcome.value,
        "code": attempt.code,
        "failure": attempt.failure,
        "ms": attempt.phases.total_us // 1000,
        "decided": attempt.decided.value,
        "retry": attempt.retry,
        "due_at": attempt.due_at,
    }
    return line if not trace_id else {**line, "trace_id": trace_id}


def _bucket_of(item: Item) -> int:
    match item:
        case CompletedAttempt():
            return item.work.delivery.bucket
        case Terminated() | Misrouted() | Deferred():
            return item.delivery.bucket
        case Report():
            return item.bucket
