"""Key files: secrets in the data directory, which only their owner can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import structlog

log = structlog.get_logger("homing")

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
BYTES_MAX = 16_384


def read_key_file(path: Path) -> str:
    """The text of a key file, "" if there is none; a mode that lets others read it is corrected."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & ~FILE_MODE:
            os.fchmod(file.fileno(), FILE_MODE)
            log.warning(
                "others could read the key file; its mode has been corrected",
                path=str(path),
                was=f"{mode:04o}",
                now=f"{FILE_MODE:04o}",
            )
        return file.read(BYTES_MAX).strip()


def create_key_file(path: Path, text: str) -> str:
    """Create the file, complete before it has its name, and on disk when this returns.

    Returns its text: that of another process, if that one was first.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        text = read_key_file(path)
    finally:
        draft.unlink()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return text
