"""Past events for a subscription through the API and the dashboard."""

from __future__ import annotations

from engine.world import DAY, SECOND
from web.browse import Browser, text
from web.house import House, live


def test_past_events_are_counted_and_delivered_by_a_job() -> None:
    async def story(house: House) -> None:
        key = await house.publish()
        made = await house.subscribe()
        one = f"/v1/subscriptions/{made['id']}/backfill"
        got = await house.client.post(one, {"from": "1h", "dry_run": True})
        assert (got.status, got.json["count"], got.json["exact"]) == (200, 1, True)
        got = await house.client.post(one, {"from": "1h", "per_second": 10})
        assert got.status == 202
        assert got.json["filter"]["backfill"]
        assert got.json["filter"]["subscription"] == made["id"]
        await house.world.wait(SECOND)
        job = (await house.client.get(got.headers["location"])).json
        assert (job["state"], job["replayed"]) == ("done", 1)
        (row,) = await house.deliveries()
        assert row["event"] == key
        entries = (await house.client.get("/v1/audit")).json["items"]
        assert entries[0]["action"] == "replays.backfill"

    live(story)


def test_a_start_before_the_retention_is_refused_with_the_oldest_time() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        one = f"/v1/subscriptions/{made['id']}/backfill"
        got = await house.client.post(one, {"from": "31d", "dry_run": True})
        assert (got.status, got.fields) == (422, ["from"])
        assert "must not be before 20" in got.problem.problems[0].reason
        await house.world.wait(DAY)
        assert (await house.client.post(one, {"from": "2999-01-01T00:00:00Z"})).fields == ["from"]
        assert (await house.client.post(one, {"from": "1h", "per_second": 0})).fields == [
            "per_second"
        ]

    live(story)


def test_a_subscription_that_gets_no_events_is_refused_with_the_reason() -> None:
    async def story(house: House) -> None:
        read = await house.subscribe(url="")
        got = await house.client.post(f"/v1/subscriptions/{read['id']}/backfill", {"from": "1h"})
        assert (got.status, got.problem.code) == (409, "conflict")
        assert "its readers start in the past" in got.problem.detail
        off = await house.subscribe(active=False)
        got = await house.client.post(f"/v1/subscriptions/{off['id']}/backfill", {"from": "1h"})
        assert got.status == 409
        assert "activate it first" in got.problem.detail

    live(story)


def test_the_dashboard_counts_and_starts_a_backfill() -> None:
    async def story(house: House) -> None:
        await house.publish()
        made = await house.subscribe()
        browser = Browser(house.app)
        await browser.sign_in()
        page = f"/subscriptions/{made['id']}"
        assert "Deliver past events…" in text(await browser.get(page))
        shown = text(await browser.get(f"{page}/backfill-count?from=1h"))
        assert "1 past event will be delivered" in shown
        refused = text(await browser.get(f"{page}/backfill-count?from=400d"))
        assert "must not be before" in refused
        got = await browser.form(page, f"{page}/backfill", **{"from": "1h"})
        assert got.status == 303
        job = text(await browser.get(got.headers["location"]))
        assert "Past events" in job
        assert made["id"] in job

    live(story)
