"""The event types of a tenant as an OpenAPI 3.1 document: each is a webhook."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import Raw
from msgspec.json import decode

from homing.policy.event_schema import with_references
from homing.policy.event_types import EventType

_HEADERS = {
    "webhook-id": "The same for every attempt to deliver this event: use it to recognise repeats.",
    "webhook-timestamp": "When this attempt was made, in Unix seconds.",
    "webhook-signature": "Signatures of id, timestamp and body, as Standard Webhooks describes.",
}
_TURN = 20  # types between two turns of the event loop


async def event_openapi(tenant: str, types: Sequence[EventType]) -> dict[str, Any]:
    """The document. Its schemas are those of ``data``; the body of a webhook has them within."""
    webhooks: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for number, it in enumerate(types):
        if it.schema:
            schemas[it.name] = _schema(it)
        webhooks[it.name] = {"post": _operation(it)}
        if number % _TURN == _TURN - 1:
            await asyncio.sleep(0)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": f"Events of {tenant}",
            "version": str(max((it.version for it in types), default=0)),
            "description": "Every event is sent in the format `standard`, unless a subscription "
            "has another one.",
        },
        "webhooks": webhooks,
    }
    if schemas:
        document["components"] = {"schemas": schemas}
    return document


def _schema(it: EventType) -> Any:
    if '"$ref"' not in it.schema and '"$id"' not in it.schema and "\\u" not in it.schema:
        return Raw(it.schema.encode())
    return with_references(decode(it.schema), f"#/components/schemas/{it.name}")


def _operation(it: EventType) -> dict[str, Any]:
    data = {"$ref": f"#/components/schemas/{it.name}"} if it.schema else {}
    body: dict[str, Any] = {
        "schema": {
            "type": "object",
            "required": ["id", "type", "timestamp", "data"],
            "properties": {
                "id": {"type": "string"},
                "type": {"const": it.name},
                "timestamp": {"type": "string", "format": "date-time"},
                "data": data,
            },
        }
    }
    if it.sample:
        body["example"] = {
            "id": "evt_01k9x3w8z4g00",
            "type": it.name,
            "timestamp": "2025-01-31T12:00:00.000Z",
            "data": Raw(it.sample.encode()),
        }
    first = it.description.strip().partition("\n")[0]
    return {
        "operationId": it.name,
        "summary": first[:120] or it.name,
        "description": it.description,
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "description": sentence,
                "schema": {"type": "string"},
            }
            for name, sentence in _HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {"2XX": {"description": "The event was received."}},
    }
