"""Reads the next rows of fair groups (``policy.fair``): each group of an endpoint in its turn.

The groups of an endpoint are parts of its pending rows. They are visited in order of their numbers,
beginning after the one that had the last turn, and one row of each is taken before a second row of
any. Within a group rows go in the order of acceptance. Rows that were held back before the endpoint
was enabled are in the retry lane, which goes by due time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, zip_longest
from operator import itemgetter

from msgspec import Struct

from homing.model import PART_FIRST
from homing.ports import DueAsk
from homing.store.tx import Row, Tx

FRESH, RETRY, HAS_GROUPS, HELD = range(4)  # the second column of ``due_heads``
ROWS_MAX = 20_000  # that are read of all groups of an endpoint
GROUP_ROWS_MIN = 64  # that are read of a group, if it has so many

Head = tuple[int, int]  # of a fresh row: turn, id
Held = tuple[int, int, int]  # of a row in the retry lane: due time, turn, id


class Turns(Struct):
    """The rows of one endpoint's fair groups."""

    after: int  # the group that had the last turn
    fresh: dict[int, list[Head]]  # by group
    retry: list[Held]
    more: bool = False  # a group may have further fresh rows
    next_due: int | None = None  # a group may have further rows in the retry lane, from this time

    def in_turn(self, first: list[Head]) -> list[Head]:
        """The fresh rows in the order of turns; ``first`` are those without a group."""
        groups = {**self.fresh, PART_FIRST: first} if first else self.fresh
        order = _from(self.after, sorted(groups))
        ranks = zip_longest(*(groups[group] for group in order))
        return [head for head in chain.from_iterable(ranks) if head is not None]


def in_order(times: Iterable[int], *, now: int) -> Iterator[int]:
    """The times of first attempts that were held back, so that they grow with their turns.

    They were due when they were accepted. The clocks of two processes may put the later one first.
    """
    return accumulate((min(at, now) for at in times), max)


def held(rows: Sequence[Row], *, now: int) -> list[Held]:
    """First attempts that were held back (turn, due time, id), as rows of the retry lane."""
    there = sorted(rows)
    times = in_order((due_at for _, due_at, _ in there), now=now)
    return [(at, turn, id_) for at, (turn, _, id_) in zip(times, there, strict=True)]


async def turns(
    tx: Tx, asks: Sequence[DueAsk], heads: Sequence[Row], *, now: int
) -> dict[int, Turns]:
    """The rows of fair groups by the index of the request; most installations have none."""
    asked = {row[0]: row[2] for row in heads if row[1] == HAS_GROUPS}  # from which turn on: fresh
    if not asked:
        return {}
    groups: dict[int, list[Row]] = defaultdict(list)
    places = [(asks[number].bucket, asks[number].endpoint_id, number) for number in asked]
    for number, *group in await tx.many("fair_groups", places):
        groups[number].append(tuple(group))
    wanted = [
        row
        for number, since in asked.items()
        for row in _wanted(number, asks[number], groups[number], since=since)
    ]
    found = {number: Turns(asks[number].after_part, {}, []) for number in asked}
    rows: dict[tuple[int, int, int], list[Row]] = defaultdict(list)
    for number, lane, part, *head in await tx.many("fair_heads", wanted):
        rows[number, part, lane].append(tuple(head))
    for number, part, *_, fresh_limit, retry_limit in wanted:
        own = found[number]
        if fresh := sorted(rows[number, part, FRESH]):
            own.fresh[part] = [(turn, id_) for turn, _, id_ in fresh]
            own.more = own.more or len(fresh) == fresh_limit
        if retry := held(rows[number, part, RETRY], now=now):
            own.retry += retry
            if len(retry) == retry_limit:
                last = retry[-1][0]
                own.next_due = last if own.next_due is None else min(own.next_due, last)
    return found


def _wanted(number: int, ask: DueAsk, groups: list[Row], *, since: int) -> list[Row]:
    """The groups to read, with the numbers of rows: one more than asked for, if there are."""
    fresh = _from(ask.after_part, sorted(part for part, _, last in groups if last >= since))
    held = sorted((first, part) for part, first, _ in groups if first < since)
    del fresh[ask.fresh + 1 :], held[ask.retry + 1 :]  # The others have no row among the first.
    rows = _rows_each(ask.fresh + 1, len(fresh))
    limits = {part: [rows, 0] for part in fresh}
    rows = _rows_each(ask.retry + 1, len(held))
    for part in map(itemgetter(1), held):
        limits.setdefault(part, [0, 0])[1] = rows
    at = (ask.bucket, ask.endpoint_id, since)
    return [(number, part, *at, *limit) for part, limit in limits.items()]


def _rows_each(rows: int, groups: int) -> int:
    return min(rows, max(GROUP_ROWS_MIN, ROWS_MAX // max(groups, 1)))


def _from(after: int, groups: list[int]) -> list[int]:
    """The groups in the order of their turns."""
    later = [group for group in groups if group > after]
    return later + [group for group in groups if group <= after]
