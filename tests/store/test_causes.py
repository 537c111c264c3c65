"""Causes are written by settle in its commit; lists, retention and changes of URLs see them."""

from __future__ import annotations

from msgspec.structs import replace

from homing.model import Cause, CauseKey, Delivery, Endpoint, Status, Subscription
from homing.policy.causes import Failures
from homing.ports import DeliveryFilter, SettleBatch
from homing.store import rows
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.tx import Db
from homing.store.views import Views
from store.build import HOUR, NOW, put
from store.scene import Scene, count, every

UNAVAILABLE = CauseKey("http_status", "", 503)
REFUSED = CauseKey("refused")


async def settle(
    scene: Scene,
    *failed: Delivery,
    key: CauseKey = UNAVAILABLE,
    at: int = NOW,
    recovered: bool = False,
    endpoint: Endpoint | None = None,
    number: int | None = None,
) -> None:
    """Settle a failed attempt of each delivery, or a recovery of the endpoint."""
    to = endpoint or scene.endpoint
    failures = Failures(scene.make.id(), to.tenant, to.id, key, at)
    for it in failed:
        failures.add(at, it.id, it.attempts + 1, it.cause_id)
    await scene.flow.settle(
        SettleBatch(
            number=scene.number() if number is None else number,
            waiting=tuple(replace(it, attempts=it.attempts + 1) for it in failed),
            endpoints=(replace(to, failing=not recovered),),
            failures=(failures,) if failed else (),
            recovered=((to.id, at),) if recovered else (),
        )
    )


async def causes(db: Db) -> list[Cause]:
    return [rows.cause(row) for row in await every(db, "cause")]


async def pending(db: Db) -> list[Delivery]:
    return [rows.pending(row) for row in await every(db, "pending")]


async def test_a_failed_attempt_is_counted_in_its_cause(db: Db) -> None:
    scene = await Scene(db).begin()
    one, two = await scene.deliver(2)

    await settle(scene, one, two)
    await settle(scene, *await pending(db), at=NOW + 5)

    (cause,) = await causes(db)
    assert (cause.tenant, cause.endpoint_id, cause.key) == ("acme", scene.endpoint.id, UNAVAILABLE)
    assert (cause.first_seen, cause.last_seen, cause.closed_at) == (NOW, NOW + 5, None)
    assert (cause.attempts, cause.deliveries) == (4, 2)
    assert (cause.example_id, cause.example_number) == (two.id, 2)
    assert {it.cause_id for it in await pending(db)} == {cause.id}


async def test_a_success_closes_the_causes_and_a_return_within_an_hour_continues_one(
    db: Db,
) -> None:
    scene = await Scene(db).begin()
    one, two = await scene.deliver(2)
    await settle(scene, one)
    await settle(scene, two, key=REFUSED)

    await settle(scene, recovered=True, at=NOW + 10)
    assert [it.closed_at for it in await causes(db)] == [NOW + 10] * 2

    await settle(scene, two, at=NOW + 10 + HOUR)
    first, second = await causes(db)
    assert (first.closed_at, first.first_seen, first.deliveries) == (None, NOW, 2)
    assert second.closed_at == NOW + 10

    await settle(scene, one, key=REFUSED, at=NOW + 11 + HOUR)
    assert [it.attempts for it in await causes(db)] == [2, 1, 1]


async def test_a_batch_that_is_written_twice_is_counted_once(db: Db) -> None:
    scene = await Scene(db).begin()
    (one,) = await scene.deliver(1)

    await settle(scene, one, number=7)
    scene.flow = Flow(db)
    await settle(scene, one, number=7)

    assert [it.attempts for it in await causes(db)] == [1]


async def test_a_delivery_keeps_its_last_cause_in_history(db: Db) -> None:
    scene = await Scene(db).begin()
    (one,) = await scene.deliver(1)
    await settle(scene, one)
    (cause,) = await causes(db)
    (tried,) = await pending(db)

    finished = scene.make.finished(tried, Status.DELIVERED)
    await scene.flow.settle(SettleBatch(number=scene.number(), finished=(finished,)))

    views = Views(db)
    row = await views.delivery(one.id)
    assert row is not None
    assert row.delivery.cause_id == cause.id


async def test_deliveries_are_found_by_failure_class_and_status_code(db: Db) -> None:
    scene = await Scene(db).begin()
    one, two, three = await scene.deliver(3)
    await settle(scene, one)
    await settle(scene, two, key=REFUSED)

    async def found(**conditions: object) -> list[int]:
        asked = DeliveryFilter(**conditions)  # type: ignore[arg-type]
        page, _ = await Views(db).deliveries(asked, before_id=None, limit=10)
        return [it.delivery.id for it in page]

    assert await found(code=503) == [one.id]
    assert await found(failure="http_status") == [one.id]
    assert await found(failure="refused", tenant="acme") == [two.id]
    assert await found(code=500) == []
    assert await found() == [three.id, two.id, one.id]


