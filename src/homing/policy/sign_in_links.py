"""Links that sign in once: a time, a random name and a signature with the admin key.

The link is behind the ``#`` of the address of the sign-in page, which browsers send to no server.
So it is in no log of a server or a proxy. The store remembers its name from its first use on.
"""

from __future__ import annotations

import hmac
import re

LIFE_MS = 15 * 60_000
PREFIX = "hl_"
_LINK = re.compile(rb"hl_([0-9]{1,12})_([0-9a-f]{16})_([0-9a-f]{64})")


def make_link(admin_key: str, *, name: str, wall: int) -> str:
    """The text of a link that works until ``LIFE_MS`` from now; ``name`` has 16 hex digits."""
    told = f"{PREFIX}{(wall + LIFE_MS) // 1000}_{name}"
    return f"{told}_{_sign(admin_key, told)}"


def read_link(text: bytes, admin_key: str, *, wall: int) -> str | None:
    """The name of a link; None if it is wrong or too old."""
    found = _LINK.fullmatch(text)
    if found is None:
        return None
    told, signature = text.decode().rpartition("_")[0], found[3].decode()
    if not hmac.compare_digest(signature, _sign(admin_key, told)):
        return None
    until_ms = int(found[1]) * 1000
    return found[2].decode() if wall < until_ms <= wall + 2 * LIFE_MS else None


def _sign(admin_key: str, told: str) -> str:
    return hmac.digest(admin_key.encode(), b"homing sign-in link " + told.encode(), "sha256").hex()
