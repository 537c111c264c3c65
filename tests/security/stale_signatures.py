"""A deliberately broken build: signatures carry the schedule's time, not the wall clock's."""

from __future__ import annotations

import security.under_faketime  # noqa: F401 - it makes sleeping possible
from homing.cli.main import main
from homing.net.clock import SystemClock

SystemClock.wall = SystemClock.now  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
