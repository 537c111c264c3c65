"""Generates the client's values of a subscription from the list of its fields: ``make docs``.

    python tools/generate_client_subscription.py            write homing_client/subscription.py
    python tools/generate_client_subscription.py --check    exit with 1 if it is out of date

The client imports nothing of the server, so it cannot read the list in ``homing.model`` itself.
"""

from __future__ import annotations

import sys
from enum import EnumType
from pathlib import Path
from typing import Any

from homing.model import SPEC, Field, Kind

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src/homing_client/subscription.py"

PAGE = '''\
# Generated from SubscriptionSpec in homing/model.py by tools/generate_client_subscription.py: do
# not edit.
"""A subscription as the API shows it, and the fields of it that callers may give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from msgspec import Struct, field

API_NAMES = {api_names}


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
{shown}
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
{options}


class SubscriptionChanges(TypedDict, total=False):
    """A value replaces, None restores the default, and None inside a mapping removes that one."""

    secret: str
{changes}
'''

_GIVEN = {
    Kind.WORDS: "Sequence[str]",
    Kind.PAIRS: "Mapping[str, str]",
    Kind.FILTERS: "Sequence[Mapping[str, Any]]",
}
_SHOWN = {
    Kind.WORDS: "tuple[str, ...]",
    Kind.PAIRS: "dict[str, str]",
    Kind.FILTERS: "tuple[dict[str, Any], ...]",
}


def generate() -> str:
    """The text of the module."""
    fields = SPEC.values()
    return PAGE.format(
        api_names=_text({it.name: it.api_name for it in fields if it.api_name != it.name}),
        shown="\n".join(f"    {it.name}: {_type(it, _SHOWN)}{_default(it)}" for it in fields),
        options="\n".join(
            f"    {it.name}: {_type(it, _GIVEN)}"
            for it in fields
            if not it.required and it.name != "url"  # It is an argument of its own.
        ),
        changes="\n".join(f"    {it.name}: {_change(it)}" for it in fields),
    )


def _type(field: Field, kinds: dict[Kind, str]) -> str:
    if field.kind in kinds:
        return kinds[field.kind]
    if isinstance(field.type, EnumType):
        return "str"
    return field.type.__name__ if isinstance(field.type, type) else str(field.type)


def _change(field: Field) -> str:
    if field.kind is Kind.PAIRS:
        return "Mapping[str, str | None] | None"
    kind = _type(field, _GIVEN)
    lasts = field.required or field.kind is Kind.FLAG or kind.endswith("| None")
    return kind if lasts else f"{kind} | None"


def _default(field: Field) -> str:
    if field.required:
        return ""
    value = {Kind.PAIRS: {}, Kind.FILTERS: ()}.get(field.kind, field.default)
    text = _text(str(value) if isinstance(value, str) else value)
    if field.api_name != field.name:
        return f' = field(name="{field.api_name}", default={text})'
    return f" = {text}"


def _text(value: Any) -> str:
    return repr(value).replace("'", '"')


def main() -> None:
    """Write the module, or check it."""
    text = generate()
    if "--check" not in sys.argv:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        sys.exit(f"{TARGET.name} is out of date: run `make docs`.")


if __name__ == "__main__":
    main()
