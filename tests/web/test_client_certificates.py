"""Client certificates and authorities of a subscription, through the API and the dashboard."""

from __future__ import annotations

import datetime as dt

from homing.model import read_id
from homing.policy.admission import MASK
from homing.policy.encryption import KeyRing
from homing.store.encryption import FieldCipher
from homing.web.asgi import asgi_app
from net.certificates import a_client_certificate
from policy.build import a_subscription
from web.asgi import Client
from web.browse import Browser, text
from web.house import URL, House, live, use_cases

SUB = "/v1/subscriptions"


def a_pair(house: House, *, days: float = 100, name: str = "our sender") -> dict[str, str]:
    at = dt.datetime.fromtimestamp(house.world.clock.wall() / 1000, dt.UTC)
    since, until = at - dt.timedelta(days=500), at + dt.timedelta(days=days)
    certificate, key = a_client_certificate(name, since=since, until=until)
    return {"client_certificate": certificate, "client_key": key}


def test_the_certificate_is_shown_with_its_facts_and_the_key_never() -> None:
    async def story(house: House) -> None:
        pair = a_pair(house)
        made = await house.subscribe(**pair, ca_certificates=pair["client_certificate"] + "\r\n")
        got = await house.client.get(f"{SUB}/{made['id']}")
        listed = await house.client.get(SUB)
        for body in (made, got.json, listed.json["items"][0]):
            assert body["client_certificate"] == pair["client_certificate"]
            assert body["ca_certificates"] == pair["client_certificate"]
            assert body["client_key"] == MASK
            assert body["certificate"]["subject"] == "CN=our sender"
            assert body["certificate"]["issuer"] == "CN=test authority"
            assert len(body["certificate"]["fingerprint"]) == 64
            assert body["certificate"]["expires_at"].endswith("Z")
        secret = pair["client_key"].splitlines()[1]
        audit = await house.client.get("/v1/audit")
        for response in (got, listed, audit):
            assert secret.encode() not in response.body

    live(story)


def test_what_is_wrong_is_a_422_with_its_field_and_nothing_is_stored() -> None:
    async def story(house: House) -> None:
        good, other = a_pair(house), a_pair(house)
        mixed = {**good, "client_key": other["client_key"]}
        for given, field, reason in (
            (mixed, "client_key", "does not fit"),
            ({"client_key": good["client_key"]}, "client_certificate", "is missing"),
            (a_pair(house, days=-1), "client_certificate", "expired on"),
            ({"ca_certificates": "none"}, "ca_certificates", "must be in PEM"),
            ({"ca_certificates": "x" * 70_000}, "ca_certificates", "at most 65,536"),
        ):
            got = await house.client.post(SUB, {"url": URL, "types": ["*"], **given})
            assert (got.status, got.fields) == (422, [field]), got.body
            assert reason in got.problem.problems[0].reason
            assert good["client_key"].splitlines()[1].encode() not in got.body
        assert (await house.client.get(SUB)).json["items"] == []
        made = await house.subscribe(**good)
        for change, field in (
            ({"client_key": other["client_key"]}, "client_key"),
            ({"client_key": None}, "client_key"),
            ({"client_key": MASK}, "client_key"),
        ):
            got = await house.client.patch(f"{SUB}/{made['id']}", change)
            assert (got.status, got.fields) == (422, [field])
        assert (await house.client.get(f"{SUB}/{made['id']}")).json == {
            name: value for name, value in made.items() if name not in {"secret", "backfill"}
        }

    live(story)


def test_a_change_replaces_renews_and_removes() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(**a_pair(house))
        path = f"{SUB}/{made['id']}"
        renewed = a_pair(house, name="renewed")
        got = await house.client.patch(path, renewed)
        assert got.json["certificate"]["subject"] == "CN=renewed"
        got = await house.client.patch(path, {"description": "another"})
        assert (got.status, got.json["client_key"]) == (200, MASK)
        got = await house.client.patch(path, {"client_certificate": None, "client_key": None})
        assert (got.json["client_key"], got.json["certificate"]) == (None, None)

    live(story)


def test_an_expired_certificate_does_not_prevent_another_change() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(**a_pair(house, days=1))
        await house.world.wait(2 * 86_400_000)
        got = await house.client.patch(f"{SUB}/{made['id']}", {"description": "later"})
        assert got.status == 200, got.body

    live(story)


def test_the_form_keeps_the_key_and_takes_lines_of_a_browser() -> None:
    async def story(house: House) -> None:
        pair = a_pair(house)
        made = await house.subscribe(**pair)
        browser = Browser(house.app)
        await browser.sign_in()
        page = text(await browser.get(f"/subscriptions/{made['id']}/edit"))
        assert pair["client_certificate"].splitlines()[1] in page
        assert pair["client_key"].splitlines()[1] not in page
        form = {
            "url": URL,
            "types": "*",
            "client_certificate": pair["client_certificate"].replace("\n", "\r\n") + "\r\n",
            "client_key": MASK,
            "description": "by form",
        }
        edit, path = f"/subscriptions/{made['id']}/edit", f"/subscriptions/{made['id']}"
        got = await browser.form(edit, path, **form)
        assert got.status == 303, text(got)
        stored = await house.world.views.subscription(read_id("sub", made["id"]) or 0)
        assert stored is not None
        assert stored.description == "by form"
        assert (stored.client_certificate, stored.client_key) == tuple(pair.values())
        shown = text(await browser.get(f"/subscriptions/{made['id']}"))
        assert "CN=our sender" in shown
        assert "expires 20" in shown
        broken = await browser.form(edit, path, **{**form, "client_key": "no key"})
        assert "must be a private key in PEM" in text(broken)

    live(story)


def test_the_key_is_encrypted_at_rest_and_the_certificate_is_not() -> None:
    certificate, key = a_client_certificate()
    plain = a_subscription(client_certificate=certificate, client_key=key)
    cipher = FieldCipher(KeyRing((b"k" * 32,)))
    stored = cipher.encrypt(plain)
    assert stored.client_certificate == certificate
    assert stored.client_key is not None
    assert stored.client_key.startswith("sealed:1:")
    assert cipher.has_plaintext(plain)
    assert not cipher.has_plaintext(stored)
    assert cipher.decrypt(stored).client_key == key


def test_the_overview_and_the_status_show_certificates_that_expire() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        assert "client certificate" not in text(await browser.get("/"))
        await house.subscribe(**a_pair(house, days=100))
        soon = await house.subscribe(**a_pair(house, days=5, name="soon"), tenant="acme")
        assert "CN=soon expires" in text(await browser.get("/"))
        (found,) = (await house.client.get("/v1/status")).json["certificates"]
        assert (found["tenant"], found["subscription"]) == ("acme", soon["id"])
        assert (found["subject"], found["problem"]) == ("CN=soon", "")
        await house.world.wait(6 * 86_400_000)
        (found,) = (await house.client.get("/v1/status")).json["certificates"]
        assert found["problem"] == "it has expired"
        await browser.sign_in()
        assert "CN=soon expired" in text(await browser.get("/"))

    live(story)


def test_the_addresses_that_requests_come_from_are_open_to_everybody() -> None:
    async def story(house: House) -> None:
        got = await Client(house.app, key=None).get("/v1/egress")
        assert (got.status, got.json) == (200, {"addresses": ["203.0.113.7/32", "2001:db8::/64"]})
        silent = asgi_app(use_cases(house.world))
        got = await Client(silent, key=None).get("/v1/egress")
        assert got.status == 404
        assert "operator" in got.problem.detail

    live(story)
