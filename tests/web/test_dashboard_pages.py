"""Overview, endpoints and system: what they say, what they do, and for whom."""

from __future__ import annotations

import re
from typing import Any

import pytest

from engine.world import always
from homing.app import endpoints
from homing.model import Health, State, Transition
from homing.ports import DatabaseTime, FleetState, Lease, Member
from homing.ports.views import Rollup
from homing.web.dashboard.figures import percentile_ms, steps
from homing.web.dashboard.pages.endpoints import bands
from homing.web.dashboard.pages.system import fleet_of
from web.browse import Browser, text
from web.house import URL, House, live

HTMX = ("hx-request", "true")
PAYLOAD = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


async def entered(house: House, **key: str) -> Browser:
    """A browser that is signed in, with a key of its own where one is described."""
    browser = Browser(house.app)
    if key:
        made = (await house.client.post("/v1/keys", {"name": "somebody", **key})).json
        assert (await browser.sign_in(made["key"])).status == 303
    else:
        await browser.sign_in()
    return browser


async def an_endpoint(house: House, **more: Any) -> str:
    made = await house.subscribe(**more)
    return str(made["endpoint"])


def test_an_empty_house_says_what_to_do_next() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        assert "homing publish invoice.paid" in text(await browser.get("/"))
        assert "homing subscribe" in text(await browser.get("/endpoints"))
        assert "No deliveries yet" in text(await browser.get("/system"))

    live(story)


def test_the_overview_counts_and_names_what_needs_a_person() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        endpoint = await an_endpoint(house)
        for _ in range(3):
            await house.publish()
        await house.settled()
        page = text(await browser.get("/"))
        assert "delivered 3 3 in the last hour" in page
        assert "No action needed" in page
        await house.client.post(f"/v1/endpoints/{endpoint}/freeze")
        page = text(await browser.get("/"))
        assert "a person must enable it" in page
        assert "receiver.example" in page
        numbers = (await browser.get("/chart.json?span=1h")).json
        assert sum(numbers["delivered"]) == 3
        assert len({len(values) for values in numbers.values()}) == 1
        assert sum((await browser.get("/chart.json?span=7d")).json["delivered"]) == 3

    live(story)


def test_endpoints_are_searched_filtered_and_sorted() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        await an_endpoint(house)
        other = await an_endpoint(house, url="https://other.example/x")
        await house.client.post(f"/v1/endpoints/{other}/freeze")
        for query, ours, theirs in (
            ("", True, True),
            ("?q=RECEIVER", True, False),
            ("?state=frozen", False, True),
            ("?state=enabled&sort=failing", True, False),
            ("?q=nothing", False, False),
            ("?sort=url&page=1", False, False),
        ):
            page = text(await browser.get(f"/endpoints{query}"))
            assert ("receiver.example" in page) is ours, query
            assert ("other.example" in page) is theirs, query
        assert (await browser.get("/endpoints?state=odd")).status == 422

    live(story)


def test_an_endpoint_shows_its_counters_beside_the_rules() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        endpoint = await an_endpoint(house)
        house.world.sender.scripts[URL] = always(500)
        for _ in range(3):
            await house.publish()
        await house.settled()
        page = text(await browser.get(f"/endpoints/{endpoint}"))
        assert "Failure rate 100 % of 3" in page
        assert "disabled above 70 %, counted after more than 100 attempts" in page
        assert "3 of 2,000" in page
        assert "3 deliveries" in page
        numbers = (await browser.get(f"/endpoints/{endpoint}/chart.json")).json
        assert sum(numbers["failed"]) == 3

    live(story)


def test_every_list_of_deliveries_says_why_the_last_attempt_failed() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        endpoint = await an_endpoint(house)
        house.world.sender.scripts[URL] = always(503)
        event = await house.publish()
        await house.settled()
        for path in ("/deliveries", f"/events/default/{event}", f"/endpoints/{endpoint}"):
            assert "503 Service Unavailable" in text(await browser.get(path)), path
        delivery = (await house.deliveries())[0]["id"]
        assert "1 failed 503 Service Unavailable" in text(
            await browser.get(f"/deliveries/{delivery}")
        )
        house.world.sender.scripts[URL] = always(200)
        await house.world.wait(90_000)
        page = text(await browser.get("/deliveries"))
        assert "delivered" in page
        assert "503" not in page

    live(story)


