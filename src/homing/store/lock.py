"""The lock of a SQLite file: one process at a time, and a second one is told who is there."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from homing.errors import DataInUse


class Lock:
    """Keeps a second process off the same file, and tells it who is there."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._file)
            raise DataInUse(f"Process {holder} holds {path.name}.") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)
