"""The clock mark, and the move of stored times after the clock was set, in bounded steps.

A move begins with the mark, and continues where it was interrupted: each step is one transaction
that also writes the progress.
"""

from __future__ import annotations

from homing.ports import ClockMark, Move
from homing.store.tx import Db, Row, Tx, transaction

_FIRST, _NEXT = "endpoint", {"endpoint": "pending", "pending": ""}


class ClockMarks:
    """``ClockStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    @transaction(read_only=True)
    async def clock_mark(self, tx: Tx) -> tuple[ClockMark | None, int]:
        newest = await tx.one("newest_acceptance")
        return _mark(await tx.one("clock_mark")), int(newest[0]) if newest else 0

    @transaction()
    async def mark_clock(self, tx: Tx, steady_ms: int, clock_ms: int) -> None:
        at = clock_ms
        if self._db.dialect == "postgres":
            row = await tx.one("database_now")
            assert row is not None
            at = int(row[0])
        await tx.all("clock_mark_set", steady_ms=steady_ms, clock_ms=at)

    @transaction()
    async def begin_clock(
        self, tx: Tx, mark: ClockMark, move: Move | None, *, seen: ClockMark | None
    ) -> bool:
        row = await tx.one("clock_mark_hold")
        assert row is not None
        if _mark(row) != seen or row[3]:
            return False
        await tx.all(
            "clock_mark_begin",
            steady_ms=mark.steady_ms,
            clock_ms=mark.clock_ms,
            since_ms=mark.since_ms,
            moving="" if move is None else _FIRST,
            move_by_ms=0 if move is None else move.by_ms,
            move_from_ms=0 if move is None else move.from_ms,
        )
        return True

    @transaction()
    async def move_times(self, tx: Tx, *, limit: int) -> int:
        row = await tx.one("clock_mark_hold")
        assert row is not None
        moving, by_ms, from_ms, after_id = row[3:]
        while moving:
            step = await tx.one(f"move_{moving}_step", after_id=after_id, limit=limit)
            assert step is not None
            count, upto_id = step
            if count:
                await tx.all(
                    f"move_{moving}",
                    from_ms=from_ms,
                    by_ms=by_ms,
                    after_id=after_id,
                    upto_id=upto_id,
                )
                await tx.all("clock_move_on", moving=moving, moved_upto=upto_id)
                return int(count)
            moving, after_id = _NEXT[moving], 0
            await tx.all("clock_move_on", moving=moving, moved_upto=0)
        return 0


def _mark(row: Row | None) -> ClockMark | None:
    return None if row is None or row[1] == 0 else ClockMark(*row[:3])
