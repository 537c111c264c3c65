"""Every changing use case through every transport leaves exactly one entry, without a secret."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.test_use_cases import (
    EP,
    ETY,
    NEW,
    NEW_FORM,
    NEW_TARGET,
    NEW_TYPE,
    NEW_WORKFRONT,
    PORTAL,
    ROUTES,
    SUB,
    TABLE,
    TGT,
    TYPE_FORM,
    Door,
    Objects,
    id_of,
    method_of,
    objects,
    transport_of,
)
from engine.world import LOG_KEY, always
from homing.app.access import CHANGING, Caller, action_of
from homing.app.audit import EXPORT_PAGE
from homing.app.auth import ADMIN_CALLER
from homing.app.counted_calls import CHANGES_OF_TENANT_MAX, OF_TENANT_MAX, TENANTS_MAX
from homing.app.pull import Pull
from homing.engine.audit import AuditKeeper, AuditParts
from homing.errors import StoreUnavailable
from homing.model import show_id
from homing.policy.audit import CHANGED, HIDDEN, AuditEntry
from homing.policy.keys import Role
from homing.policy.workfront_ids import read_uuid
from homing.ports.audit import AuditFilter
from homing.web.workfront.api import BASE
from web.asgi import Client
from web.browse import Browser, text
from web.house import URL, House, live

CANARY = "canary-7f3a"
SECRET = f"whsec_{'Y2FuYXJ5' * 4}"  # "canary", as base64
HOOK = {**NEW_TARGET, "address": f"https://hooks.example/{CANARY}"}

# Bodies, forms and queries with which a route makes a change.
GIVEN: dict[str, dict[str, Any]] = {
    f"POST {SUB}": {
        "json": {**NEW, "token": CANARY, "headers": {"x-own": CANARY}, "secret": SECRET}
    },
    "POST /subscriptions": {"form": {**NEW_FORM, "token": CANARY}},
    "POST /first-steps/receiver": {"form": {"tenant": "acme"}},
    f"PATCH {SUB}/{{id}}": {"json": {"token": CANARY, "description": "new"}},
    "POST /subscriptions/{id}": {"form": {**NEW_FORM, "token": CANARY, "description": "new"}},
    f"POST {SUB}/{{id}}/secret/rotate": {"json": {"secret": SECRET}},
    "POST /v1/signing-keys/rotate": {"json": {"tenant": "acme"}},
    f"POST {BASE}": {"json": {**NEW_WORKFRONT, "authToken": CANARY}, "query": "?customerId=acme"},
    f"PUT {BASE}/{{id}}/version": {"json": {"version": "v1"}},
    f"PUT {BASE}/version": {
        "json": {"version": "v1", "allCustomerSubscriptions": True},
        "query": "?customerId=acme",
    },
    f"PUT {BASE}/enable": {"json": {"url": "https://wf.example/"}, "query": "?customerId=acme"},
    "POST /endpoints/{id}/replay": {"form": {"since": "1h"}},
    "POST /v1/replays": {"json": {"filter": {"tenant": "acme"}}},
    "POST /bulk/replay": {"form": {"q": "tenant:acme"}},
    f"POST {SUB}/{{id}}/backfill": {"json": {"from": "1h"}},
    "POST /subscriptions/{id}/backfill": {"form": {"from": "1h"}},
    "POST /bulk/cancel": {"form": {"q": "tenant:acme"}},
    f"POST {ETY}": {"json": {**NEW_TYPE, "name": "acme.other"}},
    "POST /event-types": {"form": TYPE_FORM},
    f"PATCH {ETY}/{{id}}": {"json": {"description": "new"}, "query": "?tenant=acme"},
    "POST /event-types/{tenant}/{id}": {"form": {"description": "new"}},
    f"DELETE {ETY}/{{id}}": {"query": "?tenant=acme"},
    f"POST {TGT}": {"json": HOOK},
    "POST /notices/targets": {"form": HOOK},
    f"PATCH {TGT}/{{id}}": {"json": {"name": "new", "language": "ja"}},
    "POST /notices/targets/{id}": {"form": {"name": "new", "language": "ja"}},
    "POST /subscriptions/{id}/readers/remove": {"form": {"reader": "default"}},
    "POST /portal/endpoints": {"form": {**NEW_FORM, "token": CANARY}},
    "POST /portal/endpoints/{id}": {"form": {**NEW_FORM, "token": CANARY, "description": "new"}},
    "POST /v1/portal-links": {"json": {"tenant": "acme", "subject": "ada"}},
    "POST /customer-portal/links": {"form": {"tenant": "acme", "subject": "ada"}},
    "PATCH /v1/portal": {"json": {"name": "new"}, "query": "?tenant=acme"},
    "POST /customer-portal": {"form": {"tenant": "acme", "name": "new", "theme": "auto"}},
    "POST /keys": {"form": {"name": "new", "role": "viewer", "tenant": "acme"}},
    "POST /v1/keys": {"json": {"name": "new", "role": "viewer", "tenant": "acme"}},
}
# The values of the entry, before and after: None, or some that it must contain.
CHANGE: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None]] = {
    "Subscriptions.create": (None, {"url": "https://new.example/", "token": HIDDEN}),
    "BuiltInReceiver.add": (None, {"types": ["*"]}),
    "Subscriptions.change": ({"description": ""}, {"description": "new", "token": CHANGED}),
    "Subscriptions.delete": ({"url": "https://receiver.example/hook"}, None),
    "Subscriptions.rotate": ({"secrets": 1}, {"secrets": CHANGED}),
    "SigningKeys.rotate": (None, {"tenant": "acme", "keys": 1}),
    "Subscriptions.verify": ({}, {}),
    "Subscriptions.pause": ({"paused_since": None}, {}),
    "Subscriptions.resume": ({}, {"paused_since": None}),
    "Subscriptions.test": (None, {"outcome": "delivered", "code": 200}),
    "WorkfrontSubscriptions.create": (None, {"url": "https://new.example/", "token": HIDDEN}),
    "WorkfrontSubscriptions.delete": ({"url": "https://wf.example/"}, None),
    "WorkfrontSubscriptions.change_version": ({}, {}),
    "WorkfrontSubscriptions.change_versions": ({}, {}),
    "WorkfrontSubscriptions.enable": ({}, {}),
    "WorkfrontSubscriptions.enable_url": ({}, {}),
    "Endpoints.enable": ({}, {}),
    "Endpoints.freeze": ({"state": "enabled"}, {"state": "frozen"}),
    "Endpoints.test": (None, {"outcome": "delivered", "code": 200}),
    "Deliveries.replay": (None, {}),
    "Deliveries.try_now": ({}, {}),
    "Deliveries.cancel": ({"status": "pending"}, {"status": "cancelled"}),
    "Deliveries.cancel_some": ({"status": "pending"}, {"status": "cancelled"}),
    "Replays.start": (None, {"tenant": "acme"}),
    "Replays.backfill": (None, {"tenant": "acme", "backfill": True}),
    "Replays.cancel": ({"state": "running"}, {"state": "cancelled"}),
    "EventTypes.create": (None, {"name": "acme.other", "check": None}),
    "EventTypes.change": ({"description": ""}, {"description": "new"}),
    "EventTypes.delete": ({"name": "acme.type"}, None),
    "NoticeTargets.create": (None, {"kind": "webhook", "address": HIDDEN}),
    "NoticeTargets.change": (
        {"name": "", "language": "en"},
        {"name": "new", "language": "ja"},
    ),
    "NoticeTargets.rotate": ({}, {"secret": CHANGED}),
    "NoticeTargets.send_link": ({}, {}),
    "NoticeTargets.delete": ({"kind": "webhook"}, None),
    "Pull.remove_reader": ({"reader": "default"}, None),
    "Erasures.erase": (None, {"kind": "event"}),
    "LostCommits.confirm": (None, {}),
    "PortalLinks.create": (None, {"subject": "ada", "role": "viewer"}),
    "PortalLinks.revoke": ({"role": "viewer"}, None),
    "PortalLooks.change": ({"name": ""}, {"name": "new"}),
    "Keys.create": (None, {"name": "new", "role": "viewer"}),
    "Keys.revoke": ({"name": "n", "role": "viewer"}, None),
}
WRITING = [(name, route) for name, route in ROUTES if not route.startswith("GET")]
CHANGING_ROUTES = [(name, route) for name, route in WRITING if name in CHANGING]
# The id in the path is that of another object.
OF_OTHERS = {
    "Endpoints.test",
    "Replays.start",
    "Replays.backfill",
    "SigningKeys.rotate",
    "WorkfrontSubscriptions.enable",
}


def test_every_changing_use_case_is_tried_and_every_other_one_changes_nothing() -> None:
    assert set(CHANGE) | {"Sessions.sign_out", "PortalLinks.leave"} == CHANGING
    assert {name for name, _ in CHANGING_ROUTES} == set(CHANGE)
    assert {name for name, _ in WRITING} - CHANGING == {
        "Publishing.publish",  # It has the ledger.
        "Pull.ack",  # It is counted per minute.
        "Events.try_filters",
        "Events.try_filters_on_latest",
        "Subscriptions.check",
        "Tenants.page",  # It sets a cookie.
        "NoticeTargets.test",  # So is this.
    }
    assert TABLE.keys() >= CHANGING


async def entries(house: House) -> list[AuditEntry]:
    found, _ = await house.world.audit.entries(AuditFilter(), before_id=None, limit=1_000)
    return found


async def sql(house: House, statement: str) -> list[tuple[Any, ...]]:
    raw: Any = house.world.db
    found: list[tuple[Any, ...]] = await raw.raw(lambda run: run(statement))
    return found


_LOSS = (
    "INSERT INTO commit_loss (id, noticed_at, process, kind, from_at, upto_at)"
    " VALUES (1, 10, 'here:1', 'publish', 5, 9)"
)


async def id_to_change(house: House, name: str, route: str, found: Objects) -> str:
    """The id for the route, of an object that the use case can change."""
    if name == "Deliveries.try_now":
        house.world.sender.scripts[URL] = always(500)
        await house.publish(tenant="acme")
        await house.settled()
        return str((await house.deliveries("?tenant=acme&status=pending"))[0]["id"])
    if name in {"Deliveries.cancel", "Deliveries.cancel_some"}:
        await house.client.post(f"{EP}/{found.endpoint}/freeze")
        await house.publish(tenant="acme")
        pending = await house.deliveries("?tenant=acme&status=pending")
        return str(pending[0]["id"])
    if name == "Pull.remove_reader":
        made = await house.client.post(SUB, {"types": ["*"], "tenant": "acme"})
        path = f"{SUB}/{made.json['id']}"
        cursor = (await house.client.get(f"{path}/events")).json["cursor"]
        await house.client.post(f"{path}/ack", {"cursor": cursor})
        return str(made.json["id"])
    if name == "Subscriptions.resume":
        await house.client.post(f"{SUB}/{found.subscription}/pause")
    if name == "Subscriptions.verify":
        unproved = await house.subscribe(
            "https://new.example/", tenant="acme", verification="challenge"
        )
        await house.world.wait(1)
        return str(unproved["id"])
    if name == "NoticeTargets.send_link":
        await sql(house, "UPDATE notice_target SET confirmed_at = NULL, kind = 'email'")
        await house.world.wait(3_600_000)
    if name == "LostCommits.confirm":
        await sql(house, _LOSS)
    if name == "Replays.cancel":
        await sql(house, "UPDATE replay_job SET state = 'running'")
    return id_of(route, found) if "{id}" in route else "x"


def check_who(entry: AuditEntry, *, in_portal: bool) -> None:
    """The admin's key made the change, or the user of the portal."""
    assert entry.refused == ""
    if in_portal:
        assert entry.who.name.startswith("n (portal link plk_")
        assert (entry.who.key_id, entry.who.tenant) == (None, "acme")
    else:
        assert (entry.who.name, entry.who.tenant) == ("n", None)
        assert entry.who.key_id is not None


