"""Time and chance: the only file of the client that reads a clock or throws dice."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

monotonic: Callable[[], float] = time.monotonic  # seconds; for deadlines
unix_time: Callable[[], float] = time.time  # seconds; for signatures
chance: Callable[[], float] = random.random  # 0 ≤ chance < 1; for jitter


def new_id() -> str:
    """A new event id: 32 hexadecimal digits, of which the first 12 are the time in milliseconds.

    Ids in order of time keep the index that the server finds them by compact.
    """
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
