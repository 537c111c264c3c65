"""Incidents: which URLs fail now, why, since when, what waits, and what a person can do there."""

from __future__ import annotations

import re

from msgspec.structs import replace

from engine.world import always, failing_with
from homing.engine.options import EngineOptions
from homing.model import Failure
from homing.web.dashboard.pages.endpoints import shares
from homing.web.dashboard.pages.incidents import ROWS, SAMPLE_LINES, sample
from store.build import Maker
from store.test_view_incidents import a_cause
from web.browse import text
from web.house import URL, House, live
from web.test_dashboard_pages import HTMX, an_endpoint, entered

HOUR_MS = 3_600_000
AT_INCIDENTS = ("hx-current-url", "http://x/incidents")


async def a_failing_url(house: House, status: int = 503, url: str = URL, **more: object) -> str:
    endpoint = await an_endpoint(house, url=url, **more)
    house.world.sender.scripts[url] = always(status)
    await house.publish(**({"tenant": more["tenant"]} if "tenant" in more else {}))
    await house.settled()
    return endpoint


def test_without_failures_the_page_says_what_that_means_and_what_to_do() -> None:
    async def story(house: House) -> None:
        page = text(await (await entered(house)).get("/incidents"))
        assert "Nothing fails now" in page
        assert "no action is needed" in page
        assert "homing demo" in page

    live(story)


def test_an_incident_says_what_fails_why_since_when_and_what_waits() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        endpoint = await a_failing_url(house)
        page = text(await browser.get("/incidents"))
        assert "receiver.example /hook enabled default" in page
        assert "Cause 503 Service Unavailable" in page
        assert "Failed attempts 1" in page
        assert "Waiting 1 delivery" in page
        assert "the server responds with 503 Service Unavailable. 1 delivery waits for a" in page
        overview = text(await browser.get("/"))
        assert "failing receiver.example /hook 503 Service Unavailable since" in overview
        assert "1 failed attempt" in overview
        one = text(await browser.get(f"/endpoints/{endpoint}"))
        assert "Why attempts fail All incidents 503 Service Unavailable 100 %" in one
        assert "1 failed attempt of 1 delivery since" in one
        assert "failed a.b attempt 1 503 Service Unavailable fresh" in one

    live(story)


def test_an_incident_ends_with_a_success_and_stays_for_a_day() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        endpoint = await a_failing_url(house)
        house.world.sender.scripts[URL] = always(200)
        await house.world.wait(90_000)
        page = text(await browser.get("/incidents"))
        assert "Nothing fails now" in page
        assert "Ended in the last 24 hours" in page
        assert "503 Service Unavailable" in page
        one = text(await browser.get(f"/endpoints/{endpoint}"))
        assert "The last attempt succeeded. Ended" in one
        assert "No action needed" in text(await browser.get("/"))
        await house.world.wait(25 * 3_600_000)
        assert "Ended" not in text(await browser.get("/incidents"))

    live(story)


def test_a_person_tests_enables_and_replays_from_the_page_and_stays_there() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        endpoint = await a_failing_url(house)
        await house.client.post(f"/v1/endpoints/{endpoint}/freeze")
        shown = (await browser.get("/incidents")).body.decode()
        assert f"/endpoints/{endpoint}/enable" in shown
        token = await browser.token("/incidents")
        page = f"/endpoints/{endpoint}"
        got = await browser.send(f"{page}/test", HTMX, AT_INCIDENTS, csrf=token)
        assert "The test event failed: 503 Service Unavailable" in got.headers["hx-trigger"]
        got = await browser.send(f"{page}/enable", HTMX, AT_INCIDENTS, csrf=token)
        assert "Enabled." in got.headers["hx-trigger"]
        since = re.search(r'data-time="([^"]+)"', shown)
        assert since is not None
        count = await browser.get(f"{page}/replay-count?since={since[1]}", HTMX)
        assert "nothing to replay" in text(count)
        got = await browser.send(f"{page}/replay", HTMX, AT_INCIDENTS, csrf=token, since=since[1])
        assert "Replay started" in got.headers["hx-trigger"]
        plain = await browser.send(f"{page}/test", csrf=token)
        assert plain.headers["location"] == page

    live(story)


