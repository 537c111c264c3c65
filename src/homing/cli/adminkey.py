"""The admin key: made at the first start, kept in the data directory for its owner's eyes only."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from msgspec import Struct

from homing.errors import BadSetting
from homing.server.settings import Settings

KEY_FILE = "admin.key"
KEY_PREFIX = "hk_"
_OWNER_ONLY = 0o600


class AdminKey(Struct, frozen=True):
    """The key; ``made`` now, or kept at ``path`` since an earlier start, or given (no path)."""

    value: str
    path: Path | None
    made: bool

    def __repr__(self) -> str:
        return "AdminKey(****)"


def admin_key(settings: Settings) -> AdminKey:
    """The key that is set, else the one that is kept, else a new one; raises BadSetting."""
    if settings.admin_key:
        return AdminKey(settings.admin_key, None, made=False)
    path = Path(settings.data) / KEY_FILE
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = _read(path)
        if kept:
            return AdminKey(kept, path, made=False)
        return AdminKey(_make(path), path, made=True)
    except OSError as error:
        raise BadSetting(f"The admin key at {path} cannot be used: {error.strerror}.") from error


def _read(path: Path) -> str:
    """What is kept there; empty if nothing is (a start may have died while making it)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & ~_OWNER_ONLY:
            os.fchmod(file.fileno(), _OWNER_ONLY)
            _tell_of_mode(path, was=mode)
        text = file.read(1024).strip()
    if text and not (text.isascii() and text.isprintable() and " " not in text):
        raise BadSetting(f"The admin key at {path} is damaged; remove the file to make a new one.")
    return text


def _tell_of_mode(path: Path, *, was: int) -> None:
    import structlog  # Here: commands that only look for the key start without it.

    structlog.get_logger("homing").warning(
        "the admin key could be read by others; its mode is mended",
        path=str(path),
        was=f"{was:04o}",
        now=f"{_OWNER_ONLY:04o}",
    )


def _make(path: Path) -> str:
    """A new key on disk, complete before it has its name."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    draft = path.with_name(f"{KEY_FILE}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(draft, flags, _OWNER_ONLY)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return key
