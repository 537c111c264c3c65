"""What the store keeps of the clock, so that a start knows whether it was set meanwhile."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class ClockMark(Struct, frozen=True):
    """Steady time and the clock that it follows, at one moment."""

    steady_ms: int
    clock_ms: int  # the wall clock; in a fleet the database's
    since_ms: int  # stored times from here on are known to be in one steady time


class Move(Struct, frozen=True):
    """A move of stored times: how far, and the earliest that moves."""

    by_ms: int
    from_ms: int


class ClockStore(Protocol):
    """The mark of the clock, and the times of pending deliveries and endpoints."""

    async def clock_mark(self) -> tuple[ClockMark | None, int]:
        """The mark, None if there is none yet; and when the newest event was accepted, or 0."""

    async def mark_clock(self, steady_ms: int, clock_ms: int) -> None:
        """Both are so now. On PostgreSQL the database's clock is read, and not ``clock_ms``."""

    async def begin_clock(
        self, mark: ClockMark, move: Move | None, *, seen: ClockMark | None
    ) -> bool:
        """Set the mark and begin to move times; False if somebody else has set it meanwhile."""

    async def move_times(self, *, limit: int) -> int:
        """Move the times of the next rows; how many, 0 if nothing is left to move."""
