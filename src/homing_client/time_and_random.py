"""Clocks and random numbers: the only file of the client that reads either."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

monotonic: Callable[[], float] = time.monotonic  # seconds; for deadlines
unix_time: Callable[[], float] = time.time  # seconds; for signatures
random_fraction: Callable[[], float] = random.random  # 0 ≤ fraction < 1; for jitter


def new_id() -> str:
    """A new event id: 32 hexadecimal digits, of which the first 12 are the time in milliseconds.

    Ids that grow with time keep the server's index of them compact.
    """
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"
