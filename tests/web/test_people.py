"""People whom an authenticating proxy names, and the page of keys."""

from __future__ import annotations

import re
from ipaddress import ip_network

import pytest
from starlette.types import Receive, Scope, Send

from homing.engine.sessions import SESSION_LIFE_MS
from homing.policy.people import PeopleOptions, read_rule
from homing.ports.audit import AuditFilter
from homing.web.asgi import asgi_app
from web.browse import Browser, text
from web.house import House, live, use_cases

PROXY, ELSEWHERE = "10.0.0.7", "192.0.2.9"
RULES = ("ada@example.com=admin", "group:ops=manager:acme", "*@acme.example=viewer:acme")


def people() -> PeopleOptions:
    rules = tuple(it for it in map(read_rule, RULES) if it is not None)
    networks = (ip_network("10.0.0.0/24"), ip_network("fd00::/64"))
    return PeopleOptions("X-Forwarded-User", "X-Forwarded-Groups", networks, rules)


class Proxied(Browser):
    """A browser behind a proxy, or one that pretends to be."""

    def __init__(self, house: House, user: str | None, groups: str = "", peer: str = PROXY) -> None:
        app = asgi_app(use_cases(house.world, house.api_keys, people=people()))

        async def at_peer(scope: Scope, receive: Receive, send: Send) -> None:
            lines = [*scope["headers"]]
            if user is not None:
                lines.append((b"x-forwarded-user", user.encode()))
            if groups:
                lines.append((b"x-forwarded-groups", groups.encode()))
            await app({**scope, "headers": lines, "client": (peer, 1234)}, receive, send)

        super().__init__(at_peer)


@pytest.mark.parametrize(
    ("user", "groups", "shown"),
    [
        ("ada@example.com", "", "ada@example.com admin"),
        ("Bob", "dev,ops", "Bob manager · tenant acme"),
        ("eve@acme.example", "", "eve@acme.example viewer · tenant acme"),
    ],
)
def test_the_proxy_names_the_person_and_the_rules_the_role(
    user: str, groups: str, shown: str
) -> None:
    async def story(house: House) -> None:
        page = await Proxied(house, user, groups).get("/")
        assert page.status == 200
        assert shown in text(page)
        assert b"/sign-out" not in page.body

    live(story)


@pytest.mark.parametrize("peer", [ELSEWHERE, "10.0.1.7", "::1", "fd00:1::1", "", "unix"])
def test_a_header_from_elsewhere_is_ignored(peer: str) -> None:
    async def story(house: House) -> None:
        spoofed = Proxied(house, "ada@example.com", peer=peer)
        got = await spoofed.get("/subscriptions")
        assert (got.status, got.headers["location"]) == (303, "/sign-in?to=/subscriptions")
        await spoofed.sign_in()
        page = text(await spoofed.get("/"))
        assert "the admin key" in page
        assert "ada@example.com" not in page

    live(story)


def test_the_form_token_of_a_person_ends_like_that_of_a_session_with_a_key() -> None:
    """A proxy names the person again with each request, so there is no session that would end."""

    async def story(house: House) -> None:
        browser = Proxied(house, "ada@example.com")
        form = {"name": "new", "role": "viewer", "tenant": "acme"}
        token = await browser.token("/keys")
        await house.world.wait(SESSION_LIFE_MS)
        assert (await browser.send("/keys", csrf=token, **form)).status in {200, 303}
        await house.world.wait(2 * SESSION_LIFE_MS)
        refused = await browser.send("/keys", csrf=token, **form)
        assert (refused.status, "out of date" in text(refused)) == (403, True)
        newer = await browser.token("/keys")
        assert newer != token
        assert (await browser.send("/keys", csrf=newer, **form)).status in {200, 303}

    live(story)


@pytest.mark.parametrize("peer", [PROXY, f"::ffff:{PROXY}", "fd00::5"])
def test_the_proxy_is_known_by_its_address_in_every_form(peer: str) -> None:
    async def story(house: House) -> None:
        assert (await Proxied(house, "ada@example.com", peer=peer).get("/")).status == 200

    live(story)


