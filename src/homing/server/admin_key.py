"""The admin key of the API: a setting, or a file in the data directory, created at first start."""

from __future__ import annotations

import secrets
from pathlib import Path

from msgspec import Struct

from homing.errors import BadSetting
from homing.server.key_files import DIRECTORY_MODE, create_key_file, read_key_file
from homing.server.settings import ADMIN_KEY_FILE, Settings

KEY_PREFIX = "hk_"


class AdminKey(Struct, frozen=True):
    """The key, its file (None: it is a setting), and whether it was created by this start."""

    value: str
    path: Path | None
    created: bool

    def __repr__(self) -> str:
        return "AdminKey(****)"


def admin_key(settings: Settings) -> AdminKey:
    """The key of the settings, else of the file, else a new key; raises BadSetting."""
    if settings.security.admin_key:
        return AdminKey(settings.security.admin_key, None, created=False)
    path = settings.database.directory / ADMIN_KEY_FILE
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        text = read_key_file(path)
        if text:
            _check(text, path)
            return AdminKey(text, path, created=False)
        path.unlink(missing_ok=True)  # An empty file holds no key.
        new = KEY_PREFIX + secrets.token_urlsafe(32)
        text = create_key_file(path, new)
        return AdminKey(text, path, created=text == new)
    except OSError as error:
        raise BadSetting(f"The admin key at {path} cannot be used: {error.strerror}.") from error


def _check(text: str, path: Path) -> None:
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise BadSetting(f"The admin key at {path} is damaged; remove the file to make a new one.")
