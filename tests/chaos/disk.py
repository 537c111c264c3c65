"""A disk under SQLite that writes down what is done to it, or fails on demand.

While it is mounted, every connection opened goes through it. It passes all on to real files, so the
store runs as it is; power is cut afterwards, on paper (``chaos.cut``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw


class Did(NamedTuple):
    """One thing that was done to a file, or ``mark``: what the writer was told by then."""

    what: str  # open, write, truncate, sync, delete or mark
    name: str = ""
    at: int = 0  # the offset of a write, the size after a truncate, the number of a mark
    data: bytes = b""


class Fault(NamedTuple):
    """Which operation fails, how, and whether all after it fail too."""

    at: int  # counted from 1
    error: type[apsw.Error]
    for_ever: bool


class Disk:
    """What was done, and what shall fail."""

    def __init__(self) -> None:
        self.journal: list[Did] = []
        self.fault: Fault | None = None
        self.counted = 0
        self.fired = 0

    def did(self, what: str, path: str = "", at: int = 0, data: bytes = b"") -> None:
        self.journal.append(Did(what, Path(path).name, at, data))

    def arm(self, fault: Fault | None) -> None:
        self.fault, self.counted = fault, 0

    def heal(self) -> None:
        self.fault = None

    def check(self) -> None:
        """Fail if it is time."""
        self.counted += 1
        fault = self.fault
        if fault is None or self.counted < fault.at:
            return
        if self.counted == fault.at or fault.for_ever:
            self.fired += 1
            raise fault.error("the disk fails as it was told to")


def _path(name: Any) -> str:
    return name.filename() if isinstance(name, apsw.URIFilename) else str(name)


@contextmanager
def mounted(disk: Disk) -> Iterator[Disk]:
    """Every connection opened meanwhile is on this disk."""

    class File(apsw.VFSFile):
        def __init__(self, name: Any, flags: list[int]) -> None:
            self._path = _path(name)
            super().__init__("unix", name, flags)
            disk.did("open", self._path)

        def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
            disk.check()
            return super().xRead(amount, offset)

        def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
            disk.check()
            super().xWrite(data, offset)
            disk.did("write", self._path, offset, bytes(data))

        def xTruncate(self, size: int) -> None:  # noqa: N802
            disk.check()
            super().xTruncate(size)
            disk.did("truncate", self._path, size)

        def xSync(self, flags: int) -> None:  # noqa: N802
            disk.check()
            super().xSync(flags)
            disk.did("sync", self._path)

    class Mount(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("chaos", "", makedefault=True)

        def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
            disk.check()
            return File(name, flags)

        def xDelete(self, name: str, sync: bool) -> None:  # noqa: N802
            disk.check()
            super().xDelete(name, sync)
            disk.did("delete", name, int(sync))

    mount = Mount()
    try:
        yield disk
    finally:
        mount.unregister()