@pytest.mark.parametrize("user", ["nobody@else.example", "x" * 300, "ada\x01"])
def test_a_person_without_a_rule_or_a_name_is_refused(user: str) -> None:
    async def story(house: House) -> None:
        got = await Proxied(house, user).get("/")
        assert got.status == 403
        assert "admin" not in text(got)

    live(story)


def test_without_a_name_the_proxy_lets_a_key_sign_in() -> None:
    async def story(house: House) -> None:
        for user in (None, ""):
            browser = Proxied(house, user)
            assert (await browser.get("/")).headers["location"] == "/sign-in"
            assert (await browser.sign_in()).status == 303
            assert (await browser.get("/")).status == 200

    live(story)


def test_the_header_does_not_open_the_api() -> None:
    async def story(house: House) -> None:
        browser = Proxied(house, "ada@example.com")
        assert (await browser.get("/v1/subscriptions")).status == 401

    live(story)


def test_the_audit_log_names_the_person_and_a_tenant_does_not_see_the_operators_people() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(tenant="acme")
        ada = Proxied(house, "ada@example.com")
        got = await ada.form("/notices", f"/endpoints/{made['endpoint']}/freeze")
        assert got.status == 303
        (entry, *_), _ = await house.world.audit.entries(AuditFilter(), before_id=None, limit=1)
        assert (entry.action, entry.who.person) == ("endpoints.freeze", "ada@example.com")
        assert entry.who.address == PROXY
        eve = Proxied(house, "eve@acme.example")
        for path in ("/audit", f"/endpoints/{made['endpoint']}"):
            page = text(await eve.get(path))
            assert "ada@example.com" not in page
        assert "the operator" in text(await eve.get("/audit"))
        assert "ada@example.com" in text(await ada.get("/audit?who=ada@example.com"))

    live(story)


def test_forms_of_a_person_need_the_token_and_the_origin() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(tenant="acme")
        path = f"/endpoints/{made['endpoint']}/freeze"
        bob, other = Proxied(house, "Bob", "ops"), Proxied(house, "ada@example.com")
        token = await bob.token("/notices")
        assert (await bob.send(path)).status == 403
        assert (await bob.send(path, csrf=await other.token("/notices"))).status == 403
        foreign = ("origin", "https://evil.example")
        assert (await bob.send(path, foreign, csrf=token)).status == 403
        assert (await bob.send(path, csrf=token)).status == 303

    live(story)


def test_a_viewer_by_rule_may_not_change_anything() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(tenant="acme")
        eve = Proxied(house, "eve@acme.example")
        path = f"/endpoints/{made['endpoint']}/freeze"
        assert (await eve.send(path, csrf="x")).status == 403
        assert (await eve.get("/keys")).status == 403
        other = await house.subscribe(tenant="other")
        assert (await eve.get(f"/endpoints/{other['endpoint']}")).status == 404

    live(story)


# --- keys -----------------------------------------------------------------------------------


def test_a_key_is_created_used_and_revoked_on_the_page() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        assert "No keys yet" in text(await browser.get("/keys"))
        form = {"name": "Shop <b>", "role": "publisher", "tenant": "acme", "expires": "90d"}
        made = await browser.form("/keys", "/keys", **form)
        assert (made.status, made.headers["location"]) == (303, "/keys")
        first, second = await browser.get("/keys"), await browser.get("/keys")
        (key,) = set(re.findall(r"hk_[a-z2-7]{13}_[A-Za-z0-9_-]{43}", first.body.decode()))
        assert key.encode() not in second.body
        assert "Shop <b> hk_" in text(second)
        assert "publisher acme never" in text(second)
        assert b"Shop <b>" not in second.body
        house.client.key, admin = key, house.client.key
        await house.publish(tenant="acme")
        house.client.key = admin
        assert "publisher acme never" not in text(await browser.get("/keys"))
        found = re.search(rb"/keys/(key_\w+)/revoke", second.body)
        assert found is not None
        gone = await browser.form("/keys", f"/keys/{found[1].decode()}/revoke")
        assert gone.status == 303
        assert "revoked" in text(await browser.get("/keys"))
        house.client.key = key
        got = await house.client.post("/v1/events", {"type": "a", "data": 1})
        assert got.status == 401
        assert (await browser.form("/keys", "/keys", name="n", role="boss")).status == 422

    live(story)
