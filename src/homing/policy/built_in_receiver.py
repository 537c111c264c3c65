"""The address of the receiver that is built into Homing, for the first delivery of a new tenant.

Its host is a name that the sender connects to this server itself, without a look-up; no other
address of this machine is allowed by it. The path has a signature, so that strangers cannot use it,
and the receiver keeps nothing: the dashboard shows the logged attempts.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

HOST = "built-in-receiver.internal"
PREFIX = "/built-in-receiver/"


def receiver_url(keys: Sequence[bytes], tenant: str) -> str:
    """The URL of a tenant's built-in receiver, signed with the first key."""
    return f"http://{HOST}{PREFIX}{tenant}/{_token(keys[0], tenant)}"


def is_receiver_path(path: str, keys: Sequence[bytes]) -> bool:
    """Whether this is the path of some tenant's built-in receiver, signed with any key."""
    tenant, _, token = path.removeprefix(PREFIX).partition("/")
    return any(hmac.compare_digest(token.encode(), _token(key, tenant).encode()) for key in keys)


def _token(key: bytes, tenant: str) -> str:
    return hmac.digest(key, b"homing built-in receiver " + tenant.encode(), "sha256").hex()[:32]
