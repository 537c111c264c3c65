"""Bulk replays over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from engine.world import HOUR, MINUTE
from homing.engine.options import EngineOptions
from homing.policy.quota import Quota
from homing.web.asgi import asgi_app
from homing.web.show import time_text
from web.asgi import Client
from web.browse import Browser
from web.house import URL, House, live, use_cases


async def three_delivered(house: House) -> dict[str, Any]:
    made = await house.subscribe()
    for n in range(3):
        await house.publish(id=f"k{n}", type=f"t{n}")
    await house.settled()
    return made


def test_a_dry_run_only_counts() -> None:
    async def story(house: House) -> None:
        await three_delivered(house)
        wanted = {"filter": {"status": "delivered"}, "dry_run": True}
        got = await house.client.post("/v1/replays", wanted)
        at = time_text(house.world.clock.now())
        assert (got.status, got.json) == (
            200,
            {
                "count": 3,
                "exact": True,
                "as_of": at,
                "by_status": [{"name": "delivered", "count": 3}],
                "by_tenant": [{"name": "default", "count": 3}],
                "by_cause": [{"name": "", "count": 3}],
            },
        )
        await house.settled()
        assert len(house.world.hits(URL)) == 3

    live(story)


def test_a_bulk_replay_takes_each_delivery_once_and_tells_how_far_it_is() -> None:
    async def story(house: House) -> None:
        made = await three_delivered(house)
        conditions = {
            "status": "delivered",
            "endpoint": made["endpoint"],
            "subscription": made["id"],
            "since": "1h",
            "tenant": "default",
        }
        got = await house.client.post("/v1/replays", {"filter": conditions})
        assert got.status == 202
        assert got.json["filter"].items() >= {"status": "delivered", "until": None}.items()
        await house.world.wait(HOUR)
        job = (await house.client.get(got.headers["location"])).json
        assert (job["state"], job["replayed"], job["skipped"]) == ("done", 3, 0)
        assert len(house.world.hits(URL)) == 6
        got = await house.client.post(f"{got.headers['location']}/cancel")
        assert (got.status, got.json["state"]) == (200, "done")

    live(story)


def test_conditions_narrow_it() -> None:
    async def story(house: House) -> None:
        await three_delivered(house)
        for conditions, count in (
            ({}, 3),
            ({"type": "t1"}, 1),
            ({"status": "dropped"}, 0),
            ({"reason": "exhausted"}, 0),
            ({"tenant": "acme"}, 0),
            ({"until": "1h"}, 0),
        ):
            wanted = {"filter": conditions, "dry_run": True}
            got = await house.client.post("/v1/replays", wanted)
            assert got.json["count"] == count, conditions

    live(story)


@pytest.mark.parametrize(
    ("wanted", "fields"),
    [
        ({}, ["filter"]),
        ({"filter": {}, "dry": True}, ["dry"]),
        ({"filter": {"colour": 1}}, ["filter.colour"]),
        ({"filter": {"status": "pending"}}, ["filter.status"]),
        ({"filter": {"status": "lost"}}, ["filter.status"]),
        (
            {"filter": {"endpoint": "x", "subscription": "y", "since": "z", "until": "-"}},
            ["filter.endpoint", "filter.subscription", "filter.since", "filter.until"],
        ),
        ({"filter": {"tenant": "a b", "type": "a b"}}, ["filter.tenant", "filter.type"]),
    ],
)
def test_wrong_conditions_are_named(wanted: dict[str, Any], fields: list[str]) -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/replays", wanted)
        assert (got.status, got.fields) == (422, fields)

    live(story)


def test_an_unknown_replay_is_not_found() -> None:
    async def story(house: House) -> None:
        assert (await house.client.get("/v1/replays/rpl_0000000000001")).status == 404
        assert (await house.client.post("/v1/replays/rpl_0000000000001/cancel")).status == 404
        assert (await house.client.get("/v1/replays/x")).status == 404

    live(story)


def test_a_job_that_waits_for_the_quota_of_its_tenant_says_so() -> None:
    quota = {"default": Quota(pending_max=2)}

    async def story(house: House) -> None:
        app = asgi_app(use_cases(house.world, house.api_keys, tenant_quotas=quota))
        client, browser = Client(app), Browser(app)
        made = await three_delivered(house)
        await client.post(f"/v1/endpoints/{made['endpoint']}/freeze", {})
        for filters in ({"tenant": "default"}, {}):
            got = await client.post("/v1/replays", {"filter": filters})
            assert (got.status, got.json["waits"]) == (202, "")
            await house.world.wait(MINUTE)
            job = (await client.get(got.headers["location"])).json
            assert job["state"] == "running"
            assert "default may have at most 2 pending deliveries" in job["waits"]
        await browser.sign_in()
        page = await browser.get(f"/replays/{job['id']}")
        assert b"at most 2 pending deliveries" in page.body
        await client.post(f"/v1/endpoints/{made['endpoint']}/enable", {})
        await house.world.wait(MINUTE)
        job = (await client.get(got.headers["location"])).json
        assert (job["state"], job["waits"]) == ("done", "")
        assert b"at most 2" not in (await browser.get(f"/replays/{job['id']}")).body

    live(story, EngineOptions(tenant_quotas=quota))
