"""The clock, and what the store keeps of it, so that a start knows whether the clock was set."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from homing.policy.restart import ClockReading


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

    def read(self) -> ClockReading:
        """Steady time, and what this machine's clocks show at the same moment."""


class ClockMark(Struct, frozen=True):
    """The clocks of the last process, as it stored them."""

    reading: ClockReading
    since_ms: int  # stored times from then on are all in one steady time


class Move(Struct, frozen=True):
    """A move of stored times: the distance, and the earliest time that is moved."""

    by_ms: int
    from_ms: int


class DatabaseTime(Struct, frozen=True):
    """What the database's clock showed, and when that was by this process's monotonic clock."""

    ms: int
    at_ns: int  # monotonic: half-way between the statement and its reply
    round_ns: int  # how long that took
    apart: bool = False  # The database is on another machine.


class ClockStore(Protocol):
    """The mark of the clock, and the times of pending deliveries and endpoints."""

    async def clock_mark(self) -> tuple[ClockMark | None, int]:
        """The mark, or None; and when the newest event was accepted, or 0."""

    async def mark_clock(self, reading: ClockReading) -> None:
        """Store the mark."""

    async def begin_clock(
        self, mark: ClockMark, move: Move | None, *, seen: ClockMark | None
    ) -> bool:
        """Set the mark and begin to move times; False if another process has set it meanwhile."""

    async def move_times(self, *, limit: int) -> int:
        """Move the times of the next rows; returns how many, 0 if none is left."""
