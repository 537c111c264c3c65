"""The audit log: who changed what and when; list, export and verify it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from homing.app.access import ADMINS, READERS, Caller, use_case
from homing.app.counted_calls import CountedCalls
from homing.app.exports import ROWS_MAX, OpenExports
from homing.engine.audit import ENTRIES_READ, check_segment, forged_among
from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import say
from homing.model import read_id, show_id
from homing.policy.audit import (
    AuditEntry,
    Head,
    Segment,
    Who,
    is_signed,
)
from homing.ports.audit import AuditFilter, AuditStore

EXPORT_MAX = ROWS_MAX  # entries of one export
EXPORT_PAGE = 200
SEGMENTS_AT_ONCE = 10  # of one call that verifies
NAMED_MAX = 10  # entries that a problem names
TEXT_CHARS_MAX = 200
OPERATOR = Who("the operator")


class AuditLog(Struct, frozen=True):
    """The parts of the log that the use cases need."""

    store: AuditStore
    views: AuditStore  # the same log, for reads that must not delay a commit
    key: bytes
    take_id: Callable[[], tuple[int, int]]  # a new id, and the present time

    def __repr__(self) -> str:
        return "AuditLog(****)"


class SegmentCheck(Struct, frozen=True):
    """A segment and the problems that were found in it."""

    number: int
    entries: int
    first_at: int
    last_at: int
    hash: bytes
    problems: tuple[str, ...]


class Verified(Struct, frozen=True):
    """A few segments, in order; ``after`` is the number to go on after, None at the end."""

    segments: list[SegmentCheck]
    problems: tuple[str, ...]  # of the log as a whole
    after: int | None
    removed: int  # segments that retention has removed
    removed_entries: int


class Audit:
    """The entries of all tenants."""

    def __init__(self, log: AuditLog, now: Callable[[], int]) -> None:
        self._views, self._key = log.views, log.key
        self.counted = CountedCalls(log.store, log.key, log.take_id)
        self._exports = OpenExports(now)

    @use_case(READERS)
    async def page(
        self, caller: Caller, conditions: AuditFilter, *, before_id: int | None, limit: int
    ) -> tuple[list[AuditEntry], int | None]:
        """A page, newest first, and the next ``before_id``; raises Invalid."""
        conditions = _scoped(caller, conditions)
        found, after = await self._views.entries(conditions, before_id=before_id, limit=limit)
        return [_shown_to(caller, it) for it in found], after

    @use_case(READERS)
    async def export(
        self, caller: Caller, conditions: AuditFilter
    ) -> AsyncIterator[list[AuditEntry]]:
        """Pages of at most ``EXPORT_MAX`` entries, newest first; raises Invalid or TooMany."""
        conditions = _scoped(caller, conditions)

        async def page(before_id: int | None) -> tuple[list[AuditEntry], int | None]:
            found, after = await self._views.entries(
                conditions, before_id=before_id, limit=EXPORT_PAGE
            )
            return [_shown_to(caller, it) for it in found], after

        return await self._exports.begin(caller.tenant, page)

    # --- verify ------------------------------------------------------------------------------

    @use_case(ADMINS)
    async def verify(self, _caller: Caller, *, after: int | None) -> Verified:
        """Verifies a few segments after this number; the first call also checks the whole log."""
        head = await self._views.head()
        if head is None:
            return Verified([], ("The head of the log was removed.",), None, 0, 0)
        last, previous = head.removed, head.removed_hash
        problems: list[str] = []
        if after is None:
            problems += await self._check_whole(head)
        elif after > head.removed:
            found = await self._views.segments(after=after - 1, limit=1)
            last, previous = after, found[0].hash if found else b""
        read = await self._views.segments(after=last, limit=SEGMENTS_AT_ONCE)
        checked: list[SegmentCheck] = []
        for segment in read:
            if segment.number > head.last:
                break  # It was made after the head was read.
            if segment.number != last + 1:
                problems.append(_missing(last + 1, segment.number - 1))
            checked.append(await self._check(segment, previous))
            last, previous = segment.number, segment.hash
        more = len(read) == SEGMENTS_AT_ONCE and last < head.last
        if not more:
            if last < head.last:
                problems.append(_missing(last + 1, head.last))
            elif previous != head.last_hash:
                problems.append(f"Segment {last} is not the one that the head of the log names.")
        return Verified(
            checked, tuple(problems), last if more else None, head.removed, head.removed_entries
        )

    async def _check_whole(self, head: Head) -> list[str]:
        problems: list[str] = []
        if not is_signed(self._key, head):
            problems.append("The head of the log was changed.")
        if head.damaged:
            problems.append(_damaged(head.damaged))
        strays = await self._views.stray_entries(limit=NAMED_MAX)
        if strays:
            problems.append(f"Entries of no segment that exists were added: {_ids(strays)}.")
        loose = await self._views.loose_entries(limit=ENTRIES_READ)
        if forged := await forged_among(self._key, loose):
            problems.append(f"New entries were changed or not written by Homing: {_ids(forged)}.")
        return problems

    async def _check(self, segment: Segment, previous: bytes) -> SegmentCheck:
        found = await check_segment(self._views, self._key, segment, previous)
        problems: list[str] = []
        if found.count < segment.entries:
            problems.append(f"{_count(segment.entries - found.count)} missing")
        elif found.count > segment.entries:
            problems.append(f"{_count(found.count - segment.entries)} too many")
        if found.forged:
            problems.append(f"changed or not written by Homing: {_ids(found.forged)}")
        if segment.hash != found.hash and not problems:
            problems.append("the entries, the segment or the one before was changed")
        dates = (segment.first_at, segment.last_at)
        if dates != (found.first_at, found.last_at) and not problems:
            problems.append("its dates were changed")
        return SegmentCheck(
            segment.number,
            segment.entries,
            segment.first_at,
            segment.last_at,
            segment.hash,
            tuple(problems),
        )


def _scoped(caller: Caller, conditions: AuditFilter) -> AuditFilter:
    """The conditions limited to the caller's tenant; raises Invalid."""
    problems = [
        FieldProblem(name, say("must be at most {limit} characters", limit=TEXT_CHARS_MAX))
        for name in ("who", "action", "object")
        if len(getattr(conditions, name) or "") > TEXT_CHARS_MAX
    ]
    if problems:
        raise Invalid(problems=tuple(problems))
    return replace(
        conditions,
        tenant=caller.scope(conditions.tenant),
        key_id=read_id("key", conditions.who or ""),
    )


def _shown_to(caller: Caller, entry: AuditEntry) -> AuditEntry:
    """The entry; a caller of one tenant does not see which person or address the operator used."""
    if caller.tenant is None or entry.who.tenant is not None:
        return entry
    return replace(entry, who=OPERATOR)


def _missing(first: int, last: int) -> str:
    if first == last:
        return f"Segment {first} is missing."
    return f"Segments {first} to {last} are missing."


def _count(number: int) -> str:
    return "1 entry is" if number == 1 else f"{number:,} entries are"


def _damaged(count: int) -> str:
    what = "1 segment was" if count == 1 else f"{count:,} segments were"
    return f"{what} missing or changed when retention came to them."


def _ids(numbers: Sequence[int]) -> str:
    shown = ", ".join(show_id("aud", number) for number in numbers[:NAMED_MAX])
    more = len(numbers) - NAMED_MAX
    return f"{shown} and {more:,} more" if more > 0 else shown
