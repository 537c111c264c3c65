"""Metrics are read with a key of its own role, or from an address; another parser reads them."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from unittest.mock import patch

import pytest
from prometheus_client.parser import text_string_to_metric_families

from homing.app.auth import Authenticator
from homing.errors import NotAuthorized, StoreUnavailable
from homing.model import Failure
from homing.policy.causes import CLASSES
from homing.ports.views import StoreFigures
from homing.web.asgi import asgi_app
from web.asgi import KEY, Client
from web.browse import Browser
from web.house import House, live, use_cases
from web.test_credentials import OPERATIONS


async def metrics_key(house: House) -> str:
    got = await house.client.post("/v1/keys", {"name": "prometheus", "role": "metrics"})
    assert (got.status, got.json["tenant"]) == (201, None)
    return str(got.json["key"])


def test_a_metrics_key_reads_metrics_and_cannot_sign_in() -> None:
    async def story(house: House) -> None:
        key = await metrics_key(house)
        client = Client(house.app, key=key)
        assert (await client.get("/metrics")).status == 200
        for path in ("/v1/status", "/v1/ledger", "/v1/deliveries", "/v1/keys"):
            assert (await client.get(path)).status == 403, path
        assert (await client.post("/v1/events", {"type": "a.b", "data": 1})).status == 403
        browser = Browser(house.app)
        assert (await browser.sign_in(key)).status != 303
        assert (await browser.get("/")).status == 303

    live(story)


def test_a_metrics_key_has_no_tenant() -> None:
    async def story(house: House) -> None:
        body = {"name": "p", "role": "metrics", "tenant": "acme"}
        got = await house.client.post("/v1/keys", body)
        assert (got.status, got.fields) == (422, ["tenant"])

    live(story)


def test_a_client_of_the_list_reads_metrics_without_a_key_and_nothing_else() -> None:
    async def story(house: House) -> None:
        app = asgi_app(use_cases(house.world, metrics_networks=(ip_network("10.0.0.0/8"),)))
        listed = Client(app, key=None, address="10.1.2.3")
        assert (await listed.get("/metrics")).status == 200
        for operation in OPERATIONS:
            if not operation.open and operation.path != "/metrics":
                got = await listed.call(operation.method, operation.path)
                assert got.status == 401, operation.id
        wrong = Client(app, key="hk_wrong", address="10.1.2.3")
        assert (await wrong.get("/metrics")).status == 401
        other = Client(app, key=None, address="192.0.2.1")
        for header in ("x-forwarded-for", "forwarded", "x-real-ip"):
            got = await other.get("/metrics", headers=[(header, "10.1.2.3")])
            assert got.status == 401, header
        assert (await Client(app, key=None).get("/metrics")).status == 401

    live(story)


def test_many_scrapes_ask_the_database_once_in_ten_seconds() -> None:
    async def story(house: House) -> None:
        asked: list[int] = []
        figures = house.world.views.figures

        async def counted(*, limit: int) -> StoreFigures:
            asked.append(limit)
            if len(asked) == 3:
                raise StoreUnavailable
            return await figures(limit=limit)

        with patch.object(house.world.views, "figures", counted):
            for _ in range(5):
                gathered = await asyncio.gather(*(house.client.get("/metrics") for _ in range(3)))
                assert all(b"homing_pending 0.0" in got.body for got in gathered)
            assert len(asked) == 1
            await house.world.wait(10_000)
            assert b"homing_pending" in (await house.client.get("/metrics")).body
            await house.world.wait(10_000)
            got = await house.client.get("/metrics")
        assert (got.status, len(asked)) == (200, 3)
        assert b"homing_pending" not in got.body  # the database did not respond
        assert b"homing_info" in got.body

    live(story)


@pytest.mark.parametrize(
    ("address", "listed"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::1", True),
        ("11.0.0.1", False),
        ("fe00::1", False),
        ("", False),
        ("unix", False),
    ],
)
def test_only_an_address_of_the_list_needs_no_key(address: str, listed: bool) -> None:
    async def story(house: House) -> None:
        networks = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
        door = Authenticator(KEY, house.api_keys, house.world.clock.now, networks)
        assert (door.caller_at(address) is not None) is listed
        none = Authenticator(KEY, house.api_keys, house.world.clock.now)
        assert none.caller_at(address) is None
        with pytest.raises(NotAuthorized):
            await door.caller_of(None, address)

    live(story)


def test_the_text_is_read_by_another_parser_and_its_reasons_are_a_fixed_list() -> None:
    async def story(house: House) -> None:
        await house.subscribe()
        await house.publish()
        await house.settled()
        text = (await house.client.get("/metrics")).body.decode()
        families = {it.name: it for it in text_string_to_metric_families(text)}
        assert families["homing_delivery_seconds"].type == "histogram"
        counts = [
            it.value for it in families["homing_delivery_seconds"].samples if "bucket" in it.name
        ]
        assert counts == sorted(counts)
        assert counts[-1] == 1
        reasons = {it.labels["reason"] for it in families["homing_attempts"].samples}
        assert reasons <= {"", *CLASSES}

    live(story)
    assert len(CLASSES) == len(Failure) + 1
