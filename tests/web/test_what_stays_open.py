"""Whatever stays open ends with the key, the session or the link that opened it.

Shows what-homing-promises.md#hostile-input, of streams, long polls, live pages and exports.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from engine.world import Reply
from homing.app import access, exports
from homing.app.access import READERS, Caller, use_case
from homing.app.pull import STREAM_WAIT_MS, WAITING_OF_KEY_MAX
from homing.errors import NotAuthorized
from homing.policy.keys import Role
from homing.web.asgi import asgi_app
from web.browse import HOST, Browser
from web.house import URL, House, live, use_cases
from web.test_dashboard_sessions import another_process, made
from web.test_people import ELSEWHERE, PROXY, people
from web.test_portal import link
from web.test_verification import echoing

FORM = ("content-type", "application/x-www-form-urlencoded")


class Request:
    """A request that is still open: its body comes in parts, and its response is read in parts."""

    def __init__(
        self,
        app: ASGIApp,
        method: str,
        path: str,
        *headers: tuple[str, str],
        body: Sequence[bytes] = (),
        peer: str = ELSEWHERE,
    ) -> None:
        self.sent: list[Message] = []
        self._parts = list(body) or [b""]
        self._may_send, self._may_read = asyncio.Event(), asyncio.Event()
        self.reads_on()
        asked, _, query = path.partition("?")
        length = sum(map(len, body))
        lines = [("host", HOST), ("content-length", str(length)), *headers]
        scope = {
            "type": "http",
            "method": method,
            "path": asked,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in lines],
            "client": (peer, 1),
        }
        self._more, self._left, self._read = asyncio.Event(), asyncio.Event(), 0
        self._task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if not self._parts:
            await self._left.wait()
            return {"type": "http.disconnect"}
        if self._read:
            await self._more.wait()
        self._read += 1
        part = self._parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self._parts)}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        await self._may_read.wait()

    def stops_reading(self) -> None:
        self._may_read.clear()

    def reads_on(self) -> None:
        self._may_read.set()

    def sends_the_rest(self) -> None:
        self._more.set()

    def leaves(self) -> None:
        """The client closes the connection; as in uvicorn, nobody who sends is told."""
        self._left.set()

    @property
    def is_open(self) -> bool:
        return not self._task.done()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(it.get("body", b"") for it in self.sent[1:])

    @property
    def is_whole(self) -> bool:
        """Whether the response has its end."""
        return bool(self.sent) and not self.sent[-1].get("more_body", len(self.sent) == 1)

    async def ended(self) -> None:
        await self._task


End = Callable[[House, dict[str, Any]], Awaitable[None]]


async def _revoke(house: House, key: dict[str, Any]) -> None:
    assert (await house.client.delete(f"/v1/keys/{key['id']}")).status == 204


async def _expire(house: House, _key: dict[str, Any]) -> None:
    await house.world.wait(30_000)


ENDS = pytest.mark.parametrize("end", [_revoke, _expire], ids=["revoked", "expired"])
PROCESSES = pytest.mark.parametrize("fleet", [False, True], ids=["here", "in the fleet"])


def bearer(key: dict[str, Any]) -> tuple[str, str]:
    return ("authorization", f"Bearer {key['key']}")


async def key_of(house: House, role: str = "viewer") -> dict[str, Any]:
    return await made(house, role=role, expires="29s")


async def pull(house: House) -> str:
    got = await house.client.post("/v1/subscriptions", {"types": ["*"], "tenant": "acme"})
    return f"/v1/subscriptions/{got.json['id']}"


@ENDS
@PROCESSES
def test_a_read_that_waits_gets_nothing_after_its_key_has_ended(end: End, fleet: bool) -> None:
    async def story(house: House) -> None:
        key, path = await key_of(house), await pull(house)
        app = another_process(house) if fleet else house.app
        waiting = Request(app, "GET", f"{path}/events?wait=60s", bearer(key))
        await house.world.wait(1_000)
        await end(house, key)
        await house.world.wait(1_000)
        await house.publish(tenant="acme")
        await house.world.wait(1_000)
        if waiting.is_open:  # Another process has published.
            await house.world.wait(60_000)
        assert waiting.status == 401
        assert b"a.b" not in waiting.body

    live(story)


@ENDS
@PROCESSES
def test_a_stream_gets_nothing_after_its_key_has_ended(end: End, fleet: bool) -> None:
    async def story(house: House) -> None:
        key, path = await key_of(house), await pull(house)
        app = another_process(house) if fleet else house.app
        stream = Request(app, "GET", f"{path}/stream", bearer(key))
        await house.world.wait(1_000)
        await house.publish(tenant="acme", id="before")
        await house.world.wait(STREAM_WAIT_MS if fleet else 1_000)
        assert b"before" in stream.body
        await end(house, key)
        await house.world.wait(1_000)
        await house.publish(tenant="acme", id="after")
        await house.world.wait(STREAM_WAIT_MS)
        assert not stream.is_open
        assert stream.is_whole, "the client connects again, and gets the reason"
        assert b"after" not in stream.body

    live(story)


@ENDS
@PROCESSES
@pytest.mark.parametrize("path", ["/v1/audit/export"])
def test_an_export_ends_with_the_page_that_is_being_sent(
    end: End, fleet: bool, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homing.app.audit.EXPORT_PAGE", 1)

    async def story(house: House) -> None:
        key = await key_of(house)
        for _ in range(5):
            await house.subscribe(tenant="acme")
        app = another_process(house) if fleet else house.app
        export = Request(app, "GET", path, bearer(key))
        export.stops_reading()
        await house.world.wait(1_000)
        assert export.status == 200
        await end(house, key)
        await house.world.wait(1_000)
        export.reads_on()
        await export.ended()
        assert export.body.count(b"\n") <= 1
        assert not export.is_whole, "a client must not take it for the whole log"
        whole = await house.client.get(path)
        assert whole.body.count(b"\n") >= 5
        again = Request(house.app, "GET", path, bearer(await key_of(house)))
        await again.ended()
        assert again.is_whole, "the export that ended keeps no place"

    live(story)


EXPORTS = (
    "/subscriptions.ndjson",
    "/events.csv",
    "/deliveries.ndjson",
    "/endpoints.ndjson",
    "/audit/export",
)


@pytest.mark.parametrize("end", ["revoked", "signed out"])
@PROCESSES
@pytest.mark.parametrize("path", EXPORTS)
def test_an_export_of_a_page_ends_with_its_session(
    end: str, fleet: bool, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homing.app.audit.EXPORT_PAGE", 1)
    monkeypatch.setattr(exports, "PAGE_ROWS", 1)

    async def story(house: House) -> None:
        key = await made(house)
        for n in range(4):
            await house.subscribe(f"{URL}/{n}", tenant="acme")
        for _ in range(3):
            await house.publish(tenant="acme")
        await house.settled()
        browser = Browser(house.app)
        await browser.sign_in(key["key"])
        cookie = ("cookie", "; ".join(f"{name}={it}" for name, it in browser.cookies.items()))
        app = another_process(house) if fleet else house.app
        export = Request(app, "GET", path, cookie)
        export.stops_reading()
        await house.world.wait(1_000)
        assert export.status == 200
        if end == "revoked":
            await _revoke(house, key)
        else:
            await browser.form("/", "/sign-out")
        await house.world.wait(1_000)
        export.reads_on()
        await export.ended()
        assert export.body.count(b"\n") <= 2  # CSV has a line of names.
        assert not export.is_whole

    live(story)


@ENDS
@PROCESSES
@pytest.mark.parametrize(
    ("role", "path", "body"),
    [
        ("publisher", "/v1/events", b'{"type":"a.b","data":1,"id":"late"}'),
        ("manager", "/v1/subscriptions", b'{"url":"https://late.example/","types":["*"]}'),
        ("manager", "/attask/eventsubscription/api/v1/subscriptions", b"{}"),
    ],
)
def test_a_body_that_arrives_after_its_key_has_ended_does_nothing(
    end: End, fleet: bool, role: str, path: str, body: bytes
) -> None:
    async def story(house: House) -> None:
        key = await key_of(house, role)
        app = another_process(house) if fleet else house.app
        slow = Request(app, "POST", path, bearer(key), body=(body[:9], body[9:]))
        await house.world.wait(1_000)
        await end(house, key)
        await house.world.wait(1_000)
        slow.sends_the_rest()
        await slow.ended()
        assert slow.status == 401
        assert (await house.client.get("/v1/subscriptions")).json["items"] == []
        assert (await house.client.get("/v1/events/late?tenant=acme")).status == 404

    live(story)


def test_a_form_that_arrives_after_its_session_has_ended_does_nothing() -> None:
    async def story(house: House) -> None:
        one = await house.subscribe(tenant="acme")
        key = await made(house, role="manager")
        browser = Browser(house.app)
        await browser.sign_in(key["key"])
        before = (await house.client.get(f"/v1/subscriptions/{one['id']}")).json
        path = f"/subscriptions/{one['id']}/pause"
        token = await browser.token(f"/subscriptions/{one['id']}")
        cookie = ("cookie", "; ".join(f"{name}={it}" for name, it in browser.cookies.items()))
        origin = ("origin", f"http://{HOST}")
        body = (b"csrf=", token.encode())
        slow = Request(house.app, "POST", path, cookie, origin, FORM, body=body)
        await house.world.wait(1_000)
        await _revoke(house, key)
        slow.sends_the_rest()
        await slow.ended()
        assert (slow.status, dict(slow.sent[0]["headers"])[b"location"][:8]) == (303, b"/sign-in")
        assert (await house.client.get(f"/v1/subscriptions/{one['id']}")).json == before

    live(story)


def test_a_form_of_a_portal_that_arrives_after_its_end_does_nothing() -> None:
    async def story(house: House) -> None:
        made_link = await link(house)
        browser = Browser(house.app)
        await browser.open_portal(made_link["url"])
        token = await browser.token("/portal/endpoints")
        cookie = ("cookie", "; ".join(f"{name}={it}" for name, it in browser.cookies.items()))
        origin = ("origin", f"http://{HOST}")
        body = (b"csrf=", token.encode())
        slow = Request(house.app, "POST", "/portal/subscriptions", cookie, origin, FORM, body=body)
        await house.world.wait(1_000)
        await house.client.delete(f"/v1/portal-links/{made_link['id']}")
        slow.sends_the_rest()
        await slow.ended()
        assert slow.status == 401

    live(story)


def test_a_change_that_waits_for_a_challenge_is_not_made_after_its_key_has_ended() -> None:
    async def story(house: House) -> None:
        other = "https://other.example/hook"
        house.world.sender.scripts[other] = lambda _: Reply(latency_ms=3_000)
        house.world.sender.scripts[URL] = echoing
        one = await house.subscribe(tenant="acme", verification="challenge")
        key = await key_of(house, "manager")
        path = f"/v1/subscriptions/{one['id']}"
        house.world.sender.scripts[URL] = house.world.sender.scripts[other]
        before = (await house.client.get(path)).json
        body = b'{"url":"https://other.example/hook"}'
        asked = [
            Request(house.app, "POST", f"{path}/verify", bearer(key)),
            Request(house.app, "PATCH", path, bearer(key), body=(body,)),
        ]
        await house.world.wait(1_000)
        assert all(it.is_open for it in asked)
        await _revoke(house, key)
        for it in asked:
            await it.ended()
            assert it.status == 401
        assert (await house.client.get(path)).json == before

    live(story)


def test_a_page_of_a_person_whom_a_proxy_names_asks_the_proxy_again_in_time() -> None:
    """Homing cannot see that the person signed out there."""

    async def story(house: House) -> None:
        app = asgi_app(use_cases(house.world, house.api_keys, people=people()))
        name = ("x-forwarded-user", "ada@example.com")
        tab = Request(app, "GET", "/live", name, peer=PROXY)
        await house.world.wait(9 * 60_000)
        assert tab.is_open
        await house.world.wait(2 * 60_000)
        assert not tab.is_open
        assert tab.is_whole

    live(story)


def test_a_stream_ends_when_its_client_leaves() -> None:
    """It held one of the 64 places of its key for ever."""

    async def story(house: House) -> None:
        key, at = await key_of(house), await pull(house)
        for _ in range(WAITING_OF_KEY_MAX + 1):
            stream = Request(house.app, "GET", at + "/stream", bearer(key))
            await house.world.wait(10)
            assert stream.is_open
            stream.leaves()
            await house.world.wait(10)
            assert not stream.is_open
        last = Request(house.app, "GET", at + "/events?wait=1s", bearer(key))
        await last.ended()
        assert last.status == 200

    live(story)


@pytest.fixture
def novelty(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A feature that does not exist yet, and that does not think of keys."""
    monkeypatch.setattr(access, "USE_CASES", {})

    class Novelty:
        @use_case(READERS)
        async def numbers(self, _caller: Caller) -> AsyncGenerator[int]:
            async def pages() -> AsyncGenerator[int]:
                for number in range(100):
                    yield number

            return pages()

        @use_case(READERS)
        async def waits(self, _caller: Caller, event: asyncio.Event) -> str:
            await event.wait()
            return "a secret"

    return Novelty()


async def test_the_next_use_case_inherits_it(novelty: Any) -> None:
    ended = False

    async def lives() -> None:
        if ended:
            raise NotAuthorized

    caller = Caller("n", Role.VIEWER, "acme", lives=lives)
    pages = await novelty.numbers(caller)
    assert await anext(pages) == 0
    event = asyncio.Event()
    waiting = asyncio.create_task(novelty.waits(caller, event))
    await asyncio.sleep(0)
    ended = True
    event.set()
    with pytest.raises(NotAuthorized):
        await anext(pages)
    with pytest.raises(NotAuthorized):
        await waiting
