"""A deliberately broken build: slots are not divided, and waits for a rate are written.

One tenant may take every slot of a lane. A delivery that waits for its rate gets a new due time
each minute.
"""

from __future__ import annotations

from homing.cli.main import main
from homing.engine import pace
from homing.policy import slots

slots.needed = lambda *_, **__: 1
pace.ASIDE_MAX = 0
pace.LATER_MAX_MS = 60_000
pace.RateLimits._waits_as_a_lane = lambda *_: False  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
