"""A form that was made from an older state: it is refused with what changed, or was sent before."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import Any

import pytest

from engine.world import always
from web.browse import Browser, text
from web.house import URL, House, live
from web.test_portal import HOME, customer

HTMX = ("hx-request", "true")


async def everything(browser: Browser, page: str, path: str) -> dict[str, str]:
    """All fields of a form as a browser sends them."""
    shown = (await browser.get(page)).body.decode()
    form = next(
        it for it in re.split(r"(?=<form\b)", shown) if f'method="post" action="{path}"' in it
    )
    form = form.partition("</form>")[0]
    fields: dict[str, str] = {}
    for tag in re.findall(r"<input\b[^>]*>", form):
        given = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if "name" in given and (given.get("type") != "checkbox" or " checked" in tag):
            fields[given["name"]] = given.get("value", "on")
    texts = re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>(.*?)</textarea>', form, re.DOTALL)
    fields |= {name: unescape(inner) for name, inner in texts}
    lists = re.findall(r'<select[^>]* name="(\w+)"[^>]*>(.*?)</select>', form, re.DOTALL)
    for name, inner in lists:
        options = re.findall(r'<option(?: value="([^"]*)")?([^>]*)>', inner)
        fields[name] = next((it[0] for it in options if "selected" in it[1]), options[0][0])
    return fields


async def subscribed(house: House, **fields: Any) -> str:
    got = await house.client.post("/v1/subscriptions", {"url": URL, "types": ["a"], **fields})
    assert got.status == 201, got.body
    return str(got.json["id"])


async def stored(house: House, name: str) -> Any:
    return (await house.client.get(f"/v1/subscriptions/{name}")).json


# --- the tenant ---------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["cancel", "replay"])
def test_a_bulk_page_acts_only_on_the_tenant_that_it_was_made_for(action: str) -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        for tenant in ("a", "b"):
            await subscribed(house, tenant=tenant)
            await house.client.post("/v1/events", {"tenant": tenant, "type": "a", "data": 1})
        if action == "replay":
            await _finish(house)
        browser = Browser(house.app)
        await browser.sign_in()
        await browser.form("/tenants", "/tenants", tenant="a")
        form = await browser.hidden("/bulk?q=type:a&take=cancelled", f"/bulk/{action}")
        await browser.form("/", "/tenants", tenant="")
        got = await browser.send(f"/bulk/{action}", **form)
        assert got.status == 409
        assert "made for the tenant a, and now all tenants are shown" in text(got)
        rows = (await house.client.get("/v1/deliveries")).json["items"]
        assert len(rows) == 2
        assert {it["status"] for it in rows} == {"pending" if action == "cancel" else "cancelled"}

    live(story)


async def _finish(house: House) -> None:
    for it in (await house.client.get("/v1/deliveries?status=pending")).json["items"]:
        await house.client.post(f"/v1/deliveries/{it['id']}/cancel", {})


def test_a_cancellation_goes_on_only_for_the_tenant_that_it_began_with() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        assert (await browser.get("/bulk/cancelling?q=&done=200&shown=")).status == 200
        got = await browser.get("/bulk/cancelling?q=&done=200&shown=a")
        assert got.status == 409
        assert "made for the tenant a" in text(got)

    live(story)


def test_any_form_says_that_another_tenant_is_chosen_now() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        token = await browser.token("/subscriptions")
        await browser.form("/tenants", "/tenants", tenant="b")
        got = await browser.send("/subscriptions", csrf=token, url=URL, types="*")
        assert got.status == 409
        assert "made for all tenants, and now the tenant b is chosen" in text(got)
        other = await browser.token("/subscriptions")
        assert (await browser.send("/tenants", csrf=token, tenant="c")).status == 303
        got = await browser.send("/subscriptions", HTMX, csrf=other, url=URL, types="*")
        assert got.status == 409
        assert "tenant b, and now the tenant c" in got.headers["hx-trigger"]
        assert (await browser.send("/sign-out", csrf=other)).status == 303

    live(story)


# --- the version --------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["dashboard", "portal"])
def test_an_old_edit_form_puts_nothing_back(where: str) -> None:
    async def story(house: House) -> None:
        name = await subscribed(house, tenant="acme", token="old")
        browser = await customer(house) if where == "portal" else Browser(house.app)
        if where == "dashboard":
            await browser.sign_in()
        path = f"{HOME}/{name}" if where == "portal" else f"/subscriptions/{name}"
        form = await everything(browser, f"{path}/edit", path)
        changed = {"url": URL + "/new", "active": False}
        assert (await house.client.patch(f"/v1/subscriptions/{name}", changed)).status == 200
        got = await browser.send(path, **{**form, "description": "mine", "token": "new"})
        assert got.status == 409
        assert "Nothing was saved" in text(got)
        assert "Changed meanwhile: this is the present value." in text(got)
        assert f"The form had: {URL}" in text(got)
        now = await stored(house, name)
        assert (now["url"], now["active"], now["description"]) == (URL + "/new", False, "")
        # The page that says so is the form with the present values; it can be saved.
        again = {**form, "description": "mine", "url": URL + "/new"}
        again.pop("active", None)
        seal = re.search(rb'name="seal" value="([^"]+)"', got.body)
        assert seal is not None
        assert (await browser.send(path, **{**again, "seal": seal[1].decode()})).status == 303
        now = await stored(house, name)
        assert (now["url"], now["active"], now["description"]) == (URL + "/new", False, "mine")

    live(story)


def test_a_changed_secret_is_noticed_too() -> None:
    async def story(house: House) -> None:
        name = await subscribed(house, token="old")
        browser = Browser(house.app)
        await browser.sign_in()
        path = f"/subscriptions/{name}"
        form = await everything(browser, f"{path}/edit", path)
        await house.client.patch(f"/v1{path}", {"token": "theirs"})
        assert (await browser.send(path, **{**form, "token": "mine"})).status == 409

    live(story)


def test_two_saves_at_the_same_time_change_one_state_once() -> None:
    async def story(house: House) -> None:
        name = await subscribed(house)
        browser = Browser(house.app)
        await browser.sign_in()
        path = f"/subscriptions/{name}"
        form = await everything(browser, f"{path}/edit", path)
        got = await asyncio.gather(
            *(browser.send(path, **{**form, "description": str(n)}) for n in range(5))
        )
        assert sorted(it.status for it in got) == [303, 409, 409, 409, 409]

    live(story)


def test_old_forms_of_types_targets_and_looks_are_refused() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        got = await browser.form("/event-types/new", "/event-types", name="a.b", tenant="acme")
        assert got.status == 303, text(got)
        at = "/event-types/acme/a.b"
        form = await everything(browser, f"{at}/edit", at)
        assert (await browser.send(at, **{**form, "description": "theirs"})).status == 303
        got = await browser.send(at, **{**form, "schema": "{}"})
        assert got.status == 409
        assert "Changed meanwhile: this is the present value." in text(got)
        found = (await house.client.get("/v1/event-types/a.b?tenant=acme")).json
        assert (found["description"], found.get("schema")) == ("theirs", None)
        assert (await browser.send(f"{at}/delete", **form)).status == 409

        made = {"kind": "webhook", "address": "https://hooks.example.com/x", "tenant": "acme"}
        assert (await browser.form("/notices", "/notices/targets", **made)).status == 303
        target = (await house.client.get("/v1/notice-targets")).json["items"][0]["id"]
        at = f"/notices/targets/{target}"
        form = await everything(browser, "/notices", at)
        old = await browser.hidden("/notices", f"{at}/delete")
        assert (await browser.send(at, **{**form, "name": "theirs"})).status == 303
        got = await browser.send(at, **{**form, "quiet_hours": "22:00-07:00"})
        assert got.status == 409
        assert "name is now theirs" in text(got)
        assert (await browser.send(f"{at}/delete", **old)).status == 409

        at = "/customer-portal"
        form = await everything(browser, f"{at}?tenant=acme", at)
        assert (await browser.send(at, **{**form, "name": "theirs"})).status == 303
        got = await browser.send(at, **{**form, "accent_color": "#123456"})
        assert got.status == 409
        assert "name is now theirs" in text(got)

    live(story)


def test_a_button_acts_on_the_state_that_its_page_showed() -> None:
    async def story(house: House) -> None:
        name = await subscribed(house)
        endpoint = (await house.client.get("/v1/endpoints")).json["items"][0]["id"]
        browser = Browser(house.app)
        await browser.sign_in()
        page = f"/subscriptions/{name}"
        old = {it: await browser.hidden(page, f"{page}/{it}") for it in ("delete", "rotate")}
        freeze = await browser.hidden(f"/endpoints/{endpoint}", f"/endpoints/{endpoint}/freeze")
        await house.client.patch(f"/v1{page}", {"url": URL + "/new"})
        for action, form in old.items():
            got = await browser.send(f"{page}/{action}", **form)
            assert got.status == 409
            assert f"url is now {URL}/new" in text(got)
        await house.client.post(f"/v1/endpoints/{endpoint}/freeze", {})
        assert (await browser.send(f"/endpoints/{endpoint}/freeze", **freeze)).status == 409
        enable = await browser.hidden(f"/endpoints/{endpoint}", f"/endpoints/{endpoint}/enable")
        assert (await browser.send(f"/endpoints/{endpoint}/enable", **enable)).status == 303
        got = await browser.send(f"/endpoints/{endpoint}/enable", **enable)
        assert got.status == 409
        assert "state is now enabled" in text(got)

    live(story)


# --- once ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["dashboard", "portal"])
def test_a_form_that_is_sent_twice_makes_one_subscription(where: str) -> None:
    async def story(house: House) -> None:
        browser = await customer(house) if where == "portal" else Browser(house.app)
        if where == "dashboard":
            await browser.sign_in()
        path = HOME if where == "portal" else "/subscriptions"
        form = {**await everything(browser, f"{path}/new", path), "url": URL}
        wrong = await browser.send(path, **{**form, "url": "x"})
        assert wrong.status == 422  # It made nothing: the form may be sent again.
        got = await asyncio.gather(*(browser.send(path, **form) for _ in range(3)))
        assert sorted(it.status for it in got) == [303, 409, 409]
        assert "This form was sent before" in text(next(it for it in got if it.status == 409))
        assert len((await house.client.get("/v1/subscriptions")).json["items"]) == 1
        form = {**await everything(browser, f"{path}/new", path), "url": URL}
        assert (await browser.send(path, **form)).status == 303
        assert len((await house.client.get("/v1/subscriptions")).json["items"]) == 2

    live(story)


def test_what_a_form_makes_is_made_once() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        name = await subscribed(house, tenant="acme")
        page = f"/subscriptions/{name}"
        link = {"subject": "ada", "role": "viewer", "open_within": "15m", "session": "8h"}
        hook = {"kind": "webhook", "address": "https://hooks.example.com/x", "tenant": "acme"}
        for at, path, fields in (
            ("/keys", "/keys", {"name": "shop", "role": "viewer", "tenant": "acme"}),
            ("/notices", "/notices/targets", hook),
            ("/customer-portal?tenant=acme", "/customer-portal/links", link),
            (page, f"{page}/rotate", {}),
        ):
            form = await browser.hidden(at, path)
            got = [
                (
                    await browser.send(
                        path, **form, **{k: v for k, v in fields.items() if k not in form}
                    )
                ).status
                for _ in range(2)
            ]
            assert got == [303, 409], path
        form = await browser.hidden("/events", "/events")
        event = {"type": "a", "tenant": "acme", "data": "1"}
        sent = [await browser.send("/events", **form, **event) for _ in range(2)]
        assert [it.status for it in sent] == [303, 303]
        assert len({it.headers["location"] for it in sent}) == 1
        assert len((await house.client.get("/v1/events?tenant=acme")).json["items"]) == 1

    live(story)


def test_equal_bulk_replays_replay_once() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        await subscribed(house)
        await house.client.post("/v1/events", [{"type": "a", "data": n} for n in range(3)])
        await _finish(house)
        browser, other = Browser(house.app), Browser(house.app)
        await browser.sign_in()
        await other.sign_in()
        first = await browser.hidden("/bulk?q=status:cancelled", "/bulk/replay")
        second = await other.hidden("/bulk?q=status:cancelled", "/bulk/replay")
        assert (await browser.send("/bulk/replay", **first)).status == 303
        got = await browser.send("/bulk/replay", **first)
        assert got.status == 409
        await house.settled()
        got = await other.send("/bulk/replay", **second)  # made before the first one began
        assert got.status == 409
        assert "already replays these deliveries" in text(got)
        listed = (await house.client.get("/v1/deliveries?limit=100")).json["items"]
        assert len(listed) == 6
        third = await other.hidden("/bulk?q=status:cancelled", "/bulk/replay")
        assert (await other.send("/bulk/replay", **third)).status == 303

    live(story)


def test_a_call_that_changes_nothing_leaves_no_audit_entry() -> None:
    async def story(house: House) -> None:
        name = await subscribed(house, description="x")
        for _ in range(2):
            got = await house.client.patch(f"/v1/subscriptions/{name}", {"description": "y"})
            assert got.status == 200
        entries = (await house.client.get("/v1/audit?action=subscriptions.change")).json["items"]
        assert len(entries) == 1
        assert entries[0]["before"] == {"description": "x"}

    live(story)


def test_a_change_that_shows_no_value_leaves_an_entry_that_says_so() -> None:
    async def story(house: House) -> None:
        name = await subscribed(house, token="a", headers={"x-key": "a"})
        at = f"/v1/subscriptions/{name}"
        for change in ({"token": "b"}, {"headers": {"x-key": "b"}}, {"token": "b"}):
            assert (await house.client.patch(at, change)).status == 200
        for _ in range(2):
            assert (await house.client.post(f"{at}/secret/rotate", {})).status == 200
        endpoint = (await house.client.get("/v1/endpoints")).json["items"][0]["id"]
        for _ in range(2):
            await house.settled()
            got = await house.client.post(f"/v1/endpoints/{endpoint}/enable", {})
            assert got.status == 200
        entries = (await house.client.get("/v1/audit")).json["items"]
        shown = [(it["action"], sorted(it["after"])) for it in entries[::-1]]
        assert shown[1:] == [
            ("subscriptions.change", ["token"]),
            ("subscriptions.change", ["headers"]),
            ("subscriptions.rotate", ["secrets"]),
            ("subscriptions.rotate", ["secrets"]),
            ("endpoints.enable", ["manual_enable_at"]),
            ("endpoints.enable", ["manual_enable_at"]),
        ]

    live(story)