def test_the_replay_of_an_incident_takes_what_it_dropped_whenever_that_was_accepted() -> None:
    async def story(house: House) -> None:
        endpoint = await a_failing_url(house, 500, types=["a.b"])
        once = await house.subscribe(url=URL, types=["only.once"], policy="once")
        await house.publish(type="only.once")  # dropped with 500, before the incident
        await house.settled()
        assert once["endpoint"] == endpoint
        await house.world.wait(25 * HOUR_MS)
        house.world.sender.scripts[URL] = always(503)
        await house.world.wait(24 * HOUR_MS)  # The last retry: dropped with 503.
        browser = await entered(house)
        (cause,) = (await house.client.get(f"/v1/causes?endpoint={endpoint}")).json["items"][:1]
        assert (cause["code"], cause["attempts"]) == (503, 1)
        shown = (await browser.get("/incidents")).body.decode()
        assert "Dropped since" in shown
        (since,) = re.findall(r'data-time="([^"]+)" required', shown)[:1]
        page = f"/endpoints/{endpoint}"
        count = text(await browser.get(f"{page}/replay-count?since={since}", HTMX))
        assert "1 dropped delivery will be replayed" in count
        both = text(await browser.get(f"{page}/replay-count?since=30d", HTMX))
        assert "2 dropped deliveries will be replayed" in both
        token = await browser.token("/incidents")
        await browser.send(f"{page}/replay", HTMX, csrf=token, since=since)
        await house.settled()
        await house.world.wait(1_000)
        pending = await house.deliveries("?status=pending")
        assert [it["type"] for it in pending] == ["a.b"]
        later = await house.deliveries("?finished_since=1h&status=dropped")
        assert len(later) == 1

    live(story)


def test_the_overview_names_the_cause_of_disabled_and_frozen_urls() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        endpoint = await a_failing_url(house)
        await house.client.post(f"/v1/endpoints/{endpoint}/freeze")
        page = text(await browser.get("/"))
        assert "frozen receiver.example /hook 503 Service Unavailable since" in page
        assert "a person must enable it" in page
        assert "1 more" not in page

    live(story)


def test_settings_that_refuse_a_url_are_shown_to_admins_as_a_problem_to_solve() -> None:
    async def story(house: House) -> None:
        await an_endpoint(house)
        await house.publish()
        await house.settled()
        house.world.sender.scripts[URL] = failing_with(Failure.FORBIDDEN_ADDRESS)
        house.world.options = replace(house.world.options, guard=22)
        await house.world.crash()
        await house.world.publish()
        await house.settled()
        again = House(house.world)  # The use cases of the new process.
        page = text(await (await entered(again)).get("/"))
        assert "settings were changed and now refuse the addresses of one endpoint" in page
        assert "refused receiver.example /hook the settings of this installation refuse" in page
        assert "No action needed" not in page
        manager = await entered(again, role="manager", tenant="default")
        assert "refuse" not in text(await manager.get("/"))

    live(story, EngineOptions(guard=11))


def test_a_viewer_sees_its_tenant_only_and_no_action() -> None:
    async def story(house: House) -> None:
        mine = await a_failing_url(house, tenant="acme")
        await a_failing_url(house, url="https://other.example/x")
        browser = await entered(house, role="viewer", tenant="acme")
        for path in ("/incidents", "/incidents?tenant=default", "/"):
            page = text(await browser.get(path))
            assert "other.example" not in page, path
        shown = (await browser.get("/incidents")).body.decode()
        assert "receiver.example" in shown
        assert f"/endpoints/{mine}/test" not in shown
        assert f"/endpoints/{mine}/replay" not in shown
        got = await browser.form("/incidents", f"/endpoints/{mine}/test")
        assert got.status == 403

    live(story)


def test_the_list_has_pages() -> None:
    async def story(house: House) -> None:
        browser = await entered(house)
        for number in range(ROWS + 2):
            await a_failing_url(house, url=f"https://u{number}.example/", types=[f"t{number}"])
            await house.publish(type=f"t{number}")
            await house.settled()
        first = (await browser.get("/incidents")).body.decode()
        older = re.search(r'rel="next" href="([^"]+)"', first)
        assert older is not None
        second = (await browser.get(f"/incidents{older[1].replace('&amp;', '&')}")).body.decode()
        urls = [set(re.findall(r"u\d+\.example", page)) for page in (first, second)]
        assert [len(it) for it in urls] == [ROWS, 2]
        assert not urls[0] & urls[1]
        assert (await browser.get("/incidents?cursor=x")).status == 422

    live(story)


def test_a_response_is_cut_to_a_few_lines_and_is_text() -> None:
    make = Maker()
    endpoint = make.endpoint()
    attempt = make.attempt(make.event(make.subscription(endpoint)).deliveries[0])

    def shown(excerpt: bytes) -> str:
        return sample(replace(attempt, excerpt=excerpt))

    assert shown(b"") == ""
    assert shown(b"\n\nsorry \xff\n\n") == "sorry \ufffd"
    assert shown(b"x\n" * 20) == "\n".join("x" * SAMPLE_LINES) + "…"
    assert len(shown(b"y" * 1_000)) < 500


def test_shares_are_percentages_of_the_failed_attempts_largest_first() -> None:
    make = Maker()
    endpoint = make.endpoint()
    few, many = (replace(a_cause(make, endpoint), attempts=n) for n in (39, 61))
    assert shares([few, many]) == [(many, 61), (few, 39)]
    assert shares([]) == []
