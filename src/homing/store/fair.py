"""Reads the next rows of fair groups (``policy.fair``): each group of an endpoint in its turn.

The groups of an endpoint are parts of its pending rows. They are visited in order of their numbers,
beginning after the one that had the last turn, and one row of each is taken before a second row of
any. Rows that were held back before the endpoint was enabled are in the retry lane, which goes by
due time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, zip_longest
from operator import itemgetter

from msgspec import Struct

from homing.model import PART_FIRST
from homing.ports import DueAsk
from homing.store.tx import Row, Tx

HAS_GROUPS = 2  # in the second column of ``due_heads``: the endpoint has fair groups
ROWS_MAX = 20_000  # that are read of all groups of an endpoint
GROUP_ROWS_MIN = 64  # that are read of a group, if it has so many

Head = tuple[int, int]  # due time, id


class Turns(Struct):
    """The rows of one endpoint's fair groups."""

    after: int  # the group that had the last turn
    fresh: dict[int, list[Head]]  # by group
    retry: list[Head]
    more: bool = False  # a group may have further fresh rows
    next_due: int | None = None  # a group may have further rows in the retry lane, from this time

    def in_turn(self, first: list[Head]) -> list[Head]:
        """The fresh rows in the order of turns; ``first`` are those without a group."""
        groups = {**self.fresh, PART_FIRST: first} if first else self.fresh
        order = _from(self.after, sorted(groups))
        ranks = zip_longest(*(groups[group] for group in order))
        return [head for head in chain.from_iterable(ranks) if head is not None]


async def turns(tx: Tx, asks: Sequence[DueAsk], heads: Sequence[Row]) -> dict[int, Turns]:
    """The rows of fair groups by the index of the request; most installations have none."""
    asked = [row[0] for row in heads if row[1] == HAS_GROUPS]
    if not asked:
        return {}
    groups: dict[int, list[Row]] = defaultdict(list)
    places = [(asks[number].bucket, asks[number].endpoint_id, number) for number in asked]
    for number, *group in await tx.many("fair_groups", places):
        groups[number].append(tuple(group))
    wanted = [row for number in asked for row in _wanted(number, asks[number], groups[number])]
    found = {number: Turns(asks[number].after_part, {}, []) for number in asked}
    rows: dict[tuple[int, int, int], list[Head]] = defaultdict(list)
    for number, lane, part, due_at, delivery_id in await tx.many("fair_heads", wanted):
        rows[number, part, lane].append((due_at, delivery_id))
    for number, part, *_, fresh_limit, retry_limit in wanted:
        own = found[number]
        if fresh := sorted(rows[number, part, 0]):
            own.fresh[part] = fresh
            own.more = own.more or len(fresh) == fresh_limit
        if retry := rows[number, part, 1]:
            own.retry += retry
            if len(retry) == retry_limit:
                last = max(retry)[0]
                own.next_due = last if own.next_due is None else min(own.next_due, last)
    return found


def _wanted(number: int, ask: DueAsk, groups: list[Row]) -> list[Row]:
    """The groups to read, with the numbers of rows: one more than asked for, if there are."""
    since = ask.enabled_since
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