@pytest.mark.parametrize(
    ("name", "route"), CHANGING_ROUTES, ids=[f"{n} by {r}" for n, r in CHANGING_ROUTES]
)
def test_a_change_leaves_exactly_one_entry_without_a_secret(name: str, route: str) -> None:
    async def story(house: House) -> None:
        found = await objects(house)
        ids = await id_to_change(house, name, route, found)
        door, in_portal = Door(house), transport_of(route) is PORTAL
        await door.as_role(Role.ADMIN, portal=in_portal)
        given = dict(GIVEN.get(route, {}))
        if name == "Erasures.erase":
            draft = {"tenant": "acme", "event": found.event}
            given = {"json": draft, "form": {**draft, "confirm": "erase"}}
        if name == "Endpoints.test":
            given["form"] = {"subscription": found.subscription}
        count = len(await entries(house))
        assert door.client.key is not None
        got = await door.send(route, ids=ids, **given)
        assert got.status < 400, text(got)
        entry, *more = (await entries(house))[:-count]
        if name == "Deliveries.cancel_some":  # one entry for each delivery
            gone = await house.deliveries("?tenant=acme&status=cancelled")
            assert {it.object for it in (entry, *more)} >= {it["id"] for it in gone}
        else:
            assert not more, [(it.action, it.object) for it in (entry, *more)]
        assert entry.action == action_of(method_of(house.use_cases, name))
        assert entry.tenant == (None if name == "LostCommits.confirm" else "acme")
        check_who(entry, in_portal=in_portal)
        if "{id}" in route and name not in OF_OTHERS:
            number = read_uuid(ids)  # at the Workfront-compatible API
            assert entry.object == (ids if number is None else show_id("sub", number))
        for shown, wanted in zip((entry.before, entry.after), CHANGE[name], strict=True):
            if wanted is None:
                assert shown == ""
            else:
                assert wanted.items() <= json.loads(shown).items(), shown
        for row in await sql(house, "SELECT * FROM audit_entry"):
            for value in row:
                plain = value.decode("latin-1") if isinstance(value, bytes) else str(value)
                assert not any(
                    it in plain for it in (CANARY, SECRET, door.client.key, found.event)
                ), row

    live(story)


