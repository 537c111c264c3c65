"""Quotas of tenants: 429 with Retry-After, and nobody else notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.world import always
from homing.errors import BadSetting
from homing.policy.quota import BURST_MS, Quota, use_change, use_rate
from homing.server.settings import load_settings
from homing.web.asgi import asgi_app
from web.asgi import Client, Got
from web.house import House, live, use_cases


def limited(house: House, default: Quota, **tenants: Quota) -> Client:
    """The same house through a door with quotas."""
    world = house.world
    return Client(asgi_app(use_cases(world, quota=default, tenant_quotas=tenants)))


async def publish(client: Client, count: int = 1, tenant: str = "acme") -> Got:
    return await client.post("/v1/events", [{"type": "a", "data": 1, "tenant": tenant}] * count)


def refused(got: Got) -> int:
    """The seconds of a 429."""
    assert (got.status, got.problem.code) == (429, "too_many"), got.body
    return int(got.headers["retry-after"])


def test_a_rate_is_kept_and_retry_after_is_true() -> None:
    async def story(house: House) -> None:
        client = limited(house, Quota(publish_per_second=10))
        assert (await publish(client, 50)).status == 202  # a batch may go over it once
        wait = refused(await publish(client))
        assert 1 <= wait <= 5
        assert (await publish(client, tenant="other")).status == 202
        await house.world.wait(wait * 1_000)
        assert (await publish(client)).status == 202

    live(story)


def test_over_a_long_time_it_is_the_rate() -> None:
    async def story(house: House) -> None:
        client = limited(house, Quota(publish_per_second=10))
        taken = 0
        for _ in range(300):
            taken += (await publish(client, 3)).status == 202
            await house.world.wait(100)
        assert 300 <= 3 * taken <= 300 + 10 * BURST_MS // 1_000 + 3

    live(story)


def test_a_minute_of_changes_may_be_made_at_once_and_then_it_is_the_rate() -> None:
    limit, now, until, made = 60, 1_000_000, 0, 0
    while not (use := use_change(until, limit, now=now)).wait_ms:
        until, made = use.until, made + 1
    assert made == limit + 1
    assert use.wait_ms == 1_000
    assert use_change(until, limit, now=now + 999).wait_ms == 1
    for _ in range(300):
        now += 500
        use = use_change(until, limit, now=now)
        until, made = use.until, made + (not use.wait_ms)
    assert made == limit + 1 + 150


@given(st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 1_000)), max_size=60))
def test_what_goes_through_never_exceeds_rate_and_burst(steps: list[tuple[int, int]]) -> None:
    rate, now, until, taken, last = 50, 1_000_000, 0, 0, 0
    began = now
    for wait, count in steps:
        now += wait
        use = use_rate(until, count, rate, now=now)
        if use.wait_ms:
            assert use_rate(use.until, count, rate, now=now + use.wait_ms).wait_ms == 0
        else:
            taken, last = taken + count, count
            assert taken - last <= rate * (now - began + BURST_MS) / 1_000
        until = use.until


def test_a_batch_of_several_tenants_is_refused_whole_and_counts_for_none() -> None:
    async def story(house: House) -> None:
        client = limited(house, Quota(), small=Quota(publish_per_second=1))
        assert (await publish(client, 5, "small")).status == 202
        both = [{"type": "a", "data": 1, "tenant": one} for one in ("large", "small")]
        refused(await client.post("/v1/events", both))
        events = (await client.get("/v1/events?tenant=large")).json["items"]
        assert events == []
        assert (await publish(client, 1_000, "large")).status == 202

    live(story)


def test_pending_deliveries_are_bounded_and_room_comes_back() -> None:
    async def story(house: House) -> None:
        client = limited(house, Quota(pending_max=10))
        made = await house.subscribe(tenant="acme")
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze")
        statuses = [(await publish(client)).status for _ in range(12)]
        assert statuses == [202] * 10 + [429] * 2
        assert refused(await publish(client)) == 5
        assert (await publish(client, tenant="other")).status == 202
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/enable")
        await house.settled()
        await house.world.wait(5_000)
        assert (await publish(client)).status == 202
        await house.settled()
        done = await house.deliveries("?tenant=acme&status=delivered")
        assert len(done) == 11

    live(story)


def test_the_count_of_pending_is_the_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(house: House) -> None:
        world = house.world
        world.sender.scripts["https://receiver.example/hook"] = always(500)
        made = await house.subscribe(tenant="acme")
        for _ in range(7):
            await house.publish(tenant="acme")
        await house.settled()
        (first, *_) = await house.deliveries("?tenant=acme")
        await house.client.post(f"/v1/deliveries/{first['id']}/cancel")
        (ledger,) = await world.views.ledger(tenant="acme")
        assert await world.views.pending_of("acme") == ledger.pending == 6
        assert await world.views.pending_of("nobody") == 0
        await house.client.delete(f"/v1/subscriptions/{made['id']}")
        await house.settled()
        assert await world.views.pending_of("acme") == 0

    live(story)


def test_a_quota_costs_one_statement_a_second() -> None:
    async def story(house: House) -> None:
        client = limited(house, Quota(pending_max=1_000_000))
        views, looks = house.world.views, []
        plain = views.pending_of

        async def counted(tenant: str) -> int:
            looks.append(tenant)
            return await plain(tenant)

        views.pending_of = counted  # type: ignore[method-assign]
        for _ in range(200):
            assert (await publish(client)).status == 202
            await house.world.wait(25)
        assert len(looks) <= 6

    live(story)


def test_replays_wait_for_room_as_well() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(tenant="acme")
        await house.publish(tenant="acme")
        await house.settled()
        (done,) = await house.deliveries("?tenant=acme")
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze")
        await house.publish(tenant="acme")
        client = limited(house, Quota(pending_max=1))
        assert refused(await client.post(f"/v1/deliveries/{done['id']}/replay"))
        assert refused(await client.post("/v1/replays", {"filter": {"tenant": "acme"}}))

    live(story)


def test_subscriptions_are_bounded() -> None:
    async def story(house: House) -> None:
        client = limited(house, Quota(subscriptions_max=2), rich=Quota(subscriptions_max=3))

        async def subscribe(tenant: str) -> Got:
            body = {"url": "https://a.example/", "types": ["*"], "tenant": tenant}
            return await client.post("/v1/subscriptions", body)

        made = [await subscribe("acme") for _ in range(3)]
        assert [got.status for got in made] == [201, 201, 429]
        assert refused(made[-1]) == 60
        assert [(await subscribe("rich")).status for _ in range(4)] == [201, 201, 201, 429]
        await client.delete(f"/v1/subscriptions/{made[0].json['id']}")
        assert (await subscribe("acme")).status == 201

    live(story)


def settings_from(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "homing.toml"
    file.write_text(text)
    return load_settings({}, config=str(file), environ={})


def test_quotas_are_settings_with_an_override_per_tenant(tmp_path: Path) -> None:
    text = "pending_max = 5\nsubscriptions_max = 7\n[tenants.acme]\npending_max = 9\n[tenants.b]\n"
    settings = settings_from(tmp_path, text)
    assert settings.tenants.quota == Quota(0, 5, 7, 600)
    assert settings.tenants.own["acme"].quota == replace(settings.tenants.quota, pending_max=9)
    assert settings.tenants.own["b"].quota is None


@pytest.mark.parametrize(
    "text",
    [
        "pending_max = -1",
        "[tenants.acme]\npending_max = -1",
        "[tenants.acme]\npublish_per_second = 1.5",
        "[tenants.acme]\nquota = 1",
    ],
)
def test_a_wrong_quota_stops_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadSetting):
        settings_from(tmp_path, text)
