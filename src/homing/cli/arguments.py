"""Flags and arguments that several commands take, and how their text is read."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

import typer

from homing.cli.errors import Usage
from homing.server.settings import ENV_SERVER

# --- the server and the output --------------------------------------------------------------

ServerFlag = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar=ENV_SERVER,
        metavar="URL",
        help="The server to connect to; default: the one on this machine.",
        show_default=False,
        show_envvar=False,
    ),
]
KeyFlag = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="HOMING_ADMIN_KEY",
        metavar="KEY",
        help="Its API key; default: the admin key in the data directory on this machine.",
        show_default=False,
        show_envvar=False,
    ),
]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print JSON: one document, or one line per item.")
]
LimitFlag = Annotated[
    int, typer.Option("--limit", min=1, help="The maximum number of items, newest first.")
]

# --- this machine ---------------------------------------------------------------------------

ConfigFlag = Annotated[
    str | None, typer.Option("--config", help="The settings file; default: ./homing.toml.")
]
DataFlag = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="The data directory; default: the setting `data`."),
]
DatabaseFlag = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="The application's database: postgresql://… or sqlite:PATH; default: outbox_url.",
        show_default=False,
    ),
]

# --- which objects --------------------------------------------------------------------------


class State(StrEnum):
    """The state of an endpoint."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    FROZEN = "frozen"


class Status(StrEnum):
    """The status of a delivery."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DROPPED = "dropped"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


class Reason(StrEnum):
    """Why a delivery was dropped or cancelled."""

    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    BY_PERSON = "by_person"
    SUBSCRIPTION_DELETED = "subscription_deleted"
    GONE = "gone"


class Outcome(StrEnum):
    """The outcome of an attempt."""

    DELIVERED = "delivered"
    FAILED = "failed"
    SENDER_ERROR = "sender_error"


TenantFlag = Annotated[
    str | None, typer.Option("--tenant", metavar="TENANT", help="Only of this tenant.")
]
OwnerFlag = Annotated[
    str | None, typer.Option("--tenant", help='The tenant it belongs to; default: "default".')
]
SubscriptionArgument = Annotated[
    str, typer.Argument(metavar="SUBSCRIPTION", help="Its id, like sub_01k9x3w8z4g00.")
]
EndpointArgument = Annotated[
    str, typer.Argument(metavar="ENDPOINT", help="Its id, like ep_01k9x3w8z4g00, or its URL.")
]
DeliveryArgument = Annotated[
    str,
    typer.Argument(
        metavar="DELIVERY", help="Its id, like dlv_01k9x3w8z4g00, or the id of its event."
    ),
]
TypesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TYPES]...", help="order.paid, order.*, or * for all (default)."),
]
StatusFlag = Annotated[Status | None, typer.Option(help="Only with this status.")]
ReasonFlag = Annotated[Reason | None, typer.Option(help="Only with this reason.")]
EndpointFlag = Annotated[str | None, typer.Option(help="Only to this endpoint: ep_…, or its URL.")]
SubscriptionFlag = Annotated[str | None, typer.Option(help="Only of this subscription (sub_…).")]
EventFlag = Annotated[str | None, typer.Option(help="Only of this event.")]
TypeFlag = Annotated[str | None, typer.Option("--type", help="Only of events of this type.")]
UrlFlag = Annotated[str | None, typer.Option(help="Only to URLs that contain this text.")]
FailureFlag = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS",
        help="Only with this failure class: http_status, timeout, refused, tls, dns, …",
    ),
]
CodeFlag = Annotated[
    int | None, typer.Option(metavar="STATUS", help="Only with this status code, like 503.")
]
SinceFlag = Annotated[
    str | None,
    typer.Option(help="Accepted at or after this time: RFC 3339, or a duration back like 2h."),
]
UntilFlag = Annotated[str | None, typer.Option(help="Accepted before this time; like --since.")]
FinishedSinceFlag = Annotated[
    str | None,
    typer.Option(help="Delivered, dropped or cancelled at or after this time; like --since."),
]
SecretFlag = Annotated[
    str | None, typer.Option(help="The signing secret, whsec_…; default: a new one.")
]
AnyFlag = Annotated[
    bool, typer.Option("--any", help="One matching filter is enough (OR); default: all must match.")
]


def given(**flags: object) -> dict[str, Any]:
    """The flags that were given."""
    return {name: value for name, value in flags.items() if value is not None}


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def read_seconds(text: str, flag: str) -> float:
    """A duration like ``500ms``, ``30s``, ``2m``, ``1h`` or ``1d``; raises Usage."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise Usage(f"{flag} {text} must be a duration like 500ms, 30s or 2m.")
    return float(found[1]) * _SECONDS[found[2]]
