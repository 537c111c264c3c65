"""Past events for a subscription through the API and the dashboard."""

from __future__ import annotations

from typing import Any

import pytest

from engine.world import DAY, SECOND
from homing.model import Verification
from homing.web.asgi import asgi_app
from web.asgi import Client
from web.browse import Browser, text
from web.house import House, live, use_cases


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


# --- a new subscription that starts in the past ----------------------------------------------

NEW_URL = "https://new.example/hook"
NEW = {"url": NEW_URL, "types": ["a.*"]}


async def subscriptions(house: House) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await house.client.get("/v1/subscriptions")).json["items"]
    return found


def test_a_subscription_starts_in_the_past_in_one_call() -> None:
    async def story(house: House) -> None:
        keys = [await house.publish() for _ in range(3)]
        await house.publish(type="other")
        got = await house.client.post("/v1/subscriptions", {**NEW, "from": "1h"})
        assert got.status == 201, got.body
        made = got.json
        assert got.headers["location"] == f"/v1/subscriptions/{made['id']}"
        assert made["backfill"].keys() == {"id", "count", "exact"}
        assert (made["backfill"]["count"], made["backfill"]["exact"]) == (3, True)
        await house.world.wait(SECOND)
        job = (await house.client.get(f"/v1/replays/{made['backfill']['id']}")).json
        assert (job["state"], job["replayed"]) == ("done", 3)
        assert job["filter"]["subscription"] == made["id"]
        rows = await house.deliveries(f"?subscription={made['id']}")
        assert sorted(row["event"] for row in rows) == sorted(keys)
        shown = (await house.client.get(got.headers["location"])).json
        assert not shown.keys() & {"from", "since", "per_second", "backfill"}
        again = await house.client.post(f"{got.headers['location']}/backfill", {"from": "1h"})
        await house.world.wait(SECOND)
        job = (await house.client.get(again.headers["location"])).json
        assert (job["state"], job["replayed"]) == ("done", 0), "nothing comes twice"
        assert (await house.client.patch(got.headers["location"], {"from": "1h"})).status == 422

    live(story)


def test_the_audit_log_says_that_a_new_subscription_starts_in_the_past() -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/subscriptions", {**NEW, "from": "1h", "per_second": 7})
        (entry, *_) = (await house.client.get("/v1/audit")).json["items"]
        assert (entry["action"], entry["object"]) == ("subscriptions.create", got.json["id"])
        began = entry["after"]["backfill"]
        assert (began["id"], began["per_second"]) == (got.json["backfill"]["id"], 7)
        assert entry["after"]["url"] == NEW_URL
        assert got.json["secret"].encode() not in (await house.client.get("/v1/audit")).body

    live(story)


@pytest.mark.parametrize(
    ("given", "fields", "why"),
    [
        ({"from": "31d"}, ["from"], "must not be before 20"),
        ({"from": "2999-01-01T00:00:00Z"}, ["from"], "in the future"),
        ({"from": "yesterday"}, ["from"], "RFC 3339"),
        ({"from": ""}, ["from"], "RFC 3339"),
        ({"from": 7}, ["from"], ""),
        ({"from": "1h", "per_second": 0}, ["per_second"], "must be 1 to 10000"),
        ({"per_second": 5}, ["per_second"], "rate_per_second"),
        ({"from": "1h", "url": ""}, ["from"], "readers"),
        ({"from": "1h", "active": False}, ["from"], "inactive"),
        ({"from": "1h", "verification": "challenge"}, ["from"], "proved"),
        ({"from": "400d", "url": "ftp://x", "types": []}, ["url", "types", "from"], ""),
    ],
)
def test_nothing_is_created_if_it_cannot_start_there(
    given: dict[str, Any], fields: list[str], why: str
) -> None:
    async def story(house: House) -> None:
        await house.publish()
        got = await house.client.post("/v1/subscriptions", {**NEW, **given})
        assert got.status == 422, got.body
        assert sorted(got.fields) == sorted(fields)
        assert why in got.problem.problems[-1].reason
        assert await subscriptions(house) == []
        await house.world.wait(SECOND)
        assert await house.deliveries() == []

    live(story)


