"""Reads the next rows of an endpoint where some of its subscriptions are paused, without theirs.

Their rows stay where they are, however many they are, and stand between the others. So a request
says how far it has read each source (a part and a lane): only later rows are read, in pages, and
the reply says where the next request continues. Every row of a paused subscription is read about
once. The caller forgets those places when a row comes back to one before them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain, zip_longest

from msgspec import Struct

from homing.model import PART_REPLAY, Endpoint, is_first_part
from homing.ports.flow import DueAsk, Place, Source
from homing.store import fair
from homing.store.tx import Tx

PAGE = 1_000  # rows that are read of a source at a time
PAGES_MAX = 20  # that one request reads
FRESH, RETRY, PROBE = range(3)
START: Place = (-1, -1)
_END = 1 << 62
_BY_ID: Source = (-1, -1)  # the rows of an endpoint by id, of which a probe takes the next


class Chosen(Struct):
    """The ids of rows in the order of attempts, and what the caller must know of the others."""

    fresh: list[int]
    retry: list[int]
    more_fresh: bool
    next_due: int | None
    seen: dict[Source, Place]


class _Read(Struct):
    """The rows of one source that were read: all of them, and those that may be attempted."""

    rows: list[Place]
    may: list[Place]
    due: list[int]  # times of these
    full: bool  # there may be further rows


class _Pages:
    """How many pages a request may still read."""

    def __init__(self) -> None:
        self.left = PAGES_MAX


async def due(tx: Tx, ask: DueAsk, *, now: int) -> Chosen:
    """The next rows of an endpoint whose subscriptions are not paused."""
    parts = [row[0] for row in await _parts(tx, ask.bucket, ask.endpoint_id)]
    row = await tx.one("enabled_from", id=ask.endpoint_id)
    pages, since = _Pages(), 0 if row is None else int(row[0])
    firsts = [part for part in parts if is_first_part(part)]
    firsts = _in_turn(ask.after_part, firsts)
    chosen = Chosen([], [], more_fresh=False, next_due=None, seen=dict(ask.seen))
    if ask.fresh:
        found = {
            part: await _read(tx, ask, (part, FRESH), pages, wanted=ask.fresh, first=since)
            for part in firsts
        }
        rows = zip_longest(*(read.may for read in found.values()))
        taken = [place for place in chain.from_iterable(rows) if place is not None][: ask.fresh]
        chosen.fresh = [number for _, number in taken]
        for part, read in found.items():
            left = _go_on(chosen.seen, (part, FRESH), read, taken)
            chosen.more_fresh = chosen.more_fresh or left
    if ask.retry:
        await _choose_retries(tx, ask, parts, firsts, pages, chosen, since=since, now=now)
    return chosen


async def _choose_retries(
    tx: Tx,
    ask: DueAsk,
    parts: list[int],
    firsts: list[int],
    pages: _Pages,
    chosen: Chosen,
    *,
    since: int,
    now: int,
) -> None:
    found: dict[Source, _Read] = {}
    for part in firsts:
        source = (part, RETRY)
        found[source] = await _read(tx, ask, source, pages, wanted=ask.retry, until=since)
    times: list[int] = []
    for part in parts:
        if part not in firsts:
            source = (part, RETRY)
            found[source] = await _read(tx, ask, source, pages, wanted=ask.retry, until=now + 1)
            row = await tx.one(
                "first_due_after",
                bucket=ask.bucket,
                endpoint_id=ask.endpoint_id,
                part=part,
                now=now,
            )
            if row is not None and row[0] is not None:
                times.append(row[0])
    heads: list[tuple[int, Place]] = []
    for source, read in found.items():
        times_of = fair.in_order(read.due, now=now) if source[0] in firsts else read.due
        heads += zip(times_of, read.may, strict=True)
    taken = [place for _, place in sorted(heads)[: ask.retry]]
    chosen.retry = [number for _, number in taken]
    for source, read in found.items():
        if _go_on(chosen.seen, source, read, taken):
            place = max(chosen.seen.get(source, START)[0], 0)
            times.append(now if source[0] in firsts else place)
    chosen.next_due = min(times, default=None)


async def _read(
    tx: Tx,
    ask: DueAsk,
    source: Source,
    pages: _Pages,
    *,
    wanted: int,
    first: int = 0,
    until: int = _END,
) -> _Read:
    """Read a source until enough of its rows may be attempted."""
    rows: list[Place] = []
    may: list[Place] = []
    due: list[int] = []
    after = max(ask.seen.get(source, START), (first - 1, _END))
    while pages.left > 0:
        pages.left -= 1
        page = await _page(tx, ask.bucket, ask.endpoint_id, source[0], after, until=until)
        for turn, number, due_at, subscription_id, *_ in page:
            rows.append((turn, number))
            if subscription_id not in ask.paused:
                may.append((turn, number))
                due.append(due_at)
        if not page:
            pages.left += 1  # Only rows count: every group of an endpoint is visited.
        if len(page) < PAGE:
            return _Read(rows, may, due, full=False)
        after = rows[-1]
        if len(may) >= wanted:
            break
    return _Read(rows, may, due, full=True)


def _go_on(
    seen: dict[Source, Place], source: Source, read: _Read, taken: Collection[Place]
) -> bool:
    """Note how far a source was read; whether it may have further rows."""
    left = set(read.may).difference(taken)
    upto = None
    for place in read.rows:
        if place in left:
            break
        upto = place
    if upto is not None:
        seen[source] = upto
    return bool(left) or read.full


async def probe(
    tx: Tx,
    endpoint: Endpoint,
    *,
    alive_at: int,
    paused: frozenset[int],
    seen: Mapping[Source, Place],
) -> tuple[int | None, dict[Source, Place], bool]:
    """The delivery for a probe, how far each source was read, whether it must be searched on.

    It is the oldest that was never attempted, else the next by id after the last probed one.
    """
    at = (endpoint.bucket, endpoint.id)
    on, pages = dict(seen), _Pages()
    oldest: Place | None = None  # by position
    for row in await _parts(tx, *at):
        part = row[0]
        if not (is_first_part(part) or part == PART_REPLAY):
            continue
        source = (part, PROBE)
        after = on.get(source, START)
        found, on[source], more = await _first(tx, at, part, after, pages, alive_at, paused)
        if more:
            return None, on, True
        if found is not None and (oldest is None or found < oldest):
            oldest = found
    if oldest is not None:
        return oldest[1], on, False
    return await _next_by_id(tx, endpoint, on, pages, alive_at=alive_at, paused=paused)


async def _first(
    tx: Tx,
    at: tuple[int, int],
    part: int,
    after: Place,
    pages: _Pages,
    alive_at: int,
    paused: frozenset[int],
) -> tuple[Place | None, Place, bool]:
    """The first row of a part that may be probed, by position, the place before it; to go on?"""
    while pages.left > 0:
        pages.left -= 1
        page = await _page(tx, *at, part, after)
        if not page:
            pages.left += 1
        for turn, number, _, subscription_id, expires_at, position in page:
            if subscription_id not in paused:
                if expires_at > alive_at:
                    return (position, number), after, False
                continue  # Expiry removes it.
            after = (turn, number)
        if len(page) < PAGE:
            return None, after, False
        after = (page[-1][0], page[-1][1])
    return None, after, True


async def _next_by_id(
    tx: Tx,
    endpoint: Endpoint,
    on: dict[Source, Place],
    pages: _Pages,
    *,
    alive_at: int,
    paused: frozenset[int],
) -> tuple[int | None, dict[Source, Place], bool]:
    wrapped, after_id = on.pop(_BY_ID, (0, endpoint.probe_after_id))
    while pages.left > 0:
        pages.left -= 1
        page = await tx.all(
            "rows_by_id",
            bucket=endpoint.bucket,
            endpoint_id=endpoint.id,
            after_id=after_id,
            limit=PAGE,
        )
        for number, subscription_id, expires_at, blocked in page:
            if subscription_id not in paused and expires_at > alive_at and not blocked:
                return number, on, False
        if len(page) == PAGE:
            after_id = page[-1][0]
        elif wrapped:
            return None, on, False
        else:
            wrapped, after_id = 1, 0
    return None, on | {_BY_ID: (wrapped, after_id)}, True


async def _parts(tx: Tx, bucket: int, endpoint_id: int) -> list[tuple[int, ...]]:
    return await tx.all("parts_waiting", bucket=bucket, endpoint_id=endpoint_id)


async def _page(
    tx: Tx, bucket: int, endpoint_id: int, part: int, after: Place, *, until: int = _END
) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = await tx.all(
        "rows_after",
        bucket=bucket,
        endpoint_id=endpoint_id,
        part=part,
        after_turn=after[0],
        after_id=after[1],
        until=until,
        limit=PAGE,
    )
    return found


def _in_turn(after: int, parts: list[int]) -> list[int]:
    """The groups in the order of their turns, beginning after the one that had the last."""
    return [it for it in parts if it > after] + [it for it in parts if it <= after]