def test_signing_in_and_out_leaves_an_entry_each() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        await browser.form("/", "/sign-out")
        actions = [it.action for it in await entries(house)]
        assert actions == ["sessions.sign_out", "sessions.sign_in"]

    live(story)


def test_publishing_leaves_no_entry() -> None:
    async def story(house: House) -> None:
        await house.publish()
        assert await entries(house) == []

    live(story)


def test_a_call_that_changes_nothing_leaves_no_entry() -> None:
    async def story(house: House) -> None:
        assert (await house.client.call("DELETE", f"{SUB}/sub_0000000000001")).status == 404
        assert (await house.client.post(SUB, {"url": "ftp://x/", "types": ["*"]})).status == 422
        assert await entries(house) == []

    live(story)


def test_a_call_that_is_repeated_and_has_been_carried_out_leaves_no_second_entry() -> None:
    async def story(house: House) -> None:
        event = await house.publish()
        first = await house.client.post("/v1/erasures", {"event": event})
        again = await house.client.post("/v1/erasures", {"event": event})
        assert first.json["id"] == again.json["id"]
        assert [it.action for it in await entries(house)] == ["erasures.erase"]

    live(story)


# --- who may read ---------------------------------------------------------------------------


def test_a_tenant_sees_only_its_own_and_nothing_of_the_operator() -> None:
    async def story(house: House) -> None:
        await house.subscribe(tenant="acme")
        await house.subscribe(tenant="other")
        admin = (await house.client.get("/v1/audit?action=subscriptions")).json["items"]
        assert [it["tenant"] for it in admin] == ["other", "acme"]
        door = Door(house)
        await door.as_role(Role.VIEWER)
        for query in ("", "?tenant=acme"):
            got = (await door.client.get(f"/v1/audit{query}")).json["items"]
            assert {it["tenant"] for it in got} == {"acme"}
            made = next(it for it in got if it["action"] == "subscriptions.create")
            operator = {"name": "the operator", "key": None, "person": "", "address": ""}
            assert made["who"] == operator
        assert (await door.client.get("/v1/audit?tenant=other")).json["items"] == []
        lines = (await door.client.get("/v1/audit/export")).body.splitlines()
        assert {json.loads(line)["tenant"] for line in lines} == {"acme"}
        assert (await door.client.get("/v1/audit/verify")).status == 403
        assert "the operator" in text(await door.browser.get("/audit"))

    live(story)


