"""Keys that seal: how they are written, and their public names."""

from __future__ import annotations

import hashlib
from base64 import b64decode

KEY_BYTES = 32


def key_id(key: bytes) -> str:
    """A name for a key that tells nothing of it."""
    return hashlib.sha256(b"homing seal\0" + key).hexdigest()[:12]


def read_keys(text: str) -> tuple[bytes, ...] | None:
    """Keys in base64 of 32 bytes each, parted by commas or white space; None if one is not so."""
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
