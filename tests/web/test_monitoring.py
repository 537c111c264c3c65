"""The whole over HTTP: ledger, health, readiness, metrics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from engine.world import HOUR, MINUTE, always, failing_with
from homing.engine.options import EngineOptions
from homing.errors import StoreUnavailable
from homing.model import Failure
from homing.policy.outage import OutageRules
from web.house import URL, House, live


def test_the_ledger_is_balanced_per_tenant() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        await house.subscribe(types=["a.*"])
        await house.subscribe("https://other.example/", types=["a.*"])
        await house.subscribe("https://acme.example/", tenant="acme")
        for _ in range(2):
            await house.publish()
        await house.publish(tenant="acme")
        await house.settled()
        pending = (await house.deliveries("?status=pending"))[0]
        await house.client.post(f"/v1/deliveries/{pending['id']}/cancel")
        got = await house.client.get("/v1/ledger")
        ledgers = {one.pop("tenant"): one for one in got.json["items"]}
        assert ledgers["default"] == {
            "accepted": 4,
            "delivered": 2,
            "pending": 1,
            "dropped": 0,
            "cancelled": 1,
            "superseded": 0,
            "counted": True,
            "balanced": True,
        }
        assert ledgers["acme"]["delivered"] == 1
        got = await house.client.get("/v1/ledger?tenant=acme")
        assert [one["tenant"] for one in got.json["items"]] == ["acme"]

    live(story)


def test_it_is_healthy_until_something_was_due_for_a_minute_with_a_free_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(house: House) -> None:
        got = await house.client.get("/healthz")
        assert (got.status, got.json) == (200, {"ok": True})
        pulse, now = house.world.engine.pulse(), house.world.clock.now()
        for late_ms, status in ((59_999, 200), (60_000, 503)):
            late = replace(pulse, due_since=now - late_ms)
            monkeypatch.setattr(house.world.engine, "pulse", lambda late=late: late)
            assert (await house.client.get("/healthz")).status == status

    live(story)


def test_it_is_ready_until_it_drains_or_the_store_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(house: House) -> None:
        assert (await house.client.get("/readyz")).json == {"ok": True}
        pulse = house.world.engine.pulse()
        for change, code in (
            ({"draining": True}, "shutting_down"),
            ({"store_ok": False}, "store_unavailable"),
            ({"store_ok": False, "silent_since": 0}, "store_unavailable"),
        ):
            other = replace(pulse, **change)
            monkeypatch.setattr(house.world.engine, "pulse", lambda other=other: other)
            got = await house.client.get("/readyz")
            assert (got.status, got.problem.code) == (503, code)
        monkeypatch.setattr(house.world.engine, "pulse", lambda: pulse)

        async def refuses() -> None:
            raise StoreUnavailable

        async def hangs() -> None:
            await house.world.wait(60_000)

        for ping in (refuses, hangs):
            monkeypatch.setattr(house.world.views, "ping", ping)
            got = await house.client.get("/readyz")
            assert (got.status, got.problem.code) == (503, "store_unavailable")

    live(story)


def test_many_who_ask_whether_it_is_ready_ask_the_store_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(house: House) -> None:
        asked = []

        async def ping() -> None:
            asked.append(house.world.clock.now())
            await house.world.wait(100)

        monkeypatch.setattr(house.world.views, "ping", ping)
        got = await asyncio.gather(*(house.client.get("/readyz") for _ in range(50)))
        assert {one.status for one in got} == {200}
        assert len(asked) == 1
        await house.client.get("/readyz")
        assert len(asked) == 2

    live(story)


def numbers(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_metrics_count_what_happened_and_name_no_url() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        await house.subscribe()
        await house.subscribe("https://other.example/")
        await house.publish()
        await house.settled()
        got = await house.client.get("/metrics")
        assert got.headers["content-type"].startswith("text/plain")
        assert b"example" not in got.body
        found: dict[str, Any] = numbers(got.body.decode())
        assert found["homing_events_published_total"] == 1
        assert found["homing_deliveries_accepted_total"] == 2
        assert found['homing_deliveries_finished_total{status="delivered"}'] == 1
        failed = 'homing_attempts_total{lane="fresh",outcome="failed",reason="http_status"}'
        assert found[failed] == 1
        assert found['homing_attempts_total{lane="fresh",outcome="delivered",reason=""}'] == 1
        assert found["homing_pending"] == 1
        assert found["homing_frozen_endpoints"] == found["homing_disabled_endpoints"] == 0
        assert found["homing_publish_seconds_count"] == 1
        assert found["homing_attempt_seconds_count"] == 2
        assert found['homing_delivery_seconds_bucket{le="+Inf"}'] == 1
        assert found['homing_slots{lane="fresh"}'] == 512
        assert found["homing_store_ok"] == 1

    live(story)


def test_a_sender_outage_is_shown_everywhere_and_makes_nothing_unready() -> None:
    async def story(house: House) -> None:
        world = house.world
        for n in range(12):
            await house.subscribe(f"https://host{n}.example/")
        await house.publish()
        await house.settled()
        got = await house.client.get("/v1/status")
        assert (got.json["outage"]["state"], got.json["outage"]["since"]) == ("none", None)
        assert got.json["published"] == 1
        for n in range(12):
            world.sender.scripts[f"https://host{n}.example/"] = failing_with(Failure.REFUSED)
        await house.publish()
        await world.wait(HOUR)
        for path in ("/healthz", "/readyz", "/v1/status"):
            got = await house.client.get(path)
            outage = got.json["outage"]
            assert (got.status, outage["state"], outage["outages"]) == (200, "confirmed", 1)
            assert outage["since"].startswith("20")
            assert "nothing gets through" in outage["why"]
        found = numbers((await house.client.get("/metrics")).body.decode())
        assert found["homing_outage_active"] == found["homing_outages_total"] == 1
        assert 3500 < found["homing_outage_seconds"] < 3600
        assert found["homing_canaries_total"] > 100
        world.sender.scripts.clear()
        await world.wait(MINUTE)
        found = numbers((await house.client.get("/metrics")).body.decode())
        assert found["homing_outage_active"] == found["homing_outage_seconds"] == 0
        assert (await house.client.get("/readyz")).json == {"ok": True}

    live(story)


def test_detection_that_is_off_is_shown_wherever_an_outage_is() -> None:
    async def story(house: House) -> None:
        for path in ("/healthz", "/readyz", "/v1/status"):
            got = await house.client.get(path)
            assert (got.status, got.json["outage"]["state"]) == (200, "off"), path

    live(story, EngineOptions(outage=OutageRules(detects=False)))
