"""The link that ``serve`` and ``demo`` print: it opens the dashboard, once."""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

from homing.net.clock import wall_ms
from homing.policy.sign_in_links import make_link

_EVERY_ADDRESS = {"0.0.0.0", "::"}  # noqa: S104 - a server that listens there is at localhost, too


def link_to(address: str, admin_key: str) -> str:
    """A link that signs in as the admin key, once, within 15 minutes."""
    parts = urlsplit(address)
    if parts.hostname in _EVERY_ADDRESS:
        address = f"{parts.scheme}://localhost:{parts.port}"
    made = make_link(admin_key, name=secrets.token_hex(8), wall=wall_ms())
    return f"{address}/sign-in#{made}"
