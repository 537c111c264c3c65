"""Every route × every kind of credential; a route without a row here fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from homing.policy.keys import Role
from homing.web.operation import Operation
from homing.web.routes import OPERATIONS as API_OPERATIONS
from homing.web.workfront.api import BASE
from homing.web.workfront.api import OPERATIONS as DOOR
from web.asgi import KEY, Client, Got
from web.house import House, live

OPERATIONS = (*API_OPERATIONS, *DOOR)
OWN, OTHER = "acme", "zenith"
HOUR_MS = 3_600_000

ADMIN, PUBLISHER, MANAGER, VIEWER = Role.ADMIN, Role.PUBLISHER, Role.MANAGER, Role.VIEWER
METRICS = Role.METRICS
WITHOUT_TENANT = {ADMIN, METRICS}
EVERYBODY = "everybody"


class Row(NamedTuple):
    """Who may call an operation, and how it is called for what is of ``OWN``."""

    roles: set[Role] | str
    path: str
    body: Any = None
    good: int = 200
    # To another tenant's key: "absent" is the response for an id that does not exist, "refused" is
    # 403 for a tenant that is named, "empty" is a list without what is not its own, "own" is what
    # cannot name another tenant at all.
    other: str = "absent"


READ = {ADMIN, MANAGER, VIEWER}
MANAGE = {ADMIN, MANAGER}
SUBSCRIPTION = {"url": "https://new.example/", "types": ["*"], "tenant": OWN}
WORKFRONT = {"objCode": "TASK", "eventType": "CREATE", "url": "https://new.example/"}
TARGET = {"kind": "webhook", "address": "https://people.example/"}
ERASED = "erased-1"  # the id of an event
ROWS: dict[str, Row] = {
    "publishEvents": Row(
        {ADMIN, PUBLISHER}, "/v1/events", {"type": "a", "data": 1, "tenant": OWN}, 202, "refused"
    ),
    "listEvents": Row(READ, "/v1/events", other="empty"),
    "getEvent": Row(READ, "/v1/events/{event}?tenant=acme"),
    "createEventType": Row(
        MANAGE, "/v1/event-types", {"name": "new.type", "tenant": OWN}, 201, "refused"
    ),
    "listEventTypes": Row(READ, "/v1/event-types", other="empty"),
    "exportEventTypes": Row(READ, "/v1/event-types/openapi.json?tenant=acme"),
    "getEventType": Row(READ, "/v1/event-types/{type}?tenant=acme"),
    "changeEventType": Row(MANAGE, "/v1/event-types/{type}?tenant=acme", {"description": "x"}),
    "deleteEventType": Row(MANAGE, "/v1/event-types/{type}?tenant=acme", None, 204),
    "createPortalLink": Row(MANAGE, "/v1/portal-links", {"tenant": OWN}, 201, "refused"),
    "listPortalLinks": Row(READ, "/v1/portal-links", other="empty"),
    "revokePortalLink": Row(MANAGE, "/v1/portal-links/{link}", None, 204),
    "getPortal": Row(READ, "/v1/portal?tenant=acme"),
    "changePortal": Row(MANAGE, "/v1/portal?tenant=acme", {"name": "Shop"}, 200, "refused"),
    "createSubscription": Row(MANAGE, "/v1/subscriptions", SUBSCRIPTION, 201, "refused"),
    "listSubscriptions": Row(READ, "/v1/subscriptions", other="empty"),
    "getSubscription": Row(READ, "/v1/subscriptions/{subscription}"),
    "changeSubscription": Row(MANAGE, "/v1/subscriptions/{subscription}", {"description": "x"}),
    "deleteSubscription": Row(MANAGE, "/v1/subscriptions/{subscription}", None, 204),
    "rotateSecret": Row(MANAGE, "/v1/subscriptions/{subscription}/secret/rotate"),
    "testSubscription": Row(MANAGE, "/v1/subscriptions/{subscription}/test"),
    "verifySubscription": Row(MANAGE, "/v1/subscriptions/{subscription}/verify", good=409),
    "pauseSubscription": Row(MANAGE, "/v1/subscriptions/{subscription}/pause"),
    "resumeSubscription": Row(MANAGE, "/v1/subscriptions/{subscription}/resume"),
    "backfillSubscription": Row(
        MANAGE, "/v1/subscriptions/{subscription}/backfill", {"from": "1h"}, 202
    ),
    "readEvents": Row(READ, "/v1/subscriptions/{stream}/events"),
    # One that is sent is refused; the other one would have no end.
    "streamEvents": Row(READ, "/v1/subscriptions/{subscription}/stream", good=409),
    "acknowledgeEvents": Row(MANAGE, "/v1/subscriptions/{stream}/ack", {"cursor": "x"}, 422),
    "listReaders": Row(READ, "/v1/subscriptions/{stream}/readers"),
    "removeReader": Row(MANAGE, "/v1/subscriptions/{stream}/readers", good=404),
    "getSigningKeys": Row(READ, "/v1/signing-keys", other="own"),
    "rotateSigningKeys": Row(MANAGE, "/v1/signing-keys/rotate", {"tenant": OWN}, 200, "refused"),
    "jwks": Row(EVERYBODY, "/.well-known/jwks.json"),
    "tryFilters": Row(READ, "/v1/filters/try?tenant=acme", {"filters": []}),
    "listEndpoints": Row(READ, "/v1/endpoints", other="empty"),
    "getEndpoint": Row(READ, "/v1/endpoints/{endpoint}"),
    "enableEndpoint": Row(MANAGE, "/v1/endpoints/{endpoint}/enable"),
    "freezeEndpoint": Row(MANAGE, "/v1/endpoints/{endpoint}/freeze"),
    "listEndpointAttempts": Row(READ, "/v1/endpoints/{endpoint}/attempts"),
    "listCauses": Row(READ, "/v1/causes", other="empty"),
    "search": Row(READ, "/v1/search?q={subscription}", other="empty"),
    "createNoticeTarget": Row(
        MANAGE, "/v1/notice-targets", {**TARGET, "tenant": OWN}, 201, "refused"
    ),
    "listNoticeTargets": Row(READ, "/v1/notice-targets", other="empty"),
    "getNoticeTarget": Row(READ, "/v1/notice-targets/{target}"),
    "changeNoticeTarget": Row(MANAGE, "/v1/notice-targets/{target}", {"name": "x"}),
    "deleteNoticeTarget": Row(MANAGE, "/v1/notice-targets/{target}", None, 204),
    "rotateNoticeTargetSecret": Row(MANAGE, "/v1/notice-targets/{target}/secret/rotate"),
    "sendNoticeTargetLink": Row(MANAGE, "/v1/notice-targets/{target}/link", good=409),
    "testNoticeTarget": Row(MANAGE, "/v1/notice-targets/{target}/test"),
    "listNotices": Row(READ, "/v1/notices", other="empty"),
    "listDeliveries": Row(READ, "/v1/deliveries", other="empty"),
    "getDelivery": Row(READ, "/v1/deliveries/{delivery}"),
    "replayDelivery": Row(MANAGE, "/v1/deliveries/{delivery}/replay", None, 201),
    "cancelDelivery": Row(MANAGE, "/v1/deliveries/{pending}/cancel"),
    "tryDelivery": Row(MANAGE, "/v1/deliveries/{pending}/try", good=409),  # It is frozen.
    "listAttempts": Row(READ, "/v1/attempts", other="empty"),
    "startReplay": Row(MANAGE, "/v1/replays", {"filter": {"tenant": OWN}}, 202, "refused"),
    "getReplay": Row(READ, "/v1/replays/{replay}"),
    "erase": Row(MANAGE, "/v1/erasures", {"event": ERASED, "tenant": OWN}, 202, "refused"),
    "listErasures": Row(READ, "/v1/erasures", other="empty"),
    "getErasure": Row(READ, "/v1/erasures/{erasure}"),
    "cancelReplay": Row(MANAGE, "/v1/replays/{replay}/cancel"),
    "createKey": Row({ADMIN}, "/v1/keys", {"name": "n", "role": "viewer"}, 201),
    "listKeys": Row({ADMIN}, "/v1/keys"),
    "revokeKey": Row({ADMIN}, "/v1/keys/{key}", None, 204),
    "listAuditEntries": Row(READ, "/v1/audit", other="own"),
    "exportAuditEntries": Row(READ, "/v1/audit/export", other="own"),
    "verifyAuditLog": Row({ADMIN}, "/v1/audit/verify"),
    "getLedger": Row(READ, "/v1/ledger", other="empty"),
    "getEgress": Row(EVERYBODY, "/v1/egress"),
    "healthz": Row(EVERYBODY, "/healthz"),
    "readyz": Row(EVERYBODY, "/readyz"),
    "metrics": Row({ADMIN, METRICS}, "/metrics"),
    "getStatus": Row({ADMIN}, "/v1/status"),
    "getLostCommits": Row({ADMIN}, "/v1/lost-commits"),
    "confirmLostCommits": Row({ADMIN}, "/v1/lost-commits/confirm"),
    "workfrontCreate": Row(MANAGE, BASE, WORKFRONT, 201, "own"),
    "workfrontList": Row(READ, BASE, other="own"),
    "workfrontListOld": Row(READ, f"{BASE}/list", other="own"),
    "workfrontChangeVersions": Row(
        MANAGE, f"{BASE}/version", {"allCustomerSubscriptions": True, "version": "v2"}, 200, "own"
    ),
    "workfrontEnableUrl": Row(
        MANAGE, f"{BASE}/enable?customerId={OWN}", {"url": "https://door.example/"}
    ),
    "workfrontGet": Row(READ, BASE + "/{door}"),
    "workfrontDelete": Row(MANAGE, BASE + "/{door}"),
    "workfrontChangeVersion": Row(MANAGE, BASE + "/{door}/version", {"version": "v1"}),
    "workfrontEnable": Row(MANAGE, BASE + "/{door}/enable"),
}
ABSENT = {
    "event": "evt_none",
    "type": "no.such.type",
    "link": "plk_0000000000001",
    "subscription": "sub_0000000000001",
    "stream": "sub_0000000000001",
    "endpoint": "ep_0000000000001",
    "delivery": "dlv_0000000000001",
    "pending": "dlv_0000000000001",
    "replay": "rpl_0000000000001",
    "erasure": "era_0000000000001",
    "key": "key_0000000000001",
    "target": "tgt_0000000000001",
    "door": "sub_0000000000001",
}
BY_ID = {operation.id: operation for operation in OPERATIONS}


class Scene:
    """A house with something of each kind in the tenant OWN, and keys of every kind."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.ids: dict[str, str] = {}
        self.keys: dict[tuple[str, Role], str] = {}

    async def begin(self) -> Scene:
        house = self.house
        made = await house.subscribe(tenant=OWN)
        await house.publish(tenant=OWN, id=ERASED)
        erasure = await house.client.post("/v1/erasures", {"event": ERASED, "tenant": OWN})
        event = await house.publish(tenant=OWN)
        await house.settled()
        (delivery,) = await house.deliveries(f"?tenant={OWN}")
        await house.client.post(f"/v1/endpoints/{made['endpoint']}/freeze")
        await house.publish(tenant=OWN)
        (pending,) = await house.deliveries(f"?tenant={OWN}&status=pending")
        job = await house.client.post(
            "/v1/replays", {"filter": {"tenant": OWN, "status": "dropped"}}
        )
        target = await house.client.post("/v1/notice-targets", {**TARGET, "tenant": OWN})
        stream = await house.client.post("/v1/subscriptions", {"types": ["x"], "tenant": OWN})
        await house.client.post("/v1/event-types", {"name": "some.type", "tenant": OWN})
        link = await house.client.post("/v1/portal-links", {"tenant": OWN})
        self.ids = {
            "type": "some.type",
            "link": link.json["id"],
            "stream": stream.json["id"],
            "event": event,
            "target": target.json["id"],
            "subscription": made["id"],
            "endpoint": made["endpoint"],
            "delivery": delivery["id"],
            "pending": pending["id"],
            "replay": job.json["id"],
            "erasure": erasure.json["id"],
            "key": (await self.make("some", VIEWER, OWN))["id"],
        }
        for tenant in (OWN, OTHER):
            for role in Role:
                if role not in WITHOUT_TENANT:
                    self.keys[tenant, role] = (await self.make("one", role, tenant))["key"]
        self.ids["door"] = await self.at_the_door()
        for role in WITHOUT_TENANT:
            self.keys["", role] = (await self.make("another", role, None))["key"]
        return self

    async def at_the_door(self) -> str:
        """A subscription of the tenant, made through the Workfront door."""
        manager = Client(self.house.app, key=self.keys[OWN, MANAGER])
        got = await manager.post(BASE, {**WORKFRONT, "url": "https://door.example/"})
        assert got.status == 201, got.body
        return str(got.json["id"])

    async def make(self, name: str, role: Role, tenant: str | None, **more: Any) -> dict[str, Any]:
        body = {"name": name, "role": role, "tenant": tenant, **more}
        got = await self.house.client.post("/v1/keys", body)
        assert got.status == 201, got.body
        made: dict[str, Any] = got.json
        return made

    async def call(self, operation: Operation, key: str | None, ids: dict[str, str]) -> Got:
        row = ROWS[operation.id]
        path = row.path.format(**ids)
        client = Client(self.house.app, key=key)
        return await client.call(operation.method, path, json=row.body)


