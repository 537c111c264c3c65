"""The file descriptors of this process: its limit, and how many are open."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

ENOUGH = 262_144  # No setting needs more, and a larger table would only cost memory.


def raise_limit() -> int:
    """Raise the soft limit towards the hard one, up to ``ENOUGH``; returns the limit that holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return ENOUGH
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # Some systems have a lower limit.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft


def count_open() -> int:
    """How many descriptors are open."""
    with contextlib.suppress(OSError):
        return len(list(Path("/dev/fd").iterdir())) - 1  # less the one that lists them
    return 64
