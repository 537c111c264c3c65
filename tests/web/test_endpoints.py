"""Endpoints over HTTP: state, counters beside their limits, and why."""

from __future__ import annotations

from typing import Any

from engine.world import MINUTE, always
from homing.engine.options import EngineOptions
from homing.policy.health import HealthRules
from web.house import URL, House, live

QUICK = EngineOptions(health=HealthRules(rate_after_attempts=3, consecutive_disable=5))


def counters(endpoint: dict[str, Any]) -> dict[str, tuple[int, int | None]]:
    return {one["name"]: (one["value"], one["limit"]) for one in endpoint["counters"]}


async def disable(house: House) -> dict[str, Any]:
    """A subscription whose endpoint has just been disabled."""
    house.world.sender.scripts[URL] = always(500)
    made = await house.subscribe(types=["a.*"])
    for _ in range(4):
        await house.publish()
        await house.settled()
    return made


def test_an_enabled_endpoint_shows_its_counters_beside_their_limits() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        await house.publish()
        await house.settled()
        got = await house.client.get(f"/v1/endpoints/{made['endpoint']}")
        endpoint = got.json
        assert (endpoint["state"], endpoint["waiting"]) == ("enabled", 0)
        assert (endpoint["waiting_more"], endpoint["transitions"]) == (False, [])
        assert counters(endpoint) == {
            "attempts": (1, 100),
            "failures": (0, None),
            "failure_percent": (0, 70),
            "consecutive_failures": (0, 2_000),
            "without_success_ms": (0, 259_200_000),
            "consecutive_failures_in_all": (0, 50_000),
        }
        assert endpoint["last_success_at"] is not None

    live(story)


def test_a_disabled_endpoint_says_since_when_by_which_rule_and_when_it_is_probed() -> None:
    async def story(house: House) -> None:
        made = await disable(house)
        endpoint = (await house.client.get(f"/v1/endpoints/{made['endpoint']}")).json
        assert (endpoint["state"], endpoint["rule"]) == ("disabled", "failure_rate")
        assert endpoint["sentence"].startswith("The endpoint has been disabled since")
        assert "70 %" in endpoint["sentence"]
        times = [part["time"] for part in endpoint["sentence_parts"] if part["time"] is not None]
        assert times[:2] == [endpoint["since"], endpoint["next_probe_at"]]
        assert "".join(part["text"] for part in endpoint["sentence_parts"]) == endpoint["sentence"]
        assert endpoint["next_probe_at"] is not None
        assert endpoint["waiting"] == 4
        (change,) = endpoint["transitions"]
        assert (change["before"], change["after"]) == ("enabled", "disabled")
        assert change["sentence"].startswith("Disabled (was enabled): 4 of 4 attempts failed")
        house.world.sender.scripts[URL] = always(200)
        await house.world.wait(11 * MINUTE)
        endpoint = (await house.client.get(f"/v1/endpoints/{made['endpoint']}")).json
        assert (endpoint["state"], endpoint["next_probe_at"]) == ("enabled", None)
        assert [change["after"] for change in endpoint["transitions"]] == ["enabled", "disabled"]

    live(story, QUICK)


def test_a_person_freezes_and_enables() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        path = f"/v1/endpoints/{made['endpoint']}"
        got = await house.client.post(f"{path}/freeze")
        assert (got.status, got.json["state"]) == (200, "frozen")
        assert "by a person" in got.json["sentence"]
        assert got.json["transitions"][0]["by"] == "the admin key"
        await house.publish()
        await house.settled()
        assert house.world.hits(URL) == []
        got = await house.client.post(f"{path}/enable")
        assert got.json["state"] == "enabled"
        await house.settled()
        assert len(house.world.hits(URL)) >= 1

    live(story)


def test_endpoints_are_listed_by_state_and_tenant() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        other = await house.subscribe(tenant="acme")
        assert made["endpoint"] != other["endpoint"]
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze")
        for query, expected in (
            ("", [other["endpoint"], made["endpoint"]]),
            ("?state=frozen", [made["endpoint"]]),
            ("?state=enabled&tenant=acme", [other["endpoint"]]),
            ("?state=disabled", []),
        ):
            got = await house.client.get(f"/v1/endpoints{query}")
            assert [one["id"] for one in got.json["items"]] == expected, query
        got = await house.client.get("/v1/endpoints?state=broken")
        assert (got.status, got.fields) == (422, ["state"])

    live(story)


def test_an_unknown_endpoint_is_not_found() -> None:
    async def story(house: House) -> None:
        for path in ("ep_0000000000001", "nonsense"):
            assert (await house.client.get(f"/v1/endpoints/{path}")).status == 404
            for command in ("enable", "freeze"):
                got = await house.client.post(f"/v1/endpoints/{path}/{command}")
                assert got.status == 404

    live(story)