def scene(story: Callable[[Scene], Awaitable[None]]) -> None:
    async def told(house: House) -> None:
        await story(await Scene(house).begin())

    live(told)


def test_every_route_has_a_row_and_says_whose_keys_it_takes() -> None:
    assert set(ROWS) == set(BY_ID)
    for operation in OPERATIONS:
        allowed = ROWS[operation.id].roles
        if operation.open:
            assert allowed == EVERYBODY
        else:
            assert set(operation.roles) == allowed, operation.id
            assert operation.roles, f"{operation.id} is open to nobody"


def test_an_operation_that_states_no_right_is_open_to_nobody() -> None:
    bare = Operation(method="GET", path="/x", id="x", summary="", handler=None)
    assert not bare.roles
    assert not bare.open


def test_without_a_working_key_there_is_the_same_401_everywhere() -> None:
    async def story(scene: Scene) -> None:
        revoked = await scene.make("revoked", ADMIN, None)
        await scene.house.client.delete(f"/v1/keys/{revoked['id']}")
        expired = await scene.make("expired", ADMIN, None, expires="1h")
        good = scene.keys["", ADMIN]
        wrong = good[:-1] + ("A" if good[-1] != "A" else "B")
        for operation in OPERATIONS:
            await scene.house.world.wait(HOUR_MS)  # Many wrong keys in a minute are delayed.
            bodies = set()
            for key in (wrong, "hk_wrong", expired["key"], revoked["key"]):
                got = await scene.call(operation, key, scene.ids)
                if operation.open:
                    assert got.status == 200, operation.id
                    continue
                assert (got.status, got.problem.code) == (401, "not_authorized"), operation.id
                bodies.add(got.body)
            assert len(bodies) == (0 if operation.open else 1), operation.id
            none = await scene.call(operation, None, scene.ids)
            assert none.status == (200 if operation.open else 401), operation.id

    scene(story)


