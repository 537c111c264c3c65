"""The door: keys, addresses, methods, and errors as problem documents."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.types import Message

from homing.app.access import Caller
from homing.app.auth import Authenticator
from homing.errors import HomingError, ShuttingDown, StoreUnavailable, Unavailable
from homing.policy.keys import Role
from homing.web.routes import OPERATIONS
from web.asgi import KEY
from web.house import House, live

OPEN = {"/healthz", "/readyz", "/.well-known/jwks.json", "/v1/egress"}
PATHS = sorted({(one.method, one.path.replace("{id}", "x")) for one in OPERATIONS})


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_every_operation_but_three_needs_the_key(method: str, path: str) -> None:
    async def story(house: House) -> None:
        for key in (None, "wrong", KEY + "x", KEY[:-1], ""):
            house.client.key = key
            got = await house.client.call(method, path)
            if path in OPEN:
                assert got.status == 200
            else:
                assert (got.status, got.problem.code) == (401, "not_authorized")
                assert got.headers["www-authenticate"].startswith("Bearer")

    live(story)


def test_the_scheme_is_bearer_in_any_case() -> None:
    async def story(house: House) -> None:
        keys = Authenticator(KEY, house.api_keys, house.world.clock.now)
        for text in (f"Bearer {KEY}", f"bearer {KEY}", f"BEARER  {KEY}"):
            assert await keys.caller_of(text.encode(), "") == Caller(
                "the admin key", Role.ADMIN, None
            )
        for text in (KEY, f"Basic {KEY}", "Bearer", "Bearer ", "Bearer é"):
            with pytest.raises(HomingError):
                await keys.caller_of(text.encode(), "")
        assert KEY not in repr(keys)

    live(story)


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/nothing", "/v1/events/", "/v1/subscriptions/", "/healthz/"]
)
def test_an_unknown_address_is_a_404_problem(path: str) -> None:
    async def story(house: House) -> None:
        got = await house.client.get(path)
        assert (got.status, got.problem.status) == (404, 404)

    live(story)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/events", "POST, GET, HEAD"),
        ("POST", "/v1/ledger", "GET, HEAD"),
        ("GET", "/v1/replays", "POST"),
        ("HEAD", "/v1/replays", "POST"),
        ("OPTIONS", "/v1/subscriptions/x", "GET, PATCH, DELETE, HEAD"),
        ("BREW", "/healthz", "GET, HEAD"),
        ("POST", "/openapi.json", "GET, HEAD"),
        ("GET", "/v1/endpoints/x/enable", "POST"),
    ],
)
def test_another_method_is_a_405_that_says_which_are_taken(
    method: str, path: str, allowed: str
) -> None:
    async def story(house: House) -> None:
        got = await house.client.call(method, path)
        assert (got.status, got.problem.code) == (405, "method_not_allowed")
        assert got.headers["allow"] == allowed

    live(story)


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/events", "/v1/status"]
)
def test_head_is_responded_to_wherever_get_is(path: str) -> None:
    async def story(house: House) -> None:
        get = await house.client.get(path)
        head = await house.client.call("HEAD", path)
        assert head.status == get.status
        assert head.headers["content-type"] == get.headers["content-type"]

    live(story)


@pytest.mark.parametrize(
    ("error", "code", "wait"),
    [
        (StoreUnavailable(), "store_unavailable", "2"),
        (ShuttingDown(), "shutting_down", "1"),
        (Unavailable(), "unavailable", "1"),
    ],
)
def test_a_503_says_when_to_come_back(
    error: HomingError, code: str, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(house: House) -> None:
        async def fails(*_: Any, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(house.world.engine, "publish", fails)
        monkeypatch.setattr(house.world.engine, "subscribe", fails)
        for path, body in (
            ("/v1/events", {"type": "a", "data": 1}),
            ("/v1/subscriptions", {"url": "https://a.example", "types": ["*"]}),
        ):
            got = await house.client.post(path, body)
            assert (got.status, got.problem.code) == (503, code)
            assert got.headers["retry-after"] == wait

    live(story)


@pytest.mark.parametrize("error", [RuntimeError("the inside"), HomingError("the inside")])
def test_what_nobody_expected_is_a_500_without_its_inside(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(house: House) -> None:
        async def fails(*_: Any, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(house.world.engine, "publish", fails)
        monkeypatch.setattr(house.world.views, "ledger", fails)
        for got in (
            await house.client.post("/v1/events", {"type": "a", "data": 1}),
            await house.client.get("/v1/ledger"),
        ):
            assert (got.status, got.problem.code) == (500, "unexpected")
            assert b"inside" not in got.body

    live(story)


def test_a_caller_who_hangs_up_gets_nothing_and_nothing_is_kept() -> None:
    async def story(house: House) -> None:
        sent: list[Message] = []
        messages: list[Message] = [
            {"type": "http.request", "body": b'{"type":"a",', "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Message:
            return messages.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/events",
            "query_string": b"",
            "headers": [(b"authorization", b"Bearer " + KEY.encode())],
        }
        await house.app(scope, receive, send)
        assert sent == []
        assert (await house.client.get("/v1/events")).json["items"] == []

    live(story)


def test_a_body_that_does_not_arrive_is_given_up() -> None:
    async def story(house: House) -> None:
        sent: list[Message] = []
        first = [b'{"type":']

        async def receive() -> Message:
            if not first:
                await house.world.wait(3_600_000)
            return {"type": "http.request", "body": first.pop(), "more_body": True}

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/events",
            "query_string": b"",
            "headers": [(b"authorization", b"Bearer " + KEY.encode())],
        }
        before = house.world.clock.now()
        await house.app(scope, receive, send)
        assert sent[0]["status"] == 408
        assert (b"connection", b"close") in sent[0]["headers"]
        assert house.world.clock.now() - before == 60_000

    live(story)
