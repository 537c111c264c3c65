"""A deliberately broken build: commits of outcomes are large, and no tenant has a share of them."""

from __future__ import annotations

from homing.cli.main import main
from homing.engine import dispatch, settle, settle_queue

settle_queue.COMMIT_ROWS_MAX = settle_queue.TURN_ROWS = 1_000
settle_queue.SHARED_MS = 0  # no ration
settle.SLICE = dispatch.STARTS_MOST = 1_000

if __name__ == "__main__":
    main()
