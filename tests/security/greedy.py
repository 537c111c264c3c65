"""A deliberately broken build: commits of outcomes are large, and no tenant has a share of them."""

from __future__ import annotations

from homing.cli.main import main
from homing.engine import dispatch, settle_queue

settle_queue.COMMIT_COST_MAX = settle_queue.TURN_ROWS = 4_000
settle_queue.SHARED_MS = 0  # no ration
dispatch.STARTS_COST_MAX = 4_000

if __name__ == "__main__":
    main()
