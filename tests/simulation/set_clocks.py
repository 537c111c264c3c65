"""Wall clocks that are set while the process is down, with a reboot or without one.

While it runs, its timekeeper marks the clocks. At the next start steady time must go on where it
was. It may stand still for the downtime only where nothing tells that from a clock that was set,
and it must never be ahead: that would make attempts early. The clock that died shows where steady
time has come to.

Where the clock was set far, stored times are moved. Then the clock is put back as far, and the
process starts once more: stored times must be what they were. So the reference model, which knows
nothing of this, still fits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from homing.engine.timekeeper import Timekeeper
from homing.ports import ClockMark, Move
from homing.sim.loop import START_MS, VirtualClock
from homing.store.clock_marks import ClockMarks
from simulation.health_model import HOUR, MINUTE
from simulation.reference import Reference

if TYPE_CHECKING:
    from simulation.machine import Machine

SET_BY_MS = (
    0,
    *(sign * by for by in (1_000, 15_000, 10 * MINUTE, 48 * HOUR) for sign in (1, -1)),
)
KINDS = (
    "clock_set_while_down",
    "clock_set_and_reboot",
    "clock_far_while_down",
    "synchronised_reboot",
)
_TIMES = """
    SELECT 'pending', id, accepted_at, due_at, expires_at, t0, unblocked_at FROM pending
    UNION ALL
    SELECT 'endpoint', id, since, next_probe_at, hold_until, first_attempt_at, last_success_at
    FROM endpoint ORDER BY 1, 2
"""


class _Marks(ClockMarks):
    """Knows by how much stored times were moved."""

    moved_by_ms = 0

    async def begin_clock(
        self, mark: ClockMark, move: Move | None, *, seen: ClockMark | None
    ) -> bool:
        done = await super().begin_clock(mark, move, seen=seen)
        if done and move is not None:
            self.moved_by_ms += move.by_ms
        return done


class SetClocks:
    """The wall clock and the kernel of one machine, from start to start."""

    def __init__(
        self, rng: Random, reference: Reference, fire: Callable[[str], None], *, reboots: float
    ) -> None:
        self._rng, self._reference, self._fire = rng, reference, fire
        self._reboots = reboots  # of the downtimes, those with a reboot
        self._wrong_by_ms, self._kernel, self._synchronised = 0, 1, reboots > 0
        self._last: VirtualClock | None = None

    @property
    def offset_ms(self) -> int:
        """How far steady time is ahead of the true time."""
        if self._last is None:
            return 0
        return self._last.now() - START_MS - round(asyncio.get_running_loop().time() * 1000)

    def set(self) -> None:
        """The process is down: somebody sets its wall clock, and may start the machine again."""
        by_ms, reboots = self._rng.choice(SET_BY_MS), self._rng.random() < self._reboots
        self._synchronised = self._rng.random() < 0.7 and reboots
        self._wrong_by_ms = 0 if self._synchronised else self._wrong_by_ms + by_ms
        self._kernel += reboots
        self._fire("clock_set_and_reboot" if reboots else "clock_set_while_down")

    async def begin(self, world: Machine) -> None:
        """Fit the clock of the life that begins, and stored times, as ``wiring`` does."""
        last, trusted = self._last, self._last is not None and self._last.read().synchronised
        rows = await self._rows(world)
        clock, moved_by_ms = await self._start(world)
        if moved_by_ms:
            self._fire("clock_far_while_down")
            self._check_moved(rows, await self._rows(world), moved_by_ms)
            self._wrong_by_ms -= moved_by_ms
            self._synchronised = False
            clock, _ = await self._start(world)
            self._reference.must(
                await self._rows(world) == rows,
                "clock",
                lambda: f"times that were moved by {moved_by_ms} ms and back are others",
            )
        if last is not None:
            self._check_time(last, clock, trusted=trusted)
        self._last = clock

    async def _start(self, world: Machine) -> tuple[VirtualClock, int]:
        """Begin with this machine's clock; also returns by how much stored times were moved."""
        loop, marks = asyncio.get_running_loop(), _Marks(world.db)
        clock = VirtualClock(
            loop,
            start_ms=START_MS + self._wrong_by_ms,
            kernel=f"kernel {self._kernel}",
            synchronised=self._synchronised,
        )
        self._keeper = Timekeeper(clock, marks)
        clock.go_on_at(clock.now() + await self._keeper.begin())
        world.life.clock = world.clock = clock
        return clock, marks.moved_by_ms

    def keep(self) -> None:
        """Mark the clocks while this life lasts; its task ends with it."""
        self._marking = asyncio.ensure_future(self._keeper.run())

    def _check_time(self, last: VirtualClock, clock: VirtualClock, *, trusted: bool) -> None:
        reference, was, now = self._reference, last.read(), clock.read()
        told = was.boot_id == now.boot_id
        if not told and trusted and self._synchronised:
            self._fire("synchronised_reboot")
            told = True
        ahead_ms = now.steady_ms - was.steady_ms
        reference.must(
            ahead_ms <= 0 if not told else abs(ahead_ms) <= 1,
            "clock",
            lambda: f"steady time is {ahead_ms} ms ahead after a start, told: {told}",
        )
        if ahead_ms < -1:
            reference.clock_jumped = True

    def _check_moved(
        self, before: list[tuple[Any, ...]], after: list[tuple[Any, ...]], by_ms: int
    ) -> None:
        """The due times of what was tried, and windows, are where they were after the move."""
        due = {row[1]: row[3] + by_ms for row in before if row[0] == "pending"}
        wrong = [row[1] for row in after if row[0] == "pending" and row[3] != due[row[1]]]
        self._reference.must(
            not wrong, "clock", lambda: f"{len(wrong)} due times were not moved by {by_ms} ms"
        )

    @staticmethod
    async def _rows(world: Machine) -> list[tuple[Any, ...]]:
        return await world.db.raw(lambda execute: execute(_TIMES))
