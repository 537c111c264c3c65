"""No forbidden address is ever dialled, through any transport; no test here sends a packet."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from homing.engine import challenges
from homing.model import Failure
from homing.net import dial
from homing.net.guard import REFUSAL
from homing.net.resolver import Address, Resolver
from homing.net.sender import HttpSender
from homing.net.trouble import Trouble
from homing.policy.reach import REFUSED
from homing.server import wiring
from homing.server.settings import Settings
from homing.web.workfront.api import BASE as WORKFRONT
from policy.test_reach import FORBIDDEN, SPELLINGS
from security.framing import KEY
from web.asgi import Client
from web.browse import Browser

WITHIN_S = 30.0
PUBLIC = "93.184.216.34"


@dataclass
class World:
    """The names that were looked up and the addresses that would have been dialled."""

    client: Client
    responses: dict[str, list[str]] = field(default_factory=dict)  # host: addresses, in turn
    looked_up: list[str] = field(default_factory=list)
    dialled: list[str] = field(default_factory=list)

    def getaddrinfo(self, host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        self.looked_up.append(host)
        turns = self.responses[host]
        found = turns.pop(0) if len(turns) > 1 else turns[0]
        return [
            (socket.AF_INET6, 1, 6, "", (ip, port, 0, 0))
            if ":" in ip
            else (socket.AF_INET, 1, 6, "", (ip, port))
            for ip in found.split()
        ]

    async def connect(self, address: Address, *_: object) -> Trouble:
        """Replaces the only function that connects: it counts and refuses."""
        self.dialled.append(address.ip)
        return Trouble(Failure.REFUSED, "connection refused")

    async def subscribe(self, host: str, *turns: str) -> str:
        self.responses[host] = list(turns)
        got = await self.client.post(
            "/v1/subscriptions", {"url": f"http://{host}/", "types": ["a.*"], "policy": "quick"}
        )
        assert got.status == 201, got.body
        return str(got.json["id"])

    async def attempts(self, count: int) -> list[dict[str, Any]]:
        """Wait for so many."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                items = (await self.client.get("/v1/attempts?limit=200")).json["items"]
                if len(items) >= count:
                    return list(items)
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def world(patch: pytest.MonkeyPatch, **more: Any) -> AsyncIterator[World]:
    quick = {"delays_ms": (50, 50), "anchor": "previous_failure", "window_ms": 3_600_000}
    here = World(Client(None, key=KEY))  # type: ignore[arg-type]
    patch.setattr(dial, "_connect_to", here.connect)
    resolver = Resolver(getaddrinfo=here.getaddrinfo)
    patch.setattr(wiring, "HttpSender", partial(HttpSender, resolver=resolver))
    settings = Settings.of(grace_ms=5_000, policies={"quick": _schedule(quick)}, **more)
    async with wiring.running(settings, admin_key=KEY, in_memory=True) as house:
        here.client.app = house.config.app  # type: ignore[assignment]
        yield here


def _schedule(table: dict[str, Any]) -> Any:
    from homing.server.settings.tables import read_policies

    return read_policies({"quick": {**table, "delays_ms": list(table["delays_ms"])}}, "here")[
        "quick"
    ]


async def test_no_forbidden_url_gets_through_create_or_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    literals = [f"[{one}]" if ":" in one else one for one in FORBIDDEN if "%" not in one]
    async with world(monkeypatch) as here:
        allowed = await here.subscribe("fine.example", PUBLIC)
        reasons: set[str] = set()
        for host in literals:
            url = {"url": f"http://{host}/"}
            for got in (
                await here.client.post("/v1/subscriptions", {**url, "types": ["*"]}),
                await here.client.patch(f"/v1/subscriptions/{allowed}", url),
            ):
                assert (got.status, got.fields) == (422, ["url"]), host
                reasons.add(got.problem.problems[0].reason)
        assert all(reason.startswith(f"{REFUSED}: ") for reason in reasons)  # for the admin key
        for host in [*SPELLINGS, "a.example:22", "a.example:6379"]:
            got = await here.client.post(
                "/v1/subscriptions", {"url": f"http://{host}/", "types": ["*"]}
            )
            assert (got.status, got.fields) == (422, ["url"]), host
        # Neither was looked up: the door says the same of a name that is there and one that is not.
        assert here.looked_up == []
        assert here.dialled == []


async def test_no_name_leads_a_delivery_a_test_or_a_replay_to_a_forbidden_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = [*FORBIDDEN, *(f"{PUBLIC} {one}" for one in list(FORBIDDEN)[:20])]
    async with world(monkeypatch) as here:
        names = {f"n{number}.example": one for number, one in enumerate(turns)}
        ids = [await here.subscribe(host, one) for host, one in names.items()]
        tested = [await here.client.post(f"/v1/subscriptions/{one}/test") for one in ids]
        assert all(one.status == 200 for one in tested)
        got = await here.client.post("/v1/events", {"type": "a.b", "data": 1})
        assert got.json["events"][0]["deliveries"] == len(ids)
        attempts = await here.attempts(2 * len(ids))
        said = {(one["failure"], one["detail"]) for one in attempts}
        assert said == {("forbidden_address", REFUSAL.detail)}
        shown = {(one.json["address"], one.json["excerpt"]) for one in tested}
        assert shown == {(None, "")}
        await _replay_one(here)
        assert here.dialled == []


