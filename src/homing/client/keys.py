"""Keys of the API and rotated secrets: what is shown once."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from homing.client.values import NewSubscription

Role = Literal["admin", "publisher", "manager", "viewer"]


class Key(Struct, frozen=True, kw_only=True):
    """A key without its secret; ``tenant`` is None for all tenants."""

    id: str
    name: str
    role: str
    tenant: str | None
    prefix: str
    created_at: str
    expires_at: str | None = None
    last_used_at: str | None = None
    revoked_at: str | None = None


class NewKey(Key, frozen=True, kw_only=True):
    """A new key, with the key itself: keep it, it is never shown again."""

    key: str

    def __repr__(self) -> str:
        return f"NewKey(id={self.id!r}, name={self.name!r}, key=****)"


class RotatedSubscription(NewSubscription, frozen=True, kw_only=True):
    """A subscription with its new secret; ``secrets`` says until when the old ones sign."""
