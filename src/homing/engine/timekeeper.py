"""Watches the wall clock beside the engine: a step is logged a second after it happened.

The engine itself goes by steady time and needs no timer for it; this one runs beside it, so that a
step is noticed also while there is nothing to do.
"""

from __future__ import annotations

import asyncio

import structlog

from homing.ports import Clock

log = structlog.get_logger("homing.clock")

LOOK_EVERY_S = 1.0


class Timekeeper:
    """Looks at the clock once a second and logs every step."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._steps = clock, clock.state().steps

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> bool:
        """Log the steps since the last look; True if there was one."""
        state = self._clock.state()
        if state.steps == self._steps:
            return False
        self._steps = state.steps
        log.warning(
            "the wall clock was stepped; signatures carry the new time, retries keep their "
            "schedule, and nothing expires for an hour",
            stepped_by_s=state.stepped_by_ms / 1000,
            ahead_of_schedules_s=state.ahead_ms / 1000,
            steps=state.steps,
        )
        return True
