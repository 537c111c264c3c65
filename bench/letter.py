"""The one request that every part sends: 1 KiB of body, the same headers, 50 URLs."""

from __future__ import annotations

import json
from typing import Any

from homing.model import Event, Format
from homing.policy.formats import body_writer
from homing.policy.signature import Signer, new_secret

BODY_BYTES = 1024
SMALL_BODY_BYTES = 256
URLS = 50
OBJECTS = 10_000  # that the events of x are about
FAN_OUT = 100  # URLs that get the same event
TENANT = "default"
IN_FLIGHT = 64
SECRET = new_secret(bytes(range(32)))
STAMP = b"1000000000000.000"  # where the milliseconds of sending are written in
FIELDS = ("data.invoice.id", "data.customer.id")  # which q indexes
CUSTOMERS = 1_000
_INVOICES_FROM = 1_000_000_000  # all of one length
_TIME = "2030-01-01T00:00:00.000Z"


def event_type(number: int) -> str:
    """Each of the 50 URLs has a type of its own: one event, one delivery."""
    return f"bench.t{number % URLS:02d}"


def url(port: int, number: int) -> str:
    return f"http://127.0.0.1:{port}/hook/{number % URLS}"


def key(run: str, number: int) -> str:
    """The event's id: all of one length, so that all bodies are."""
    return f"{run}-{number:09d}"


def invoice(number: int) -> int:
    """The value of ``data.invoice.id``: no other event has it."""
    return _INVOICES_FROM + number


def customer(number: int) -> str:
    """The value of ``data.customer.id``: one event in a thousand has it."""
    return f"c{number % CUSTOMERS:03d}"


def event_data(number: int, pad: bytes) -> bytes:
    """The data of one event."""
    return b'{"sent_at":%s,"invoice":{"id":%d},"customer":{"id":"%s"},"pad":"%s"}' % (
        STAMP,
        invoice(number),
        customer(number).encode(),
        pad,
    )


def _pad(size: int) -> bytes:
    """What fills data up to so many bytes."""
    return b"x" * (size - len(event_data(0, b"")))


def event_pad(run: str, body_bytes: int = BODY_BYTES) -> bytes:
    """What makes a body of exactly so many bytes once the event is delivered."""
    event = Event(0, TENANT, key(run, 0), event_type(0), _TIME, 0, b"")
    return _pad(body_bytes - len(body_writer(Format.STANDARD)[0](event)))


def event_json(run: str, number: int, pad: bytes, tenant: str, objects: int = 0) -> bytes:
    """One event as it is published; about one of so many objects, if it has a key."""
    return b'{"id":"%s",%s%s"type":"%s","data":%s}' % (
        key(run, number).encode(),
        b"" if tenant == TENANT else b'"tenant":"%s",' % tenant.encode(),
        b'"key":"object-%d",' % (number % objects) if objects else b"",
        event_type(number).encode(),
        event_data(number, pad),
    )


def body() -> bytes:
    """What the senders without a server post."""
    return event_data(0, _pad(BODY_BYTES))


def header_lines(
    signer: Signer, webhook_id: bytes, timestamp: bytes, content: bytes, kind: bytes
) -> bytes:
    """The header lines of a delivery."""
    return b"".join(
        (
            b"content-type: application/json\r\nuser-agent: homing/bench\r\nwebhook-id: ",
            webhook_id,
            b"\r\nwebhook-timestamp: ",
            timestamp,
            b"\r\nwebhook-signature: ",
            signer.sign(webhook_id, timestamp, content),
            b"\r\nhoming-event-type: ",
            kind,
            b"\r\nhoming-delivery: ",
            webhook_id,
            b"\r\nhoming-attempt: 1\r\n",
        )
    )


def subscription(port: int, number: int, *, tenant: str, order: str = "none") -> dict[str, Any]:
    """The body of ``POST /v1/subscriptions`` for one of the 50 URLs."""
    return {
        "tenant": tenant,
        "url": url(port, number),
        "types": [event_type(number)],
        "secret": SECRET,
        "order": order,
    }


def described_type(number: int) -> dict[str, Any]:
    """The body of ``POST /v1/event-types`` for one of the 50 types, with a small schema."""
    text = {"type": "string", "maxLength": 4_000}
    return {
        "name": event_type(number),
        "check": "refuse",
        "schema": {
            "type": "object",
            "required": ["sent_at", "invoice", "customer"],
            "properties": {
                "sent_at": {"type": "number"},
                "invoice": {
                    "type": "object",
                    "required": ["id"],
                    "properties": {"id": {"type": "integer", "minimum": _INVOICES_FROM}},
                },
                "customer": {
                    "type": "object",
                    "required": ["id"],
                    "properties": {"id": {"type": "string", "pattern": "^c[0-9]{3}$"}},
                },
                "pad": text,
            },
            "additionalProperties": False,
        },
    }


def subscription_to_all(port: int, number: int) -> dict[str, Any]:
    """The same for one of the URLs that get every event."""
    return {
        "url": f"http://127.0.0.1:{port}/hook/{number}",
        "types": ["bench.*"],
        "secret": SECRET,
    }


def say(document: dict[str, Any]) -> None:
    """One line of JSON to whoever started this process."""
    print(json.dumps(document), flush=True)
