"""Encryption keys: how they are written, and their public names."""

from __future__ import annotations

import hashlib
from base64 import b64decode

KEY_BYTES = 32


def key_id(key: bytes) -> str:
    """A name for a key that reveals nothing of it; stored in databases, so it never changes."""
    return hashlib.sha256(b"homing seal\0" + key).hexdigest()[:12]


def read_keys(text: str) -> tuple[bytes, ...] | None:
    """Keys in base64 of 32 bytes each, with commas or white space between; None if one is bad."""
    keys = []
    for part in text.replace(",", " ").split():
        try:
            coded = part.replace("-", "+").replace("_", "/").rstrip("=")
            key = b64decode(coded + "=" * (-len(coded) % 4), validate=True)
        except ValueError:
            return None
        if len(key) != KEY_BYTES:
            return None
        keys.append(key)
    return tuple(dict.fromkeys(keys)) or None
