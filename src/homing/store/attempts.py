"""The attempts of one endpoint, newest first, from two walks that are merged by their start.

Attempts that failed, retries and probes are in an index by endpoint and start. A first attempt in
the fresh lane that succeeded is not: an index of all attempts would make every delivery slower.
Such an attempt is kept in its delivery's row of history, and they start in the order of acceptance:
they are found through the history of the endpoint, in order of id. Each walk has its own place in
the cursor, so nothing is missed or listed twice, even where two first attempts started in another
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from homing.model import Attempt, Outcome, id_floor
from homing.policy.causes import is_of_class
from homing.ports.views import AttemptCursor, AttemptFilter
from homing.store import rows
from homing.store.deliveries import SCAN_MAX
from homing.store.tx import Tx

_TOP = (1 << 63) - 1  # above every id and every time
_START = AttemptCursor(_TOP, _TOP, 0, _TOP)


class _Found(NamedTuple):
    """An attempt that a walk found; of a row of history whose attempt is in the index: only ids."""

    history_id: int | None
    started_at: int | None
    delivery_id: int
    number: int
    outcome: str
    code: int | None
    failure: str | None

    def after(self, place: AttemptCursor) -> AttemptCursor:
        """The place after this row."""
        if self.history_id is not None:
            return replace(place, history_id=self.history_id)
        assert self.started_at is not None
        return AttemptCursor(self.started_at, self.delivery_id, self.number, place.history_id)

    def matches(self, conditions: AttemptFilter) -> bool:
        if self.started_at is None:
            return False
        return (
            (conditions.since is None or self.started_at >= conditions.since)
            and (conditions.until is None or self.started_at < conditions.until)
            and conditions.outcome in {None, self.outcome}
            and conditions.code in {None, self.code}
            and (
                conditions.failure is None
                or is_of_class(conditions.failure, self.outcome, self.code, self.failure)
            )
        )


class _Walk:
    """The rows of one walk, the newest first; it is cut if there may be more of them."""

    def __init__(self, found: list[_Found], scan_limit: int) -> None:
        self._left = found[::-1]
        self.cut = len(found) == scan_limit

    @property
    def next(self) -> _Found | None:
        return self._left[-1] if self._left else None

    def pop(self) -> _Found:
        return self._left.pop()


async def page(
    tx: Tx, endpoint_id: int, conditions: AttemptFilter, *, cursor: AttemptCursor | None, limit: int
) -> tuple[list[Attempt], AttemptCursor | None]:
    """A page, and where the next one begins; None at the end."""
    place = cursor or _START
    scan_limit = max(limit + 1, SCAN_MAX if conditions != AttemptFilter() else 0)
    first = _Walk([], scan_limit)
    until = _TOP if conditions.until is None else conditions.until
    if _may_succeed(conditions):
        first = _Walk(
            [
                _at_once(*row)
                for row in await tx.all(
                    "attempts_first",
                    endpoint_id=endpoint_id,
                    # Nothing starts before it is accepted.
                    before_id=min(place.history_id, _TOP if until == _TOP else id_floor(until)),
                    scan_limit=scan_limit,
                )
            ],
            scan_limit,
        )
    indexed = _Walk(
        [
            _Found(None, *row)
            for row in await tx.all(
                "attempts_indexed",
                endpoint_id=endpoint_id,
                started_at=min(place.started_at, until),
                delivery_id=place.delivery_id if place.started_at <= until else 0,
                number=place.number,
                since=conditions.since or 0,
                scan_limit=scan_limit,
            )
        ],
        scan_limit,
    )
    keys, after = _merged(indexed, first, place, conditions, limit)
    found = await by_number(tx, keys)
    return [found[key] for key in keys if key in found], after


async def of_delivery(tx: Tx, delivery_id: int, *, limit: int) -> list[Attempt]:
    """The attempts of a delivery, the first one first."""
    first = await tx.many("attempts_at_once", [(delivery_id,)])
    others = await tx.all("view_attempts", delivery_id=delivery_id, limit=limit)
    return [*map(rows.first_attempt, first), *map(rows.attempt, others)]


async def by_number(tx: Tx, wanted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Attempt]:
    """These attempts, given by delivery and number, as far as they are stored."""
    found = [rows.attempt(row) for row in await tx.many("view_attempts_by_number", wanted)]
    by_key = {(it.delivery_id, it.number): it for it in found}
    missing = [key[:1] for key in wanted if key[1] == 1 and key not in by_key]
    for row in await tx.many("attempts_at_once", missing):
        by_key[row[0], 1] = rows.first_attempt(row)
    return by_key


def _at_once(
    history_id: int, packed: bytes | None, started_at: int | None, code: int | None
) -> _Found:
    if packed is not None:
        started_at, code = rows.first_attempt_start(packed)
    return _Found(history_id, started_at, history_id, 1, Outcome.DELIVERED, code, None)


def _merged(
    indexed: _Walk, first: _Walk, place: AttemptCursor, conditions: AttemptFilter, limit: int
) -> tuple[list[tuple[int, int]], AttemptCursor | None]:
    """The delivery and number of each attempt of the page, and where the next page begins."""
    keys: list[tuple[int, int]] = []
    while indexed.next or first.next:
        if not ((indexed.next or not indexed.cut) and (first.next or not first.cut)):
            break  # A walk ended early: its next row may be the newest.
        walk = _newer(indexed, first)
        found = walk.pop()
        if walk is first and _is_before(found, conditions.since):
            first = _Walk([], 1)  # All others are older.
            continue
        if found.matches(conditions):
            if len(keys) == limit:
                return keys, place
            keys.append((found.delivery_id, found.number))
        place = found.after(place)
    return keys, place if indexed.cut or first.cut else None


def _newer(indexed: _Walk, first: _Walk) -> _Walk:
    """The walk whose next attempt started later."""
    if first.next is None:
        return indexed
    if first.next.started_at is None or indexed.next is None:
        return first
    assert indexed.next.started_at is not None
    return indexed if indexed.next.started_at >= first.next.started_at else first


def _is_before(found: _Found, since: int | None) -> bool:
    return since is not None and found.started_at is not None and found.started_at < since


def _may_succeed(conditions: AttemptFilter) -> bool:
    """Whether a successful attempt can match."""
    if conditions.failure is not None or conditions.outcome not in {None, Outcome.DELIVERED}:
        return False
    return conditions.code is None or 200 <= conditions.code <= 299