async def test_no_forbidden_token_url_gets_through_create_update_or_the_dashboards_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    literals = [f"[{one}]" if ":" in one else one for one in FORBIDDEN if "%" not in one]
    oauth = {"oauth_client_id": "homing", "oauth_client_secret": "s3cret"}
    async with world(monkeypatch) as here:
        allowed = await here.subscribe("fine.example", PUBLIC)
        for host in [*literals, *SPELLINGS, "a.example:22", "a.example:6379"]:
            wanted = oauth | {"oauth_token_url": f"https://{host}/"}
            create = {"url": "https://a.example/", "types": ["*"], **wanted}
            for got in (
                await here.client.post("/v1/subscriptions", create),
                await here.client.patch(f"/v1/subscriptions/{allowed}", wanted),
            ):
                assert (got.status, got.fields) == (422, ["oauth_token_url"]), host
        assert (here.looked_up, here.dialled) == ([], [])


async def test_no_name_leads_the_fetch_of_a_token_to_a_forbidden_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = [*FORBIDDEN, *(f"{PUBLIC} {one}" for one in list(FORBIDDEN)[:20])]
    async with world(monkeypatch) as here:
        ids = []
        for number, one in enumerate(turns):
            here.responses[f"auth{number}.example"] = [one]
            here.responses[f"n{number}.example"] = [PUBLIC]
            wanted = {
                "url": f"https://n{number}.example/",
                "types": ["a.*"],
                "policy": "quick",
                "oauth_token_url": f"https://auth{number}.example/token",
                "oauth_client_id": "homing",
                "oauth_client_secret": "s3cret",
            }
            got = await here.client.post("/v1/subscriptions", wanted)
            assert got.status == 201, got.body
            ids.append(got.json["id"])
        tested = [await here.client.post(f"/v1/subscriptions/{one}/test") for one in ids]
        assert {one.json["failure"] for one in tested} == {"forbidden_address"}
        await here.client.post("/v1/events", {"type": "a.b", "data": 1})
        attempts = await here.attempts(2 * len(ids))
        assert {one["failure"] for one in attempts} == {"forbidden_address"}
        assert here.dialled == []


@pytest.mark.parametrize("resolves", [False, True])
async def test_no_forbidden_address_is_asked_of_the_proxy(
    monkeypatch: pytest.MonkeyPatch, resolves: bool
) -> None:
    """The only address that is dialled is the proxy's, for the control."""
    proxy = {"egress_proxy": "http://10.9.8.7:3128", "egress_proxy_resolves": resolves}
    literals = [f"[{one}]" if ":" in one else one for one in FORBIDDEN if "%" not in one]
    async with world(monkeypatch, **proxy) as here:
        for host in literals:
            got = await here.client.post(
                "/v1/subscriptions", {"url": f"https://{host}/", "types": ["*"]}
            )
            assert (got.status, got.fields) == (422, ["url"]), host
        if not resolves:  # Else only the proxy knows where a name leads.
            names = {f"n{number}.example": one for number, one in enumerate(FORBIDDEN)}
            ids = [await here.subscribe(host, one) for host, one in names.items()]
            tested = [await here.client.post(f"/v1/subscriptions/{one}/test") for one in ids]
            assert {one.json["failure"] for one in tested} == {"forbidden_address"}
        assert here.dialled == []
        allowed = await here.subscribe("fine.example", PUBLIC)
        control = (await here.client.post(f"/v1/subscriptions/{allowed}/test")).json
        assert control["failure"] == "sender_proxy"
        assert here.dialled == ["10.9.8.7"]


