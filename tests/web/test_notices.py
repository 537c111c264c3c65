"""Notice targets through the API and the dashboard: set up, test, delete, confirm, look."""

from __future__ import annotations

import re
from typing import Any

import pytest

from homing.languages import language
from homing.languages.language import LANGUAGES
from homing.model import show_id
from homing.policy.keys import Role
from homing.web.asgi import asgi_app
from web.asgi import Client
from web.browse import Browser, text
from web.house import House, live, use_cases

TARGETS = "/v1/notice-targets"
SLACK = {"kind": "slack", "address": "https://hooks.slack.com/services/T0/B0/secret-part"}


async def key_of(house: House, role: Role, tenant: str = "acme") -> Client:
    made = await house.client.post("/v1/keys", {"name": "n", "role": role, "tenant": tenant})
    client = Client(house.app)
    client.key = made.json["key"]
    return client


def test_a_target_is_created_listed_changed_and_deleted() -> None:
    async def story(house: House) -> None:
        given = {**SLACK, "tenant": "acme", "name": "On call", "notices": ["frozen"]}
        made = (await house.client.post(TARGETS, given)).json
        assert made["address"] == "https://hooks.slack.com/****"
        assert (made["tenant"], made["name"], made["notices"]) == ("acme", "On call", ["frozen"])
        assert made["confirmed_at"] is not None
        assert made["secret"] is None
        one = f"{TARGETS}/{made['id']}"
        listed = await house.client.get(TARGETS)
        assert [it["id"] for it in listed.json["items"]] == [made["id"]]
        assert b"secret-part" not in listed.body + (await house.client.get(one)).body
        quiet = {"quiet_hours": "22:00-07:00", "time_zone": "Europe/Berlin", "notices": []}
        changed = (await house.client.call("PATCH", one, json=quiet)).json
        assert (changed["quiet_hours"], changed["notices"]) == ("22:00-07:00", [])
        assert (changed["name"], changed["language"]) == ("On call", "en")
        japanese = (await house.client.call("PATCH", one, json={"language": "ja"})).json
        assert (japanese["language"], japanese["quiet_hours"]) == ("ja", "22:00-07:00")
        assert (await house.client.get(one)).json["language"] == "ja"
        refused = await house.client.call("PATCH", one, json={"language": "tlh"})
        assert refused.status == 422
        assert "must be one of en, nl, it, ja, zh" in text(refused)
        assert (await house.client.call("DELETE", one)).status == 204
        assert (await house.client.call("DELETE", one)).status == 404
        assert (await house.client.get(one)).status == 404

    live(story)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"address": "ftp://x.example/"}, "address"),
        ({"address": "http://127.0.0.1/x"}, "address"),
        ({"address": "http://169.254.169.254/latest"}, "address"),
        ({"quiet_hours": "22-7"}, "quiet_hours"),
        ({"quiet_hours": "22:00-22:00"}, "quiet_hours"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"time_zone": "../../etc/passwd"}, "time_zone"),
        ({"language": "tlh"}, "language"),
        ({"language": ""}, "language"),
        ({"language": 3}, "language"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"notices": ["outage"]}, "notices"),
        ({"tenant": "no tenant"}, "tenant"),
        ({"kind": "email", "address": "ops@a.example"}, "kind"),
        ({"kind": "pigeon"}, "kind"),
        ({"notices": ["nothing"]}, "notices"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_bad_field_is_refused_by_its_name(changes: dict[str, Any], field: str) -> None:
    async def story(house: House) -> None:
        got = await house.client.post(TARGETS, {**SLACK, **changes})
        assert got.status == 422, got.body
        assert field in text(got)
        assert (await house.client.get(TARGETS)).json["items"] == []

    live(story)


def test_a_refused_address_names_the_rule_and_the_setting_to_an_admin_only() -> None:
    async def story(house: House) -> None:
        acme = await key_of(house, Role.MANAGER)
        given = {**SLACK, "address": "http://127.0.0.1/services/secret-part", "tenant": "acme"}
        told = text(await house.client.post(TARGETS, given))
        assert "is not allowed as a target: 127.0.0.1 is a loopback address" in told
        assert "allow_loopback" in told
        got = await acme.post(TARGETS, given)
        assert got.json["problems"] == [
            {"field": "address", "reason": "is not allowed as a target"}
        ]

    live(story)


def test_a_tenant_sees_and_touches_only_its_own_targets() -> None:
    async def story(house: House) -> None:
        acme = await key_of(house, Role.MANAGER)
        other = await key_of(house, Role.MANAGER, "other")
        made = (await acme.post(TARGETS, SLACK)).json
        operators = (await house.client.post(TARGETS, {**SLACK, "operator": True})).json
        assert operators["tenant"] is None
        assert [it["id"] for it in (await acme.get(TARGETS)).json["items"]] == [made["id"]]
        assert (await other.get(TARGETS)).json["items"] == []
        assert (await other.get(f"{TARGETS}?tenant=acme")).json["items"] == []
        for target in (made["id"], operators["id"], show_id("tgt", 5)):
            one = f"{TARGETS}/{target}"
            assert (await other.get(one)).status == 404
            assert (await other.call("PATCH", one, json={"name": "x"})).status == 404
            assert (await other.call("DELETE", one)).status == 404
            assert (await other.post(f"{one}/test", {})).status == 404
            assert (await other.post(f"{one}/link", {})).status == 404
            assert (await other.post(f"{one}/secret/rotate", {})).status == 404
        assert (await acme.get(f"{TARGETS}/{operators['id']}")).status == 404
        refused = await acme.post(TARGETS, {**SLACK, "operator": True})
        assert refused.status == 403
        assert (await acme.post(TARGETS, {**SLACK, "tenant": "other"})).status == 403
        viewer = await key_of(house, Role.VIEWER)
        assert (await viewer.post(TARGETS, SLACK)).status == 403
        assert (await viewer.get(TARGETS)).status == 200

    live(story)


def test_a_change_is_in_the_list_of_notices_of_its_own_tenant() -> None:
    async def story(house: House) -> None:
        acme = await key_of(house, Role.MANAGER)
        other = await key_of(house, Role.MANAGER, "other")
        target = (await acme.post(TARGETS, SLACK)).json
        await house.client.post(TARGETS, {**SLACK, "operator": True})
        made = await house.subscribe(tenant="acme")
        await acme.post(f"/v1/endpoints/{made['endpoint']}/freeze", {})
        await house.settled()
        (notice,) = (await acme.get("/v1/notices")).json["items"]
        assert (notice["kind"], notice["target"]) == ("frozen", target["id"])
        assert notice["endpoint"] == made["endpoint"]
        assert "until a person enables" in notice["text"]
        found = await acme.get(f"/v1/notices?target={target['id']}")
        assert len(found.json["items"]) == 1
        assert (await acme.get("/v1/notices?target=sub_x")).status == 422
        assert (await other.get("/v1/notices")).json["items"] == []
        assert (await other.get(f"/v1/notices?target={target['id']}")).json["items"] == []
        assert len((await house.client.get("/v1/notices")).json["items"]) == 2

    live(story)


def test_the_number_of_targets_is_limited() -> None:
    async def story(house: House) -> None:
        for n in range(20):
            made = await house.client.post(TARGETS, {**SLACK, "address": f"https://h.example/{n}"})
            assert made.status == 201
        refused = await house.client.post(TARGETS, SLACK)
        assert refused.status == 429
        assert "at most 20 notice targets" in text(refused)

    live(story)


def test_the_dashboard_creates_tests_and_deletes_a_target() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        empty = text(await browser.get("/notices"))
        assert "Nobody is told when a URL fails" in empty
        form = {
            "kind": "webhook",
            "address": "https://own.example/x",
            "tenant": "acme",
            "name": "Ours",
            "notice-frozen": "on",
        }
        assert (await browser.form("/notices", "/notices/targets", **form)).status == 303
        page = text(await browser.get("/notices"))
        assert "This secret signs the notices" in page
        assert "whsec_" in page
        assert "whsec_" not in text(await browser.get("/notices"))
        (target,) = (await house.client.get(TARGETS)).json["items"]
        assert target["notices"] == ["frozen"]
        at = f"/notices/targets/{target['id']}"
        changes = {"name": "Theirs", "notice-disabled": "on", "quiet_hours": "22:00-07:00"}
        zone = {"time_zone": "Europe/Berlin"}
        assert (await browser.form("/notices", at, **changes, **zone)).status == 303
        (target,) = (await house.client.get(TARGETS)).json["items"]
        assert (target["name"], target["notices"]) == ("Theirs", ["disabled"])
        assert (target["quiet_hours"], target["time_zone"]) == ("22:00-07:00", "Europe/Berlin")
        bad = await browser.form("/notices", at, **changes, time_zone="Mars/Olympus")
        assert bad.status == 422
        assert (await browser.form("/notices", f"{at}/link")).status == 409
        assert (await browser.form("/notices", f"{at}/rotate")).status == 303
        assert "whsec_" in text(await browser.get("/notices"))
        assert "whsec_" not in text(await browser.get("/notices"))
        tested = await browser.form("/notices", f"/notices/targets/{target['id']}/test")
        assert tested.status == 303
        deleted = await browser.form("/notices", f"/notices/targets/{target['id']}/delete")
        assert deleted.status == 303
        assert (await house.client.get(TARGETS)).json["items"] == []
        bad = await browser.form("/notices", "/notices/targets", kind="pigeon", address="x")
        assert bad.status == 422

    live(story)


def test_the_form_offers_the_language_of_the_page_and_keeps_the_one_of_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(language, "_translations", lambda _: {})
    chosen = re.compile(
        r'<select id="([^"]+)-language" name="language">.*?value="(\w+)"[^>]* selected'
    )
    dutch = ("accept-language", "nl-BE, en;q=0.5")

    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        page = (await browser.get("/notices", dutch)).body.decode()
        assert chosen.findall(page) == [("t", "nl")]
        for code, it in LANGUAGES.items():
            assert f'<option value="{code}" lang="{code}"' in page
            assert f">{it.name}</option>" in page
        form = {"kind": "slack", "address": "https://hooks.slack.com/x", "language": "ja"}
        assert (await browser.form("/notices", "/notices/targets", **form)).status == 303
        (target,) = (await house.client.get(TARGETS)).json["items"]
        assert target["language"] == "ja"
        page = (await browser.get("/notices")).body.decode()
        assert chosen.findall(page) == [("t", "en"), (target["id"], "ja")]
        assert '<span lang="ja" translate="no">日本語</span>' in page
        at = f"/notices/targets/{target['id']}"
        assert (await browser.form("/notices", at, name="New")).status == 303
        (target,) = (await house.client.get(TARGETS)).json["items"]
        assert (target["name"], target["language"]) == ("New", "ja")
        assert (await browser.form("/notices", at, language="it")).status == 303
        (target,) = (await house.client.get(TARGETS)).json["items"]
        assert target["language"] == "it"
        assert (await browser.form("/notices", at, language="tlh")).status == 422

    live(story)


def test_the_link_of_an_email_shows_a_button_and_a_wrong_one_confirms_nothing() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        page = await browser.get("/confirm?token=abc")
        assert page.status == 200
        assert 'value="abc"' in page.body.decode()
        got = await browser.send("/confirm", token="abc")
        assert got.status == 404
        assert "link is not valid" in text(got)
        assert (await browser.send("/confirm", token="x" * 500)).status == 404

    live(story)


def test_a_tenants_address_is_confirmed_by_the_button_behind_its_link() -> None:
    async def story(house: House) -> None:
        app = asgi_app(use_cases(house.world, house.api_keys, mail_problem=""))
        client, browser = Client(app), Browser(app)
        given = {"kind": "email", "address": "ada@acme.example", "tenant": "acme"}
        made = (await client.post(TARGETS, given)).json
        assert (made["address"], made["confirmed_at"]) == ("ada@acme.example", None)
        await house.settled()
        (mail,) = house.world.mailer.sent
        (link,) = [line for line in mail.text.splitlines() if line.startswith("https://")]
        path = link.removeprefix("https://homing.example")
        assert "Confirm my address" in text(await browser.get(path))
        assert (await client.get(f"{TARGETS}/{made['id']}")).json["confirmed_at"] is None
        refused = await client.post(f"{TARGETS}/{made['id']}/link", {})
        assert (refused.status, refused.headers["retry-after"]) == (429, "299")
        assert "at most one link in five minutes" in text(refused)
        await house.world.wait(5 * 60_000)
        await browser.sign_in()
        assert "Send the link again" in text(await browser.get("/notices"))
        again = await browser.form("/notices", f"/notices/targets/{made['id']}/link")
        assert again.status == 303
        assert b"on its way to ada@acme.example" in (await browser.get("/notices")).body
        await house.settled()
        assert [it.text for it in house.world.mailer.sent] == [mail.text] * 2
        token = path.partition("token=")[2]
        done = await browser.send("/confirm", token=token)
        assert "will be sent to ada@acme.example" in text(done)
        assert (await client.get(f"{TARGETS}/{made['id']}")).json["confirmed_at"] is not None
        assert (await browser.send("/confirm", token=token)).status == 404
        assert token not in (await client.get(TARGETS)).body.decode()

    live(story)
