"""A deliberately broken build: no slow start, and a hanging URL takes as many slots as it likes."""

from __future__ import annotations

from functools import partial

from homing.cli.main import main
from homing.engine import queue
from homing.policy.health import Ramp

ALL = 16
for name in ("Ramp", "ramp_reset"):
    setattr(queue, name, partial(Ramp, ALL))

if __name__ == "__main__":
    main()
