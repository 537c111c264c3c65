"""Planted bugs of a stepped wall clock: receivers would notice."""

from __future__ import annotations

from sim.planting import Bug
from sim.planting import bug as _bug

CLOCK_BUGS: list[Bug] = [
    _bug(
        "signatures carry the time of schedules",
        ("homing.engine.dispatch:Dispatcher.send", "wall = self._clock.wall()", "wall = now"),
    ),
    _bug(
        "a date in Retry-After is compared with the time of schedules",
        ("homing.engine.decide:Decision._failed", "wall = now + made.wall_ahead_ms", "wall = now"),
    ),
    _bug(
        "signatures carry the wall clock of the start",
        (
            "homing.engine.dispatch:Dispatcher.send",
            "wall = self._clock.wall()",
            "wall = now + self.__dict__.setdefault('_offset', self._clock.wall() - now)",
        ),
    ),
]