def is_allowed(operation: Operation, role: Role) -> bool:
    allowed = ROWS[operation.id].roles
    return allowed == EVERYBODY or role in allowed


ALLOWED = [(it, role) for it in OPERATIONS for role in Role if is_allowed(it, role)]


@pytest.mark.parametrize(
    ("operation", "role"), ALLOWED, ids=[f"{it.id}-{role}" for it, role in ALLOWED]
)
def test_a_key_of_the_tenant_may_do_what_its_role_says(operation: Operation, role: Role) -> None:
    async def story(scene: Scene) -> None:
        key = scene.keys["" if role in WITHOUT_TENANT else OWN, role]
        got = await scene.call(operation, key, scene.ids)
        assert got.status == ROWS[operation.id].good, got.body

    scene(story)


@pytest.mark.parametrize("role", Role)
def test_a_key_of_the_tenant_may_do_nothing_else(role: Role) -> None:
    async def story(scene: Scene) -> None:
        key = scene.keys["" if role in WITHOUT_TENANT else OWN, role]
        for operation in OPERATIONS:
            if not is_allowed(operation, role):
                got = await scene.call(operation, key, scene.ids)
                assert (got.status, got.problem.code) == (403, "forbidden"), operation.id
                absent = await scene.call(operation, key, ABSENT)
                assert (absent.status, absent.body) == (got.status, got.body), operation.id

    scene(story)