async def test_no_name_leads_a_challenge_to_a_forbidden_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(challenges, "HOST_PER_MINUTE_MAX", 10_000)
    monkeypatch.setattr(challenges, "TENANT_PER_MINUTE_MAX", 10_000)
    monkeypatch.setattr(challenges, "ALL_PER_MINUTE_MAX", 100_000)
    turns = [*FORBIDDEN, *(f"{PUBLIC} {one}" for one in list(FORBIDDEN)[:20])]
    async with world(monkeypatch, public_url="https://homing.example") as here:
        for kind in ("challenge", "cloudevents"):
            for number, one in enumerate(turns):
                host = f"{kind}{number}.example"
                here.responses[host] = [one]
                draft = {"url": f"http://{host}/", "types": ["*"], "verification": kind}
                made = (await here.client.post("/v1/subscriptions", draft)).json
                assert made["unverified"], one
                assert made["receiver"]["problem"] == "The challenge failed: address not allowed"
                got = await here.client.post(f"/v1/subscriptions/{made['id']}/verify")
                assert (got.status, got.json["unverified"]) == (200, True)
        literals = [f"[{one}]" if ":" in one else one for one in FORBIDDEN if "%" not in one]
        for host in literals:
            draft = {"url": f"http://{host}/", "types": ["*"], "verification": "challenge"}
            got = await here.client.post("/v1/subscriptions", draft)
            assert (got.status, got.fields) == (422, ["url"]), host
        assert here.dialled == []
        here.responses["fine.example"] = [PUBLIC]
        draft = {"url": "http://fine.example/", "types": ["*"], "verification": "challenge"}
        await here.client.post("/v1/subscriptions", draft)
        assert here.dialled == [PUBLIC]  # The control.


async def test_no_forbidden_url_gets_through_a_form_of_the_dashboard_or_the_workfront_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    literals = [f"[{one}]" if ":" in one else one for one in FORBIDDEN if "%" not in one]
    oauth = {"oauth_client_id": "homing", "oauth_client_secret": "s3cret"}
    async with world(monkeypatch) as here:
        browser = Browser(here.client.app)
        await browser.sign_in(KEY)
        page = f"/subscriptions/{await here.subscribe('fine.example', PUBLIC)}"
        csrf = {"csrf": await browser.token(f"{page}/edit")}
        known = {"url": "https://fine.example/", "types": "*", "tenant": "default"}

        async def results(host: str) -> list[int]:
            there = f"https://{host}/"
            forms = [
                (path, known | {field: there} | more)
                for path in ("/subscriptions", page)
                for field, more in (("url", {}), ("oauth_token_url", oauth))
            ]
            forms.append(("/notices/targets", {"kind": "webhook", "address": there}))
            got = [(await browser.send(path, **csrf, **fields)).status for path, fields in forms]
            wanted = {"objCode": "PROJ", "eventType": "UPDATE", "url": there, "authToken": "t" * 20}
            return [*got, (await here.client.post(WORKFRONT, wanted)).status]

        for host in [*literals, *SPELLINGS, "a.example:22", "a.example:6379"]:
            assert await results(host) == [422] * 5 + [400], host
        assert (here.looked_up, here.dialled) == ([], [])
        assert await results("public.example") == [303] * 5 + [201]  # The control.


async def test_no_name_leads_a_test_from_the_dashboard_to_a_forbidden_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        browser = Browser(here.client.app)
        await browser.sign_in(KEY)
        csrf = {"csrf": await browser.token("/subscriptions/new")}
        for number, one in enumerate(FORBIDDEN):
            made = await here.subscribe(f"n{number}.example", one)
            await browser.send(f"/subscriptions/{made}/test", **csrf)
        assert len(here.looked_up) == len(FORBIDDEN)
        assert here.dialled == []
        made = await here.subscribe("fine.example", PUBLIC)
        await browser.send(f"/subscriptions/{made}/test", **csrf)
        assert here.dialled == [PUBLIC]  # The control.


async def _replay_one(here: World) -> None:
    deliveries = (await here.client.get("/v1/deliveries?limit=1")).json["items"]
    one = deliveries[0]["id"]
    before = len(here.looked_up)
    assert (await here.client.post(f"/v1/deliveries/{one}/cancel")).status == 200
    assert (await here.client.post(f"/v1/deliveries/{one}/replay")).status in {200, 201, 202}
    async with asyncio.timeout(WITHIN_S):
        while len(here.looked_up) == before:
            await asyncio.sleep(0.01)


async def test_the_control_is_a_public_address_that_is_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        await here.subscribe("fine.example", PUBLIC)
        await here.client.post("/v1/events", {"type": "a.b", "data": 1})
        (attempt,) = (await here.attempts(1))[:1]
        assert attempt["failure"] == "refused"
        assert here.dialled[0] == PUBLIC


async def test_a_name_that_changes_its_mind_is_looked_up_once_a_connection_and_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with world(monkeypatch) as here:
        await here.subscribe("rebind.example", PUBLIC, "127.0.0.1", PUBLIC)
        await here.client.post("/v1/events", {"type": "a.b", "data": 1})
        attempts = await here.attempts(3)
        assert [one["failure"] for one in attempts] == [
            "refused",
            "forbidden_address",
            "refused",
        ]
        assert len(here.looked_up) == 3
        assert here.dialled == [PUBLIC, PUBLIC]


async def test_an_operator_opens_a_network_and_the_environment_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:3128")
    async with world(monkeypatch, allow_networks=("10.1.0.0/16",)) as here:
        await here.subscribe("inner.example", "10.1.2.3")
        await here.client.post("/v1/events", {"type": "a.b", "data": 1})
        await here.attempts(1)
        assert here.dialled[0] == "10.1.2.3"
