"""Sessions of the dashboard: where signing in leads, and what ends a session and its streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from homing.app.sessions import SESSION_LIFE_MS as LIFE_MS
from homing.engine.keys import LIFE_MS as KEYS_LIFE_MS
from homing.engine.keys import ApiKeys
from homing.ports import KeySession
from homing.store.keys import Keys
from homing.web.asgi import asgi_app
from homing.web.dashboard.sessions import SessionCookies
from web.asgi import KEY
from web.browse import HOST, Browser, text
from web.house import House, live, use_cases

OWN = (
    "/",
    "/endpoints",
    "/endpoints?state=frozen&q=a%20b",
    "/deliveries/del_01k9x3w8z4g00",
    "/deliveries?q=status%3Adropped+since%3A2h",
    "/events/acme/order%2F7",
    "/simulator?policy=workfront&every=1m",
)
HOSTILE = (
    "",
    "//evil.example",
    "///evil.example",
    "/\t/evil.example",
    "\t//evil.example",
    "/\n/evil.example",
    "/\r\n/evil.example",
    "/\r\nset-cookie: a=b",
    "/endpoints\nlocation: https://evil.example",
    "/endpoints\r\n\r\n<script>",
    "/\x0b/evil.example",
    "/\x7f/evil.example",
    "\\\\evil.example",
    "/\\evil.example",
    "/\\/evil.example",
    "\\/evil.example",
    "/endpoints\\..\\evil",
    "/%09/evil.example",
    "/%0a/evil.example",
    "/%2f/evil.example",
    "/%2fevil.example",
    "/%5cevil.example",
    "/%5c%5cevil.example",
    "%2f%2fevil.example",
    "/%252f/evil.example",
    "/endpoints/..//evil.example",
    "/endpoints/%2e%2e//evil.example",
    "/events/acme/..//evil.example",
    "/events/acme//evil.example",
    "/./evil.example",
    "https://evil.example",
    "https:evil.example",
    "https:/evil.example",
    "HTTPS://evil.example/",
    "javascript:alert(1)",
    "data:text/html,x",
    "//user@evil.example",
    "//user:pass@evil.example/",
    "/@evil.example",
    "@evil.example",
    f"http://{HOST}@evil.example/",
    f"http://{HOST}/endpoints",
    " //evil.example",
    "/ /evil.example",
    "/\u00a0/evil.example",
    "/\u2003/evil.example",
    "/\u200b/evil.example",
    "/\u3000/evil.example",
    "/\ufeff/evil.example",
    "/\uff0f/evil.example",
    "/\u2028/evil.example",
    "/endpoints#//evil.example",
    "/endpoints?a=\n",
    "/endpoints?a=\u00e9",
    "/nowhere",
    "/sign-out",
    "/deliveries/del_1/replay",
    "/v1/events",
    "/static/x/app.js",
    "/endpoints/" + "x" * 3_000,
)


@pytest.mark.parametrize("to", OWN)
def test_signing_in_leads_back_to_the_page_that_was_asked_for(to: str) -> None:
    assert led(to) == to


def led(to: str) -> str:
    """Where signing in leads; the page of the door must offer the same."""
    found: list[str] = []

    async def story(house: House) -> None:
        browser = Browser(house.app)
        got = await browser.send("/sign-in", key=KEY, to=to)
        assert got.status == 303, text(got)
        found.append(got.headers["location"])

    live(story)
    return found[0]


def test_signing_in_leads_nowhere_else() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        for to in HOSTILE:
            got = await browser.send("/sign-in", key=KEY, to=to)
            assert (got.status, got.headers["location"]) == (303, "/"), repr(to)
            wrong = await browser.send("/sign-in", key="hk_wrong", to=to)
            assert b'name="to" value="/"' in wrong.body, repr(to)
            await house.world.wait(60_000)  # Wrong keys are slowed down.

    live(story)


def test_a_target_that_is_no_text_is_refused() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        got = await browser.send("/sign-in", key=KEY, to="/\0/evil.example")
        assert (got.status, "location" in got.headers) == (422, False)
        assert "to must be Unicode text without NUL" in text(got)

    live(story)


# --- the end of a session --------------------------------------------------------------------


def another_process(house: House) -> ASGIApp:
    """A second server of the fleet, or the first after a restart: the same database."""
    world = house.world
    api_keys = ApiKeys(Keys(world.db), world.clock, node=1, life_ms=KEYS_LIFE_MS)
    return asgi_app(use_cases(world, api_keys))


def with_cookies_of(browser: Browser, app: ASGIApp | None = None) -> Browser:
    """A thief who copied the cookie."""
    thief = Browser(app or browser.app)
    thief.cookies = dict(browser.cookies)
    return thief


async def made(house: House, **more: Any) -> dict[str, Any]:
    given = {"name": "the customer", "role": "viewer", "tenant": "acme", **more}
    response: dict[str, Any] = (await house.client.post("/v1/keys", given)).json
    return response


def test_a_copied_cookie_opens_nothing_after_the_sign_out() -> None:
    async def story(house: House) -> None:
        browser, elsewhere = Browser(house.app), Browser(house.app)
        await browser.sign_in()
        await elsewhere.sign_in()
        fleet = another_process(house)
        thief, far_thief = with_cookies_of(browser), with_cookies_of(browser, fleet)
        token = await thief.token("/")
        assert (await far_thief.get("/")).status == 200
        assert (await browser.form("/", "/sign-out")).status == 303
        assert (await thief.get("/")).headers["location"] == "/sign-in"
        assert (await thief.send("/sign-out", csrf=token)).status == 303
        await house.world.wait(1_000)
        assert (await far_thief.get("/")).headers["location"] == "/sign-in"
        after_restart = with_cookies_of(thief, another_process(house))
        assert (await after_restart.get("/")).headers["location"] == "/sign-in"
        assert (await elsewhere.get("/")).status == 200, "the other session of the key goes on"

    live(story)


def test_a_session_outlives_a_restart_and_works_in_the_whole_fleet() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        assert (await with_cookies_of(browser, another_process(house)).get("/")).status == 200

    live(story)


@pytest.mark.parametrize(
    ("ahead_ms", "works"), [(0, True), (5, True), (30_000, True), (3_600_000, False)]
)
def test_the_clock_of_the_process_that_opened_a_session_may_be_a_little_ahead(
    ahead_ms: int, works: bool
) -> None:
    cookies, now = SessionCookies(b"key"), 1_750_000_000_000
    cookie = cookies.write(KeySession("1", "admin", now + ahead_ms))
    assert (cookies.read(cookie, now=now) is not None) is works


def test_of_one_key_the_latest_sessions_are_kept_and_sign_ins_have_a_rate() -> None:
    async def story(house: House) -> None:
        first = Browser(house.app)
        await first.sign_in()
        for _ in range(100):
            await house.world.wait(1_100)
            assert (await Browser(house.app).sign_in()).status == 303
        assert (await first.get("/")).status == 303, "a hundred and one is too many"
        row = await house.world.db.run(count)
        assert row == 100
        statuses = [(await Browser(house.app).sign_in()).status for _ in range(70)]
        assert statuses.count(429) >= 8
        assert statuses[:50] == [303] * 50

    live(story)


async def count(tx: Any) -> int:
    return int((await tx.one("session_count"))[0])


def test_a_page_is_asked_for_without_a_statement_about_its_session() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        await browser.get("/simulator")
        before = house.world.db.statements
        for _ in range(20):
            await browser.get("/static/x/nothing.js")
        assert house.world.db.statements == before

    live(story)


# --- live streams ----------------------------------------------------------------------------


class Tab:
    """An open live stream."""

    def __init__(self, browser: Browser, app: ASGIApp | None = None) -> None:
        self.sent: list[Message] = []
        self._closed = asyncio.Event()
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/live",
            "query_string": b"",
            "headers": [(b"host", HOST.encode()), (b"cookie", cookie.encode())],
        }
        app = app or browser.app
        self._task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def open(self) -> bool:
        return not self._task.done()

    async def close(self) -> None:
        self._closed.set()
        await self._task


@pytest.mark.parametrize("end", ["revoked", "expired", "signed out", "session too old"])
@pytest.mark.parametrize("fleet", [False, True], ids=["here", "in the fleet"])
def test_a_stream_ends_within_seconds_of_its_key_or_session(end: str, fleet: bool) -> None:
    async def story(house: House) -> None:
        key = await made(house, **({"expires": "20s"} if end == "expired" else {}))
        browser, other = Browser(house.app), Browser(house.app)
        await browser.sign_in(key["key"])
        if end == "session too old":
            await house.world.wait(LIFE_MS - 6_000)
        await other.sign_in()
        app = another_process(house) if fleet else house.app
        tab, others = Tab(browser, app), Tab(other, app)
        await house.world.wait(5_000)
        assert tab.open
        assert tab.sent[0]["status"] == 200
        if end == "revoked":
            await house.client.delete(f"/v1/keys/{key['id']}")
        elif end == "signed out":
            await browser.form("/", "/sign-out")
        elif end == "expired":
            await house.world.wait(15_000)
        await house.world.wait(3_000)
        assert not tab.open
        assert tab.sent[-1] == {"type": "http.response.body", "body": b""}
        assert others.open
        await others.close()

    live(story)


@pytest.mark.parametrize("change", ["an event is erased", "a tenant is erased", "a pause"])
def test_a_page_that_is_open_is_told_of_a_change_that_sends_nothing(change: str) -> None:
    """Else it would go on showing what was erased."""

    async def story(house: House) -> None:
        made = await house.subscribe(tenant="acme")
        await house.publish(tenant="acme", id="e1")
        browser = Browser(house.app)
        await browser.sign_in()
        await house.world.wait(5_000)
        tab = Tab(browser)
        await house.world.wait(3_000)
        sent = len(tab.sent)
        if change == "a pause":
            got = await house.client.post(f"/v1/subscriptions/{made['id']}/pause", {})
        else:
            event = {"event": "e1"} if change == "an event is erased" else {"everything": True}
            got = await house.client.post("/v1/erasures", {"tenant": "acme", **event})
        assert got.status < 300, got.body
        await house.world.wait(2_000)
        lines = [it["body"] for it in tab.sent[sent:]]
        assert any(line.startswith(b"event: tick") for line in lines)
        await house.world.wait(5_000)
        sent = len(tab.sent)
        await house.world.wait(5_000)
        assert len(tab.sent) == sent, "nothing has changed since"
        await tab.close()

    live(story)
