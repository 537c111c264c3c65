"""Publishing: match events, write them with all their deliveries in one commit, notify the caller.

Group commit without a timer: a commit starts as soon as none is running, and publishes that arrive
while one runs go into the next. The next commit is given to the store while the first one runs, as
soon as it is as large as the first: the store writes them in the order of the calls and does not
idle in between. A conflict of one caller never fails the other callers of the same commit. Tenants
take turns (``engine/publish_queue``).

A publish that takes long to match is matched first (``engine/matching``) and then joins a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from typing import cast

import structlog
from msgspec import Struct

from homing.engine.core import Core
from homing.engine.latency import SHORT_S, Histogram
from homing.engine.matching import Matcher, Matching
from homing.engine.publish_queue import PublishQueue
from homing.errors import (
    DatabaseBehind,
    EventConflict,
    Fenced,
    FieldProblem,
    HomingError,
    ShuttingDown,
    StoreUnavailable,
    TooLarge,
    Unavailable,
)
from homing.languages.sentences import say
from homing.model import Delivery, Work
from homing.policy.admission import EventDraft
from homing.policy.filters_reading import OutOfSteps
from homing.policy.wants import AT_ONCE_STEPS
from homing.ports import NewEvent, Published, Receipt, Refusal

log = structlog.get_logger("homing.publish")

COMMITS_MAX = 2  # that the store has at the same time
TURN_ROWS = 2_000  # events and deliveries that are made in one turn of the loop
TURNS_TRIED = 3  # tries to make a publish in several turns before it is made in one turn
SILENT_MS = 5_000  # without a reply to a commit: the store is not available

_SILENT = say("The store has not responded for five seconds.")

PublishResult = list[Receipt] | HomingError  # a receipt for each event, or the refusal of all


class _Waiting(Struct, eq=False):
    """One call of ``publish``: its distinct events, and the index of the event of each draft."""

    tenant: str  # of its first event: its turns and its share are that tenant's
    drafts: list[EventDraft]
    index: list[int]
    on_result: Callable[[PublishResult], None]
    matching: Matching | None = None  # if it was matched first
    tried: int = 0  # times that its subscriptions changed while its rows were being made
    since: int = 0  # when it was called


class Publisher:
    """The group commit of publishing."""

    def __init__(self, core: Core) -> None:
        self._flow, self._clock, self._catalog = core.flow, core.clock, core.catalog
        self._ids, self._fan_out, self._options = core.ids, core.fan_out, core.options
        self._tracing, self._grace = core.tracing, core.grace
        self._waiting = PublishQueue[_Waiting](core.options.publish_events_max)
        self._commits: dict[asyncio.Task[None], int] = {}  # running, oldest first: since when
        self._gathering: asyncio.Task[None] | None = None  # the commit that takes waiting publishes
        self._payload_fields = core.options.payload_fields
        self._reads_data = bool(self._payload_fields) or core.options.is_fair
        # About how many steps it takes to match an event, and to read its payload fields and group.
        self._steps = self._steps_with_data if self._reads_data else core.catalog.steps
        self._matcher = Matcher(core.catalog, core.clock, self._payload_fields)
        self._staging = asyncio.Lock()  # Ids are taken in the order of the calls to the store.
        self._last_group = 0
        self._silent = False  # the store does not reply: publishes are refused at once
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False
        self.commits = 0
        self.published = 0
        self.accepted = 0
        self.superseded = 0
        self.publish_latency = Histogram(SHORT_S, per_second=1_000)
        # With the version of the catalog, and their position in the order of acceptance.
        self.on_accepted: Callable[[list[Work], int, int], None]
        self.on_pulled: Callable[[set[int]], None]
        self.on_ordered: Callable[[list[Delivery], list[Delivery]], None]  # some wait for others
        self.on_commit: Callable[[bool], None]
        self.on_unconfirmed: Callable[[int], None]
        self.on_behind: Callable[[DatabaseBehind], None] = lambda _: None  # commits were lost
        self.check_losses: Callable[[], None] = lambda: None  # raises CommitsLost

    async def publish(self, drafts: Sequence[EventDraft]) -> list[Receipt]:
        """Accept all events or none; when it returns, all of them are on disk."""
        receipts: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()

        def set_result(result: PublishResult) -> None:
            if receipts.done():
                return  # The caller was cancelled.
            if isinstance(result, HomingError):
                receipts.set_exception(result)
            else:
                receipts.set_result(result)

        self.publish_then(drafts, set_result)
        return await receipts

    def accepting(self) -> bool:
        """Whether publishes are being written, or wait to be written."""
        return bool(self._commits)

    @property
    def since(self) -> int | None:
        """When the oldest running commit began; None if none is running."""
        return next(iter(self._commits.values()), None)

    def publish_then(
        self, drafts: Sequence[EventDraft], on_result: Callable[[PublishResult], None]
    ) -> None:
        """Accept all events or none; ``on_result`` is called when all are on disk, or refused.

        Raises ShuttingDown, StoreUnavailable, TooMany, TenantMoving, TenantMoved and EventConflict.
        """
        if self.closed:
            raise ShuttingDown
        if self._silent:
            raise StoreUnavailable(_SILENT)
        self.check_losses()
        self._catalog.check_moves(drafts)
        now, tenant = self._clock.now(), drafts[0].tenant if drafts else ""
        self._waiting.check(tenant, now)
        distinct, index = self._distinct(drafts)
        self._waiting.append(_Waiting(tenant, distinct, index, on_result, since=now))
        self._go_on()

    def _go_on(self) -> None:
        """Start a commit, unless the group that waits should grow while others are written."""
        if self._gathering is not None or not self._waiting:
            return
        if not self._commits or (
            len(self._commits) < COMMITS_MAX and len(self._waiting) >= self._last_group
        ):
            task = self._gathering = asyncio.get_running_loop().create_task(self._commit_next())
            self._commits[task] = self._clock.now()
            self._watch()

    def _watch(self) -> None:
        """Set the timer for the moment at which the reply to the oldest commit is overdue."""
        since = self.since
        if since is not None and self._timer is None:
            wait_ms = max(since + SILENT_MS - self._clock.now(), 0)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._check_silence)

    def _check_silence(self) -> None:
        """Refuse publishes that wait behind a commit without a reply; none of them is stored."""
        self._timer, since = None, self.since
        if since is None or self._clock.now() < since + SILENT_MS:
            self._watch()
            return
        self._silent = True  # Until that commit ends.
        while self._waiting:
            _fail(self._waiting.take(), StoreUnavailable(_SILENT))

    def _distinct(self, drafts: Sequence[EventDraft]) -> tuple[list[EventDraft], list[int]]:
        """The events without repeated ids, and the index of the event of each draft.

        Raises EventConflict, naming both drafts, where one id has two contents.
        """
        if len(drafts) == 1 or _have_distinct_ids(drafts):
            return list(drafts), list(range(len(drafts)))
        distinct: list[EventDraft] = []
        index: list[int] = []
        seen: dict[tuple[str, str], tuple[int, int]] = {}
        problems: list[FieldProblem] = []
        for number, draft in enumerate(drafts):
            place = len(distinct)
            if draft.key is not None:
                first, place = seen.setdefault((draft.tenant, draft.key), (number, place))
                if first != number:
                    if not _same(draft, distinct[place]):
                        reason = f"has the same id as events[{first}] but another content"
                        problems.append(FieldProblem(f"events[{number}].id", reason))
                    index.append(place)
                    continue
            distinct.append(draft)
            index.append(place)
        if problems:
            raise EventConflict(problems=tuple(problems))
        return distinct, index

    async def _commit_next(self) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            await self._commit(self._take())
        finally:
            self._gathered()
            del self._commits[task]
            self._silent = False
            if not task.cancelling():  # Otherwise the process stops.
                self._go_on()
                self._watch()

    def _gathered(self) -> None:
        """Let the next commit take waiting publishes: this one was given to the store, or ended."""
        if self._gathering is asyncio.current_task():
            self._gathering = None

    def _take(self) -> list[_Waiting]:
        """Take the next commit's publishes: at most the mean of the last group and all that wait.

        Publishers publish again when they have their receipts. With this limit they fall into two
        groups of equal size: while one group is written, the deliveries of the other are sent.
        """
        limit = (self._last_group + len(self._waiting) + 1) // 2
        group: list[_Waiting] = []
        events = 0
        while self._waiting and (
            not group
            or (
                len(group) < limit
                and events + self._waiting.next_events() <= self._options.publish_events_max
            )
        ):
            group.append(self._waiting.take())
            events += len(group[-1].drafts)
        self._last_group = len(group)
        return group

    async def _commit(self, group: list[_Waiting]) -> None:
        began = self._clock.now()
        try:
            group, staged, published, version = await self._write(group)
        except HomingError as error:
            self.on_commit(False)
            for waiting in group:
                _fail(waiting, error)
            return
        except Exception:
            log.exception("a publish failed")
            for waiting in group:
                _fail(waiting, HomingError())
            return
        if not group:
            return  # All publishes were refused, or must be matched first.
        self.on_commit(True)
        self.commits += 1
        works: list[Work] = []
        now = self._clock.now()
        self.publish_latency.add([now - it.since for it in group])
        results = published.results
        for waiting, events, result in zip(group, staged, results, strict=True):
            if isinstance(result, Refusal):
                _fail(waiting, _conflict(waiting, result))
                continue
            new = [it for it, receipt in zip(events, result, strict=True) if receipt.new]
            self.published += len(new)
            for it in new:
                self.accepted += len(it.deliveries)
                works += [Work(delivery, it.event) for delivery in it.deliveries]
            self._wake_readers(new)
            if self._tracing is not None:
                self._tracing.published(new, called_at=waiting.since, commit_at=began, now=now)
            _report(waiting, _one_each(result, waiting.index))
        works = self._without_blocked(works, results)
        self.on_accepted(works, version, published.position)

    def _wake_readers(self, events: list[NewEvent]) -> None:
        if self._catalog.pulled:
            self.on_pulled({subscription for it in events for subscription in it.pulled})

    def _without_blocked(
        self, works: list[Work], results: list[list[Receipt] | Refusal]
    ) -> list[Work]:
        """Leave to the store the deliveries that wait for others of their key."""
        if not any(work.delivery.order_key for work in works):
            return works
        receipts = list(chain.from_iterable(it for it in results if isinstance(it, list)))
        blocked = {id_ for receipt in receipts for id_ in receipt.blocked}
        free = [it for it in works if it.delivery.id not in blocked]
        self.on_ordered(
            [it.delivery for it in free if it.delivery.order_key],
            [it.delivery for it in works if it.delivery.id in blocked],
        )
        self.superseded += sum(it.superseded for it in receipts)
        return free

    async def _write(
        self, group: list[_Waiting]
    ) -> tuple[list[_Waiting], list[list[NewEvent]], Published, int]:
        """Write a group; the last value is the version of the catalog that it was made with."""
        while True:
            async with self._staging:
                now, staged = await self._make(group)
            self._refuse_moved(group, staged)
            # No await from here to the call of the store: all rows are of the catalog's version.
            self._gathered()
            if not group:
                return [], [], Published([]), 0
            version, fence = self._catalog.version, self._grace.fence
            try:
                with self._grace.group(version, fence):
                    published = await self._flow.publish(
                        staged, number=self._ids.take(now), fence=fence
                    )
            except Fenced:
                await self._grace.act_again(fence)
                continue
            except DatabaseBehind as error:
                self.on_behind(error)
                raise
            except Unavailable:
                self._recheck_endpoints(staged)
                raise
            return group, staged, published, version

    async def _make(self, group: list[_Waiting]) -> tuple[int, list[list[NewEvent]]]:
        """The rows of each publish, as of now; one that must be matched first leaves the group.

        Many rows are made in several turns of the loop. A publish whose subscriptions change
        meanwhile goes into the next group.
        """
        now, wall, catalog = self._clock.now(), self._clock.wall(), self._catalog
        staged: list[list[NewEvent]] = []
        versions: list[int] = []
        rows, sliced, limit = 0, False, self._options.request_deliveries_max
        reads_data = catalog.filters or self._reads_data
        for waiting in tuple(group):
            versions.append(catalog.version)
            events: list[NewEvent] = []
            try:
                if waiting.matching is not None or (reads_data and len(waiting.drafts) > 1):
                    self._check_matched(waiting)
                count = 0
                for place, draft in enumerate(waiting.drafts):
                    if rows > TURN_ROWS and waiting.tried < TURNS_TRIED:
                        await asyncio.sleep(0)
                        rows, sliced = 0, True
                    matching = waiting.matching
                    matches = None if matching is None else matching.found(place, now=now)
                    fields = None if matching is None else matching.fields[place]
                    event = self._fan_out.event(
                        draft, now=now, wall=wall, matches=matches, fields=fields
                    )
                    events.append(event)
                    count += len(event.deliveries)
                    rows += 1 + len(event.deliveries)
                    if reads_data:
                        rows += self._steps(draft)
                    if count > limit:
                        break  # The publish is refused: its other rows are not needed.
            except OutOfSteps:
                self._leave(group, versions, waiting)
                self._match(waiting)
                continue
            if count > limit:
                detail = say(
                    "It would make more than {limit} deliveries, which is the limit.", limit=limit
                )
                self._leave(group, versions, waiting)
                _fail(waiting, TooLarge(detail))
                continue
            staged.append(events)
        sliced = await self._waited_for_ids() or sliced
        if sliced:
            self._put_back(group, staged, versions)
        return now, staged

    async def _waited_for_ids(self) -> bool:
        """Let no id be stored before its time; returns whether that took a while."""
        ahead_ms = self._ids.ahead_ms(self._clock.now())
        if ahead_ms:
            await asyncio.sleep(ahead_ms / 1000)
        return ahead_ms > 0

    def _refuse_moved(self, group: list[_Waiting], staged: list[list[NewEvent]]) -> None:
        """Refuse publishes of tenants that have begun to move to another installation."""
        for place in reversed(range(len(group) if self._catalog.moves else 0)):
            try:
                self._catalog.check_moves(group[place].drafts)
            except Unavailable as error:
                _fail(group.pop(place), error)
                del staged[place]

    def _leave(self, group: list[_Waiting], versions: list[int], waiting: _Waiting) -> None:
        group.remove(waiting)
        versions.pop()

    def _put_back(
        self, group: list[_Waiting], staged: list[list[NewEvent]], versions: list[int]
    ) -> None:
        """Move publishes whose subscriptions have changed since to the front of the next group."""
        changed = self._catalog.changed
        back = [
            place
            for place, (waiting, version) in enumerate(zip(group, versions, strict=True))
            if any(changed(tenant) > version for tenant in {it.tenant for it in waiting.drafts})
        ]
        for place in reversed(back):
            waiting = group.pop(place)
            del staged[place]
            waiting.tried += 1
            self._waiting.put_back(waiting)

    def _check_matched(self, waiting: _Waiting) -> None:
        """Raises OutOfSteps if the publish must be matched first, or again."""
        catalog, matching = self._catalog, waiting.matching
        if matching is not None:
            if not matching.is_current(catalog):
                raise OutOfSteps
        elif len(waiting.drafts) > 1 and sum(map(self._steps, waiting.drafts)) > AT_ONCE_STEPS:
            raise OutOfSteps

    def _steps_with_data(self, draft: EventDraft) -> int:
        steps = self._catalog.steps(draft) + self._payload_fields.steps(draft.data)
        return steps + self._options.fair_by_of(draft.tenant).steps(draft.data)

    def _match(self, waiting: _Waiting) -> None:
        """Match a publish in slices; after that it waits for a commit."""

        def done(result: Matching | HomingError) -> None:
            if isinstance(result, HomingError):
                _fail(waiting, result)
            elif self._silent:
                _fail(waiting, StoreUnavailable(_SILENT))
            else:
                waiting.matching = result
                self._waiting.append(waiting)
                self._go_on()

        matching = waiting.matching
        if matching is None:
            count = len(waiting.drafts)
            matching = Matching(waiting.drafts, done, [None] * count, [None] * count)
        self._matcher.add(matching)

    def _recheck_endpoints(self, staged: list[list[NewEvent]]) -> None:
        """Search the store for these deliveries: a commit without a reply may have been made."""
        found = (it.endpoint_id for request in staged for new in request for it in new.deliveries)
        for endpoint_id in dict.fromkeys(found):
            self.on_unconfirmed(endpoint_id)

    async def drain(self) -> None:
        """Refuse new publishes and those that are being matched; finish those that wait."""
        self.closed = True
        self._matcher.stop()
        while self._commits:
            await asyncio.wait(self._commits)
            self._matcher.stop()


def _have_distinct_ids(drafts: Sequence[EventDraft]) -> bool:
    ids = [(draft.tenant, draft.key) for draft in drafts if draft.key is not None]
    return len(set(ids)) == len(ids)


def _same(one: EventDraft, other: EventDraft) -> bool:
    """Whether two drafts have the same content: type, time, data, context and key."""
    return _content(one) == _content(other)


def _content(draft: EventDraft) -> tuple[str, str, bytes, str, str]:
    return draft.type, draft.time or "", draft.data, draft.context, draft.order_key or ""


def _fail(waiting: _Waiting, error: HomingError) -> None:
    _report(waiting, error)


def _report(waiting: _Waiting, result: PublishResult) -> None:
    try:
        waiting.on_result(result)
    except Exception:
        log.exception("the result of a publish could not be given to its caller")


def _one_each(receipts: list[Receipt], index: list[int]) -> list[Receipt]:
    """A receipt for each draft of a call; of drafts with one id only the first is new."""
    if len(index) == len(receipts):
        return receipts
    seen: set[int] = set()
    each: list[Receipt] = []
    for place in index:
        receipt = receipts[place]
        each.append(Receipt(receipt.key, receipt.deliveries, receipt.new and place not in seen))
        seen.add(place)
    return each


def _conflict(waiting: _Waiting, refusal: Refusal) -> EventConflict:
    problems = tuple(
        FieldProblem(
            f"events[{waiting.index.index(place)}].id",
            say(
                "{id} is the id of an event with another content",
                id=waiting.drafts[place].key or "",
            ),
        )
        for place in refusal.conflicts
    )
    return EventConflict(problems=problems)
