"""Two servers on one PostgreSQL: limits on what may exist are checked in the commit."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from homing.app.access import Caller
from homing.engine import portal, sessions
from homing.errors import Conflict, HomingError
from homing.policy.keys import Role
from homing.policy.portal import LinkDraft
from homing.ports.pull import READERS_MAX
from homing.server.serve import serving
from homing.server.settings import Settings
from homing.server.wiring import Running
from homing.store import notices
from homing.web.workfront.api import BASE
from postgres import Server

KEY = "hk_fleet-only-one-key-0123"
ROUNDS = 6
OPERATOR = Caller("an operator", Role.ADMIN, None)


class Two:
    """Two servers, which are sent a request at the same time."""

    def __init__(self, addresses: list[str], running: list[Running]) -> None:
        self._hosts = [it.removeprefix("http://") for it in addresses]
        self.running = running

    async def ask(
        self, method: str, path: str, document: Any = None, other: Any = None
    ) -> list[tuple[int, Any]]:
        """The statuses and bodies of both responses; ``other`` is the second one's document."""
        barrier = threading.Barrier(len(self._hosts))

        def ask(host: str, document: Any) -> tuple[int, Any]:
            connection = http.client.HTTPConnection(host, timeout=60)
            try:
                connection.connect()
                barrier.wait(60)
                head = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
                connection.request(method, path, json.dumps(document), head)
                response = connection.getresponse()
                text = response.read()
                return response.status, json.loads(text) if text else None
            finally:
                connection.close()

        return await asyncio.gather(
            *(
                anyio.to_thread.run_sync(ask, host, document)
                for host, document in zip(self._hosts, (document, other or document), strict=True)
            )
        )

    async def statuses(
        self, method: str, path: str, document: Any = None, other: Any = None
    ) -> list[int]:
        return sorted(status for status, _ in await self.ask(method, path, document, other))


@pytest.fixture
async def two(postgres: Server, tmp_path: Path) -> AsyncIterator[Two]:
    settings = Settings.of(
        data=str(tmp_path),  # with the key that encrypts
        database_url=await postgres.make(),
        listen="127.0.0.1:0",
        grace_ms=500,
        subscriptions_max=2,
    )
    async with AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(serving(settings, admin_key=KEY)) for _ in range(2)
        ]
        yield Two([address for address, _ in found], [running for _, running in found])


async def test_of_two_equal_workfront_subscriptions_one_is_created(two: Two) -> None:
    for number in range(ROUNDS):
        wanted = {
            "objCode": "PROJ",
            "eventType": "UPDATE",
            "url": f"https://a.example/{number}",
            "authToken": "a-token",
        }
        path = f"{BASE}?customerId=tenant-{number}"
        assert await two.statuses("POST", path, wanted) == [201, 409]


async def test_the_quota_of_subscriptions_is_kept(two: Two) -> None:
    for number in range(ROUNDS):
        first, one, other = (
            {"tenant": f"tenant-{number}", "url": f"https://a.example/{path}", "types": ["*"]}
            for path in ("first", "one", "other")
        )
        assert (await two.statuses("POST", "/v1/subscriptions", first, {"no": 1}))[0] == 201
        assert await two.statuses("POST", "/v1/subscriptions", one, other) == [201, 429]


async def test_a_tenant_has_one_built_in_receiver(two: Two) -> None:
    for number in range(ROUNDS):
        found = await asyncio.gather(
            *(
                it.app.built_in_receiver.add(OPERATOR, tenant=f"tenant-{number}")
                for it in two.running
            ),
            return_exceptions=True,
        )
        assert Counter(map(_is_conflict, found)) == {True: 1, False: 1}


def _is_conflict(found: object) -> bool:
    assert not isinstance(found, BaseException) or isinstance(found, Conflict), found
    return isinstance(found, Conflict)


async def test_a_tenant_has_at_most_so_many_portal_links(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portal, "LIVE_LINKS_MAX", 1)
    for number in range(ROUNDS):
        found = await asyncio.gather(
            *(
                it.app.portal_links.create(OPERATOR, LinkDraft(), tenant=f"tenant-{number}")
                for it in two.running
            ),
            return_exceptions=True,
        )
        assert Counter(isinstance(it, HomingError) for it in found) == {True: 1, False: 1}


async def test_a_key_has_at_most_so_many_sessions(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 1)
    store = two.running[0].stores.keys
    opened = []
    for _ in range(3):
        opened += await asyncio.gather(
            *(it.app.sessions.sign_in(KEY.encode(), "127.0.0.1") for it in two.running)
        )
        living = [await store.has_session(it.id) for it in opened]
        assert living.count(True) == 1


async def test_a_tenant_has_at_most_so_many_notice_targets(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "TARGETS_MAX", 1)
    for number in range(ROUNDS):
        wanted = {
            "tenant": f"tenant-{number}",
            "kind": "webhook",
            "address": "https://a.example/",
        }
        assert await two.statuses("POST", "/v1/notice-targets", wanted) == [201, 429]


async def test_an_event_type_is_created_once(two: Two) -> None:
    for number in range(ROUNDS):
        wanted = {"name": f"invoice.paid-{number}"}
        assert await two.statuses("POST", "/v1/event-types", wanted) == [201, 409]


async def test_a_tenant_gets_one_first_signing_key(two: Two) -> None:
    for number in range(ROUNDS):
        wanted = {
            "tenant": f"tenant-{number}",
            "url": "https://a.example/",
            "types": ["*"],
            "signature": "ed25519",
        }
        made = await two.ask("POST", "/v1/subscriptions", wanted)
        assert [status for status, _ in made] == [201, 201]
        (one, other) = (body["public_keys"] for _, body in made)
        assert one == other
        assert len(one) == 1


async def test_a_stream_has_at_most_sixteen_readers(two: Two) -> None:
    (_, stream), _ = await two.ask("POST", "/v1/subscriptions", {"types": ["*"]})
    path = f"/v1/subscriptions/{stream['id']}/events?from=now&reader="
    for number in range(READERS_MAX - 1):
        assert await two.statuses("GET", f"{path}reader-{number}") == [200, 200]
    found = await asyncio.gather(*(two.statuses("GET", path + name) for name in ("one", "other")))
    assert sorted(found) == [[200, 200], [409, 409]]
