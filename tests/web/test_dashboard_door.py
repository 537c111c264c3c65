"""The door of the dashboard: keys, sessions, forged forms, foreign names, and the headers."""

from __future__ import annotations

from typing import Any

import pytest
from jinja2 import UndefinedError
from starlette.routing import Route

from homing.app.sessions import SESSION_LIFE_MS as LIFE_MS
from homing.ports import KeySession
from homing.web.api.signing_keys import JWKS_PATH
from homing.web.dashboard.files import Files
from homing.web.dashboard.render import Renderer
from homing.web.dashboard.security_headers import WrongHost, check_host
from homing.web.dashboard.sessions import SessionCookies
from web.asgi import KEY
from web.browse import Browser, text
from web.house import House, live


def test_a_key_opens_the_door_and_a_wrong_one_does_not() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        asked = await browser.get("/")
        assert (asked.status, asked.headers["location"]) == (303, "/sign-in")
        wrong = await browser.sign_in("hk_wrong")
        assert wrong.status == 401
        assert "wrong, expired or revoked" in text(wrong)
        assert not browser.cookies
        entered = await browser.sign_in()
        assert (entered.status, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly; SameSite=Strict" in cookie
        assert KEY not in cookie
        assert (await browser.get("/")).status == 200

    live(story)


def test_a_session_ends_by_time_by_sign_out_and_by_another_admin_key() -> None:
    sessions = SessionCookies(b"one key")
    session = KeySession("5eed", "admin", 1_000)
    value = sessions.write(session)
    assert sessions.read(value, now=1_000) == session
    assert sessions.read(value, now=1_000 + LIFE_MS) is None
    assert SessionCookies(b"another key").read(value, now=1_000) is None
    for broken in ("", ".", "x.y.z", value[:-1], value.replace("1000", "2000"), "é" * 300):
        assert sessions.read(broken, now=1_000) is None

    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        out = await browser.form("/", "/sign-out")
        assert (out.status, out.headers["location"]) == (303, "/sign-in")
        assert (await browser.get("/")).status == 303

    live(story)


@pytest.mark.parametrize("broken", [("overview.html",), ("overview.html", "error.html")])
def test_a_template_that_fails_is_told_as_a_page(
    broken: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    render = Renderer.render

    async def failing(
        self: Renderer, template: str, values: dict[str, Any], *more: Any, payer: str
    ) -> bytes:
        if template in broken:
            raise UndefinedError("'secret' is undefined")
        return await render(self, template, values, *more, payer=payer)

    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        monkeypatch.setattr(Renderer, "render", failing)
        got = await browser.get("/")
        assert got.status == 500
        assert got.headers["content-type"].startswith("text/html")
        assert "content-security-policy" in got.headers
        assert "The server failed unexpectedly." in text(got)
        assert "secret" not in text(got)
        partly = await browser.get("/", ("hx-request", "true"))
        assert partly.status == 500
        assert not partly.body.startswith(b"{")

    live(story)


def test_the_way_back_after_signing_in_stays_in_the_house() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        asked = await browser.get("/nowhere?a=b")
        assert asked.status == 404
        own = "/endpoints?state=frozen"
        for to, led in ((own, own), ("//evil.example", "/"), ("https://evil", "/")):
            got = await browser.send("/sign-in", key=KEY, to=to)
            assert got.headers["location"] == led

    live(story)


def test_a_form_without_its_token_or_from_another_site_is_refused() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        assert (await browser.send("/sign-out")).status == 403
        assert (await browser.send("/sign-out", csrf="0" * 64)).status == 403
        token = await browser.token("/")
        for line in (("origin", "https://evil.example"), ("origin", "null")):
            assert (await browser.send("/sign-out", line, csrf=token)).status == 403
        cross = ("sec-fetch-site", "cross-site")
        foreign = ("origin", f"http://{browser.host}")
        assert (await browser.send("/sign-out", foreign, cross, csrf=token)).status == 403
        assert (await browser.send("/sign-in", cross, foreign, key=KEY)).status == 403
        assert (await browser.get("/")).status == 200
        assert (await browser.send("/sign-out", csrf=token)).status == 303

    live(story)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8700", "[::1]:8700", "[::1]", "localhost", "a.localhost:1", "hooks.example"]
)
def test_it_has_its_names(host: str) -> None:
    check_host(host, frozenset({"hooks.example"}))


@pytest.mark.parametrize("host", ["evil.example", "", "127.0.0.1.evil.example", "hooks.example.x"])
def test_a_foreign_name_that_leads_here_is_refused(host: str) -> None:
    with pytest.raises(WrongHost):
        check_host(host, frozenset({"hooks.example"}))


def test_a_foreign_name_sees_no_page() -> None:
    async def story(house: House) -> None:
        got = await Browser(house.app, host="evil.example").get("/sign-in")
        assert got.status == 421
        assert "setting hosts" in text(got)

    live(story)


def test_every_route_has_the_headers() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        routes = [route.path for route in house.app._router.routes if isinstance(route, Route)]  # type: ignore[attr-defined]
        assert len(routes) > 25
        for path in routes:
            if path == "/live":
                continue  # A stream: it is looked at where it is read.
            for method in ("GET", "POST", "DELETE"):
                address = path.replace("{id:path}", "x").replace("{id}", "x")
                got = await browser.call(method, address)
                assert got.headers["x-content-type-options"] == "nosniff", path
                policy = got.headers["content-security-policy"]
                assert policy.startswith("default-src 'none'"), path
                assert "unsafe" not in policy
                kept = (
                    "public, max-age=300"
                    if address == JWKS_PATH and method == "GET"
                    else "no-store"
                )
                assert got.headers["cache-control"] == kept, path
                if path.startswith("/portal"):  # Without a session its pages do nothing.
                    assert b"<form" not in got.body, path
                elif got.headers.get("content-type", "").startswith("text/html"):
                    assert got.headers["x-frame-options"] == "DENY", path
                assert got.status < 500, path

    live(story)


def test_files_may_be_kept_for_ever_under_their_digest_only() -> None:
    async def story(house: House) -> None:
        browser, root = Browser(house.app), Files().root
        got = await browser.get(f"{root}/app.js")
        assert got.status == 200
        assert got.headers["content-type"].startswith("text/javascript")
        assert "immutable" in got.headers["cache-control"]
        old = await browser.get("/static/old/vendor/htmx.min.js")
        assert (old.status, old.headers["cache-control"]) == (200, "no-store")
        for path in ("/static/x/nothing.js", "/static/x/../desk.py", "/static/x/"):
            assert (await browser.get(path)).status == 404

    live(story)


def test_who_reads_pages_is_told_as_a_page_and_others_as_a_problem() -> None:
    async def story(house: House) -> None:
        got = await Browser(house.app).get("/nowhere")
        assert got.status == 404
        assert "There is no page or operation at this path" in text(got)
        assert (await house.client.get("/nowhere")).problem.code == "no_such_path"

    live(story)


def test_a_viewer_of_one_tenant_enters_until_the_key_is_revoked() -> None:
    async def story(house: House) -> None:
        given = {"name": "the customer", "role": "viewer", "tenant": "acme"}
        made = (await house.client.post("/v1/keys", given)).json
        browser = Browser(house.app)
        assert (await browser.sign_in(made["key"])).status == 303
        page = await browser.get("/")
        assert "the customer" in text(page)
        assert "tenant acme" in text(page)
        assert (await house.client.delete(f"/v1/keys/{made['id']}")).status == 204
        assert (await browser.get("/")).headers["location"] == "/sign-in"

    live(story)


def test_a_publisher_has_no_page() -> None:
    async def story(house: House) -> None:
        given = {"name": "the shop", "role": "publisher", "tenant": "acme"}
        made = (await house.client.post("/v1/keys", given)).json
        browser = Browser(house.app)
        refused = await browser.sign_in(made["key"])
        assert refused.status == 403
        assert "may not use the dashboard" in text(refused)
        assert not browser.cookies

    live(story)


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("/endpoints?state=frozen", "/endpoints?state=frozen"),
        ("/sign-in?to=/endpoints", "/sign-in?to=/endpoints"),
        ("/sign-in?a\r\nset-cookie: x=1", "/"),
        ("/sign-in?a\x7f", "/"),
        ("/sign-in?é", "/"),
        ("/sign-in?" + "a" * 3_000, "/"),
        ("//evil.example/sign-in", "/"),
        ("https://evil.example/", "/"),
        ("", "/"),
    ],
)
def test_a_language_is_chosen_without_a_session_and_leads_only_to_own_pages(
    to: str, expected: str
) -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        chosen = await browser.send("/language", language="ja", to=to)
        assert (chosen.status, chosen.headers["location"]) == (303, expected)
        assert browser.cookies == {"homing_language": "ja"}
        await browser.send("/language", language="../xx", to=to)
        assert browser.cookies == {"homing_language": "ja"}, "an unknown one changes nothing"
        page = await browser.get("/sign-in")
        assert b'<html lang="ja">' in page.body
        assert page.headers["content-language"] == "ja"
        forged = await browser.send("/language", ("origin", "https://evil.example"), language="nl")
        assert forged.status == 403

    live(story)
