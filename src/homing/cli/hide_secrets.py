"""Hides secrets from the process list: their values on the command line become asterisks.

Until this runs, some hundredths of a second after the start, a value can be seen. Passing it in the
environment avoids that.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from pathlib import Path

SECRET_FLAGS = frozenset(
    (
        "--key",
        "--token",
        "--secret",
        "--header",
        "--database-url",
        "--basic-password",
        "--oauth-client-secret",
    )
)

_ARG_START, _ARG_END = 45, 46  # fields of /proc/self/stat, counted after the name


def hide_secrets() -> None:
    """Overwrite the values in place; on Linux only."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        stats = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        start, end = int(stats[_ARG_START]), int(stats[_ARG_END])
        if start and end > start:
            for place, size in secret_places(ctypes.string_at(start, end - start)):
                ctypes.memset(start + place, ord("*"), size)


def secret_places(line: bytes) -> list[tuple[int, int]]:
    """Offset and length of each secret value in a command line whose arguments end with a NUL."""
    places: list[tuple[int, int]] = []
    place, after_flag = 0, False
    for word in line.split(b"\0"):
        name, equals, value = word.partition(b"=")
        if after_flag:
            places.append((place, len(word)))
        elif equals and name.decode("latin-1") in SECRET_FLAGS:
            places.append((place + len(name) + 1, len(value)))
        after_flag = not after_flag and word.decode("latin-1") in SECRET_FLAGS
        place += len(word) + 1
    return [(at, size) for at, size in places if size]
