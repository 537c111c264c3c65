"""Publishing: match, write the event with all its deliveries in one commit, respond, dispatch.

Group commit without a window: a commit starts as soon as none is running, and what arrives while
one runs goes into the next. That one is handed to the store beside the first once it is as large:
the store, which writes and confirms them in the order they were staged in, need not wait for us in
between. One caller's conflict never fails the others.

A publish that takes long to match is matched first (``engine/matching``) and then joins a commit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

import structlog
from msgspec import Struct

from homing.engine.core import Core
from homing.engine.matching import Matcher, Matching
from homing.errors import (
    EventConflict,
    FieldProblem,
    HomingError,
    ShuttingDown,
    StaleCatalog,
    StoreUnavailable,
    TooLarge,
    Unavailable,
)
from homing.model import Work
from homing.policy.admission import EventDraft
from homing.policy.filters_reading import OutOfSteps
from homing.policy.wants import AT_ONCE_STEPS
from homing.ports import NewEvent, Receipt, Refusal

log = structlog.get_logger("homing.publish")

COMMITS_MAX = 2  # at the store at once
TURN_ROWS = 2_000  # events and deliveries that are made in one turn of the loop
TURNS_TRIED = 3  # so often a publish is made in several turns before it is made in one
SILENT_MS = 5_000  # a commit that is not confirmed for so long: the store is not healthy

_SILENT = "The store has not responded for five seconds."

PublishResult = list[Receipt] | HomingError  # a receipt for each event, or the refusal of all


class _Waiting(Struct, eq=False):
    """One call of ``publish``: its distinct events, and for each draft which of them it is."""

    drafts: list[EventDraft]
    index: list[int]
    on_result: Callable[[PublishResult], None]
    matching: Matching | None = None  # where it took long
    tried: int = 0  # times that it was made ready, and its subscriptions changed meanwhile


class Publisher:
    """The group commit of publishing."""

    def __init__(self, core: Core) -> None:
        self._flow, self._clock, self._catalog = core.flow, core.clock, core.catalog
        self._ids, self._fan_out, self._options = core.ids, core.fan_out, core.options
        self._waiting: deque[_Waiting] = deque()
        self._commits: dict[asyncio.Task[None], int] = {}  # under way, in their order; since when
        self._gathering: asyncio.Task[None] | None = None  # what waits may still join this commit
        self._matcher = Matcher(core.catalog, core.clock)
        self._staging = asyncio.Lock()  # Ids are taken in the order in which the store is asked.
        self._last_group = 0
        self._silent = False  # the store does not respond: publishers must not wait for it
        self._timer: asyncio.TimerHandle | None = None
        self.closed = False
        self.commits = 0
        self.published = 0
        self.accepted = 0
        self.on_accepted: Callable[[list[Work]], None]
        self.on_commit: Callable[[bool], None]
        self.on_doubt: Callable[[int], None]

    async def publish(self, drafts: Sequence[EventDraft]) -> list[Receipt]:
        """Accept all or none; when it returns, all of it is on disk."""
        receipts: asyncio.Future[list[Receipt]] = asyncio.get_running_loop().create_future()

        def on_result(result: PublishResult) -> None:
            if receipts.done():
                return  # The caller has stopped waiting.
            if isinstance(result, HomingError):
                receipts.set_exception(result)
            else:
                receipts.set_result(result)

        self.publish_then(drafts, on_result)
        return await receipts

    def accepting(self) -> bool:
        """Whether something is being written, or waits to be."""
        return bool(self._commits)

    @property
    def since(self) -> int | None:
        """When the oldest commit that is under way began."""
        return next(iter(self._commits.values()), None)

    def publish_then(
        self, drafts: Sequence[EventDraft], on_result: Callable[[PublishResult], None]
    ) -> None:
        """Accept all or none; ``on_result`` is called once all of it is on disk, or refused."""
        if self.closed:
            raise ShuttingDown
        if self._silent:
            raise StoreUnavailable(_SILENT)
        distinct, index = self._distinct(drafts)
        self._waiting.append(_Waiting(distinct, index, on_result))
        self._go_on()

    def _go_on(self) -> None:
        """Begin a commit, unless what waits may grow while others are written."""
        if self._gathering is not None or not self._waiting:
            return
        if not self._commits or (
            len(self._commits) < COMMITS_MAX and len(self._waiting) >= self._last_group
        ):
            task = self._gathering = asyncio.get_running_loop().create_task(self._commit_next())
            self._commits[task] = self._clock.now()
            self._watch()

    def _watch(self) -> None:
        """Check again when the oldest commit should have been confirmed."""
        since = self.since
        if since is not None and self._timer is None:
            wait_ms = max(since + SILENT_MS - self._clock.now(), 0)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(wait_ms / 1000, self._check_silence)

    def _check_silence(self) -> None:
        """Refuse publishes that wait behind a commit without a reply; nothing of them is stored."""
        self._timer, since = None, self.since
        if since is None or self._clock.now() < since + SILENT_MS:
            self._watch()
            return
        self._silent = True  # Until that commit ends.
        while self._waiting:
            _fail(self._waiting.popleft(), StoreUnavailable(_SILENT))

    def _distinct(self, drafts: Sequence[EventDraft]) -> tuple[list[EventDraft], list[int]]:
        """The same id twice in one batch: equal is one event, else a conflict that names both."""
        if len(drafts) == 1:
            return list(drafts), [0]
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
            if not task.cancelling():  # Else all of it ends.
                self._go_on()
                self._watch()

    def _gathered(self) -> None:
        """The next may gather: the store is being asked for this commit, or there is none."""
        if self._gathering is asyncio.current_task():
            self._gathering = None

    def _take(self) -> list[_Waiting]:
        """The next to be written: no more of those that wait than the mean of them and the last.

        Publishers come back when they have their response. So they come in two groups that grow
        equal, and while one group is written, the deliveries of the other are sent.
        """
        limit = (self._last_group + len(self._waiting) + 1) // 2
        group: list[_Waiting] = []
        events = 0
        while self._waiting and (
            not group
            or (
                len(group) < limit
                and events + len(self._waiting[0].drafts) <= self._options.publish_events_max
            )
        ):
            group.append(self._waiting.popleft())
            events += len(group[-1].drafts)
        self._last_group = len(group)
        return group

    async def _commit(self, group: list[_Waiting]) -> None:
        try:
            group, staged, results = await self._write(group)
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
            return  # All of them were refused, or are matched first.
        self.on_commit(True)
        self.commits += 1
        works: list[Work] = []
        for waiting, events, result in zip(group, staged, results, strict=True):
            if isinstance(result, Refusal):
                _fail(waiting, _conflict(waiting, result))
                continue
            for new, receipt in zip(events, result, strict=True):
                if receipt.new:
                    self.published += 1
                    self.accepted += receipt.deliveries
                    works.extend(Work(delivery, new.event) for delivery in new.deliveries)
            _report(waiting, _one_each(result, waiting.index))
        self.on_accepted(works)

    async def _write(
        self, group: list[_Waiting]
    ) -> tuple[list[_Waiting], list[list[NewEvent]], list[list[Receipt] | Refusal]]:
        while True:
            async with self._staging:
                now, staged = await self._make(group)
            # No turn of the loop from here to the store: all of it is of the catalog's version.
            self._gathered()
            if not group:
                return [], [], []
            try:
                results = await self._flow.publish(
                    staged, catalog_version=self._catalog.version, number=self._ids.take(now)
                )
            except StaleCatalog:
                await self._catalog.refresh()
                continue
            except Unavailable:
                self._doubt(staged)
                raise
            return group, staged, results

    async def _make(self, group: list[_Waiting]) -> tuple[int, list[list[NewEvent]]]:
        """The rows of each publish, as of now; those that are not ready leave the group.

        Much of it takes several turns of the loop. A publish whose subscriptions change meanwhile
        goes into the next group.
        """
        now, wall, catalog = self._clock.now(), self._clock.wall(), self._catalog
        staged: list[list[NewEvent]] = []
        versions: list[int] = []
        rows, sliced, limit = 0, False, self._options.request_deliveries_max
        for waiting in tuple(group):
            versions.append(catalog.version)
            events: list[NewEvent] = []
            try:
                if waiting.matching is not None or len(waiting.drafts) > 1:
                    self._check_matched(waiting)
                count = 0
                for place, draft in enumerate(waiting.drafts):
                    if rows > TURN_ROWS and waiting.tried < TURNS_TRIED:
                        await asyncio.sleep(0)
                        rows, sliced = 0, True
                    matching = waiting.matching
                    matches = None if matching is None else matching.found(place, now=now)
                    event = self._fan_out.event(draft, now=now, wall=wall, matches=matches)
                    events.append(event)
                    count += len(event.deliveries)
                    rows += 1 + len(event.deliveries)
                    if catalog.filters:
                        rows += catalog.steps(draft)
                    if count > limit:
                        break  # It is refused: the rest need not be made.
            except OutOfSteps:
                self._leave(group, versions, waiting)
                self._match(waiting)
                continue
            if count > limit:
                detail = f"It would make more than {limit:,} deliveries, which is the limit."
                self._leave(group, versions, waiting)
                _fail(waiting, TooLarge(detail))
                continue
            staged.append(events)
        if sliced:
            self._put_back(group, staged, versions)
        return now, staged

    def _leave(self, group: list[_Waiting], versions: list[int], waiting: _Waiting) -> None:
        group.remove(waiting)
        versions.pop()

    def _put_back(
        self, group: list[_Waiting], staged: list[list[NewEvent]], versions: list[int]
    ) -> None:
        """Those whose subscriptions have changed since are made again, with the next group."""
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
            self._waiting.appendleft(waiting)

    def _check_matched(self, waiting: _Waiting) -> None:
        """Raises OutOfSteps if it is to be matched first, or again."""
        catalog, matching = self._catalog, waiting.matching
        if matching is not None:
            if not matching.is_current(catalog):
                raise OutOfSteps
        elif len(waiting.drafts) > 1 and sum(map(catalog.steps, waiting.drafts)) > AT_ONCE_STEPS:
            raise OutOfSteps

    def _match(self, waiting: _Waiting) -> None:
        """Match it by turns; it waits for a commit after that."""

        def done(told: Matching | HomingError) -> None:
            if isinstance(told, HomingError):
                _fail(waiting, told)
            elif self._silent:
                _fail(waiting, StoreUnavailable(_SILENT))
            else:
                waiting.matching = told
                self._waiting.append(waiting)
                self._go_on()

        matching = waiting.matching
        if matching is None:
            matching = Matching(waiting.drafts, done, [None] * len(waiting.drafts))
        self._matcher.add(matching)

    def _doubt(self, staged: list[list[NewEvent]]) -> None:
        """It may have been written all the same: the store is searched for its deliveries."""
        found = (it.endpoint_id for request in staged for new in request for it in new.deliveries)
        for endpoint_id in dict.fromkeys(found):
            self.on_doubt(endpoint_id)

    async def drain(self) -> None:
        """Refuse new calls and those that are being matched; finish those that are waiting."""
        self.closed = True
        self._matcher.stop()
        while self._commits:
            await asyncio.wait(self._commits)
            self._matcher.stop()


def _same(one: EventDraft, other: EventDraft) -> bool:
    """What their content hash would tell."""
    return (one.type, one.time or "", one.data) == (other.type, other.time or "", other.data)


def _fail(waiting: _Waiting, error: HomingError) -> None:
    _report(waiting, error)


def _report(waiting: _Waiting, result: PublishResult) -> None:
    try:
        waiting.on_result(result)
    except Exception:
        log.exception("the result of a publish could not be reported to its publisher")


def _one_each(receipts: list[Receipt], index: list[int]) -> list[Receipt]:
    """A receipt for each draft of a call; an id that came twice in it is new only once."""
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
            f"{waiting.drafts[place].key} is the id of an event with another content",
        )
        for place in refusal.conflicts
    )
    return EventConflict(problems=problems)
