"""The customer portal: links and their ends, what each role may do, framing, looks, limits."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from engine.world import HOUR, always, failing_with
from homing import __version__
from homing.engine import portal as engine_portal
from homing.engine.keys import LIFE_MS, ApiKeys
from homing.model import Failure
from homing.policy.portal import KEPT_MS
from homing.ports.audit import AuditFilter
from homing.store.keys import Keys
from homing.web.asgi import asgi_app
from homing.web.portal.app import STREAMS_OF_TENANT_MAX
from homing.web.portal.pages import PAGES
from web.asgi import Client, Got
from web.browse import Browser, text
from web.house import URL, House, live, use_cases

MINUTE = 60_000
HOME = "/portal/endpoints"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)
LOGO = "data:image/png;base64," + base64.b64encode(PNG).decode()
SITE = "https://app.example.com"
FORBIDDEN = (
    *("neighbour", "secret-event", "secret.type", "homing", "acme", "tenant"),
    *("operator", "installation", "api key", "admin", "sqlite", "postgres"),
    *("workfront", "read from the subscription"),
)


async def link(house: House, **given: Any) -> dict[str, Any]:
    """A link for somebody of acme."""
    asked = {"tenant": "acme", "role": "manager", "subject": "ada@acme.example", **given}
    got = await house.client.post("/v1/portal-links", asked)
    assert got.status == 201, got.body
    made: dict[str, Any] = got.json
    return made


def path_of(made: dict[str, Any]) -> str:
    return "/portal/open/" + str(made["url"]).rpartition("/")[2]


async def customer(house: House, app: ASGIApp | None = None, **given: Any) -> Browser:
    """Somebody who has opened a link."""
    browser = Browser(app or house.app)
    got = await browser.open_portal((await link(house, **given))["url"])
    assert (got.status, got.headers["location"]) == (303, HOME)
    return browser


def another_process(house: House) -> ASGIApp:
    """A second server of the fleet."""
    api_keys = ApiKeys(Keys(house.world.db), house.world.clock, node=1, life_ms=LIFE_MS)
    return asgi_app(use_cases(house.world, api_keys))


def copied(browser: Browser, app: ASGIApp | None = None) -> Browser:
    other = Browser(app or browser.app)
    other.cookies = dict(browser.cookies)
    return other


# --- links ----------------------------------------------------------------------------------


def test_a_link_opens_once_and_then_says_that_it_was_used() -> None:
    async def story(house: House) -> None:
        made = await link(house)
        browser, second = Browser(house.app), Browser(house.app)
        assert (await second.get(path_of(made))).status == 200
        assert (await browser.open_portal(made["url"])).status == 303
        assert "Endpoints" in text(await browser.get(HOME))
        for got in (await second.get(path_of(made)), await second.send(path_of(made))):
            assert got.status == 410
            assert "This link was opened already, and a link works only once." in text(got)
            assert "Go to your open session" not in text(got)
        assert (await second.get(HOME)).status == 401
        again = text(await browser.get(path_of(made)))
        assert "opened already" in again
        assert "Go to your open session" in again

    live(story)


def test_fetching_a_link_does_not_use_it_up() -> None:
    async def story(house: House) -> None:
        made = await link(house)
        for _ in range(3):
            got = await Browser(house.app).get(path_of(made))
            assert got.status == 200
            assert "set-cookie" in got.headers
        assert (await Browser(house.app).call("HEAD", path_of(made))).status == 200
        assert (await Browser(house.app).open_portal(made["url"])).status == 303

    live(story)


def test_a_browser_that_keeps_no_cookies_is_told_so_and_the_link_stays_usable() -> None:
    async def story(house: House) -> None:
        made = await link(house)
        got = await Browser(house.app).send(path_of(made))
        assert got.status == 403
        assert "Your browser keeps no cookies for this page here" in text(got)
        assert b'target="_blank"' in got.body
        assert (await Browser(house.app).open_portal(made["url"])).status == 303

    live(story)


def test_a_link_that_is_not_opened_in_a_quarter_of_an_hour_is_dead() -> None:
    async def story(house: House) -> None:
        made, other = await link(house), await link(house, open_within="2m")
        await house.world.wait(2 * MINUTE)
        got = await Browser(house.app).get(path_of(other))
        assert (got.status, "not opened in time" in text(got)) == (410, True)
        await house.world.wait(13 * MINUTE - 1_000)
        assert (await Browser(house.app).get(path_of(made))).status == 200
        await house.world.wait(1_000)
        got = await Browser(house.app).get(path_of(made))
        assert (got.status, "not opened in time" in text(got)) == (410, True)

    live(story)


def test_a_session_ends_after_eight_hours_or_as_the_link_says() -> None:
    async def story(house: House) -> None:
        browser, short = await customer(house), await customer(house, session="1h")
        await house.world.wait(HOUR)
        got = await short.get(HOME)
        assert (got.status, "This session has ended" in text(got)) == (401, True)
        await house.world.wait(7 * HOUR - 1_000)
        assert (await browser.get(HOME)).status == 200
        await house.world.wait(1_000)
        got = await browser.get(HOME)
        assert (got.status, "This session has ended" in text(got)) == (401, True)
        assert "Open it again from the application" in text(got)

    live(story)


def test_a_revoked_link_and_its_session_are_dead_at_once_and_elsewhere_within_a_second() -> None:
    async def story(house: House) -> None:
        waiting, opened = await link(house), await link(house)
        browser = Browser(house.app)
        await browser.open_portal(opened["url"])
        there = another_process(house)
        far = copied(browser, there)
        assert (await far.get(HOME)).status == 200
        for it in (waiting, opened):
            got = await house.client.delete(f"/v1/portal-links/{it['id']}")
            assert got.status == 204
        for page in (await browser.get(HOME), await Browser(house.app).get(path_of(waiting))):
            assert "This access was withdrawn." in text(page)
        await house.world.wait(1_000)
        for page in (await far.get(HOME), await Browser(there).get(path_of(waiting))):
            assert page.status in {401, 410}
            assert "This access was withdrawn." in text(page)
        again = await house.client.delete(f"/v1/portal-links/{opened['id']}")
        assert again.status == 404

    live(story)


def test_a_link_ends_with_the_key_that_made_it() -> None:
    async def story(house: House) -> None:
        key = await house.client.post(
            "/v1/keys", {"name": "app", "role": "manager", "tenant": "acme"}
        )
        app = Client(house.app, key=key.json["key"])
        made = [(await app.post("/v1/portal-links", {"subject": "ada"})).json for _ in "ab"]
        assert [it["tenant"] for it in made] == ["acme", "acme"]
        browser, there = Browser(house.app), another_process(house)
        await browser.open_portal(made[0]["url"])
        far = copied(browser, there)
        assert (await far.get(HOME)).status == 200
        await house.client.delete(f"/v1/keys/{key.json['id']}")
        assert (await browser.get(HOME)).status == 401
        assert "withdrawn" in text(await Browser(house.app).get(path_of(made[1])))
        await house.world.wait(1_000)
        assert (await far.get(HOME)).status == 401

    live(story)


def test_a_forged_link_and_one_of_another_installation_are_dead_without_a_look_at_the_store() -> (
    None
):
    async def story(house: House) -> None:
        made = path_of(await link(house))
        await house.world.wait(10)  # Two apps of one node would make the same id.
        foreign = use_cases(house.world, admin_key="hk_of-another-installation")
        there = Client(asgi_app(foreign), key="hk_of-another-installation")
        theirs = path_of((await there.post("/v1/portal-links", {"tenant": "acme"})).json)
        head, _, tail = made.rpartition(".")
        house.world.db.run = never  # type: ignore[method-assign]
        for path in (theirs, f"{head}.{tail[::-1]}", f"{head}x.{tail}", "/portal/open/plk_x"):
            for got in (await Browser(house.app).get(path), await Browser(house.app).send(path)):
                assert got.status == 410, path
                assert "This link is not valid." in text(got)
                assert "frame-ancestors *" in got.headers["content-security-policy"]
                assert b"<form" not in got.body, "a page that anybody may frame does nothing"

    async def never(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("the store was asked")

    live(story)


def test_a_session_cookie_is_no_key_of_the_api_nor_of_the_dashboard() -> None:
    async def story(house: House) -> None:
        browser = await customer(house)
        (value,) = [v for k, v in browser.cookies.items() if k == "homing_portal"]
        browser.cookies["homing_session"] = value
        assert (await browser.get("/endpoints")).headers["location"].startswith("/sign-in")
        assert (await Client(house.app, key=value).get("/v1/endpoints")).status == 401
        dashboard = Browser(house.app)
        await dashboard.sign_in()
        assert (await dashboard.get(HOME)).status == 401, "nor the other way round"

    live(story)


def test_a_person_can_end_the_session() -> None:
    async def story(house: House) -> None:
        browser = await customer(house)
        thief = copied(browser)
        got = await browser.form(HOME, "/portal/leave")
        assert "You have ended your session." in text(got)
        assert "homing_portal" not in browser.cookies
        assert (await thief.get(HOME)).status == 401

    live(story)


# --- cookies and forms ----------------------------------------------------------------------


def cookie_of(got: Got) -> str:
    return got.headers["set-cookie"]


def test_the_session_cookie_is_partitioned_and_no_script_reads_it() -> None:
    async def story(house: House) -> None:
        for host, origin, name in (
            ("127.0.0.1:8700", "http://127.0.0.1:8700", "homing_portal"),
            ("hooks.localhost:8443", "https://hooks.localhost:8443", "__Host-homing_portal"),
        ):
            browser = Browser(house.app, host=host)
            path = path_of(await link(house))
            await browser.get(path)
            same = (("origin", origin), ("sec-fetch-site", "same-origin"))
            got = await browser.send(path, *same)
            parts = cookie_of(got).split("; ")
            assert parts[0].startswith(f"{name}=plk_")
            assert {"Path=/", "HttpOnly", "Secure", "SameSite=None", "Partitioned"} <= set(parts)
            assert "Max-Age=28800" in parts
            assert (await browser.get(HOME)).status == 200

    live(story)


def test_a_cookie_without_the_prefix_counts_on_this_machine_only() -> None:
    async def story(house: House) -> None:
        browser = await customer(house)
        named = asgi_app(house.use_cases)
        elsewhere = Browser(named, host="192.0.2.7")
        elsewhere.cookies = dict(browser.cookies)
        assert (await elsewhere.get(HOME)).status == 401
        elsewhere.cookies = {"__Host-homing_portal": browser.cookies["homing_portal"]}
        assert (await elsewhere.get(HOME)).status == 200

    live(story)


def test_a_form_needs_the_token_of_its_session_and_the_origin_of_this_site() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(tenant="acme")
        browser, other = await customer(house), await customer(house)
        at = f"{HOME}/{made['id']}/pause"
        token = await browser.token(HOME)
        foreign = (("origin", SITE), ("sec-fetch-site", "cross-site"))
        for got in (
            await browser.send(at),
            await browser.send(at, csrf=await other.token(HOME)),
            await browser.send(at, *foreign, csrf=token),
            await browser.send(at, ("origin", SITE), csrf=token),
            await Browser(house.app).send(path_of(await link(house)), *foreign),
        ):
            assert got.status == 403, text(got)
            assert "This page is out of date." in text(got)
        shown = await house.client.get(f"/v1/subscriptions/{made['id']}")
        assert shown.json["paused_since"] is None
        assert (await browser.send(at, csrf=token)).status == 303

    live(story)


# --- what people do ---------------------------------------------------------------------------


def test_a_manager_makes_tests_changes_pauses_and_deletes_an_endpoint() -> None:
    async def story(house: House) -> None:
        browser = await customer(house)
        form = {"url": URL, "types": "order.*", "filters": '[{"field": "data.n", "value": 1}]'}
        made = await browser.form(f"{HOME}/new", HOME, **form)
        at = made.headers["location"]
        assert (made.status, at.startswith(f"{HOME}/sub_")) == (303, True)
        first, second = text(await browser.get(at)), text(await browser.get(at))
        assert "whsec_" in first
        assert "whsec_" not in second
        assert '"field": "data.n"' in second
        number = at.rpartition("/")[2]
        stored = (await house.client.get(f"/v1/subscriptions/{number}")).json
        assert (stored["tenant"], stored["active"], stored["types"]) == ("acme", True, ["order.*"])

        tested = await browser.form(at, f"{at}/test")
        assert tested.status == 303
        assert (
            "Your endpoint responded with 200"
            in bytes.fromhex(browser.cookies["homing_portal_message"]).decode()
        )
        rotated = await browser.form(at, f"{at}/rotate")
        assert (rotated.status, rotated.headers["location"]) == (303, at)
        assert "whsec_" in text(await browser.get(at))
        assert (await browser.form(at, f"{at}/pause")).status == 303
        assert "has been paused since" in text(await browser.get(at))
        assert (await browser.form(at, f"{at}/resume")).status == 303

        await house.client.patch(
            f"/v1/subscriptions/{number}",
            {"format": "raw", "policy": "once", "metadata": {"crm": "17"}, "signature": "both"},
        )
        changed = await browser.form(at, at, **{**form, "types": "order.paid", "filters": ""})
        assert changed.status == 303
        stored = (await house.client.get(f"/v1/subscriptions/{number}")).json
        assert (stored["types"], stored["filters"]) == (["order.paid"], [])
        kept = {it: stored[it] for it in ("format", "policy", "metadata", "signature", "active")}
        assert kept == {
            "format": "raw",
            "policy": "once",
            "metadata": {"crm": "17"},
            "signature": "both",
            "active": True,
        }, "what the form does not offer stays"
        assert (await browser.form(at, f"{at}/delete")).headers["location"] == HOME
        assert (await browser.get(at)).status == 404

    live(story)


def test_a_form_cannot_set_what_it_does_not_offer() -> None:
    async def story(house: House) -> None:
        browser = await customer(house)
        form = {"url": URL, "types": "*", "tenant": "other", "policy": "once", "format": "raw"}
        at = (await browser.form(f"{HOME}/new", HOME, **form)).headers["location"]
        stored = await house.client.get(f"/v1/subscriptions/{at.rpartition('/')[2]}")
        assert (stored.json["tenant"], stored.json["policy"], stored.json["format"]) == (
            "acme",
            None,
            "standard",
        )
        bad = await browser.form(f"{HOME}/new", HOME, url="", types="*")
        assert (bad.status, "must be given" in text(bad)) == (422, True)

    live(story)


def test_a_viewer_sees_everything_and_is_offered_no_change() -> None:
    async def story(house: House) -> None:
        made = await failing(house)
        browser = await customer(house, role="viewer")
        delivery = (await house.deliveries("?tenant=acme"))[0]["id"]
        for path in (
            HOME,
            f"{HOME}/{made['id']}",
            "/portal/deliveries",
            f"/portal/deliveries/{delivery}",
            "/portal/incidents",
            "/portal/verify",
        ):
            got = await browser.get(path)
            assert got.status == 200, path
            forms = set(re.findall(rb'<form[^>]*method="post"[^>]*action="([^"]+)"', got.body))
            assert forms == {b"/portal/leave", b"/portal/language"}, path
        refused = await browser.get(f"{HOME}/new")
        assert (refused.status, "does not allow this" in text(refused)) == (403, True)

    live(story)


async def failing(house: House) -> dict[str, Any]:
    """A subscription of acme whose URL fails, with a delivery that waits."""
    house.world.sender.scripts[URL] = always(503)
    made = await house.subscribe(tenant="acme")
    await house.publish(tenant="acme", type="order.paid", data={"n": 17})
    await house.settled()
    return made


def test_the_pages_of_deliveries_and_incidents_say_what_happened() -> None:
    async def story(house: House) -> None:
        made = await failing(house)
        browser = await customer(house)
        delivery = (await house.deliveries("?tenant=acme"))[0]["id"]
        listed = text(await browser.get("/portal/deliveries"))
        assert "order.paid" in listed
        assert "503 Service Unavailable" in listed
        for query, there in (
            ("?status=pending", True),
            ("?status=delivered", False),
            ("?type=order.*", True),
            ("?type=other", False),
            (f"?endpoint={made['id']}", True),
        ):
            page = text(await browser.get(f"/portal/deliveries{query}"))
            assert ("503 Service" in page) is there, query
        one = text(await browser.get(f"/portal/deliveries/{delivery}"))
        assert '"n": 17' in one
        assert "webhook-signature" in one
        assert "503 Service Unavailable" in text(await browser.get("/portal/incidents"))
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze")
        assert "Nothing is sent to this URL." in text(await browser.get(f"{HOME}/{made['id']}"))
        at = f"/portal/incidents/{made['endpoint']}/enable"
        assert (await browser.form("/portal/incidents", at)).status == 303
        house.world.sender.scripts[URL] = always(200)
        await house.world.wait(2 * MINUTE)
        again = await browser.form(
            f"/portal/deliveries/{delivery}", f"/portal/deliveries/{delivery}/replay"
        )
        assert again.status == 303, text(again)
        assert "Ended in the last 24 hours" in text(await browser.get("/portal/incidents"))

    live(story)


def test_no_page_says_a_word_about_other_tenants_or_the_installation() -> None:
    async def story(house: House) -> None:
        made = await failing(house)
        await house.subscribe("https://secret-neighbour.example/", tenant="neighbour")
        await house.publish(tenant="neighbour", id="secret-event", type="secret.type")
        await house.settled()
        browser = await customer(house)
        delivery = (await house.deliveries("?tenant=acme"))[0]["id"]
        pages = [page.path for page in PAGES if page.method == "GET"]
        given = {"description": "Paid.", "schema": {"type": "object"}, "sample": {"n": 17}}
        for tenant, name in (("acme", "order.paid"), ("neighbour", "secret.type")):
            asked = {"tenant": tenant, "name": name, **given}
            assert (await house.client.post("/v1/event-types", asked)).status == 201
        ids = {
            HOME: made["id"],
            "/portal/deliveries": delivery,
            "/portal/event-types": "order.paid",
        }
        for path in [*pages, "/portal/nothing", f"{HOME}/sub_0000000000001"]:
            real = path.replace("{id}", ids.get(path.partition("/{")[0], ""))
            got = await browser.get(real)
            assert got.status == (200 if path in pages else 404), real
            shown = got.body.decode().lower().replace("acme.example", "")
            # The names of headers that Homing really sends stay.
            shown = re.sub(r"homing-(event-type|delivery|attempt|key)", "", shown)
            for word in (*FORBIDDEN, f"v{__version__}", f"/{__version__}"):
                assert word not in shown, (real, word)

    live(story)


def test_the_page_of_an_event_type_has_its_description_schema_and_sample() -> None:
    async def story(house: House) -> None:
        given = {"description": "An order was paid.", "schema": {"type": "object"}}
        asked = {"tenant": "acme", "name": "order.paid", "sample": {"n": 17}, **given}
        assert (await house.client.post("/v1/event-types", asked)).status == 201
        browser, other = await customer(house), await customer(house, tenant="other")
        assert "An order was paid." in text(await browser.get("/portal/event-types"))
        page = await browser.get("/portal/event-types/order.paid")
        assert '"n": 17' in text(page)
        assert '"type": "object"' in text(page)
        assert "order.paid" not in text(await other.get("/portal/event-types"))
        assert (await other.get("/portal/event-types/order.paid")).status == 404
        form = await browser.get(f"{HOME}/new?type=order.paid")
        assert b'name="types" value="order.paid"' in form.body

    live(story)


def test_a_failure_of_the_sender_is_not_described() -> None:
    async def story(house: House) -> None:
        await house.subscribe(tenant="acme")
        detail = "proxy.internal:3128 refused the connection"
        house.world.sender.scripts[URL] = failing_with(Failure.SENDER_NETWORK, detail=detail)
        await house.publish(tenant="acme")
        await house.settled()
        browser = await customer(house)
        delivery = (await house.deliveries("?tenant=acme"))[0]["id"]
        page = text(await browser.get(f"/portal/deliveries/{delivery}"))
        assert "does not count against it" in page
        assert "proxy.internal" not in page

    live(story)


def test_unreadable_text_is_refused_wherever_it_comes_in() -> None:
    async def story(house: House) -> None:
        browser = await customer(house)
        for path in (
            f"{HOME}/sub_\0",
            f"{HOME}?cursor=x",
            f"{HOME}/new?type=%00",
            "/portal/deliveries?status=x",
            "/portal/deliveries?type=%ff",
            "/portal/deliveries?endpoint=x",
            "/portal/event-types?cursor=x",
            "/portal/open/%00",
            f"/portal/open/{'x' * 9_000}",
            "/portal/logo/%00",
        ):
            got = await browser.get(path)
            assert 400 <= got.status < 500, (path, got.status)
        got = await browser.form(f"{HOME}/new", HOME, url="https://a.example/\0", types="*")
        assert got.status == 422
        browser.cookies["homing_portal"] = "plk_" + "\u00e4" * 300
        assert (await browser.get(HOME)).status == 401

    live(story)


# --- framing and looks ------------------------------------------------------------------------


async def looks(house: House, **given: Any) -> Got:
    return await house.client.patch("/v1/portal?tenant=acme", given)


def test_only_the_listed_sites_may_show_the_portal_in_a_frame() -> None:
    async def story(house: House) -> None:
        browser = await customer(house)
        got = await browser.get(HOME)
        assert got.headers["content-security-policy"].endswith("frame-ancestors 'none'")
        assert got.headers["x-frame-options"] == "DENY"
        assert (await looks(house, frame_ancestors=[SITE, "https://b.example"])).status == 200
        made = await link(house)
        revoked = await link(house)
        await house.client.delete(f"/v1/portal-links/{revoked['id']}")
        for path, status in (
            (HOME, 200),
            ("/portal/deliveries", 200),
            (f"{HOME}/sub_0000000000001", 404),
            ("/portal/nothing", 404),
            (path_of(made), 200),
            (path_of(revoked), 410),
        ):
            got = await browser.get(path)
            assert got.status == status, path
            policy = got.headers["content-security-policy"]
            assert policy.endswith(f"frame-ancestors {SITE} https://b.example"), path
            assert "x-frame-options" not in got.headers
        for path in ("/", "/sign-in", "/endpoints"):
            got = await browser.get(path)
            assert got.headers["x-frame-options"] == "DENY", "the dashboard never"
        bad = await looks(house, frame_ancestors=[SITE, "https://*.example.com; script-src *"])
        assert (bad.status, bad.fields) == (422, ["frame_ancestors[1]"])

    live(story)


def test_the_name_the_logo_and_the_colours_of_a_tenant_are_on_its_pages_only() -> None:
    async def story(house: House) -> None:
        got = await looks(
            house, name="Acme <b>", logo=LOGO, accent_color="#FFEE00", header_color="#102030"
        )
        assert got.status == 200, got.body
        assert got.json["accent_color"] == "#ffee00"
        browser, other = await customer(house), await customer(house, tenant="other")
        page = await browser.get(HOME)
        assert "Acme <b>" in text(page)
        assert b"<title>Endpoints \xc2\xb7 Acme &lt;b&gt;</title>" in page.body
        (logo,) = re.findall(r'src="(/portal/logo/[0-9a-f]+)"', page.body.decode())
        picture = await browser.get(logo)
        assert (picture.status, picture.body) == (200, PNG)
        assert picture.headers["content-type"] == "image/png"
        assert picture.headers["x-content-type-options"] == "nosniff"
        assert "private" in picture.headers["cache-control"]
        assert (await other.get(logo)).status == 404
        assert (await Browser(house.app).get(logo)).status == 401
        (style,) = re.findall(r'href="(/portal/style/[^"]+)"', page.body.decode())
        sheet = await Browser(house.app).get(style)
        assert sheet.headers["content-type"].startswith("text/css")
        assert "--header: #102030; --header-ink: #ffffff" in sheet.body.decode()
        assert "--accent: #ffee00" in sheet.body.decode(), "of the dark theme"
        assert "Acme" not in (await other.get(HOME)).body.decode()
        await looks(house, theme="dark", logo=None)
        page = await browser.get(HOME)
        assert b'<html lang="en" data-theme="dark">' in page.body
        assert b"/portal/logo/" not in page.body
        assert (await browser.get(logo)).status == 404

    live(story)


@pytest.mark.parametrize("colors", ["red-none", "fff-none", "ffffff", "ffffff-none}*{", "a-b-c"])
def test_only_colours_are_a_style_sheet(colors: str) -> None:
    async def story(house: House) -> None:
        status = (await Browser(house.app).get(f"/portal/style/{colors}.css")).status
        assert status == 404

    live(story)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"accent_color": "red"}, "accent_color"),
        ({"header_color": "#fff; }"}, "header_color"),
        ({"name": "x" * 61}, "name"),
        ({"logo": "data:image/svg+xml;base64,PHN2Zy8+"}, "logo"),
        ({"logo": "https://elsewhere.example/a.png"}, "logo"),
        ({"frame_ancestors": ["http://app.example.com"]}, "frame_ancestors[0]"),
    ],
)
def test_wrong_looks_are_refused_by_the_name_of_the_field(
    given: dict[str, Any], field: str
) -> None:
    async def story(house: House) -> None:
        got = await looks(house, **given)
        assert (got.status, got.fields) == (422, [field])
        assert (await house.client.get("/v1/portal?tenant=acme")).json["updated_at"] is None

    live(story)


def test_an_operator_makes_a_link_and_changes_the_looks_on_the_dashboard() -> None:
    async def story(house: House) -> None:
        browser, at = Browser(house.app), "/customer-portal?tenant=acme"
        await browser.sign_in()
        form = {"tenant": "acme", "name": "Acme", "theme": "light", "logo": LOGO}
        form |= {"frame_ancestors": f"{SITE}\nhttps://b.example", "accent_color": "#112233"}
        saved = await browser.form(at, "/customer-portal", **form)
        assert (saved.status, saved.headers["location"]) == (303, at)
        stored = (await house.client.get("/v1/portal?tenant=acme")).json
        assert (stored["name"], stored["theme"], stored["logo"]["bytes"]) == ("Acme", "light", 16)
        assert stored["frame_ancestors"] == [SITE, "https://b.example"]
        del form["logo"]
        await browser.form(at, "/customer-portal", **form)
        assert (await house.client.get("/v1/portal?tenant=acme")).json["logo"] is not None
        wrong = await browser.form(at, "/customer-portal", **{**form, "accent_color": "red"})
        assert (wrong.status, "accent_color must be a colour" in text(wrong)) == (422, True)
        await browser.form(at, "/customer-portal", **form, remove_logo="on")
        assert (await house.client.get("/v1/portal?tenant=acme")).json["logo"] is None

        made = await browser.form(at, "/customer-portal/links", tenant="acme", subject="ada")
        assert made.headers["location"] == at
        page = text(await browser.get(at))
        (url,) = re.findall(r"http://\S+/portal/open/\S+", page)
        assert url not in text(await browser.get(at)), "once"
        person = Browser(house.app)
        assert (await person.open_portal(url)).status == 303
        (one,) = (await house.client.get("/v1/portal-links?tenant=acme")).json["items"]
        assert (one["subject"], one["state"], one["role"]) == ("ada", "open", "viewer")
        gone = await browser.form(at, f"/customer-portal/links/{one['id']}/revoke", tenant="acme")
        assert gone.status == 303
        assert (await person.get(HOME)).status == 401

    live(story)


# --- limits and accountability ----------------------------------------------------------------


def test_a_tenant_has_a_bounded_number_of_links_and_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_portal, "LIVE_LINKS_MAX", 3)

    async def story(house: House) -> None:
        browser = await customer(house)
        second = await link(house)
        await link(house)
        got = await house.client.post("/v1/portal-links", {"tenant": "acme"})
        assert got.status == 429
        assert "at most 3 portal links" in got.problem.detail
        assert int(got.headers["retry-after"]) >= 1
        assert (await house.client.post("/v1/portal-links", {"tenant": "other"})).status == 201
        await house.client.delete(f"/v1/portal-links/{second['id']}")
        await link(house)
        assert (await browser.get(HOME)).status == 200, "no session ends because of a new link"
        await house.world.wait(KEPT_MS + 9 * HOUR)
        await link(house)
        items = (await house.client.get("/v1/portal-links?tenant=acme")).json["items"]
        assert len(items) == 1, "links that ended a day ago are removed"

    live(story)


def test_the_live_streams_of_a_tenant_are_bounded_and_end_with_the_session() -> None:
    async def story(house: House) -> None:
        made = await link(house)
        browser = Browser(house.app)
        await browser.open_portal(made["url"])
        started: list[Message] = []
        jar = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/portal/live",
            "query_string": b"",
            "headers": [(b"host", browser.host.encode()), (b"cookie", jar.encode())],
        }

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)

        async def tab() -> None:
            await house.app(scope, receive, send)

        tabs = [asyncio.create_task(tab()) for _ in range(STREAMS_OF_TENANT_MAX + 1)]
        await house.world.wait(100)
        assert sorted(it["status"] for it in started) == [200] * STREAMS_OF_TENANT_MAX + [204]
        other = await customer(house, tenant="other")
        assert (await other.call("HEAD", "/portal/live")).status == 405
        await house.client.delete(f"/v1/portal-links/{made['id']}")
        await house.world.wait(1_100)
        assert all(tab.done() for tab in tabs), "the session has ended"
        assert (await browser.get("/portal/live")).status == 401
        partial = await browser.get(HOME, ("hx-request", "true"))
        assert (partial.status, partial.headers["hx-redirect"]) == (401, HOME)

    live(story)


def test_the_audit_log_says_who_made_a_link_and_what_its_user_did() -> None:
    async def story(house: House) -> None:
        made = await link(house)
        browser = Browser(house.app)
        await browser.open_portal(made["url"])
        at = (await browser.form(f"{HOME}/new", HOME, url=URL, types="*")).headers["location"]
        await browser.form(HOME, "/portal/leave")
        viewer = await customer(house, role="viewer")
        assert (await viewer.get(f"{HOME}/new")).status == 403
        await house.use_cases.audit.counted.write()
        log, _ = await house.world.audit.entries(
            AuditFilter(tenant="acme"), before_id=None, limit=50
        )
        name = f"ada@acme.example (portal link {made['id']})"
        found = [(it.action, it.who.name, it.object) for it in reversed(log)]
        assert found[:4] == [
            ("portal_links.create", "the admin key", made["id"]),
            ("portal_links.open", name, made["id"]),
            ("subscriptions.create", name, at.rpartition("/")[2]),
            ("portal_links.leave", name, made["id"]),
        ]
        assert (log[0].action, log[0].refused != "") == ("subscriptions.create", True)
        secret = made["url"].rpartition("/")[2].split(".")[1]
        assert not any(secret in str(it) for it in log)

    live(story)


def test_an_erased_tenant_has_no_links_no_sessions_and_no_looks() -> None:
    async def story(house: House) -> None:
        await looks(house, name="Acme")
        browser, waiting = await customer(house), await link(house)
        stays = await customer(house, tenant="other")
        erased = await house.client.post("/v1/erasures", {"everything": True, "tenant": "acme"})
        assert erased.status in {200, 202}, erased.body
        assert (await browser.get(HOME)).status == 401
        assert (await Browser(house.app).get(path_of(waiting))).status == 410
        assert (await stays.get(HOME)).status == 200
        for _ in range(20):
            await house.world.wait(HOUR)
            job = await house.client.get(f"/v1/erasures/{erased.json['id']}")
            if job.json["finished_at"]:
                break
        assert job.json["finished_at"]
        assert (await house.client.get("/v1/portal-links?tenant=acme")).json["items"] == []
        assert (await house.client.get("/v1/portal?tenant=acme")).json["name"] == ""

    live(story)


def test_a_key_makes_links_of_its_own_tenant_and_never_with_a_higher_role() -> None:
    async def story(house: House) -> None:
        made = await link(house)
        keys = {}
        for role in ("manager", "viewer", "publisher"):
            key = {"name": role, "role": role, "tenant": "other"}
            text_ = (await house.client.post("/v1/keys", key)).json["key"]
            keys[role] = Client(house.app, key=text_)
        for role in ("viewer", "publisher"):
            assert (await keys[role].post("/v1/portal-links", {})).status == 403
        manager = keys["manager"]
        assert (await manager.post("/v1/portal-links", {"tenant": "acme"})).status == 403
        assert (await manager.post("/v1/portal-links", {"role": "admin"})).status == 422
        assert (await manager.post("/v1/portal-links", {"role": "manager"})).status == 201
        assert (await manager.delete(f"/v1/portal-links/{made['id']}")).status == 404
        assert (await keys["viewer"].delete(f"/v1/portal-links/{made['id']}")).status == 403
        items = (await manager.get("/v1/portal-links")).json["items"]
        assert [it["tenant"] for it in items] == ["other"]
        assert (await manager.get("/v1/portal-links?tenant=acme")).json["items"] == []

    live(story)
