"""Daily partitions: events, history and attempts by UTC day, from the time in their id.

A day is dropped as a whole, which costs almost nothing, when none of its rows is needed any more.
Rows that fit no day (a wrong clock, a server that was suspended for days) are in the default
partition and are removed row by row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from homing.model import id_floor
from homing.store.migrate import Execute, RawSql

DAY_MS = 86_400_000
DAYS_AHEAD = 2
DAYS_AT_ONCE = 50
PARTED = ("event", "history", "attempt")

# Held to the end of the transaction: two processes change partitions one after the other.
_LOCK = "SELECT pg_advisory_xact_lock(7239140552)"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_EXISTING = """
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = $1::text::regclass
"""
_GUESS = "SELECT reltuples::bigint FROM pg_class WHERE oid = $1::text::regclass"
_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '500ms'"  # Rather fail and try later than delay others.
_REPLAYS = "SELECT 1 FROM pending WHERE replay = 1 AND event_id >= $1 AND event_id < $2 LIMIT 1"
_REMOVE_KEYS = """
    DELETE FROM event_key k
    USING unnest($1::text[], $2::text[], $3::bigint[]) AS it (tenant, key, event_id)
    WHERE k.tenant = it.tenant AND k.key = it.key AND k.event_id = it.event_id
"""
_MINUTE = id_floor(60_000)


def part_name(table: str, day: int) -> str:
    """``event_d20454``: the partition of a table for one day since 1970."""
    return f"{table}_d{day}"


async def ensure_days(db: RawSql, now: int | None = None, *, before: int = 0) -> None:
    """Make missing partitions of today and the days ahead; ``now`` None: the server's clock.

    A day past ``before`` is not made: it would be dropped at once.
    """

    async def make(execute: Execute) -> None:
        at = now if now is not None else int((await execute(_NOW))[0][0])
        today = at // DAY_MS
        days = range(today, today + DAYS_AHEAD + 1)
        wanted = [(it, day) for it in PARTED for day in days if (day + 1) * DAY_MS > before]
        if await _missing(execute, wanted):
            await execute(_LOCK)
            for table, day in await _missing(execute, wanted):
                await _make(execute, table, day)

    await db.raw(make)


async def make_days(db: RawSql, wanted: list[tuple[str, int]]) -> None:
    """Make the partitions of these tables and days where they are missing."""

    async def make(execute: Execute) -> None:
        await execute(_LOCK)
        for table, day in await _missing(execute, wanted):
            await _make(execute, table, day)

    await db.raw(make)


async def _missing(execute: Execute, wanted: list[tuple[str, int]]) -> list[tuple[str, int]]:
    there = {row[0] for table in PARTED for row in await execute(_EXISTING, table)}
    return [(table, day) for table, day in wanted if part_name(table, day) not in there]


async def _make(execute: Execute, table: str, day: int) -> None:
    low, high = id_floor(day * DAY_MS), id_floor((day + 1) * DAY_MS)
    key = "delivery_id" if table == "attempt" else "id"
    # If the default partition already has rows of that day, the day stays there.
    taken = await execute(
        f"SELECT 1 FROM {table}_default WHERE {key} >= $1 AND {key} < $2 LIMIT 1",  # noqa: S608
        low,
        high,
    )
    if not taken:
        await execute(
            f"CREATE TABLE {part_name(table, day)} PARTITION OF {table}"
            f" FOR VALUES FROM ({low}) TO ({high})"
        )


async def remove_days(db: RawSql, *, before: int, limit: int, keys_upto: int) -> tuple[int, int]:
    """Remove the oldest day that is not needed; returns about how many rows, and the last key.

    A day is not needed when it has ended before ``before`` and

    - history and attempts: none of its deliveries is pending, and none finished at or after
      ``before`` (a BRIN index answers without reading the day);
    - events: no pending delivery and no pending replay refers to one of them. Deliveries are made
      with their event, so those with an id up to a minute past the day are checked, too.

    This is checked again under a lock that keeps writers out for as long as two seeks take. The
    keys of a day's events are removed before it, ``limit`` at a time.
    """

    removed = 0
    for table in ("history", "attempt", "event"):
        for _ in range(DAYS_AT_ONCE):  # Empty days do not count.
            step = await db.raw(_remove_day(table, before=before, limit=limit, keys_upto=keys_upto))
            keys_upto = step.keys_upto
            removed += step.removed
            if step.removed or not step.went:
                break
    return removed, keys_upto


class _Step(NamedTuple):
    removed: int
    went: bool
    keys_upto: int


def _remove_day(
    table: str, *, before: int, limit: int, keys_upto: int
) -> Callable[[Execute], Awaitable[_Step]]:
    async def work(execute: Execute) -> _Step:
        day = await _day_to_go(execute, table, before=before)
        if day is None:
            return _Step(0, went=False, keys_upto=keys_upto)
        if table == "event":
            removed, upto = await _remove_keys(execute, day, after=keys_upto, limit=limit)
            if upto is not None:
                return _Step(removed, went=False, keys_upto=upto)
        await execute(_LOCK_TIMEOUT)
        await execute("LOCK TABLE event, history, attempt IN ACCESS EXCLUSIVE MODE")
        if not await _may_go(execute, table, day, before=before):
            return _Step(0, went=False, keys_upto=keys_upto)
        dropped = await _drop(execute, part_name(table, day))
        return _Step(dropped, went=True, keys_upto=keys_upto)

    return work


async def _days(execute: Execute, table: str) -> list[int]:
    prefix = f"{table}_d"
    names = [row[0] for row in await execute(_EXISTING, table)]
    days = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return sorted(int(day) for day in days if day.isdigit())


async def _day_to_go(execute: Execute, table: str, *, before: int) -> int | None:
    """The oldest day that is not needed; needed days are skipped."""
    for day in await _days(execute, table):
        if (day + 1) * DAY_MS <= before and await _may_go(execute, table, day, before=before):
            return day
    return None


async def _may_go(execute: Execute, table: str, day: int, *, before: int) -> bool:
    low, high = id_floor(day * DAY_MS), id_floor((day + 1) * DAY_MS)
    pending = "SELECT 1 FROM pending WHERE id >= $1 AND id < $2 LIMIT 1"
    if await execute(pending, low, high + (_MINUTE if table == "event" else 0)):
        return False
    if table == "event":
        return not await execute(_REPLAYS, low, high)
    if table == "attempt":  # Attempts are removed after their deliveries.
        others = "SELECT 1 FROM history WHERE id >= $1 AND id < $2 LIMIT 1"
        return not await execute(others, low, high)
    late = f"SELECT 1 FROM {part_name(table, day)} WHERE finished_at >= $1 LIMIT 1"  # noqa: S608
    return not await execute(late, before)


async def _remove_keys(
    execute: Execute, day: int, *, after: int, limit: int
) -> tuple[int, int | None]:
    """Remove some keys and replay links of a day; the second value is None when none is left."""
    part = part_name("event", day)
    begin = id_floor(day * DAY_MS) - 1
    found = await execute(
        f"SELECT id, tenant, key FROM {part} WHERE id > $1 ORDER BY id LIMIT $2",  # noqa: S608
        max(begin, after) if after < id_floor((day + 1) * DAY_MS) else begin,
        limit,
    )
    if not found:
        return 0, None
    ids, tenants, keys = zip(*found, strict=True)
    await execute(_REMOVE_KEYS, tenants, keys, ids)
    await execute("DELETE FROM replay_link WHERE event_id = ANY($1::bigint[])", ids)
    await execute("DELETE FROM event_field WHERE event_id = ANY($1::bigint[])", ids)
    return len(found), ids[-1]


async def _drop(execute: Execute, name: str) -> int:
    """Drop a partition; returns about how many rows it had, as counting costs too much."""
    guess = await execute(_GUESS, name)
    some = await execute(f"SELECT 1 FROM {name} LIMIT 1")  # noqa: S608
    await execute(f"DROP TABLE {name}")
    return max(1, guess[0][0]) if some else 0
