"""Erasures in the store: nothing of an erased event is left, and the ledger balances.

Promised: what-homing-promises.md#erasure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from homing.errors import Conflict, NotFound, TooMany
from homing.model import Attempt, SigningKeys
from homing.policy.erasure import ErasedIds
from homing.policy.event_types import EventType
from homing.policy.keys import ApiKey, Role
from homing.policy.notices import NoticeTarget, TargetKind
from homing.policy.portal import PortalLink, PortalSettings
from homing.ports import Receipt, Refusal, ReplayFilter, SettleBatch
from homing.ports.erasures import Erasure, ErasureKind
from homing.ports.flow import ErasedPlace, Retention
from homing.store.admin import Admin
from homing.store.erasures import RUNNING_MAX
from homing.store.flow import Flow
from homing.store.keys import Keys
from homing.store.migrate import Execute
from homing.store.notices import Notices
from homing.store.portal import Portal
from homing.store.tx import Db
from homing.store.views import Views
from store.build import HOUR, NOW, Maker
from store.scene import Scene

CANARY = "canary-7f3a"
IDS = ErasedIds((b"k",))
LIMIT = 100


async def begin(admin: Admin, new: Erasure, **given: Any) -> Erasure:
    """Begin an erasure as the engine does: its bound is read when all processes act on it."""
    return await admin.bound_erasure((await admin.begin_erasure(new, **given)).id)


def erasure(make: Maker, kind: ErasureKind = ErasureKind.EVENT, **given: Any) -> Erasure:
    number = make.id()
    fields: dict[str, Any] = {"path": "", "subject": b"", "created_at": NOW}
    return Erasure(id=number, tenant="acme", kind=kind, **(fields | given))


async def erase(db: Db, make: Maker, key: str, *, limit: int = LIMIT) -> Erasure:
    """Erase an event as the engine does."""
    admin, hashes = Admin(db), [it.hash for it in IDS.of("acme", key)]
    new = erasure(make, subject=hashes[0])
    begun = await begin(admin, new, key=key, earlier=hashes)
    await erase_all(admin, begun, limit=limit)
    await admin.hide_erased(begun.id, more=False)
    found = await admin.erasure(begun.id)
    assert found is not None
    return found


async def erase_all(admin: Admin, begun: Erasure, *, limit: int = LIMIT) -> int:
    """Erase the events of an erasure; returns the number of transactions."""
    steps, after_key = 0, ""
    while True:
        events, on_after = await admin.erasable(begun, after_key=after_key, limit=limit)
        for one in events:
            done = False
            while not done:
                hashed = [(one, IDS.of(one.tenant, one.key)[0])]
                done = await admin.erase_events(begun.id, hashed, limit=limit)
                steps += 1
        if begun.kind is ErasureKind.TENANT and on_after is not None:
            after_key = on_after
        elif not events or begun.kind is ErasureKind.TENANT:
            return steps


async def everything(db: Any) -> str:
    """All rows of all tables, as text."""
    tables = {
        "sqlite": "SELECT name FROM sqlite_schema WHERE type = 'table'",
        "postgres": "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()",
    }[db.dialect]

    async def read(run: Execute) -> str:
        found = []
        for (table,) in await run(tables):
            found += [f"{table} {row!r}" for row in await run(f"SELECT * FROM {table}")]
        return "\n".join(found)

    return str(await db.raw(read))


async def counts(db: Db) -> tuple[int, int, int, int, int]:
    (it,) = await Views(db).ledger(tenant="acme")
    assert it.accepted == it.delivered + it.pending + it.dropped + it.cancelled
    return it.accepted, it.delivered, it.pending, it.dropped, it.cancelled


def failing(scene: Scene, attempt: Attempt) -> Attempt:
    return replace(
        attempt, excerpt=CANARY.encode(), detail=CANARY, response_headers=b"x: canary-7f3a"
    )


async def test_nothing_of_an_erased_event_is_left_in_any_table(db: Db) -> None:
    scene = await Scene(db).begin()
    make = scene.make
    event = make.event(scene.sub, scene.sub, key=CANARY, data=f'"{CANARY}"'.encode(), kind=CANARY)
    event = replace(event, fields=(b"h" * 16,))
    other = replace(make.event(scene.sub, key="other"), fields=(b"o" * 16,))
    await scene.publish([event, other])
    waiting, arrived = event.deliveries
    failed = failing(scene, make.attempt(waiting))
    await scene.flow.settle(
        SettleBatch(
            number=scene.number(),
            waiting=(replace(waiting, attempts=1),),
            finished=(make.finished(arrived),),
            attempts=(failed, replace(make.delivered(arrived), response_headers=CANARY.encode())),
        )
    )
    admin = Admin(db)
    again = make.delivery(event.event, scene.sub, replay_of=arrived)
    await admin.replay(arrived.id, new=again)
    filters = ReplayFilter(tenant="acme", event_id=event.event.id, event_key=CANARY)
    await admin.save_replay_job(make.job(filters))
    assert CANARY in await everything(db)
    before = await counts(db)

    done = await erase(db, make, CANARY)

    left = await everything(db)
    assert "canary" not in left
    assert CANARY.encode().hex() not in left
    assert (done.events, done.deliveries, done.cancelled) == (1, 3, 2)
    assert await counts(db) == (before[0], before[1], before[2] - 2, before[3], before[4] + 2)
    views = Views(db)
    assert await views.event(CANARY, tenant="acme") is None
    assert await views.event("other", tenant="acme") is not None
    assert await views.delivery(waiting.id) is None
    assert not await views.attempts(waiting.id)
    assert await views.events_by_field([b"h" * 16], tenant="acme", limit=5) == []


async def test_an_event_with_many_deliveries_is_erased_in_several_transactions(db: Db) -> None:
    scene = await Scene(db).begin()
    event = scene.make.event(*[scene.sub] * 7, key="big")
    await scene.publish([event])
    hashes = [it.hash for it in IDS.of("acme", "big")]
    admin = Admin(db)
    new = erasure(scene.make, subject=hashes[0])
    begun = await begin(admin, new, key="big", earlier=hashes)
    assert await erase_all(admin, begun, limit=3) == 3
    found = await admin.erasure(begun.id)
    assert found is not None
    assert (found.events, found.deliveries, found.cancelled) == (1, 7, 7)
    assert await counts(db) == (7, 0, 0, 0, 7)


async def test_an_erased_id_that_is_published_again_gets_its_receipt_or_a_conflict(db: Db) -> None:
    scene = await Scene(db).begin()
    first = scene.make.event(scene.sub, scene.sub, key="k1")
    await scene.publish([first])
    await erase(db, scene.make, "k1")

    async def publish(data: bytes, tenant: str = "acme", ids: ErasedIds = IDS) -> Any:
        again = scene.make.event(key="k1", data=data, tenant=tenant)
        again = replace(again, erased=ids.of(tenant, "k1"))
        number = scene.number()
        done = await Flow(db).publish([[again]], number=number)
        return done.results[0]

    assert await publish(first.event.data) == [Receipt("k1", 2, new=False)]
    assert await publish(b'{"other":1}') == Refusal((0,))
    rotated = ErasedIds((b"new", b"k"))
    assert await publish(first.event.data, ids=rotated) == [Receipt("k1", 2, new=False)]
    assert await publish(first.event.data, tenant="other") == [Receipt("k1", 0, new=True)]
    (row,) = await Views(db).ledger(tenant="acme")
    assert (row.accepted, row.pending) == (2, 0)


async def test_erasing_twice_returns_the_same_erasure_and_an_unknown_event_is_not_found(
    db: Db,
) -> None:
    scene = await Scene(db).begin()
    await scene.publish([scene.make.event(scene.sub, key="k1")])
    first = await erase(db, scene.make, "k1")
    admin = Admin(db)
    hashes = [it.hash for it in IDS.of("acme", "k1")]
    new = erasure(scene.make, subject=hashes[0])
    assert (await admin.begin_erasure(new, key="k1", earlier=hashes)).id == first.id
    await admin.finish_erasure(first, now=NOW)
    again = await admin.begin_erasure(new, key="k1", earlier=hashes)
    assert (again.id, again.finished_at, again.events) == (first.id, NOW, 1)
    with pytest.raises(NotFound):
        await admin.begin_erasure(erasure(scene.make), key="never", earlier=[b"x" * 24])
    assert await admin.running_erasures(limit=10) == []


async def test_events_with_a_value_are_erased_of_one_tenant_only(db: Db) -> None:
    scene = await Scene(db).begin()
    make = scene.make
    one, two = b"1" * 16, b"2" * 16
    events = [replace(make.event(scene.sub, key=f"k{n}"), fields=(one,)) for n in range(5)]
    other = replace(make.event(scene.sub, key="k9"), fields=(two,))
    neighbour = replace(make.event(tenant="neighbour", key="k1"), fields=(one,))
    await scene.publish([*events, other, neighbour])
    admin = Admin(db)
    new = erasure(make, ErasureKind.FIELD, path="data.n", subject=b"3" * 16 + one)
    begun = await begin(admin, new, key=None, earlier=[])
    late = make.event(scene.sub, key="late")
    late = replace(late, fields=(one,))
    await scene.flow.publish([[late]], number=scene.number())
    await erase_all(admin, begun, limit=2)
    views = Views(db)
    left, _ = await views.events(tenant=None, event_type=None, before_id=None, limit=10)
    assert {(it.event.tenant, it.event.key) for it in left} == {
        ("acme", "k9"),
        ("acme", "late"),
        ("neighbour", "k1"),
    }


async def test_of_an_attempt_in_flight_nothing_is_written_after_its_event_was_erased(
    db: Db,
) -> None:
    scene = await Scene(db).begin()
    make = scene.make
    event = make.event(scene.sub, scene.sub, key="k1")
    await scene.publish([event])
    await erase(db, make, "k1")
    one, two = event.deliveries
    result = await scene.flow.settle(
        SettleBatch(
            number=scene.number(),
            waiting=(replace(one, attempts=1),),
            finished=(make.finished(two),),
            attempts=(failing(scene, make.attempt(one)), make.delivered(two)),
        )
    )
    assert result.gone == {one.id, two.id}
    assert "canary" not in await everything(db)
    assert await Views(db).delivery(two.id) is None
    assert await counts(db) == (2, 0, 0, 0, 2)


async def test_a_replay_finds_no_erased_event(db: Db) -> None:
    scene = await Scene(db).begin()
    make = scene.make
    event = make.event(scene.sub, key="k1")
    await scene.publish([event])
    (delivery,) = event.deliveries
    await scene.flow.settle(SettleBatch(number=scene.number(), finished=(make.finished(delivery),)))
    admin = Admin(db)
    job = make.job(ReplayFilter(tenant="acme"))
    await admin.save_replay_job(job)
    found, upto, _ = await admin.candidates(job, now=NOW, limit=10)
    await erase(db, make, "k1")
    new = [make.delivery(event.event, scene.sub, replay_of=it.delivery) for it in found]
    after = replace(job, after_id=upto, scanned=1, replayed=1, state="done")
    assert await admin.replay_step(job, after=after, new=new, seen={})
    assert await counts(db) == (1, 1, 0, 0, 0)
    with pytest.raises(NotFound):
        await admin.replay(delivery.id, new=new[0])


async def test_a_tenant_is_hidden_at_once_and_then_erased_with_all_its_rows(db: Db) -> None:
    scene = await Scene(db).begin()
    make = scene.make
    url = f"https://{CANARY}.example/in"
    endpoint = make.endpoint(url)
    admin, views = Admin(db), Views(db)
    sub = await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    event = make.event(sub, key=CANARY, data=f'"{CANARY}"'.encode())
    unmatched = make.event(key="unmatched", data=f'"{CANARY}"'.encode())
    neighbour = make.event(tenant="neighbour", key=CANARY[:-1], data=b'"other"')
    flow = Flow(db)
    requests = [[event, unmatched, neighbour]]
    await flow.publish(requests, number=scene.number())
    (delivery,) = event.deliveries
    await flow.settle(
        SettleBatch(
            number=scene.number(),
            waiting=(replace(delivery, attempts=1),),
            attempts=(failing(scene, make.attempt(delivery)),),
            transitions=(make.transition(endpoint),),
        )
    )
    await admin.log_test(replace(make.attempt(make.delivery(event.event, sub)), detail=CANARY))
    new = erasure(make, ErasureKind.TENANT)
    begun = await begin(admin, new, key=None, earlier=[])
    assert begun.version == await admin.catalog_version()
    erased = await admin.tenant_changes(0)
    assert erased.everything == {"acme": begun.version}

    assert await views.event(CANARY, tenant="acme") is None
    assert await views.delivery(delivery.id) is None
    assert await views.endpoint(endpoint.id) is None
    assert await views.subscription(sub.id) is None
    found, _ = await views.events(tenant=None, event_type=None, before_id=None, limit=10)
    assert [it.event.tenant for it in found] == ["neighbour"]
    with pytest.raises(Conflict):
        await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    late = make.event(key="late")
    await flow.publish([[late]], number=scene.number())

    await erase_all(admin, begun)
    while not (await admin.erase_rest_of_tenant(begun, limit=2)).done:
        pass
    left = await everything(db)
    assert CANARY not in left
    assert CANARY.encode().hex() not in left
    await admin.finish_erasure(begun, now=NOW)
    assert await views.event("late", tenant="acme") is not None
    assert await views.event(CANARY[:-1], tenant="neighbour") is not None
    assert await counts(db) == (1, 0, 0, 0, 1)
    again = await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    assert again.tenant == "acme"


async def test_a_tenant_may_have_a_bounded_number_of_erasures_that_are_not_finished(
    db: Db,
) -> None:
    make, admin = Maker(), Admin(db)
    for n in range(RUNNING_MAX):
        new = erasure(make, ErasureKind.FIELD, subject=n.to_bytes(16, "big"))
        await admin.begin_erasure(new, key=None, earlier=[])
    with pytest.raises(TooMany):
        await admin.begin_erasure(
            erasure(make, ErasureKind.FIELD, subject=b"x" * 16), key=None, earlier=[]
        )
    other = replace(erasure(make, ErasureKind.FIELD), tenant="neighbour")
    assert (await admin.begin_erasure(other, key=None, earlier=[])).id == other.id


async def test_retention_removes_the_hashes_of_erased_ids_and_old_erasures(db: Db) -> None:
    scene = await Scene(db).begin()
    await scene.publish([scene.make.event(scene.sub, key="k1")])
    first = await erase(db, scene.make, "k1")
    admin = Admin(db)
    await admin.finish_erasure(first, now=NOW)
    assert (await admin.tenant_changes(0)).ids
    await scene.flow.remove_history(before=NOW, limit=LIMIT)
    assert (await admin.tenant_changes(0)).ids
    await scene.flow.remove_history(before=NOW + 1, limit=LIMIT)
    assert not (await admin.tenant_changes(0)).ids
    assert await admin.erasure(first.id) is None


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_what_is_known_of_erased_events_is_kept_as_long_as_their_tenants_events(
    db: Db, limit: int
) -> None:
    scene = await Scene(db).begin()
    admin, flow = Admin(db), Flow(db)
    keys = ("a", "b", "c")
    await scene.publish([scene.make.event(scene.sub, key=key) for key in keys])
    for key in keys:
        begun = await erase(db, scene.make, key)
        await admin.finish_erasure(begun, now=NOW + 1_000)

    async def forget(keep: Retention) -> int:
        removed, place = 0, ErasedPlace()
        while True:
            step, on_after = await flow.forget_erased(keep, after=place, limit=limit)
            removed += step
            if on_after is None:
                return removed
            place = on_after

    old, later = NOW - 1_000, NOW + 60_000
    assert await forget(Retention(old)) == 0
    assert await forget(Retention(old, {"neighbour": later})) == 0
    assert await forget(Retention(later, {"acme": old})) == 0
    assert await forget(Retention(old, {"acme": later})) == 6
    assert (await admin.erasures(tenant=None, before_id=None, limit=10))[0] == []
    assert not (await admin.tenant_changes(0)).ids


def test_a_hash_of_an_id_depends_on_the_key_the_tenant_and_the_id() -> None:
    hashes = {
        ErasedIds((key,)).of(tenant, name)[0].hash
        for key, tenant, name in (
            (b"a", "t", "k"),
            (b"b", "t", "k"),
            (b"a", "u", "k"),
            (b"a", "t", "l"),
            (b"a", "tk", ""),
        )
    }
    assert len(hashes) == 5


async def test_new_ids_begin_after_those_of_erasures(db: Db) -> None:
    scene = await Scene(db).begin()
    begun = await begin(Admin(db), erasure(scene.make, ErasureKind.TENANT), key=None, earlier=[])
    assert await Flow(db).last_id() == begun.id


async def test_a_tenant_that_is_erased_again_meanwhile_is_finished_only_with_all_of_it(
    db: Db,
) -> None:
    make, flow, admin, views = Maker(), Flow(db), Admin(db), Views(db)
    numbers = iter(range(1, 9))

    async def publish(key: str) -> None:
        number = next(numbers)
        await flow.publish([[make.event(key=key)]], number=number)

    await publish("before")
    first = await begin(admin, erasure(make, ErasureKind.TENANT), key=None, earlier=[])
    await erase_all(admin, first)
    await publish("between")
    again = await begin(admin, erasure(make, ErasureKind.TENANT), key=None, earlier=[])
    assert again.id == first.id
    assert again.version > first.version
    await publish("after")
    assert await views.event("between", tenant="acme") is None
    assert not await admin.finish_erasure(first, now=NOW)
    await erase_all(admin, again)
    assert await admin.finish_erasure(again, now=NOW)
    left, _ = await views.events(tenant="acme", event_type=None, before_id=None, limit=9)
    assert [it.event.key for it in left] == ["after"]


@pytest.mark.parametrize("ahead", [-HOUR, HOUR])
@pytest.mark.parametrize("kind", [ErasureKind.FIELD, ErasureKind.TENANT])
async def test_an_erasure_goes_by_the_order_of_acceptance_and_by_no_clock(
    db: Db, kind: ErasureKind, ahead: int
) -> None:
    """Two processes whose clocks differ by an hour: one publishes, and the other erases."""
    publisher, eraser = Maker(now=NOW + ahead), Maker()
    flow, admin, views = Flow(db), Admin(db), Views(db)
    numbers, value = iter(range(1, 9)), b"1" * 16

    async def publish(make: Maker, key: str) -> None:
        event = replace(make.event(key=key), fields=(value,))
        await flow.publish([[event]], number=next(numbers))

    async def keys() -> set[str]:
        found, _ = await views.events(tenant="acme", event_type=None, before_id=None, limit=9)
        searched = await views.events_by_field([value], tenant="acme", limit=9)
        assert {it.key for it in searched} == {it.event.key for it in found}
        return {it.event.key for it in found}

    await publish(publisher, "before, there")
    await publish(eraser, "before, here")
    new = replace(erasure(eraser, kind), subject=value)
    begun = await begin(admin, new, key=None, earlier=[])
    await publish(publisher, "after, there")
    await publish(eraser, "after, here")
    later = {"after, there", "after, here"}
    if kind is ErasureKind.TENANT:
        assert await keys() == later
    await erase_all(admin, begun, limit=1)
    assert await keys() == later


async def test_nothing_is_made_for_a_tenant_while_it_is_erased_and_everything_after_it(
    db: Db,
) -> None:
    make, admin, keys = Maker(), Admin(db), Keys(db)
    endpoint = make.endpoint()
    sub = await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    begun = await begin(admin, erasure(make, ErasureKind.TENANT), key=None, earlier=[])
    with pytest.raises(NotFound):  # by a process that has not read the new version
        await admin.change_subscription(sub, endpoint=endpoint, cleanup_job_id=make.id())
    key, link = _key(make), _link(make)
    target = NoticeTarget(
        id=make.id(),
        tenant="acme",
        kind=TargetKind.WEBHOOK,
        name="n",
        address="https://n.example",
        secret="",
        kinds=(),
        quiet_hours="",
        time_zone="UTC",
        created_at=NOW,
        confirmed_at=NOW,
    )
    again = make.endpoint()
    backfill = ReplayFilter(tenant="acme", subscription_id=sub.id, backfill=True)

    async def create_target() -> None:
        await Notices(db).create_target(target, address=b"a", secret=b"s", now=NOW)

    ways: list[Callable[[], Awaitable[object]]] = [
        lambda: admin.create_subscription(make.subscription(again), endpoint=again),
        lambda: admin.set_signing_keys(SigningKeys("acme", ())),
        lambda: admin.create_event_type(EventType(tenant="acme", name="a.b")),
        lambda: admin.save_replay_job(make.job(ReplayFilter(tenant="acme"))),
        lambda: admin.save_backfill(make.job(backfill)),
        lambda: keys.create_key(key, max_keys=9),
        lambda: Portal(db).create_link(link, max_live=9, now=NOW, forget_before=0),
        lambda: Portal(db).set_settings(
            PortalSettings(tenant="acme", updated_at=NOW), logo=None, keeps_logo=True
        ),
        create_target,
    ]
    for way in ways:
        with pytest.raises(Conflict):
            await way()
    while not (await admin.erase_rest_of_tenant(begun, limit=9)).done:
        pass
    assert await admin.finish_erasure(begun, now=NOW)
    for way in ways:
        await way()
    known = await admin.tenant_changes(0)
    made = await admin.subscriptions_since(0)
    assert [it.tenant for it in made] == ["acme"]
    assert made[0].version > known.everything["acme"]


async def test_keys_and_links_that_were_made_before_the_commit_of_an_erasure_do_not_work(
    db: Db,
) -> None:
    make, keys = Maker(), Keys(db)
    await keys.create_key(_key(make), max_keys=9)
    link = _link(make)
    await Portal(db).create_link(link, max_live=9, now=NOW, forget_before=0)
    version, live = await keys.live_keys()
    assert len(live) == 1
    await Admin(db).begin_erasure(erasure(make, ErasureKind.TENANT), key=None, earlier=[])
    later, live = await keys.live_keys()
    assert later > version
    assert live == []
    opened = await Portal(db).open_link(link.id, given_hash=b"h", session_hash=b"s", now=NOW)
    assert opened is None


def _key(make: Maker) -> ApiKey:
    return ApiKey(
        id=make.id(),
        prefix="aaaaaaaa",
        hash=b"h",
        name="a",
        role=Role.MANAGER,
        tenant="acme",
        created_at=NOW,
    )


def _link(make: Maker) -> PortalLink:
    return PortalLink(
        id=make.id(),
        tenant="acme",
        role=Role.VIEWER,
        subject="",
        hash=b"h",
        made_by="a",
        key_id=None,
        created_at=NOW,
        opens_until=NOW + 1,
        session_ms=1,
    )


async def test_an_event_of_a_tenant_that_was_erased_is_found_erased_and_changes_no_erasure(
    db: Db,
) -> None:
    make, admin, flow = Maker(), Admin(db), Flow(db)
    await flow.publish([[make.event(key="k1")]], number=1)
    begun = await begin(admin, erasure(make, ErasureKind.TENANT), key=None, earlier=[])
    await erase_all(admin, begun)
    await admin.finish_erasure(begun, now=NOW)
    ended = await admin.erasure(begun.id)
    hashes = [it.hash for it in IDS.of("acme", "k1")]
    new = erasure(make, subject=hashes[0])
    assert await admin.begin_erasure(new, key="k1", earlier=hashes) == ended
    assert await admin.erasure(begun.id) == ended
