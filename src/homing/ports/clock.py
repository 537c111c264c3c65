"""The clock, and what the store keeps of it, so that a start knows whether the clock was set."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


class ClockState(Struct, frozen=True):
    """The difference between the wall clock of this machine and steady time."""

    ahead_ms: int = 0  # how far the wall clock is ahead; negative: behind
    steps: int = 0  # of more than a minute since the start
    stepped_at: int | None = None  # the last of them, in steady time …
    stepped_by_ms: int = 0  # … and by how much


class Clock(Protocol):
    """Steady time, which never jumps and is used for schedules; and the wall clock."""

    def now(self) -> int:
        """Steady time: Unix milliseconds UTC."""

    def wall(self) -> int:
        """The wall clock of this machine: Unix milliseconds UTC."""

    def stepped_at(self) -> int | None:
        """When a step of the wall clock by more than a minute was last seen."""

    def state(self) -> ClockState:
        """How far the wall clock is from steady time, and its steps."""


class ClockMark(Struct, frozen=True):
    """Steady time and the clock that it follows, at one moment."""

    steady_ms: int
    clock_ms: int  # the wall clock; in a fleet the database's
    since_ms: int  # stored times from then on are all in one steady time


class Move(Struct, frozen=True):
    """A move of stored times: the distance, and the earliest time that is moved."""

    by_ms: int
    from_ms: int


class ClockStore(Protocol):
    """The mark of the clock, and the times of pending deliveries and endpoints."""

    async def clock_mark(self) -> tuple[ClockMark | None, int]:
        """The mark, or None; and when the newest event was accepted, or 0."""

    async def mark_clock(self, steady_ms: int, clock_ms: int) -> None:
        """Store the mark. On PostgreSQL the database's clock is used instead of ``clock_ms``."""

    async def begin_clock(
        self, mark: ClockMark, move: Move | None, *, seen: ClockMark | None
    ) -> bool:
        """Set the mark and begin to move times; False if another process has set it meanwhile."""

    async def move_times(self, *, limit: int) -> int:
        """Move the times of the next rows; returns how many, 0 if none is left."""