@pytest.mark.parametrize("headers", [(), (HTMX,)], ids=["form", "script"])
def test_a_person_freezes_and_enables(headers: tuple[tuple[str, str], ...]) -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        endpoint = await an_endpoint(house)
        page = f"/endpoints/{endpoint}"
        for deed, state in (("freeze", "frozen"), ("enable", "enabled")):
            got = await browser.form(page, f"{page}/{deed}", *headers)
            assert got.status == (200 if headers else 303)
            assert (await house.client.get(f"/v1{page}")).json["state"] == state
        shown = (await browser.get(page)).body
        assert headers or b"Enabled. Overdue deliveries are sent now" in shown
        changes = (await house.client.get(f"/v1{page}")).json["transitions"]
        assert {it["by"] for it in changes} == {"the admin key"}

    live(story)


def test_a_test_event_and_a_replay_of_what_was_dropped() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        made = await house.subscribe()
        page = f"/endpoints/{made['endpoint']}"
        token = await browser.token(page)
        at = ("hx-current-url", f"http://x{page}")
        got = await browser.send(f"{page}/test", HTMX, at, csrf=token, subscription=made["id"])
        assert "responded with 200" in got.headers["hx-trigger"]
        other = await browser.send(f"{page}/test", HTMX, csrf=token, subscription="sub_0")
        assert other.status == 422
        assert '"bad":true' in other.headers["hx-trigger"]
        count = await browser.get(f"{page}/replay-count?since=24h", HTMX)
        assert "nothing to replay" in text(count)
        got = await browser.send(f"{page}/replay", HTMX, at, csrf=token, since="24h")
        assert "Replay started" in got.headers["hx-trigger"]
        assert (await browser.send(f"{page}/replay", HTMX, csrf=token, since="x")).status == 422

    live(story)


def test_a_test_event_can_be_signed_for_any_subscription_of_the_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "SUBSCRIPTIONS_MAX", 1)

    async def story(house: House) -> None:
        browser = await entered(house)
        older, _, other = [await house.subscribe(url=url) for url in (URL, URL, f"{URL}/other")]
        page = f"/endpoints/{older['endpoint']}"
        token = await browser.token(page)
        at = ("hx-current-url", f"http://x{page}")
        got = await browser.send(f"{page}/test", HTMX, at, csrf=token, subscription=older["id"])
        assert "responded with 200" in got.headers["hx-trigger"]
        got = await browser.send(f"{page}/test", HTMX, at, csrf=token, subscription=other["id"])
        assert "no such subscription" in got.headers["hx-trigger"]

    live(story)


def test_a_viewer_sees_its_tenant_only_and_changes_nothing() -> None:
    async def story(house: House) -> None:
        mine = await an_endpoint(house, tenant="acme")
        other = await an_endpoint(house, url="https://other.example/x")
        browser = await entered(house, role="viewer", tenant="acme")
        page = text(await browser.get("/endpoints?tenant=default"))
        assert "receiver.example" in page
        assert "other.example" not in page
        shown = await browser.get(f"/endpoints/{mine}")
        assert shown.status == 200
        assert b"/freeze" not in shown.body
        for path in (f"/endpoints/{other}", f"/endpoints/{other}/chart.json"):
            assert (await browser.get(path)).status == 404
        for deed in ("enable", "freeze", "test", "replay"):
            got = await browser.form("/", f"/endpoints/{mine}/{deed}")
            assert got.status == 403, deed
        assert (await browser.get("/system")).status == 403
        assert "System" not in text(await browser.get("/"))

    live(story)