async def test_causes_are_listed_by_tenant_endpoint_and_whether_they_are_open(db: Db) -> None:
    scene = await Scene(db).begin()
    other = scene.make.endpoint("https://other.example/", tenant="globex")
    sub = scene.make.subscription(other)
    await put(db, endpoints=[other], subscriptions=[sub])
    events = [scene.make.event(sub, tenant="globex")]
    await scene.publish(events)
    (theirs,) = events[0].deliveries
    (one,) = await scene.deliver(1)
    await settle(scene, one)
    await settle(scene, one, key=REFUSED)
    await settle(scene, recovered=True)
    await settle(scene, one, key=REFUSED, at=NOW + 1)
    await settle(scene, theirs, endpoint=other)

    async def found(
        tenant: str | None = None, endpoint_id: int | None = None, is_open: bool | None = None
    ) -> list[tuple[str, str]]:
        views, before, seen = Views(db), None, []
        for _ in range(20):
            page, before = await views.causes(
                tenant=tenant, endpoint_id=endpoint_id, is_open=is_open, before_id=before, limit=1
            )
            seen += [(it.url, it.cause.key.failure) for it in page]
            if before is None:
                return seen
        raise AssertionError("it never ends")

    mine = [("https://a.example/in", "refused"), ("https://a.example/in", "http_status")]
    its = [("https://other.example/", "http_status")]
    assert await found() == its + mine
    assert await found("acme") == mine
    assert await found(is_open=True) == its + mine[:1]
    assert await found("acme", is_open=True) == mine[:1]
    assert await found("acme", is_open=False) == mine[1:]
    assert await found(endpoint_id=other.id) == its
    assert await found("acme", endpoint_id=other.id) == []
    assert await found(endpoint_id=scene.endpoint.id, is_open=True) == mine[:1]
    open_ones = await Views(db).open_causes([scene.endpoint.id, other.id, 5])
    assert {number: len(it) for number, it in open_ones.items()} == {
        scene.endpoint.id: 1,
        other.id: 1,
    }


async def test_the_causes_of_an_endpoint_that_no_subscription_uses_are_closed(db: Db) -> None:
    scene = await Scene(db).begin()
    second = scene.make.subscription(scene.endpoint)
    await put(db, subscriptions=[second])
    (one,) = await scene.deliver(1)
    await settle(scene, one)
    admin = Admin(db)

    await admin.delete_subscription(second.id, now=NOW + 1, cleanup_job_id=scene.make.id())
    assert [it.closed_at for it in await causes(db)] == [None]

    await _move(admin, scene)
    assert [it.closed_at for it in await causes(db)] == [NOW + 2]

    await settle(scene, one, at=NOW + 3)  # It was in flight when the URL changed.
    (cause,) = await causes(db)
    assert (cause.attempts, cause.closed_at) == (2, NOW + 3)


async def _move(admin: Admin, scene: Scene) -> Subscription:
    """Give the subscription another URL."""
    url = "https://b.example/"
    version = (await admin.subscriptions_since(-1))[0].version
    return await admin.change_subscription(
        replace(scene.sub, url=url, updated_at=NOW + 2, version=version),
        endpoint=scene.make.endpoint(url),
        cleanup_job_id=scene.make.id(),
    )


async def test_retention_removes_closed_causes_in_bounded_steps(db: Db) -> None:
    scene = await Scene(db).begin()
    (one,) = await scene.deliver(1)
    for code in range(500, 510):
        await settle(scene, one, key=CauseKey("http_status", "", code))
    await settle(scene, recovered=True, at=NOW + 1)
    await settle(scene, one, at=NOW + 2, key=CauseKey("http_status", "", 500))

    await scene.flow.remove_history(before=NOW, limit=4)
    assert await count(db, "cause") == 10
    await scene.flow.remove_history(before=NOW + 2, limit=4)
    assert await count(db, "cause") == 6
    for _ in range(5):
        await scene.flow.remove_history(before=NOW + 2, limit=4)

    assert [it.key.code for it in await causes(db)] == [500]


async def test_the_causes_of_a_removed_endpoint_are_removed(db: Db) -> None:
    scene = await Scene(db).begin()
    old = scene.make.endpoint("https://old.example/")
    await put(db, endpoints=[old])
    (one,) = await scene.deliver(1)
    await settle(scene, replace(one, endpoint_id=old.id, bucket=old.bucket), endpoint=old)
    assert await count(db, "cause") == 1
    await Admin(db).cancel_delivery(one.id, now=NOW)

    for _ in range(5):
        await scene.flow.remove_history(before=NOW + 10 * HOUR, limit=10)

    assert await count(db, "cause") == 0
