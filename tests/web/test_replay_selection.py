"""A bulk replay takes exactly the finished deliveries that the list of the same filter shows."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import pytest

from engine.world import HOUR, always
from web.browse import Browser, text
from web.house import House, live

A, B = "https://a.example/hook", "https://b.example/hook"


async def history(house: House) -> dict[str, str]:
    """Deliveries accepted hour by hour, of several types, finished in several ways; ids by name."""
    house.world.sender.scripts[B] = always(500)
    named: dict[str, str] = {}
    await house.subscribe(A)
    await house.subscribe(B, tenant="other")
    for number, kind in enumerate(("invoice.paid", "invoice.sent", "order.paid")):
        for tenant in ("default", "other"):
            await house.publish(type=kind, tenant=tenant, id=f"e{number}")
        await house.world.wait(HOUR)
    for one in await house.deliveries():
        named[f"{one['tenant']} {one['event']}"] = one["id"]
    # Accepted in the first hours, finished only now:
    for event in ("e0", "e1"):
        got = await house.client.post(f"/v1/deliveries/{named[f'other {event}']}/cancel")
        assert got.status == 200
    return named


async def listed(house: House, where: dict[str, str]) -> set[str]:
    found = await house.deliveries("?" + urlencode(where))
    return {one["id"] for one in found if one["status"] != "pending"}


async def replayed(house: House, where: dict[str, Any]) -> set[str]:
    """What a job takes: the deliveries whose replays it made."""
    before = {one["id"] for one in await house.deliveries()}
    counted = (await house.client.post("/v1/replays", {"filter": where, "dry_run": True})).json
    job = await house.client.post("/v1/replays", {"filter": where})
    assert job.status == 202, job.body
    await house.settled()
    new = [one for one in await house.deliveries() if one["id"] not in before]
    assert all(one["replay"] for one in new)
    assert counted["count"] == len(new)
    old = {(one["tenant"], one["event"]): one["id"] for one in await old_ones(house, before)}
    return {old[one["tenant"], one["event"]] for one in new}


async def old_ones(house: House, ids: set[str]) -> list[dict[str, Any]]:
    return [one for one in await house.deliveries() if one["id"] in ids]


FILTERS: tuple[dict[str, str], ...] = (
    {"since": "30m"},
    {"since": "90m"},
    {"until": "90m"},
    {"since": "150m", "until": "90m"},
    {"status": "cancelled", "since": "90m"},
    {"status": "cancelled", "reason": "by_person"},
    {"reason": "exhausted"},
    {"status": "delivered", "until": "2h"},
    {"type": "invoice.paid"},
    {"tenant": "other", "since": "150m"},
    {"tenant": "default", "event": "e1"},
    {"url": "A.example"},
    {"url": "b.example", "since": "150m"},
)


@pytest.mark.parametrize("where", FILTERS, ids=urlencode)
def test_the_list_and_the_job_agree(where: dict[str, str]) -> None:
    async def story(house: House) -> None:
        await history(house)
        expected = await listed(house, where)
        assert await replayed(house, where) == expected

    live(story)


def test_the_moment_of_acceptance_is_in_since_and_not_in_until() -> None:
    async def story(house: House) -> None:
        named = await history(house)
        one = next(it for it in await house.deliveries() if it["id"] == named["other e1"])
        at = one["accepted_at"]
        for where in ({"since": at, "tenant": "other"}, {"until": at, "tenant": "other"}):
            expected = await listed(house, where)
            assert (named["other e1"] in expected) == ("since" in where)
            assert await replayed(house, where) == expected

    live(story)


def test_what_finishes_after_it_was_counted_is_not_replayed() -> None:
    async def story(house: House) -> None:
        named = await history(house)
        where = {"tenant": "other", "status": "cancelled"}
        counted = (await house.client.post("/v1/replays", {"filter": where, "dry_run": True})).json
        assert counted["count"] == 2
        await house.world.wait(1)
        await house.client.post(f"/v1/deliveries/{named['other e2']}/cancel")
        as_of = {**where, "as_of": counted["as_of"]}
        assert await replayed(house, as_of) == {named["other e0"], named["other e1"]}

    live(story)


def test_a_job_that_was_not_counted_takes_all_that_are_finished() -> None:
    async def story(house: House) -> None:
        await history(house)
        where = {"tenant": "other", "status": "cancelled"}
        job = await house.client.post("/v1/replays", {"filter": where})
        assert job.json["filter"]["as_of"] is None
        await house.settled()
        done = await house.client.get(f"/v1/replays/{job.json['id']}")
        assert (done.json["state"], done.json["replayed"]) == ("done", 2)

    live(story)


def test_a_duration_is_counted_back_from_the_same_moment() -> None:
    """An hour later "the last 150 minutes" would be other deliveries."""

    async def story(house: House) -> None:
        await history(house)
        where = {"tenant": "other", "since": "150m"}
        counted = (await house.client.post("/v1/replays", {"filter": where, "dry_run": True})).json
        expected = await listed(house, where)
        await house.world.wait(HOUR)
        assert await replayed(house, {**where, "as_of": counted["as_of"]}) == expected

    live(story)


def test_a_time_to_come_and_nonsense_are_refused() -> None:
    async def story(house: House) -> None:
        for bad in ("2999-01-01T00:00:00Z", "soon"):
            got = await house.client.post("/v1/replays", {"filter": {"as_of": bad}})
            assert (got.status, got.fields) == (422, ["filter.as_of"])
        got = await house.client.get("/v1/deliveries?reason=boredom")
        assert (got.status, got.fields) == (422, ["reason"])

    live(story)


# --- the dashboard ---------------------------------------------------------------------------

SEARCHES = (
    "since:30m",
    "since:90m tenant:other",
    "until:90m",
    "type:invoice.*",
    "type:inv*",
    "url:B.EXAMPLE since:150m",
    "event:e1",
    "status:cancelled reason:by_person",
    "b.example",
)


@pytest.mark.parametrize("search", SEARCHES)
def test_what_this_search_finds_is_what_is_replayed(search: str) -> None:
    async def story(house: House) -> None:
        await history(house)
        browser = Browser(house.app)
        await browser.sign_in()
        query = urlencode({"q": search})
        page = (await browser.get(f"/deliveries?{query}")).body.decode()
        shown = set(re.findall(r'data-row="(dlv_\w+)"', page))
        before = {one["id"]: one for one in await house.deliveries()}
        finished = {it for it in shown if before[it]["status"] != "pending"}
        forms = []
        for take in ("dropped", "cancelled", "delivered"):
            count = sum(before[it]["status"] == take for it in finished)
            if not count or ("status:" in search and take not in search):
                continue
            bulk = await browser.get(f"/bulk?{query}&take={take}")
            noun = "delivery" if count == 1 else "deliveries"
            assert f"{count} {noun} will be replayed" in text(bulk)
            as_of = re.findall(r'name="as_of" value="(\d+)"', bulk.body.decode())[0]
            forms.append({"q": search, "take": take, "as_of": as_of})
        await house.world.wait(HOUR)
        for form in forms:
            got = await browser.form("/bulk", "/bulk/replay", **form)
            assert got.status == 303, text(got)
            await house.settled()
        new = [one for one in await house.deliveries() if one["id"] not in before]
        taken = {(one["tenant"], one["event"]) for one in new}
        assert taken == {(before[it]["tenant"], before[it]["event"]) for it in finished}
        assert len(new) == len(finished)

    live(story)


def test_without_a_status_the_dashboard_offers_what_was_dropped_and_never_everything() -> None:
    async def story(house: House) -> None:
        await history(house)
        await house.world.wait(50 * HOUR)
        browser = Browser(house.app)
        await browser.sign_in()
        before = await house.deliveries()
        dropped = [one for one in before if one["status"] == "dropped"]
        assert 0 < len(dropped) < len(before)
        page = await browser.get("/bulk?q=")
        said = text(page)
        assert f"dropped {len(dropped)}" in said
        for one in {it["tenant"] for it in dropped}:
            assert one in said
        assert "Last failure" in said
        got = await browser.form("/bulk?q=", "/bulk/replay", q="")
        assert got.status == 303, text(got)
        await house.settled()
        known = {one["id"] for one in before}
        new = [one for one in await house.deliveries() if one["id"] not in known]
        assert {one["event"] for one in new} == {one["event"] for one in dropped}

    live(story)


def test_what_was_accepted_after_the_count_is_not_cancelled() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe("https://c.example/hook", tenant="acme")
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze", {})
        await house.publish(tenant="acme", type="a.early")
        browser = Browser(house.app)
        await browser.sign_in()
        page = (await browser.get("/bulk?q=tenant%3Aacme")).body.decode()
        as_of = re.findall(r'name="as_of" value="(\d+)"', page)[0]
        await house.world.wait(5_000)
        await house.publish(tenant="acme", type="a.late")
        fields = {"q": "tenant:acme", "as_of": as_of}
        got = await browser.form("/bulk?q=tenant%3Aacme", "/bulk/cancel", **fields)
        while "cancelling" in got.headers.get("location", ""):
            done = re.findall(r"done=(\d+)", got.headers["location"])[0]
            got = await browser.form("/bulk?q=", "/bulk/cancel", **fields, done=done)
        status = {it["type"]: it["status"] for it in await house.deliveries("?tenant=acme")}
        assert (status["a.early"], status["a.late"]) == ("cancelled", "pending")

    live(story)