def test_from_without_a_value_is_no_start_in_the_past() -> None:
    async def story(house: House) -> None:
        await house.publish()
        got = await house.client.post("/v1/subscriptions", {**NEW, "from": None})
        assert (got.status, got.json["backfill"]) == (201, None)

    live(story)


def test_an_installation_that_asks_for_proofs_refuses_a_start_in_the_past() -> None:
    async def story(house: House) -> None:
        app = use_cases(house.world, house.api_keys, verification=Verification.CHALLENGE)
        got = await Client(asgi_app(app)).post("/v1/subscriptions", {**NEW, "from": "1h"})
        assert (got.status, got.fields) == (422, ["from"])
        assert await subscriptions(house) == []

    live(story)


def test_a_repeated_call_makes_another_subscription_with_a_job_of_its_own() -> None:
    async def story(house: House) -> None:
        await house.publish()
        made = [
            (await house.client.post("/v1/subscriptions", {**NEW, "from": "1h"})).json
            for _ in range(2)
        ]
        await house.world.wait(SECOND)
        assert len({it["backfill"]["id"] for it in made}) == 2
        for it in made:
            assert len(await house.deliveries(f"?subscription={it['id']}")) == 1

    live(story)


def test_the_events_of_another_tenant_are_neither_counted_nor_delivered() -> None:
    async def story(house: House) -> None:
        await house.publish(tenant="acme")
        body = {"name": "n", "role": "manager", "tenant": "other"}
        key = (await house.client.post("/v1/keys", body)).json["key"]
        other = Client(house.app, key=key)
        got = await other.post("/v1/subscriptions", {**NEW, "from": "1h"})
        assert (got.status, got.json["backfill"]["count"]) == (201, 0)
        got = await other.post("/v1/subscriptions", {**NEW, "from": "1h", "tenant": "acme"})
        assert got.status == 403
        await house.world.wait(SECOND)
        assert await house.deliveries() == []

    live(story)


def test_the_form_of_a_new_subscription_starts_it_in_the_past() -> None:
    async def story(house: House) -> None:
        await house.publish()
        browser = Browser(house.app)
        await browser.sign_in()
        assert "Deliver past events since" in text(await browser.get("/subscriptions/new"))
        form = {"url": NEW_URL, "types": "a.*", "format": "standard", "active": "on"}
        for wrong, why in (("400d", "must not be before"), ("soon", "RFC 3339")):
            asked = {**form, "from": wrong}
            checked = await browser.form("/subscriptions/new", "/subscriptions/check", **asked)
            assert why in checked.json["problems"]["from"]
            refused = await browser.form("/subscriptions/new", "/subscriptions", **asked)
            assert refused.status == 422
            assert why in text(refused)
            assert f'value="{wrong}"'.encode() in refused.body
        assert await subscriptions(house) == []
        got = await browser.form("/subscriptions/new", "/subscriptions", **form, **{"from": " 1h "})
        assert got.status == 303, text(got)
        at, _, query = got.headers["location"].partition("?")
        shown = text(await browser.get(f"{at}?{query}"))
        assert "whsec_" in shown, "the secret is shown as well"
        await house.world.wait(SECOND)
        assert len(await house.deliveries()) == 1
        page = await browser.get(f"{at}?{query}")
        assert "is done. Deliveries made: 1." in text(page)
        job = query.removeprefix("past=")
        assert f"/replays/{job}".encode() in page.body
        other = await house.subscribe()
        for wrong in (f"{at}?past=x", f"{at}?past=rpl_1", f"/subscriptions/{other['id']}?{query}"):
            strange = await browser.get(wrong)
            assert (strange.status, "Past events:" in text(strange)) == (200, False)
        edit = text(await browser.get(f"{at}/edit"))
        assert "Deliver past events since" not in edit

    live(story)