@pytest.mark.parametrize("role", [PUBLISHER, MANAGER, VIEWER])
def test_what_is_of_another_tenant_is_not_there(role: Role) -> None:
    async def story(scene: Scene) -> None:
        # Those that make something of the other tenant's own come last.
        for operation in sorted(OPERATIONS, key=lambda it: ROWS[it.id].other == "own"):
            await is_not_there(scene, operation, role)

    scene(story)


async def is_not_there(scene: Scene, operation: Operation, role: Role) -> None:
    """A key of another tenant sees and changes nothing of the tenant OWN."""
    row = ROWS[operation.id]
    key = scene.keys[OTHER, role]
    got = await scene.call(operation, key, scene.ids)
    if row.roles == EVERYBODY:
        assert got.status == 200, operation.id
    elif role not in row.roles or row.other == "refused":
        assert (got.status, got.problem.code) == (403, "forbidden"), operation.id
    elif row.other == "own":
        assert got.status == row.good, operation.id
        assert scene.ids["door"].encode() not in got.body, operation.id
    elif row.other == "empty":
        assert (got.status, got.json["items"]) == (200, []), operation.id
        for tenant in (OWN, "nobody"):
            client = Client(scene.house.app, key=key)
            path = row.path.format(**scene.ids)
            named = await client.get(f"{path}{'&' if '?' in path else '?'}tenant={tenant}")
            assert named.json["items"] == [], operation.id
            assert named.json.get("next_cursor") == got.json.get("next_cursor"), operation.id
    else:
        absent = await scene.call(operation, key, ABSENT)
        assert (got.status, got.headers, got.body) == (
            absent.status,
            absent.headers,
            absent.body,
        ), operation.id
        assert got.status == 404, operation.id


