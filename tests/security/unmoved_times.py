"""A deliberately broken build: a start leaves stored times as they are, whatever the clock says."""

from __future__ import annotations

import security.under_faketime  # noqa: F401 - it makes sleeping possible
from homing.cli.main import main
from homing.engine import timekeeper
from homing.policy.restart import Resumed

timekeeper.resume = lambda *, now, **_: Resumed(0, 0, 0, 0, now.steady_ms, is_told=True)  # type: ignore[attr-defined]

if __name__ == "__main__":
    main()
