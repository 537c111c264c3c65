"""The clock mark, and the move of stored times after the clock was set, in bounded steps.

A move begins with the mark, and continues where it was interrupted: each step is one transaction
that also writes the progress.
"""

from __future__ import annotations

import msgspec

from homing.model import Pauses
from homing.policy.pause import moved
from homing.ports import ClockMark, ClockReading, Move
from homing.store.tx import Db, Row, Tx, transaction

_MOVING = 8  # the place of ``moving`` in the row, after those of the mark
_FIRST = "endpoint"
_NEXT = {"endpoint": "pending", "pending": "subscription", "subscription": ""}


class ClockMarks:
    """``ClockStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    @transaction(read_only=True)
    async def clock_mark(self, tx: Tx) -> tuple[ClockMark | None, int]:
        newest = await tx.one("newest_acceptance")
        return _mark(await tx.one("clock_mark")), int(newest[0]) if newest else 0

    @transaction()
    async def mark_clock(self, tx: Tx, reading: ClockReading) -> None:
        await tx.all("clock_mark_set", **_stored(reading))

    @transaction()
    async def begin_clock(
        self, tx: Tx, mark: ClockMark, move: Move | None, *, seen: ClockMark | None
    ) -> bool:
        row = await tx.one("clock_mark_hold")
        assert row is not None
        if _mark(row) != seen or row[_MOVING]:
            return False
        await tx.all(
            "clock_mark_begin",
            **_stored(mark.reading),
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
        moving, by_ms, from_ms, after_id = row[_MOVING:]
        while moving:
            step = await tx.one(f"move_{moving}_step", after_id=after_id, limit=limit)
            assert step is not None
            count, upto_id = step
            if count:
                if moving == "subscription":
                    await _move_pauses(tx, after_id, upto_id, Move(by_ms, from_ms))
                else:
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


async def _move_pauses(tx: Tx, after_id: int, upto_id: int, move: Move) -> None:
    for number, text in await tx.all("paused_settings", after_id=after_id, upto_id=upto_id):
        settings = msgspec.json.decode(text)
        if "pauses" not in settings:
            continue
        pauses = msgspec.convert(settings["pauses"], Pauses)
        settings["pauses"] = moved(pauses, by_ms=move.by_ms, from_ms=move.from_ms)
        stored = msgspec.json.encode(settings).decode()
        await tx.all("move_subscription", id=number, settings=stored)


def _mark(row: Row | None) -> ClockMark | None:
    if row is None or row[1] == 0:
        return None
    steady, clock, wall, boot_id, boot, synchronised, apart, since = row[:_MOVING]
    reading = ClockReading(steady, clock, wall, boot_id, boot, synchronised > 0, apart > 0)
    return ClockMark(reading, since)


def _stored(reading: ClockReading) -> dict[str, int | str]:
    return {
        "steady_ms": reading.steady_ms,
        "clock_ms": reading.clock_ms,
        "wall_ms": reading.wall_ms,
        "boot_id": reading.boot_id,
        "boot_ms": reading.boot_ms,
        "synchronised": int(reading.synchronised),
        "apart": int(reading.apart),
    }