# --- refusals -------------------------------------------------------------------------------


def test_refused_calls_are_counted_in_one_entry_per_minute() -> None:
    async def story(house: House) -> None:
        door = Door(house)
        await door.as_role(Role.VIEWER)
        count = len(await entries(house))
        for _ in range(200):
            assert (await door.client.post(SUB, NEW)).status == 403
        assert len(await entries(house)) == count
        await house.world.wait(61_000)
        (entry,) = (await entries(house))[:-count]
        assert (entry.action, entry.count) == ("subscriptions.create", 200)
        assert (entry.tenant, entry.who.name) == ("acme", "n")
        assert "may not do this" in entry.refused

    live(story)


def test_a_tenant_makes_only_a_few_entries_of_refusals_in_a_minute() -> None:
    async def story(house: House) -> None:
        refusals = house.use_cases.audit.counted
        for number in range(10_000):
            tenant = "acme" if number % 2 else f"t{number}"
            caller = Caller(f"key {number}", Role.VIEWER, tenant, number)
            refusals.refused(caller, house.use_cases.keys.create, "no")
        await refusals.close()
        found = await entries(house)
        assert len(found) <= (OF_TENANT_MAX + 1) * 2 + TENANTS_MAX
        assert sum(it.count for it in found) == 10_000
        assert len([it for it in found if it.tenant == "acme"]) == OF_TENANT_MAX + 1

    live(story)