def test_a_manager_may_act_for_its_tenant_only() -> None:
    async def story(house: House) -> None:
        mine = await an_endpoint(house, tenant="acme")
        other = await an_endpoint(house)
        browser = await entered(house, role="manager", tenant="acme")
        assert (await browser.form("/", f"/endpoints/{mine}/freeze")).status == 303
        assert (await browser.form("/", f"/endpoints/{other}/freeze")).status == 404
        assert (await house.client.get(f"/v1/endpoints/{other}")).json["state"] == "enabled"

    live(story)


def test_the_system_shows_the_ledger_in_balance() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        await house.subscribe()
        await house.publish()
        await house.settled()
        page = text(await browser.get("/system"))
        assert "balanced" in page
        assert "256 of 256" in page
        assert "1 event published, 1 delivery accepted, 1 publish commit, " in page

    live(story)


def test_what_comes_from_outside_is_text() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        await house.subscribe(description=PAYLOAD, url=f"{URL}?{PAYLOAD.replace(' ', '')}")
        endpoint = (await house.client.get("/v1/endpoints")).json["items"][0]["id"]
        for path in (f"/endpoints?q={PAYLOAD}", "/endpoints", f"/endpoints/{endpoint}", "/"):
            body = (await browser.get(path.replace(" ", "%20"))).body.decode()
            assert "<script>alert" not in body, path
            assert "<img src=x" not in body, path

    live(story)


def test_no_template_has_inline_script_or_style() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        endpoint = await an_endpoint(house)
        for path in ("/", "/endpoints", f"/endpoints/{endpoint}", "/system", "/nowhere"):
            body = (await browser.get(path)).body.decode()
            assert not re.search(r"<[a-z]+[^>]*\s(style|on[a-z]+)=", body), path
            assert not re.search(r"<script(?![^>]*\ssrc=)", body), path

    live(story)


def test_percentiles_come_from_the_histogram() -> None:
    none = (0,) * 12
    assert percentile_ms(none, 0.5) is None
    fast = (0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0)  # all between 50 and 100 ms
    assert 50 < (percentile_ms(fast, 0.5) or 0) < 100
    assert (percentile_ms(fast, 0.99) or 0) > (percentile_ms(fast, 0.5) or 0)
    assert (percentile_ms((0,) * 11 + (1,), 0.99) or 0) > 600_000


def test_steps_are_of_one_length_and_leave_nothing_out() -> None:
    found = [Rollup(at, delivered=1) for at in (60_000, 120_000, 660_000)]
    parts = steps(found, since=60_000, until=660_001, step_ms=600_000)
    assert [(it.at, it.delivered) for it in parts] == [(0, 2), (600_000, 1)]


def test_a_life_is_drawn_from_its_transitions() -> None:
    async def story(house: House) -> None:
        await house.subscribe()
        (found,), _ = await house.world.views.endpoints(
            tenant=None, state=None, before_id=None, limit=1
        )
        now = found.created_at + 1_000
        health = Health(state=State.FROZEN, since=now - 400, enabled_since=found.created_at)
        change = Transition(
            id=1,
            endpoint_id=found.id,
            at=now - 400,
            before=State.ENABLED,
            after=State.FROZEN,
            rule="person",
            numbers={},
        )
        drawn = bands(found.__class__(*_but(found, health)), [change], since=now - 2_000, now=now)
        assert [(it.state, it.left, it.width) for it in drawn] == [
            (State.ENABLED, 500, 300),
            (State.FROZEN, 800, 200),
        ]

    live(story)


def _but(found: Any, health: Health) -> list[Any]:
    return [
        health if name == "health" else getattr(found, name) for name in found.__struct_fields__
    ]


def test_the_map_of_a_fleet_names_who_holds_what() -> None:
    members = tuple(Member(n, n, f"host-{n}", "both", True, 0, 9) for n in (7, 8))
    leases = tuple(Lease(n, (7, 8, None, 99)[n % 4], 1) for n in range(256))
    processes, cells = fleet_of(FleetState(DatabaseTime(0, 0, 0), members, leases))
    assert [(it.mark, it.buckets) for it in processes] == [("A", 64), ("B", 64)]
    assert [it.mark for it in cells[:4]] == ["A", "B", "", ""]
    assert fleet_of(None) == ([], [])
