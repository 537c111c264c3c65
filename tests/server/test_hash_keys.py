"""Erased ids, cursors, payload fields and the built-in receiver outlive every replaced key."""

from __future__ import annotations

import asyncio
import http.client
import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from homing.policy.encryption_keys import key_id
from homing.server.database import open_stores
from homing.server.serve import serving
from homing.server.settings import Settings
from postgres import Server

KEY, OTHER_KEY = "hk_hash-keys-test-key-01234", "hk_hash-keys-test-key-56789"
FIRST, SECOND, THIRD = (b64encode(bytes([fill]) * 32).decode() for fill in (1, 2, 3))
EVENT = {"id": "order-1", "type": "order.paid", "data": {"customer": "C-4711"}}
KEPT = {"id": "order-2", "type": "order.paid", "data": {"customer": "C-0815"}}


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> Server | None:
    """A PostgreSQL; None: on SQLite."""
    return request.getfixturevalue("postgres") if request.param == "postgres" else None


@pytest.fixture
async def database(server: Server | None) -> str:
    """The setting database_url."""
    return await server.make() if server is not None else ""


def settings_of(folder: Path, database: str, secret_key: str) -> Settings:
    return Settings.of(
        data=str(folder),
        database_url=database,
        writer="inline",
        listen="127.0.0.1:0",
        grace_ms=500,
        secret_key=secret_key,
        search_fields=("data.customer",),
    )


class Asked:
    """Sends requests to a server."""

    def __init__(self, address: str, key: str) -> None:
        self._host, self._key = address.removeprefix("http://"), key

    def ask(self, method: str, path: str, document: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        try:
            body = None if document is None else json.dumps(document)
            head = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
            connection.request(method, path, body, head)
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None
        finally:
            connection.close()

    def good(self, method: str, path: str, document: Any = None) -> Any:
        status, found = self.ask(method, path, document)
        assert status < 300, (method, path, status, found)
        return found


async def on_a_server(settings: Settings, story: Any, *args: Any, key: str = KEY) -> Any:
    """What the story returns; it runs while a server does, from its start to its end."""
    async with serving(settings, admin_key=key) as (address, _):
        return await anyio.to_thread.run_sync(story, Asked(address, key), *args)


def prepare(server: Asked) -> tuple[str, str]:
    """An erased event and a reader: the path of the stream, and a cursor."""
    stream = server.good("POST", "/v1/subscriptions", {"types": ["order.*"]})
    path = f"/v1/subscriptions/{stream['id']}"
    server.good("POST", "/v1/events", EVENT)
    server.good("POST", "/v1/events", KEPT)
    server.good("POST", "/v1/erasures", {"event": EVENT["id"]})
    page = server.good("GET", f"{path}/events")
    return path, page["events"][-1]["cursor"]


def check(server: Asked, path: str, cursor: str) -> None:
    (again,) = server.good("POST", "/v1/events", EVENT)["events"]
    assert again["duplicate"] is True
    assert server.ask("POST", "/v1/events", {**EVENT, "data": {}})[0] == 409
    assert server.good("GET", f"{path}/events?after={cursor}")["events"] == []
    assert server.good("POST", f"{path}/ack", {"cursor": cursor})["cursor"] == cursor
    found = server.good("GET", "/v1/search?q=data.customer:C-0815")
    assert [it["kind"] for it in found["items"]] == ["event"], found


async def test_servers_that_start_at_once_agree_on_one_key(
    tmp_path: Path, postgres: Server
) -> None:
    settings = settings_of(tmp_path, await postgres.make(), FIRST)
    stores = await asyncio.gather(*(open_stores(settings) for _ in range(6)))
    for one in stores:
        await one.close()
    assert len({tuple(one.hash_keys) for one in stores}) == 1
    assert len(stores[0].hash_keys) == 1


async def test_the_database_has_the_key_only_encrypted(tmp_path: Path) -> None:
    before = await open_stores(settings_of(tmp_path, "", FIRST))
    await before.close()
    during = await open_stores(settings_of(tmp_path, "", f"{SECOND},{FIRST}"))
    (stored,) = await during.encryption.hash_keys()
    await during.close()
    (key,) = before.hash_keys
    assert stored.value.startswith(f"sealed:1:{key_id(b64decode(SECOND))}:")
    assert key_id(key) == stored.name
    held = b"".join(it.read_bytes() for it in tmp_path.iterdir() if it.is_file())
    assert stored.name.encode() in held
    assert key not in held
    assert key.hex().encode() not in held


async def test_the_url_of_a_built_in_receiver_outlives_the_admin_key(tmp_path: Path) -> None:
    settings, urls = settings_of(tmp_path, "", FIRST), set[str]()
    for key in (KEY, OTHER_KEY):
        async with serving(settings, admin_key=key) as (_, running):
            urls.add(running.app.built_in_receiver.url("acme"))
    assert len(urls) == 1


async def test_erased_ids_cursors_and_fields_outlive_the_encryption_key(
    tmp_path: Path, database: str
) -> None:
    path, cursor = await on_a_server(settings_of(tmp_path, database, FIRST), prepare)
    for keys in (FIRST, f"{SECOND},{FIRST}", SECOND, f"{THIRD},{SECOND}", THIRD):
        await on_a_server(settings_of(tmp_path, database, keys), check, path, cursor)