def test_calls_without_a_valid_key_are_one_entry_per_minute_that_no_tenant_sees() -> None:
    async def story(house: House) -> None:
        thief = Client(house.app)
        for number in range(8):
            thief.key = f"hk_{number}"
            await thief.get(SUB)
        await house.world.wait(61_000)
        (entry,) = [it for it in await entries(house) if it.refused]
        assert (entry.who.name, entry.tenant, entry.action) == ("nobody", None, "authenticate")
        assert entry.count == 8
        assert json.loads(entry.after)["reasons"] == {"wrong key": 8}
        door = Door(house)
        await door.as_role(Role.MANAGER)
        shown = (await door.client.get("/v1/audit")).json["items"]
        assert not [it for it in shown if it["refused"]]

    live(story)


def test_a_publisher_that_is_refused_is_in_the_log() -> None:
    async def story(house: House) -> None:
        door = Door(house)
        await door.as_role(Role.PUBLISHER)
        assert door.client.key is not None
        event = {"type": "a.b", "data": 1, "tenant": "other"}
        assert (await door.client.post("/v1/events", event)).status == 403
        assert (await door.browser.sign_in(door.client.key)).status == 403
        await house.use_cases.audit.counted.close()
        found = [it for it in await entries(house) if it.refused]
        assert sorted(it.action for it in found) == ["publishing.publish", "sessions.sign_in"]
        assert {it.tenant for it in found} == {"acme"}

    live(story)


# --- frequent changes -----------------------------------------------------------------------


def test_acks_and_tests_of_targets_are_counted_in_one_entry_per_key_and_minute() -> None:
    async def story(house: House) -> None:
        door = Door(house)
        await door.as_role(Role.MANAGER)
        client = door.client
        made = (await client.post(SUB, {"types": ["*"], "tenant": "acme"})).json
        path = f"{SUB}/{made['id']}"
        await client.get(f"{path}/events?reader=new&from=now")
        await house.world.wait(1)
        await client.get(f"{path}/events?reader=new&from=now")  # It is there already.
        cursor = (await client.get(f"{path}/events")).json["cursor"]
        for number in range(60):
            reader = "default" if number % 3 else "other"
            got = await client.post(f"{path}/ack", {"cursor": cursor, "reader": reader})
            assert got.status == 200
        refused = await client.post(f"{path}/ack", {"cursor": "x", "reader": "other"})
        assert refused.status == 422
        target = (await client.post(TGT, {**HOOK, "tenant": "acme"})).json
        assert (await client.post(f"{TGT}/{target['id']}/test")).status == 200
        count = len(await entries(house))
        await house.world.wait(61_000)
        found = {it.action: it for it in (await entries(house))[:-count]}
        assert found.keys() == {"pull.ack", "pull.read", "notice_targets.test"}
        ack = found["pull.ack"]
        assert (ack.tenant, ack.who.name, ack.object, ack.count) == ("acme", "n", made["id"], 60)
        calls = {f"{made['id']} default": 40, f"{made['id']} other": 20}
        assert json.loads(ack.after) == {"calls": calls}
        assert json.loads(found["pull.read"].after) == {"calls": {f"{made['id']} new": 1}}
        assert (found["pull.read"].count, found["notice_targets.test"].count) == (1, 1)
        assert found["notice_targets.test"].object == target["id"]
        await house.world.wait(61_000)
        assert len(await entries(house)) == count + 3
        assert client.key is not None
        await door.browser.sign_in(client.key)
        page = text(await door.browser.get("/audit"))
        assert "pull.ack" in page
        assert "60 times" in page

    live(story)


