"""A policy that is used and was removed from the settings is shown wherever an operator looks."""

from __future__ import annotations

from typing import Any

from engine.test_kept_policies import QUICK, with_policies
from homing.cli.doctor_checks import CheckStatus, _kept_policies
from homing_client import KeptPolicy
from web.browse import Browser, text
from web.house import House, live


def test_it_is_in_the_status_the_readiness_and_on_the_dashboard() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(policy="quick")
        mine = await house.subscribe("https://b.example/", policy="quick", tenant="acme")
        house.world.options = with_policies()
        await house.world.crash()
        later = House(house.world)
        status = (await later.client.get("/v1/status")).json["kept_policies"]
        assert status == [{"name": "quick", "count": 2, "subscriptions": [made["id"], mine["id"]]}]
        assert (await later.client.get("/readyz")).json["kept_policies"] == ["quick"]
        browser = Browser(later.app)
        await browser.sign_in()
        page = text(await browser.get("/"))
        assert "not in the settings" in page
        assert made["id"] in page
        path = f"/v1/subscriptions/{made['id']}"
        assert (await later.client.patch(path, {"description": "x"})).status == 200
        for it in (made, mine):
            changed = await later.client.patch(f"/v1/subscriptions/{it['id']}", {"policy": None})
            assert changed.status == 200
        assert (await later.client.get("/v1/status")).json["kept_policies"] == []
        assert "kept_policies" not in (await later.client.get("/readyz")).json

    live(story, with_policies(QUICK))


def test_the_doctor_warns_and_says_what_to_do() -> None:
    status: Any = type("Status", (), {"kept_policies": (KeptPolicy("quick", 7, ("sub_1",)),)})
    check = _kept_policies(status)
    assert check.status is CheckStatus.WARNING
    assert "quick" in check.sentence
    assert "7 subscriptions (sub_1 first)" in check.sentence
    assert "[policies.quick]" in check.advice
