"""Two servers on one PostgreSQL: an event type that one describes holds for the other at once."""

from __future__ import annotations

import http.client
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio.to_thread

from homing.server.serve import serving
from homing.server.settings import Settings
from postgres import Server

KEY = "hk_fleet-event-types-key-0123"
TYPES = "/v1/event-types"
SCHEMA = {"type": "object", "required": ["id"]}


def ask(address: str, method: str, path: str, document: Any = None) -> int:
    """Send a request to one of the servers and return the status of its response."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=60)
    try:
        body = None if document is None else json.dumps(document)
        connection.request(method, path, body, {"authorization": f"Bearer {KEY}"})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def changes(here: str, there: str) -> None:
    """Each response of the one server holds for the next event that the other is given."""
    without_id = {"type": "invoice.paid", "data": {"cents": 4200}}
    for _ in range(3):  # A race of notifications would not lose each time.
        assert ask(there, "POST", "/v1/events", without_id) == 202
        described = {"name": "invoice.paid", "schema": SCHEMA, "check": "refuse"}
        assert ask(here, "POST", TYPES, described) == 201
        assert ask(there, "POST", "/v1/events", without_id) == 422
        assert ask(there, "POST", "/v1/events", [without_id, without_id]) == 422
        assert ask(here, "PATCH", f"{TYPES}/invoice.paid", {"check": "warn"}) == 200
        assert ask(there, "POST", "/v1/events", without_id) == 202
        assert ask(there, "DELETE", f"{TYPES}/invoice.paid") == 204
        assert ask(here, "POST", "/v1/events", without_id) == 202


async def test_an_event_type_holds_in_every_process_from_its_response_on(
    postgres: Server, tmp_path: Path
) -> None:
    settings = Settings.of(
        data=str(tmp_path),  # with the key that encrypts
        database_url=await postgres.make(),
        listen="127.0.0.1:0",
        grace_ms=500,
    )
    async with AsyncExitStack() as stack:
        here, there = [
            (await stack.enter_async_context(serving(settings, admin_key=KEY)))[0] for _ in range(2)
        ]
        await anyio.to_thread.run_sync(changes, here, there)