def test_counted_changes_are_bounded_and_wait_for_a_store_that_fails() -> None:
    async def story(house: House) -> None:
        counted, add = house.use_cases.audit.counted, house.world.audit.add_counted
        for number in range(10_000):
            tenant = "acme" if number % 2 else f"t{number % 10}"
            caller = Caller(f"key {number % 999}", Role.MANAGER, tenant, number % 999)
            counted.changed(caller, Pull.ack, tenant=tenant, object_id=f"sub_{number}")

        async def failing(_: list[AuditEntry]) -> None:
            raise StoreUnavailable

        async def without_reply(given: list[AuditEntry]) -> None:
            await add(given)
            raise StoreUnavailable

        for broken in (failing, without_reply):
            house.world.audit.add_counted = broken  # type: ignore[method-assign, assignment]
            await house.world.wait(61_000)
        house.world.audit.add_counted = add  # type: ignore[method-assign]
        await house.world.wait(61_000)
        found = await entries(house)
        assert sum(it.count for it in found) == 10_000
        mine = [it for it in found if it.tenant == "acme"]
        assert len(mine) == CHANGES_OF_TENANT_MAX + 1
        assert "several keys" in {it.who.name for it in mine}
        assert all(len(it.after) < 4_000 for it in found)
        await house.world.wait(61_000)
        assert len(await entries(house)) == len(found)

    live(story)


# --- the API and the page -------------------------------------------------------------------


def test_the_api_finds_entries_and_verifies_the_log() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(tenant="acme")
        await house.client.call("PATCH", f"{SUB}/{made['id']}", json={"description": "new"})
        got = (await house.client.get(f"/v1/audit?object={made['id']}")).json["items"]
        assert [it["action"] for it in got] == ["subscriptions.change", "subscriptions.create"]
        assert (got[0]["before"], got[0]["after"]) == ({"description": ""}, {"description": "new"})
        assert got[0]["segment"] is None
        first = (await house.client.get("/v1/audit?limit=1")).json
        rest = (await house.client.get(f"/v1/audit?cursor={first['next_cursor']}")).json
        assert [*first["items"], *rest["items"]] == got
        assert (await house.client.get("/v1/audit?since=2h&until=1h")).json["items"] == []
        assert (await house.client.get(f"/v1/audit?who={'x' * 201}")).status == 422
        parts = AuditParts(house.world.audit, LOG_KEY)
        ownership = house.world.engine._core.ownership
        await AuditKeeper(parts, house.world.clock, ownership).keep()
        (segment,) = (await house.client.get("/v1/audit/verify")).json["segments"]
        assert (segment["number"], segment["entries"], segment["problems"]) == (1, 2, [])
        await sql(house, "UPDATE audit_entry SET who = 'eve'")
        (segment,) = (await house.client.get("/v1/audit/verify")).json["segments"]
        assert "changed or not written by Homing" in segment["problems"][0]
        assert (await house.client.get("/v1/audit/verify?after=x")).status == 422

    live(story)


def test_an_export_is_streamed_in_pages_and_a_caller_has_one_at_a_time() -> None:
    async def story(house: House) -> None:
        for number in range(EXPORT_PAGE + 5):
            await house.subscribe(url=f"https://{number}.example/")
        running: Any = await house.use_cases.audit.export(ADMIN_CALLER, AuditFilter())
        assert len(await anext(running)) == EXPORT_PAGE
        assert (await house.client.get("/v1/audit/export")).status == 429
        await running.aclose()
        await house.use_cases.audit.export(ADMIN_CALLER, AuditFilter())  # read by nobody
        await house.world.wait(600_000)
        got = await house.client.get("/v1/audit/export?action=subscriptions")
        assert got.headers["content-type"] == "application/x-ndjson"
        assert len(got.body.splitlines()) == EXPORT_PAGE + 5

    live(story)


def test_the_page_shows_entries_and_searches_them() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(tenant="acme", description="<b>bold</b>")
        browser = Browser(house.app)
        await browser.sign_in()
        page = (await browser.get("/audit")).body.decode()
        assert "subscriptions.create" in page
        assert f'href="/subscriptions/{made["id"]}"' in page
        assert "<b>bold</b>" not in page
        assert "sessions.sign_in" in page
        found = (await browser.get("/audit?action=sessions&tenant=&who=")).body.decode()
        assert "subscriptions.create" not in found.partition("<tbody>")[2]
        assert (await browser.get("/audit?since=never")).status == 422
        got = await browser.get("/audit/export?action=subscriptions")
        assert json.loads(got.body)["object"] == made["id"]
        assert "attachment" in got.headers["content-disposition"]

    live(story)
