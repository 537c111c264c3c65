"""Every use case through every transport: the same refusals, whatever the way in.

``TABLE`` names, for each use case, the routes of the API, of the dashboard and of the
Workfront-compatible API that call it. A new use case, route or page that is not in it fails.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest

from homing.app.access import (
    ADMINS,
    CHANGING,
    MANAGERS,
    METRICS,
    PUBLISHERS,
    READERS,
    USE_CASES,
    Caller,
)
from homing.app.app import App
from homing.errors import Forbidden
from homing.model import show_id
from homing.policy.keys import Role
from homing.policy.quota import Quota
from homing.web.asgi import asgi_app
from homing.web.dashboard.routes import PAGES
from homing.web.portal.pages import PAGES as PORTAL_PAGES
from homing.web.routes import OPERATIONS
from homing.web.workfront.api import BASE
from homing.web.workfront.api import OPERATIONS as WORKFRONT
from web.asgi import Client, Got
from web.browse import Browser, text
from web.house import URL, House, live, use_cases

API, DASHBOARD, WF, PORTAL = "api", "dashboard", "workfront", "portal"
SUB, EP, DLV = "/v1/subscriptions", "/v1/endpoints", "/v1/deliveries"
TGT, ETY = "/v1/notice-targets", "/v1/event-types"

# The routes of each use case, without the transport: their paths tell it.
TABLE: dict[str, tuple[str, ...]] = {
    "Publishing.publish": ("POST /v1/events", "POST /events", "POST /first-steps/event"),
    "Events.page": (
        "GET /v1/events",
        "GET /events",
        "GET /portal/verify",
    ),
    "Events.get": ("GET /v1/events/{id}", "GET /events/{tenant}/{id:path}"),
    "Events.data": ("GET /event-data/{tenant}/{id:path}",),
    "EventTypes.create": (f"POST {ETY}", "POST /event-types", "GET /event-types/new"),
    "EventTypes.page": (f"GET {ETY}", "GET /event-types", "GET /portal/event-types"),
    "EventTypes.of_tenant": (f"GET {ETY}/openapi.json", "GET /event-types/openapi.json"),
    "EventTypes.get": (
        f"GET {ETY}/{{id}}",
        "GET /event-types/{tenant}/{id}",
        "GET /portal/event-types/{id}",
    ),
    "EventTypes.change": (
        f"PATCH {ETY}/{{id}}",
        "POST /event-types/{tenant}/{id}",
        "GET /event-types/{tenant}/{id}/edit",
    ),
    "EventTypes.delete": (f"DELETE {ETY}/{{id}}", "POST /event-types/{tenant}/{id}/delete"),
    "Events.try_filters": ("POST /v1/filters/try",),
    "Events.try_filters_on_latest": ("POST /subscriptions/try",),
    "Subscriptions.create": (
        f"POST {SUB}",
        "POST /subscriptions",
        "GET /subscriptions/new",
        "POST /portal/endpoints",
        "GET /portal/endpoints/new",
    ),
    "BuiltInReceiver.add": ("POST /first-steps/receiver",),
    "Subscriptions.page": (
        f"GET {SUB}",
        "GET /subscriptions",
        "GET /portal/endpoints",
    ),
    "Subscriptions.get": (
        f"GET {SUB}/{{id}}",
        "GET /subscriptions/{id}",
        "GET /portal/endpoints/{id}",
    ),
    "Subscriptions.change": (
        f"PATCH {SUB}/{{id}}",
        "POST /subscriptions/{id}",
        "GET /subscriptions/{id}/edit",
        "POST /portal/endpoints/{id}",
        "GET /portal/endpoints/{id}/edit",
    ),
    "Subscriptions.check": ("POST /subscriptions/check",),
    "Subscriptions.delete": (
        f"DELETE {SUB}/{{id}}",
        "POST /subscriptions/{id}/delete",
        "POST /portal/endpoints/{id}/delete",
    ),
    "Subscriptions.rotate": (
        f"POST {SUB}/{{id}}/secret/rotate",
        "POST /subscriptions/{id}/rotate",
        "POST /portal/endpoints/{id}/rotate",
    ),
    "Subscriptions.verify": (
        f"POST {SUB}/{{id}}/verify",
        "POST /subscriptions/{id}/verify",
        "POST /portal/endpoints/{id}/verify",
    ),
    "Subscriptions.pause": (
        f"POST {SUB}/{{id}}/pause",
        "POST /subscriptions/{id}/pause",
        "POST /portal/endpoints/{id}/pause",
    ),
    "Subscriptions.resume": (
        f"POST {SUB}/{{id}}/resume",
        "POST /subscriptions/{id}/resume",
        "POST /portal/endpoints/{id}/resume",
    ),
    "Subscriptions.test": (
        f"POST {SUB}/{{id}}/test",
        "POST /subscriptions/{id}/test",
        "POST /portal/endpoints/{id}/test",
    ),
    "SigningKeys.get": ("GET /v1/signing-keys",),
    "SigningKeys.rotate": (
        "POST /v1/signing-keys/rotate",
        "POST /subscriptions/{id}/signing-keys/rotate",
    ),
    "WorkfrontSubscriptions.create": (f"POST {BASE}",),
    "WorkfrontSubscriptions.of_tenant": (f"GET {BASE}", f"GET {BASE}/list"),
    "WorkfrontSubscriptions.get": (f"GET {BASE}/{{id}}",),
    "WorkfrontSubscriptions.delete": (f"DELETE {BASE}/{{id}}",),
    "WorkfrontSubscriptions.change_version": (f"PUT {BASE}/{{id}}/version",),
    "WorkfrontSubscriptions.change_versions": (f"PUT {BASE}/version",),
    "WorkfrontSubscriptions.enable": (f"PUT {BASE}/{{id}}/enable",),
    "WorkfrontSubscriptions.enable_url": (f"PUT {BASE}/enable",),
    "Pull.read": (f"GET {SUB}/{{id}}/events",),
    "Pull.stream": (f"GET {SUB}/{{id}}/stream",),
    "Pull.ack": (f"POST {SUB}/{{id}}/ack",),
    "Pull.readers": (f"GET {SUB}/{{id}}/readers",),
    "Pull.remove_reader": (
        f"DELETE {SUB}/{{id}}/readers",
        "POST /subscriptions/{id}/readers/remove",
    ),
    "Endpoints.page": (f"GET {EP}",),
    "Endpoints.find": ("GET /endpoints",),
    "Endpoints.describe": (f"GET {EP}/{{id}}", "GET /endpoints/{id}"),
    "Endpoints.attempts": (f"GET {EP}/{{id}}/attempts",),
    "Endpoints.enable": (
        f"POST {EP}/{{id}}/enable",
        "POST /endpoints/{id}/enable",
        "POST /portal/incidents/{id}/enable",
    ),
    "Endpoints.freeze": (f"POST {EP}/{{id}}/freeze", "POST /endpoints/{id}/freeze"),
    "Endpoints.test": ("POST /endpoints/{id}/test",),
    "Causes.page": ("GET /v1/causes",),
    "Causes.incidents": (
        "GET /incidents",
        "GET /portal/incidents",
    ),
    "Deliveries.page": (
        f"GET {DLV}",
        "GET /deliveries",
        "GET /portal/deliveries",
    ),
    "Deliveries.get": (
        f"GET {DLV}/{{id}}",
        "GET /deliveries/{id}",
        "GET /deliveries/{id}/compare",
        "GET /portal/deliveries/{id}",
    ),
    "Deliveries.sent_request": (
        "GET /deliveries/{id}/attempts/{number}/request",
        "GET /deliveries/{id}/attempts/{number}/request/body",
    ),
    "Deliveries.replay": (
        f"POST {DLV}/{{id}}/replay",
        "POST /deliveries/{id}/replay",
        "POST /portal/deliveries/{id}/replay",
    ),
    "Deliveries.try_now": (f"POST {DLV}/{{id}}/try", "POST /deliveries/{id}/try"),
    "Deliveries.cancel": (f"POST {DLV}/{{id}}/cancel", "POST /deliveries/{id}/cancel"),
    "Deliveries.cancel_some": ("POST /bulk/cancel", "GET /bulk/cancelling"),
    "Deliveries.recent_attempts": ("GET /v1/attempts",),
    "Replays.count": ("GET /bulk", "GET /bulk/failed", "GET /endpoints/{id}/replay-count"),
    "Replays.start": ("POST /v1/replays", "POST /bulk/replay", "POST /endpoints/{id}/replay"),
    "Replays.count_past": ("GET /subscriptions/{id}/backfill-count",),
    "Replays.backfill": (f"POST {SUB}/{{id}}/backfill", "POST /subscriptions/{id}/backfill"),
    "Replays.get": ("GET /v1/replays/{id}", "GET /replays/{id}"),
    "Replays.cancel": ("POST /v1/replays/{id}/cancel", "POST /replays/{id}/stop"),
    "Erasures.erase": ("POST /v1/erasures", "POST /erasures"),
    "Erasures.page": ("GET /v1/erasures", "GET /erasures"),
    "Erasures.get": ("GET /v1/erasures/{id}",),
    "Search.find": ("GET /v1/search", "GET /search"),
    "NoticeTargets.create": (f"POST {TGT}", "POST /notices/targets"),
    "NoticeTargets.page": (f"GET {TGT}",),
    "NoticeTargets.get": (f"GET {TGT}/{{id}}",),
    "NoticeTargets.change": (f"PATCH {TGT}/{{id}}", "POST /notices/targets/{id}"),
    "NoticeTargets.rotate": (
        f"POST {TGT}/{{id}}/secret/rotate",
        "POST /notices/targets/{id}/rotate",
    ),
    "NoticeTargets.send_link": (f"POST {TGT}/{{id}}/link", "POST /notices/targets/{id}/link"),
    "NoticeTargets.delete": (f"DELETE {TGT}/{{id}}", "POST /notices/targets/{id}/delete"),
    "NoticeTargets.test": (f"POST {TGT}/{{id}}/test", "POST /notices/targets/{id}/test"),
    "NoticeTargets.records": ("GET /v1/notices", "GET /notices"),
    "PortalLinks.create": ("POST /v1/portal-links", "POST /customer-portal/links"),
    "PortalLinks.page": ("GET /v1/portal-links",),
    "PortalLinks.revoke": (
        "DELETE /v1/portal-links/{id}",
        "POST /customer-portal/links/{id}/revoke",
    ),
    "PortalLinks.leave": (),  # a route of the portal that is not a page
    "PortalLooks.get": ("GET /v1/portal", "GET /customer-portal"),
    "PortalLooks.change": ("PATCH /v1/portal", "POST /customer-portal"),
    "Keys.create": ("POST /v1/keys", "POST /keys"),
    "Keys.page": ("GET /v1/keys", "GET /keys"),
    "Keys.revoke": ("DELETE /v1/keys/{id}", "POST /keys/{id}/revoke"),
    "Audit.page": ("GET /v1/audit", "GET /audit"),
    "Audit.export": ("GET /v1/audit/export", "GET /audit/export"),
    "Audit.verify": ("GET /v1/audit/verify",),
    "Figures.ledger": ("GET /v1/ledger",),
    "Figures.overview": ("GET /",),
    "Figures.rollups": ("GET /chart.json", "GET /endpoints/{id}/chart.json"),
    "LostCommits.page": ("GET /v1/lost-commits",),
    "LostCommits.confirm": ("POST /v1/lost-commits/confirm", "POST /system/lost-commits"),
    "Status.pulse": ("GET /v1/status",),
    "Status.metrics": ("GET /metrics",),
    "Status.system": ("GET /system",),
    "Simulations.run": ("GET /simulator",),
    "Exports.deliveries": ("GET /deliveries.csv", "GET /deliveries.ndjson"),
    "Exports.endpoints": ("GET /endpoints.csv", "GET /endpoints.ndjson"),
    "Exports.events": ("GET /events.csv", "GET /events.ndjson"),
    "Exports.subscriptions": ("GET /subscriptions.csv", "GET /subscriptions.ndjson"),
    "Tenants.page": ("GET /tenants", "POST /tenants"),
    "Sessions.sign_out": (),  # a route of the dashboard that is not a page
}
# Use cases that a route calls besides the one that it names.
PARTS = {
    "Deliveries.count_pending",
    "Endpoints.get",
    "Endpoints.refused",
    "Endpoints.several",
    "Endpoints.subscriptions",
    "Simulations.endpoint",
    "BuiltInReceiver.only_subscription",
    "Search.examples",
    "Status.certificates",
    "Status.condition",
    "Status.kept_policies",
    "WorkfrontSubscriptions.endpoints_of",
}
# Operations that need no key.
OPEN = {"GET /healthz", "GET /readyz", "GET /.well-known/jwks.json", "GET /v1/egress"}
ROUTES = [(name, route) for name, routes in TABLE.items() for route in routes]
IDS = [f"{name} by {route}" for name, route in ROUTES]


def transport_of(route: str) -> str:
    path = route.partition(" ")[2]
    if path.startswith(BASE):
        return WF
    if path.startswith("/portal/"):
        return PORTAL
    return API if path.startswith("/v1/") or path == "/metrics" else DASHBOARD


def routes_that_exist() -> Iterator[tuple[str, str]]:
    """Each route with its use case, from the tables of the transports."""
    for operation in (*OPERATIONS, *WORKFRONT):
        route = f"{operation.method} {operation.path}"
        assert operation.open is (route in OPEN)
        if operation.use_case is None:
            assert operation.open, "an operation without a use case is refused to everybody"
        else:
            yield route, operation.use_case.__qualname__
    for page in (*PAGES, *PORTAL_PAGES):
        assert not page.open, page.path
        assert page.use_case is not None, page.path
        yield f"{page.method} {page.path}", page.use_case.__qualname__


def test_every_use_case_and_every_route_is_in_the_table() -> None:
    assert set(TABLE) | PARTS == set(USE_CASES)
    assert dict(routes_that_exist()) == {route: name for name, route in ROUTES}


# --- roles ----------------------------------------------------------------------------------


def method_of(app: App, name: str) -> Callable[..., Any]:
    noun, method = name.split(".")
    owner = next(it for it in vars(app).values() if type(it).__name__ == noun)
    found: Callable[..., Any] = getattr(owner, method)
    return found


def test_every_use_case_refuses_the_other_roles_by_itself() -> None:
    async def story(house: House) -> None:
        for name, roles in USE_CASES.items():
            assert roles in {ADMINS, MANAGERS, METRICS, PUBLISHERS, READERS}, name
            for role in set(Role) - roles:
                with pytest.raises(Forbidden):
                    method_of(house.use_cases, name)(Caller("n", role, "acme"))

    live(story)


class Door:
    """The transports for one caller."""

    def __init__(self, house: House, app: App | None = None) -> None:
        self._asgi = house.app if app is None else asgi_app(app)
        self.client, self.browser = Client(self._asgi), Browser(self._asgi)
        self.portal = Browser(self._asgi)

    async def as_role(self, role: Role, tenant: str = "acme", *, portal: bool = False) -> None:
        """With a new key of this role; or in the portal, whose highest role is manager."""
        if portal:
            asked = {"tenant": tenant, "role": Role.MANAGER if role is Role.ADMIN else role}
            made = await Client(self._asgi).post("/v1/portal-links", {**asked, "subject": "n"})
            assert (await self.portal.open_portal(made.json["url"])).status == 303
            return
        body = {"name": "n", "role": role}
        if role not in METRICS:
            body["tenant"] = tenant
        admin = Client(self._asgi)
        self.client.key = (await admin.post("/v1/keys", body)).json["key"]
        if role in READERS:
            assert (await self.browser.sign_in(self.client.key)).status == 303

    async def send(self, route: str, *, ids: Any = "x", query: str = "", **given: Any) -> Got:
        """A request to this route: ``json`` for the two APIs, ``form`` for the dashboard."""
        method, _, path = route.partition(" ")
        path = re.sub(r"{tenant}", given.get("tenant", "acme"), path)
        path = path.replace("{number}", "1")
        path = re.sub(r"{\w+(:path)?}", str(ids), path) + query
        browser, page = self.browser, "/"
        if transport_of(route) is PORTAL:
            browser, page = self.portal, "/portal/verify"
        elif transport_of(route) is not DASHBOARD:
            json = given.get("json", {} if method in {"POST", "PUT", "PATCH"} else None)
            return await self.client.call(method, path, json=json)
        if method == "GET":
            return await browser.get(path)
        return await browser.form(page, path, **given.get("form", {}))


@pytest.mark.parametrize(("name", "route"), ROUTES, ids=IDS)
def test_a_route_refuses_the_same_roles_as_its_use_case(name: str, route: str) -> None:
    async def story(house: House) -> None:
        for role in set(Role) - USE_CASES[name]:
            if transport_of(route) in {DASHBOARD, PORTAL} and role not in READERS:
                continue  # Its key opens no session.
            door, in_portal = Door(house), transport_of(route) is PORTAL
            await door.as_role(role, portal=in_portal)
            got = await door.send(route)
            assert got.status == 403, (role, got.body)
            refusal = "Your access does not allow this." if in_portal else "may not do this"
            assert refusal in text(got)

    live(story)


# --- ids ------------------------------------------------------------------------------------


class Objects(NamedTuple):
    """One of each kind, of the tenant acme."""

    subscription: str
    workfront: str
    endpoint: str
    delivery: str
    replay: str
    erasure: str
    event: str
    key: str
    target: str
    event_type: str
    link: str


async def objects(house: House) -> Objects:
    made = await house.subscribe(tenant="acme")
    given = {"objCode": "PROJ", "eventType": "UPDATE", "url": "https://wf.example/"}
    workfront = await house.client.post(f"{BASE}?customerId=acme", given)
    event = await house.publish(tenant="acme")
    await house.settled()
    job = await house.client.post("/v1/replays", {"filter": {"tenant": "acme"}})
    key = await house.client.post("/v1/keys", {"name": "n", "role": "viewer", "tenant": "acme"})
    target = await house.client.post(TGT, NEW_TARGET)
    event_type = await house.client.post(ETY, NEW_TYPE)
    link = await house.client.post("/v1/portal-links", {"tenant": "acme"})
    erased = await house.publish(tenant="acme")
    erasure = await house.client.post("/v1/erasures", {"event": erased, "tenant": "acme"})
    await house.settled()
    return Objects(
        subscription=made["id"],
        workfront=workfront.json["id"],
        endpoint=made["endpoint"],
        delivery=(await house.deliveries("?tenant=acme"))[0]["id"],
        replay=job.json["id"],
        erasure=erasure.json["id"],
        event=event,
        key=key.json["id"],
        target=target.json["id"],
        event_type=event_type.json["name"],
        link=link.json["id"],
    )


def id_of(route: str, found: Objects) -> str:
    path = route.partition(" ")[2]
    for part, value in {
        BASE: found.workfront,
        "event-types": found.event_type,
        "/portal/endpoints": found.subscription,  # the portal's word
        "/portal/incidents": found.endpoint,
        "links": found.link,
        "notice": found.target,
        "subscriptions": found.subscription,
        "endpoints": found.endpoint,
        "deliveries": found.delivery,
        "replays": found.replay,
        "erasures": found.erasure,
        "events": found.event,
        "event-data": found.event,
        "keys": found.key,
    }.items():
        if part in path:
            return value
    raise AssertionError(route)


# Valid bodies and forms of the routes whose fields are read before the id is looked up.
JSON = {
    "WorkfrontSubscriptions.change_version": {"version": "v1"},
    "Endpoints.test": {},
    "Pull.ack": {"cursor": "x"},
    "Replays.backfill": {"from": "1h"},
}
FORMS: dict[str, dict[str, str]] = {
    "Subscriptions.change": {"url": "https://a.example/", "types": "*", "format": "standard"},
    "Endpoints.test": {"subscription": show_id("sub", 1)},
    "Replays.start": {"since": "1h"},
    "Replays.backfill": {"from": "1h"},
}
WITH_ID = [it for it in ROUTES if "{id" in it[1]]


@pytest.mark.parametrize(("name", "route"), WITH_ID, ids=[f"{n} by {r}" for n, r in WITH_ID])
def test_an_unknown_id_and_one_of_another_tenant_are_not_found(name: str, route: str) -> None:
    async def story(house: House) -> None:
        theirs = id_of(route, await objects(house))
        prefix = theirs.partition("_")[0]
        unknown = "no-such-event" if "events" in route else show_id(prefix, 12345)
        query = "?since=1h" if route.endswith("replay-count") else ""
        query = "?from=1h" if route.endswith("backfill-count") else query
        given: dict[str, Any] = {
            "json": JSON.get(name, {}),
            "form": FORMS.get(name, {}),
            "query": query,
        }
        for tenant, asked in (("acme", unknown), ("other", theirs)):
            door = Door(house)
            role = Role.MANAGER if Role.MANAGER in USE_CASES[name] else Role.ADMIN
            if role is Role.ADMIN and tenant == "other":
                continue  # Admins have all tenants.
            await door.as_role(role, tenant, portal=transport_of(route) is PORTAL)
            got = await door.send(route, ids=asked, **given)
            assert got.status == 404, (tenant, got.status, text(got))

    live(story)


# --- tenants --------------------------------------------------------------------------------

NEW = {"url": "https://new.example/", "types": ["*"], "tenant": "acme"}
NEW_FORM = {"url": "https://new.example/", "types": "*", "format": "standard", "tenant": "acme"}
PAST_FORM = {"active": "on", "from": "1h"}
NEW_WORKFRONT = {"objCode": "TASK", "eventType": "UPDATE", "url": "https://new.example/"}
EVENT = {"type": "a.b", "data": 1, "tenant": "acme"}
EVENT_FORM = {"type": "a.b", "data": "1", "tenant": "acme"}
REPLAY = {"filter": {"tenant": "acme"}}
NEW_TYPE = {"name": "acme.type", "schema": {"type": "object"}, "tenant": "acme"}
TYPE_FORM = {"name": "acme.other", "schema": '{"type": "object"}', "tenant": "acme"}
BAD_SCHEMA = {"type": "no such type"}
NEW_TARGET = {"kind": "webhook", "address": "https://people.example/x", "tenant": "acme"}


@pytest.mark.parametrize(
    ("role", "route", "given"),
    [
        (Role.PUBLISHER, "POST /v1/events", {"json": EVENT}),
        (Role.MANAGER, f"POST {SUB}", {"json": NEW}),
        (Role.MANAGER, "POST /subscriptions", {"form": NEW_FORM}),
        (Role.MANAGER, f"POST {BASE}", {"json": NEW_WORKFRONT, "query": "?customerId=acme"}),
        (Role.MANAGER, f"POST {TGT}", {"json": NEW_TARGET}),
        (Role.MANAGER, f"POST {ETY}", {"json": NEW_TYPE}),
        (Role.MANAGER, "POST /event-types", {"form": TYPE_FORM}),
        (Role.MANAGER, "POST /notices/targets", {"form": NEW_TARGET}),
        (Role.MANAGER, "POST /v1/portal-links", {"json": {"tenant": "acme"}}),
        (Role.MANAGER, "POST /customer-portal/links", {"form": {"tenant": "acme"}}),
        (Role.MANAGER, "PATCH /v1/portal", {"json": {"name": "x"}, "query": "?tenant=acme"}),
        (Role.MANAGER, "POST /customer-portal", {"form": {"tenant": "acme"}}),
        (Role.MANAGER, "POST /v1/replays", {"json": REPLAY}),
        (Role.MANAGER, "POST /v1/replays", {"json": {**REPLAY, "dry_run": True}}),
        (Role.MANAGER, "POST /bulk/replay", {"form": {"q": "tenant:acme"}}),
        (Role.MANAGER, "GET /bulk", {"query": "?q=tenant:acme"}),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_a_command_for_another_tenant_is_forbidden(
    role: Role, route: str, given: dict[str, Any]
) -> None:
    async def story(house: House) -> None:
        await objects(house)
        before = await counts(house)
        door = Door(house)
        await door.as_role(role, "other")
        got = await door.send(route, **given)
        assert got.status == 403, text(got)
        assert "only write to the tenant other" in text(got)
        assert await counts(house) == before

    live(story)


async def counts(house: House) -> tuple[int, int]:
    """How many subscriptions and deliveries the tenant has."""
    subscriptions = await house.client.get(f"{SUB}?tenant=acme")
    return len(subscriptions.json["items"]), len(await house.deliveries("?tenant=acme"))


LISTS = (
    "GET /v1/events",
    "GET /events",
    f"GET {SUB}",
    "GET /subscriptions",
    f"GET {EP}",
    "GET /endpoints",
    f"GET {DLV}",
    "GET /deliveries",
    "GET /v1/attempts",
    "GET /v1/ledger",
    f"GET {TGT}",
    f"GET {ETY}",
    "GET /event-types",
    "GET /v1/notices",
    "GET /notices",
    "GET /v1/audit",
    "GET /audit",
    "GET /v1/audit/export",
    "GET /audit/export",
    f"GET {BASE}",
    f"GET {BASE}/list",
    "POST /bulk/cancel",
    "GET /v1/portal-links",
    "GET /customer-portal",
    "GET /portal/endpoints",
    "GET /portal/deliveries",
    "GET /portal/event-types",
    "GET /portal/incidents",
)


@pytest.mark.parametrize("route", LISTS)
@pytest.mark.parametrize("named", [False, True], ids=["no tenant named", "the other one named"])
def test_a_list_holds_nothing_of_another_tenant(route: str, named: bool) -> None:
    async def story(house: House) -> None:
        found = await objects(house)
        door = Door(house)
        await door.as_role(Role.MANAGER, "other", portal=transport_of(route) is PORTAL)
        query = "?tenant=acme" if named else ""
        if route == "GET /deliveries":
            query = "?q=tenant:acme" if named else ""
        if route.startswith(f"GET {BASE}"):
            query = "?customerId=acme" if named else ""
        form = {"q": "tenant:acme" if named else ""}
        got = await door.send(route, query="" if "POST" in route else query, form=form)
        if named and route == "GET /customer-portal":  # It is about one tenant.
            assert got.status == 404, text(got)
            return
        assert got.status in {200, 303}, text(got)
        for theirs in found:
            assert theirs.encode() not in got.body
        pending = await house.client.get(f"{DLV}?tenant=acme&status=cancelled")
        assert pending.json["items"] == []

    live(story)


# --- fields ---------------------------------------------------------------------------------

BAD_URL = "ftp://no.example/"


@pytest.mark.parametrize(
    ("route", "given", "field"),
    [
        ("POST /v1/events", {"json": {"type": "no type", "data": 1}}, "type"),
        ("POST /events", {"form": {"type": "no type", "data": "1"}}, "type"),
        (f"POST {SUB}", {"json": {**NEW, "url": BAD_URL}}, "url"),
        ("POST /subscriptions", {"form": {**NEW_FORM, "url": BAD_URL}}, "url"),
        (f"POST {SUB}", {"json": {**NEW, "from": "400d"}}, "must not be before"),
        ("POST /subscriptions", {"form": {**NEW_FORM, "from": "400d"}}, "must not be before"),
        (f"POST {BASE}", {"json": {**NEW_WORKFRONT, "url": BAD_URL}}, "url"),
        (f"PATCH {SUB}/{{id}}", {"json": {"policy": "none such"}}, "policy"),
        ("POST /subscriptions/{id}", {"form": {**NEW_FORM, "policy": "none such"}}, "policy"),
        (f"PATCH {SUB}/{{id}}", {"json": {"url": BAD_URL}}, "url"),
        ("POST /subscriptions/{id}", {"form": {**NEW_FORM, "url": BAD_URL}}, "url"),
        (f"POST {SUB}/{{id}}/secret/rotate", {"json": {"overlap_ms": -1}}, "overlap_ms"),
        ("POST /v1/replays", {"json": {"filter": {"status": "pending"}}}, "status"),
        ("POST /bulk/replay", {"form": {"q": "status:pending"}}, "pending"),
        (f"PUT {BASE}/{{id}}/version", {"json": {"version": "v3"}}, "version"),
        (f"POST {ETY}", {"json": {"name": "a b"}}, "name"),
        (f"POST {ETY}", {"json": {"name": "a.b", "schema": BAD_SCHEMA}}, "schema"),
        ("POST /event-types", {"form": {**TYPE_FORM, "schema": "{"}}, "must be JSON"),
        (f"PATCH {ETY}/{{id}}?tenant=acme", {"json": {"schema": BAD_SCHEMA}}, "schema"),
        ("POST /event-types/{tenant}/{id}", {"form": {"schema": "1"}}, "must be a JSON object"),
        (f"POST {TGT}", {"json": {**NEW_TARGET, "address": BAD_URL}}, "address"),
        ("POST /notices/targets", {"form": {**NEW_TARGET, "address": BAD_URL}}, "address"),
        ("POST /portal/endpoints", {"form": {**NEW_FORM, "url": BAD_URL}}, "url"),
        ("POST /portal/endpoints/{id}", {"form": {**NEW_FORM, "url": BAD_URL}}, "url"),
        ("POST /v1/portal-links", {"json": {"open_within": "25h"}}, "open_within"),
        ("POST /customer-portal/links", {"form": {"session": "25h"}}, "session"),
        ("PATCH /v1/portal", {"json": {"accent_color": "red"}}, "accent_color"),
        ("POST /customer-portal", {"form": {"frame_ancestors": "http://a.example"}}, "https://"),
        (f"PATCH {TGT}/{{id}}", {"json": {"quiet_hours": "at night"}}, "quiet_hours"),
        ("POST /notices/targets/{id}", {"form": {"quiet_hours": "at night"}}, "quiet_hours"),
    ],
)
def test_a_bad_field_is_refused_by_its_name(route: str, given: dict[str, Any], field: str) -> None:
    async def story(house: House) -> None:
        found = await objects(house)
        before = await counts(house)
        door = Door(house)
        await door.as_role(Role.ADMIN, portal=transport_of(route) is PORTAL)
        got = await door.send(route, ids=id_of(route, found) if "{id}" in route else "x", **given)
        assert got.status == (400 if transport_of(route) is WF else 422), text(got)
        assert field.encode() in got.body
        assert await counts(house) == before

    live(story)


# --- quotas ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quota", "route", "given"),
    [
        (Quota(publish_per_second=1), "POST /v1/events", {"json": EVENT}),
        (Quota(publish_per_second=1), "POST /events", {"form": EVENT_FORM}),
        (Quota(pending_max=1), "POST /v1/events", {"json": EVENT}),
        (Quota(pending_max=1), "POST /events", {"form": EVENT_FORM}),
        (Quota(subscriptions_max=1), f"POST {SUB}", {"json": NEW}),
        (Quota(subscriptions_max=1), "POST /subscriptions", {"form": NEW_FORM}),
        (Quota(subscriptions_max=1), f"POST {SUB}", {"json": {**NEW, "from": "1h"}}),
        (Quota(pending_max=1), f"POST {SUB}", {"json": {**NEW, "from": "1h"}}),
        (Quota(pending_max=1), "POST /subscriptions", {"form": {**NEW_FORM, **PAST_FORM}}),
        (Quota(subscriptions_max=1), f"POST {BASE}", {"json": NEW_WORKFRONT}),
        (Quota(pending_max=1), f"POST {DLV}/{{id}}/replay", {}),
        (Quota(pending_max=1), "POST /deliveries/{id}/replay", {}),
        (Quota(pending_max=1), "POST /v1/replays", {"json": REPLAY}),
        (Quota(pending_max=1), "POST /bulk/replay", {"form": {"q": "tenant:acme"}}),
        (Quota(pending_max=1), "POST /endpoints/{id}/replay", {"form": {"since": "1h"}}),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_a_quota_that_is_used_up_is_a_429(quota: Quota, route: str, given: dict[str, Any]) -> None:
    async def story(house: House) -> None:
        found = await objects(house)
        await house.client.post(f"{EP}/{found.endpoint}/freeze")
        await house.publish(tenant="acme")  # It stays pending.
        limited = use_cases(house.world, house.api_keys, quota=quota)
        door = Door(house, limited)
        await door.as_role(Role.ADMIN)
        if quota.publish_per_second:
            await Client(asgi_app(limited)).post("/v1/events", [EVENT] * 50)
        asked: dict[str, Any] = dict(given)
        if route == f"POST {BASE}":
            asked["query"] = "?customerId=acme"
        if "{id}" in route:
            asked["ids"] = id_of(route, found)
        got = await door.send(route, **asked)
        assert got.status == 429, text(got)
        assert "The tenant acme may" in text(got)
        assert int(got.headers["retry-after"]) >= 1

    live(story)


CHANGES = [
    (name, route)
    for name, route in ROUTES
    if name in CHANGING and Role.MANAGER in USE_CASES[name] and not route.startswith("GET ")
]
CHANGE_JSON: dict[str, Any] = {
    "Subscriptions.create": NEW,
    "WorkfrontSubscriptions.create": NEW_WORKFRONT,
    "WorkfrontSubscriptions.change_version": {"version": "v1"},
    "WorkfrontSubscriptions.change_versions": {"subscriptionIds": ["x"], "version": "v1"},
    "WorkfrontSubscriptions.enable_url": {"url": "https://wf.example/"},
    "Replays.start": REPLAY,
    "Replays.backfill": {"from": "1h"},
    "NoticeTargets.create": NEW_TARGET,
    "EventTypes.create": NEW_TYPE,
    "PortalLooks.change": {"name": "x"},
    "Erasures.erase": {"event": "e"},
}
CHANGE_FORMS: dict[str, dict[str, str]] = {
    "POST /subscriptions": NEW_FORM,
    "POST /subscriptions/{id}": NEW_FORM,
    "POST /endpoints/{id}/test": {"subscription": show_id("sub", 1)},
    "POST /endpoints/{id}/replay": {"since": "1h"},
    "POST /subscriptions/{id}/backfill": {"from": "1h"},
    "POST /bulk/replay": {"q": "tenant:acme"},
    "POST /bulk/cancel": {"q": "tenant:acme"},
    "POST /notices/targets": NEW_TARGET,
    "POST /event-types": TYPE_FORM,
    "POST /erasures": {"event": "e", "tenant": "acme", "confirm": "erase"},
}


def test_every_changing_call_of_a_tenant_that_makes_too_many_is_a_429() -> None:
    async def story(house: House) -> None:
        found = await objects(house)
        limited = use_cases(house.world, house.api_keys, quota=Quota(changes_per_minute=3))
        door = Door(house, limited)
        await door.as_role(Role.MANAGER)
        await door.as_role(Role.MANAGER, portal=True)
        at = f"PATCH {SUB}/{{id}}"
        for _ in range(4):  # The quota of a minute, and one more; the sign-in was the first.
            got = await door.send(at, ids=found.subscription)
        assert got.status == 429, text(got)
        before = await house.client.get("/v1/audit?tenant=acme")
        assert {transport_of(route) for _, route in CHANGES} == {API, DASHBOARD, WF, PORTAL}
        for name, route in CHANGES:
            got = await door.send(
                route,
                ids=id_of(route, found) if "{id}" in route else "x",
                json=CHANGE_JSON.get(name, {}),
                form=CHANGE_FORMS.get(route, {}),
            )
            assert got.status == 429, (route, text(got))
            refusal = "The tenant acme may make 3 changes per minute."
            if transport_of(route) is PORTAL:
                refusal = "That was too much at once."
            assert refusal in text(got), route
            assert int(got.headers["retry-after"]) >= 1, route
        after = await house.client.get("/v1/audit?tenant=acme")
        assert after.json["items"] == before.json["items"]

        assert (await door.browser.sign_in(str(door.client.key))).status == 429
        assert (await door.send(f"GET {SUB}")).status == 200
        other = Door(house, limited)
        await other.as_role(Role.MANAGER, "other")
        assert (await other.send(f"POST {SUB}", json={**NEW, "tenant": "other"})).status == 201
        admin = Door(house, limited)
        await admin.as_role(Role.ADMIN)
        assert (await admin.send(at, ids=found.subscription)).status == 200

    live(story)


def test_a_person_with_too_many_changes_can_still_sign_out() -> None:
    async def story(house: House) -> None:
        limited = use_cases(house.world, house.api_keys, quota=Quota(changes_per_minute=1))
        door = Door(house, limited)
        await door.as_role(Role.MANAGER)
        assert (await door.browser.sign_in(str(door.client.key))).status == 303
        assert (await door.browser.sign_in(str(door.client.key))).status == 429
        assert (await door.browser.form("/", "/sign-out")).status == 303

    live(story)


# --- forms ----------------------------------------------------------------------------------

Story = Callable[[House], Awaitable[None]]


def test_a_form_that_was_carried_out_redirects_so_that_a_reload_repeats_nothing() -> None:
    async def story(house: House) -> None:
        found = await objects(house)
        door = Door(house)
        await door.as_role(Role.ADMIN)
        for _, route in ROUTES:
            given = {
                "POST /events": EVENT_FORM,
                "POST /subscriptions": NEW_FORM,
                "POST /subscriptions/{id}": {**NEW_FORM, "url": URL},
                "POST /endpoints/{id}/test": {"subscription": found.subscription},
                "POST /endpoints/{id}/replay": {"since": "1h"},
                "POST /subscriptions/{id}/backfill": {"from": "1h"},
                "POST /notices/targets": NEW_TARGET,
                "POST /event-types": TYPE_FORM,
                "POST /erasures": {"event": found.event, "tenant": "acme", "confirm": "erase"},
                "POST /keys": {"name": "n", "role": "viewer", "tenant": "acme"},
                "POST /customer-portal": {"tenant": "acme", "theme": "dark"},
            }.get(route, {})
            if not route.startswith("POST") or transport_of(route) is not DASHBOARD:
                continue
            if route in {"POST /subscriptions/check", "POST /subscriptions/try"}:
                continue  # They change nothing.
            if route.endswith(
                ("/delete", "/link", "/revoke", "/readers/remove", "/verify", "/backfill")
            ) or route in {"POST /deliveries/{id}/cancel", "POST /deliveries/{id}/try"}:
                continue  # Tried in other tests.
            ids = id_of(route, found) if "{id}" in route else "x"
            got = await door.send(route, ids=ids, form=given)
            assert got.status == 303, (route, got.status, text(got))
            assert got.headers["location"].startswith("/")

    live(story)


def test_a_new_secret_is_shown_once_on_the_page_after_the_redirect() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        form = {**NEW_FORM, "filters": '[{"field": "data.a", "value": 1}]'}
        made = await browser.form("/subscriptions/new", "/subscriptions", **form)
        assert made.status == 303, text(made)
        secret_cookie = browser.cookies["homing_secret"]
        assert "whsec_" not in secret_cookie
        at = made.headers["location"]
        first, second = text(await browser.get(at)), text(await browser.get(at))
        assert "whsec_" in first
        assert "whsec_" not in second
        for page in (first, second):
            assert '"field": "data.a"' in page, "the page shows the filters that are stored"
        assert len((await house.client.get(f"{SUB}?tenant=acme")).json["items"]) == 1
        rotated = await browser.form(at, f"{at}/rotate")
        assert (rotated.status, rotated.headers["location"]) == (303, at)
        again = text(await browser.get(at))
        assert "whsec_" in again
        assert re.findall(r"whsec_\S+", again) != re.findall(r"whsec_\S+", first)

    live(story)


def test_a_secret_on_its_way_is_of_one_session_and_of_one_minute() -> None:
    async def story(house: House) -> None:
        browser, other = Browser(house.app), Browser(house.app)
        await browser.sign_in()
        await other.sign_in()
        for wait_ms, thief in ((0, other), (120_000, browser)):
            made = await browser.form("/subscriptions/new", "/subscriptions", **NEW_FORM)
            thief.cookies["homing_secret"] = browser.cookies["homing_secret"]
            await house.world.wait(wait_ms)
            assert "whsec_" not in text(await thief.get(made.headers["location"]))

    live(story)


def test_deleting_a_workfront_subscription_on_the_dashboard_deletes_its_twin() -> None:
    async def story(house: House) -> None:
        found = await objects(house)
        changed = await house.client.call(
            "PUT", f"{BASE}/{found.workfront}/version", json={"version": "v1"}
        )
        assert changed.status == 200, changed.body
        assert (await counts(house))[0] == 3, "the subscription, the Workfront one and its twin"
        browser = Browser(house.app)
        await browser.sign_in()
        at = f"/subscriptions/{found.workfront}"
        got = await browser.form(at, f"{at}/delete")
        assert got.status == 303, text(got)
        assert (await counts(house))[0] == 1

    live(story)
