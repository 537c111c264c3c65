# Generated from SubscriptionSpec in homing/model.py by tools/generate_client_subscription.py: do
# not edit.
"""A subscription as the API shows it, and the fields of it that callers may give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from msgspec import Struct, field

API_NAMES = {"filter_connector": "filterConnector"}


class MaskedSecret(Struct, frozen=True):
    """A signing secret, masked; ``until`` while it is being rotated out."""

    value: str
    until: str | None = None


class PublicKey(Struct, frozen=True):
    """A public key (``whpk_…``) of a tenant; ``until`` while it is being rotated out."""

    value: str
    kid: str
    until: str | None = None


class CertificateFacts(Struct, frozen=True):
    """What a client certificate says about itself; ``fingerprint`` is its SHA-256."""

    subject: str
    issuer: str
    fingerprint: str
    expires_at: str


class Receiver(Struct, frozen=True, kw_only=True):
    """What the receiver of a subscription has said: a 410, or a proof that it owns the URL."""

    gone_at: str | None = None
    verified_at: str | None = None
    asked_at: str | None = None
    problem: str = ""
    per_minute_max: int | None = None


class Subscription(Struct, frozen=True, kw_only=True):
    """A subscription; token, secrets, header values and the client key are masked."""

    id: str
    tenant: str
    endpoint: str  # empty: it has no URL, its events are read
    url: str = ""
    types: tuple[str, ...]
    filters: tuple[dict[str, Any], ...] = ()
    filter_connector: str = field(name="filterConnector", default="AND")
    format: str = "standard"
    signature: str = "hmac"
    policy: str | None = None
    token: str | None = None
    basic_user: str | None = None
    basic_password: str | None = None
    oauth_token_url: str | None = None
    oauth_client_id: str | None = None
    oauth_method: str = "client_secret_basic"
    oauth_client_secret: str | None = None
    oauth_scope: str | None = None
    oauth_audience: str | None = None
    oauth_key_id: str | None = None
    oauth_private_key: str | None = None
    deadline_ms: int | None = None
    order: str = "none"
    quiet_ms: int | None = None
    max_wait_ms: int | None = None
    rate_per_second: float | None = None
    headers: dict[str, str] = {}
    client_certificate: str | None = None
    client_key: str | None = None
    ca_certificates: str | None = None
    description: str = ""
    metadata: dict[str, str] = {}
    verification: str = "none"
    active: bool = True
    secrets: tuple[MaskedSecret, ...]
    public_keys: tuple[PublicKey, ...] = ()
    certificate: CertificateFacts | None = None
    unverified: bool = False
    receiver: Receiver | None = None
    paused_since: str | None = None
    created_at: str
    updated_at: str


class SubscriptionOptions(TypedDict, total=False):
    """The fields that a new subscription may have beside its URL and types."""

    tenant: str
    secret: str | None
    filters: Sequence[Mapping[str, Any]]
    filter_connector: str
    format: str
    signature: str
    policy: str | None
    token: str | None
    basic_user: str | None
    basic_password: str | None
    oauth_token_url: str | None
    oauth_client_id: str | None
    oauth_method: str
    oauth_client_secret: str | None
    oauth_scope: str | None
    oauth_audience: str | None
    oauth_key_id: str | None
    oauth_private_key: str | None
    deadline_ms: int | None
    order: str
    quiet_ms: int | None
    max_wait_ms: int | None
    rate_per_second: float | None
    headers: Mapping[str, str]
    client_certificate: str | None
    client_key: str | None
    ca_certificates: str | None
    description: str
    metadata: Mapping[str, str]
    verification: str
    active: bool


class SubscriptionChanges(TypedDict, total=False):
    """A value replaces, None restores the default, and None inside a mapping removes that one."""

    secret: str
    url: str | None
    types: Sequence[str]
    filters: Sequence[Mapping[str, Any]] | None
    filter_connector: str | None
    format: str | None
    signature: str | None
    policy: str | None
    token: str | None
    basic_user: str | None
    basic_password: str | None
    oauth_token_url: str | None
    oauth_client_id: str | None
    oauth_method: str | None
    oauth_client_secret: str | None
    oauth_scope: str | None
    oauth_audience: str | None
    oauth_key_id: str | None
    oauth_private_key: str | None
    deadline_ms: int | None
    order: str | None
    quiet_ms: int | None
    max_wait_ms: int | None
    rate_per_second: float | None
    headers: Mapping[str, str | None] | None
    client_certificate: str | None
    client_key: str | None
    ca_certificates: str | None
    description: str | None
    metadata: Mapping[str, str | None] | None
    verification: str | None
    active: bool