@pytest.mark.parametrize("tenant", [OWN, "nobody"])
def test_to_name_another_tenant_is_to_name_one_that_is_not_there(tenant: str) -> None:
    async def story(scene: Scene) -> None:
        own = Client(scene.house.app, key=scene.keys[OTHER, MANAGER])
        publisher = Client(scene.house.app, key=scene.keys[OTHER, PUBLISHER])
        responses = [
            await own.get(f"/v1/events/{scene.ids['event']}?tenant={tenant}"),
            await own.post("/v1/subscriptions", {**SUBSCRIPTION, "tenant": tenant}),
            await own.post("/v1/replays", {"filter": {"tenant": tenant}, "dry_run": True}),
            await publisher.post("/v1/events", {"type": "a", "data": 1, "tenant": tenant}),
            await publisher.post(
                "/v1/events",
                [{"type": "a", "data": 1}, {"type": "a", "data": 1, "tenant": tenant}],
            ),
        ]
        assert [got.status for got in responses] == [404, 403, 403, 403, 403]
        told = b"".join(got.body for got in responses)
        assert tenant.encode() not in told.replace(b"zenith", b"")
        assert (await Client(scene.house.app).get(f"/v1/events?tenant={OTHER}")).json["items"] == []

    scene(story)


def test_what_a_key_leaves_out_is_its_own_tenant() -> None:
    async def story(scene: Scene) -> None:
        manager = Client(scene.house.app, key=scene.keys[OTHER, MANAGER])
        publisher = Client(scene.house.app, key=scene.keys[OTHER, PUBLISHER])
        made = await manager.post("/v1/subscriptions", {"url": "https://z.example", "types": ["*"]})
        assert made.json["tenant"] == OTHER
        got = await publisher.post("/v1/events", {"type": "a", "data": 1, "id": "e1"})
        assert got.json["events"] == [{"id": "e1", "deliveries": 1, "duplicate": False}]
        assert (await manager.get("/v1/events/e1")).json["tenant"] == OTHER
        await scene.house.settled()
        (delivery,) = (await manager.get("/v1/deliveries?event=e1")).json["items"]
        assert delivery["tenant"] == OTHER
        assert [one["tenant"] for one in (await manager.get("/v1/ledger")).json["items"]] == [OTHER]
        started = await manager.post("/v1/replays", {"filter": {}})
        assert started.json["filter"]["tenant"] == OTHER

    scene(story)


def test_filters_by_what_is_of_another_tenant_find_what_an_unknown_id_finds() -> None:
    async def story(scene: Scene) -> None:
        viewer = Client(scene.house.app, key=scene.keys[OTHER, VIEWER])
        manager = Client(scene.house.app, key=scene.keys[OTHER, MANAGER])
        for path in ("/v1/deliveries", "/v1/attempts"):
            for name in ("endpoint", "subscription"):
                foreign = await viewer.get(f"{path}?{name}={scene.ids[name]}")
                unknown = await viewer.get(f"{path}?{name}={ABSENT[name]}")
                assert foreign.json["items"] == []
                assert foreign.body == unknown.body
        by_event = await viewer.get(f"/v1/deliveries?event={scene.ids['event']}")
        assert by_event.json == {"items": [], "next_cursor": None}
        for name in ("endpoint", "subscription"):
            counted = {"filter": {name: scene.ids[name]}, "dry_run": True}
            assert (await manager.post("/v1/replays", counted)).json["count"] == 0

    scene(story)


def test_the_admin_key_of_the_settings_is_not_among_the_keys() -> None:
    async def story(scene: Scene) -> None:
        assert (await Client(scene.house.app, key=KEY).get("/metrics")).status == 200
        names = [one["name"] for one in (await scene.house.client.get("/v1/keys")).json["items"]]
        assert "the admin key" not in names

    scene(story)
