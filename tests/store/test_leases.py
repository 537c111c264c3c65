"""Leases: one owner per bucket by the store's own rules, and late writers are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from homing.errors import Fenced, LostLeases, Unavailable
from homing.model import NODES, id_floor
from homing.policy.receiver import set_gone
from homing.ports import Member, SettleBatch
from homing.store.admin import Admin
from homing.store.flow import LATEST_NODE, Flow
from homing.store.leases import NODE_REST_MS, Leases
from homing.store.postgres import PostgresDb
from homing.store.tx import Db
from homing.store.views import Views
from postgres import Server
from store.build import NOW, Maker, put
from store.scene import Scene, every

LEASE = 10_000


class Time:
    """The database's clock, which the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def leases(db: Db, time: Time) -> Leases:
    return Leases(db, time)


async def joined(leases: Leases, name: str = "a:1", *, delivers: bool = True) -> Member:
    return await leases.join(name=name, role="both", delivers=delivers, lease_ms=LEASE)


async def put_processes(db: Db, nodes: range, now: int) -> None:
    """Processes that have left a moment ago."""
    rows = [(10_000 + it, it, f"old:{it}", "both", -1, now, now) for it in nodes]
    await db.run(lambda tx: tx.insert("process", rows))


async def pending_ids(db: Db) -> list[int]:
    return [row[0] for row in await every(db, "pending")]


async def everything(leases: Leases, me: Member) -> dict[int, int]:
    standing = await leases.renew(me.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    return await leases.take(me.id, {it.bucket: it.epoch for it in standing.leases})


async def test_everyone_gets_a_node_of_its_own(leases: Leases) -> None:
    members = await asyncio.gather(*(joined(leases, f"a:{n}") for n in range(10)))
    assert {it.node for it in members} == set(range(10))
    assert len({it.id for it in members}) == 10


async def test_a_cell_takes_only_its_own_nodes(leases: Leases) -> None:
    nodes = range(32, 34)
    common = {"name": "one", "role": "both", "delivers": True, "lease_ms": LEASE, "nodes": nodes}
    assert [(await leases.join(**common)).node for _ in nodes] == [32, 33]  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="All 2 node numbers"):
        await leases.join(**common)  # type: ignore[arg-type]


async def test_the_lowest_node_that_has_rested_is_taken(leases: Leases, time: Time) -> None:
    first, second = await joined(leases), await joined(leases, "a:2")
    await leases.leave(first.id)
    assert (await joined(leases, "a:3")).node == 2, "the first rests for a minute"
    time.now += NODE_REST_MS
    again = await joined(leases, "a:4")
    assert again.node == first.node
    assert await leases.renew(first.id, delivers=True, lease_ms=LEASE) is None
    assert second.node == 1


async def test_a_thousand_processes_and_their_restarts_within_a_minute_get_nodes(
    db: Db, leases: Leases, time: Time
) -> None:
    await put_processes(db, range(1_000), time.now)
    first = await joined(leases)
    assert first.node == 1_000
    await put_processes(db, range(1_001, 2_000), time.now)
    assert (await joined(leases)).node == 2_000
    assert LATEST_NODE > NODES, "each of them has rows of its own in the ledger"


async def test_what_is_free_is_taken_once(leases: Leases) -> None:
    one, two = await joined(leases), await joined(leases, "b:1")
    standing = await leases.renew(one.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    assert [it.id for it in standing.members] == [one.id, two.id]
    assert [it.bucket for it in standing.leases] == list(range(256))
    seen = {it.bucket: it.epoch for it in standing.leases}
    replies = await asyncio.gather(leases.take(one.id, seen), leases.take(two.id, seen))
    taken = [bucket for reply in replies for bucket in reply]
    assert sorted(taken) == list(range(256))
    assert all(epoch > seen[it] for reply in replies for it, epoch in reply.items())


async def test_an_epoch_that_a_failover_has_lost_is_not_given_to_another_process(
    db: Any, leases: Leases, time: Time
) -> None:
    one, two = await joined(leases), await joined(leases, "b:1")
    lost = await leases.take(one.id, {7: 0})
    await db.raw(lambda run: run("UPDATE lease SET owner = NULL, epoch = 0 WHERE bucket = 7"))
    time.now += 1
    assert (await leases.take(two.id, {7: 0}))[7] > lost[7]


async def test_a_bucket_is_taken_over_when_its_owner_falls_silent_and_not_before(
    leases: Leases, time: Time
) -> None:
    one, two = await joined(leases), await joined(leases, "b:1")
    mine = await everything(leases, one)
    time.now += LEASE - 1
    assert await leases.take(two.id, mine) == {}
    time.now += 1
    await leases.renew(two.id, delivers=True, lease_ms=LEASE)
    theirs = await leases.take(two.id, mine)
    assert theirs.keys() == mine.keys()
    assert all(epoch > mine[bucket] for bucket, epoch in theirs.items())
    standing = await leases.renew(one.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    assert {it.owner for it in standing.leases} == {two.id}


async def test_a_heartbeat_in_time_keeps_everything(leases: Leases, time: Time) -> None:
    one, two = await joined(leases), await joined(leases, "b:1")
    mine = await everything(leases, one)
    time.now += LEASE + 1  # late, and nobody has taken anything: it may go on
    standing = await leases.renew(one.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    assert {it.owner for it in standing.leases} == {one.id}
    assert await leases.take(two.id, mine) == {}


async def test_what_was_seen_before_it_changed_hands_is_not_taken(leases: Leases) -> None:
    one, two = await joined(leases), await joined(leases, "b:1")
    mine = await everything(leases, one)
    await leases.give(one.id, [7])
    assert await leases.take(two.id, {7: mine[7]}) == {}
    assert await leases.take(two.id, {7: mine[7] + 1}) == {7: mine[7] + 2}
    await leases.give(one.id, [7])  # no longer its own to give
    standing = await leases.renew(two.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    assert standing.leases[7].owner == two.id


async def test_who_leaves_leaves_everything_free_at_once(leases: Leases) -> None:
    one, two = await joined(leases), await joined(leases, "b:1")
    await everything(leases, one)
    await leases.leave(one.id)
    assert len(await everything(leases, two)) == 256
    standing = await leases.renew(two.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    assert [it.id for it in standing.members] == [two.id]


# --- fencing --------------------------------------------------------------------------------


async def test_a_late_settle_is_refused_whole_and_names_the_buckets(db: Db, leases: Leases) -> None:
    scene = await Scene(db).begin()
    one, two = await joined(leases), await joined(leases, "b:1")
    scene.fence = await leases.act(one.id) or 0
    epochs = await everything(leases, one)
    bucket = scene.endpoint.bucket
    event = scene.make.event(scene.sub)
    await scene.publish([event])
    (delivery,) = event.deliveries
    batch = SettleBatch(
        number=scene.number(),
        fences=((bucket, epochs[bucket]), ((bucket + 1) % 256, epochs[(bucket + 1) % 256])),
        fence=scene.fence,
        finished=(scene.make.finished(delivery),),
        attempts=(scene.make.attempt(delivery),),
        endpoints=(scene.endpoint,),
    )
    await leases.give(one.id, [bucket])
    taken = await leases.take(two.id, {bucket: epochs[bucket] + 1})
    with pytest.raises(LostLeases) as lost:
        await Flow(db).settle(batch)
    assert lost.value.buckets == {bucket}
    assert await pending_ids(db) == [delivery.id]

    good = replace(batch, number=scene.number(), fences=((bucket, taken[bucket]),))
    assert (await Flow(db).settle(good)).gone == frozenset()
    assert await pending_ids(db) == []


async def test_a_late_probe_a_late_cleanup_job_and_late_retention_are_refused(
    db: Db, leases: Leases
) -> None:
    scene = await Scene(db).begin()
    event = scene.make.event(scene.sub)
    await scene.publish([event])
    admin, flow = Admin(db), Flow(db)
    with pytest.raises(LostLeases):
        await admin.subscription_gone(
            set_gone(scene.sub, now=NOW),
            cleanup_job_id=4,
            notices=(),
            for_people=(),
            bucket=scene.endpoint.bucket,
            epoch=9,
        )
    await admin.delete_subscription(scene.sub.id, now=NOW, cleanup_job_id=5)
    (cleanup_job,) = await admin.cleanup_jobs()
    with pytest.raises(LostLeases):
        await flow.take_probe(
            scene.endpoint, next_probe_at=NOW, now=NOW, skip_expired=False, epoch=9
        )
    with pytest.raises(LostLeases):
        await admin.run_cleanup_job(
            cleanup_job, target=None, except_ids=frozenset(), now=NOW, limit=9, epoch=9
        )
    with pytest.raises(LostLeases):
        await flow.remove_history(before=NOW, limit=9, epoch=9)
    assert await pending_ids(db) == [event.deliveries[0].id]
    assert await admin.cleanup_jobs() == [cleanup_job]


async def test_a_takeover_waits_for_no_settle_and_a_settle_for_no_takeover(
    db: Db, leases: Leases
) -> None:
    """Of a concurrent settle and takeover exactly one is first, whichever it is."""
    one, two = await joined(leases), await joined(leases, "b:1")
    epochs = await everything(leases, one)
    for round_ in range(20):
        await leases.leave(one.id)
        fences = tuple((bucket, epochs[bucket]) for bucket in range(256))
        settled, _ = await asyncio.gather(
            Flow(db, node=9).settle(SettleBatch(number=100 + round_, fences=fences)),
            everything(leases, two),
            return_exceptions=True,
        )
        assert isinstance(settled, LostLeases)


# --- looking --------------------------------------------------------------------------------


async def test_the_endpoints_of_a_bucket_come_page_by_page_with_what_they_have_to_do(
    db: Db,
) -> None:
    make = Maker()
    endpoints = [make.endpoint(f"https://{n}.example/") for n in range(40)]
    subs = [make.subscription(it) for it in endpoints]
    await put(db, endpoints=endpoints, subscriptions=subs)
    busy = subs[::2]
    await Flow(db).publish([[make.event(*busy)]], number=1)
    buckets = sorted({it.bucket for it in endpoints})
    after, found = dict.fromkeys(buckets, 0), []
    while after:
        page, after = await Flow(db).bucket_page(after, limit=2)
        found += page
    assert sorted(it.endpoint.id for it in found) == sorted(it.endpoint_id for it in busy)
    assert all(it.first for it in found)


async def test_what_was_published_a_moment_ago_is_found_by_bucket(db: Db, leases: Leases) -> None:
    scene = await Scene(db).begin()
    event = scene.make.event(scene.sub)
    await scene.publish([event])
    number, bucket = event.deliveries[0].id, scene.endpoint.bucket
    place = [(bucket, scene.endpoint.id, scene.position)]
    assert await leases.recent([bucket], from_id=number, upto_id=number + 1) == place
    assert await leases.recent([bucket], from_id=number + 1, upto_id=id_floor(NOW * 2)) == []
    assert await leases.recent([(bucket + 1) % 256], from_id=0, upto_id=number + 1) == []


async def test_every_change_that_people_make_raises_the_version_of_its_bucket(
    db: Db, leases: Leases
) -> None:
    scene = await Scene(db).begin()
    event = scene.make.event(scene.sub)
    await scene.publish([event])
    topic = f"bucket.{scene.endpoint.bucket}"
    await Admin(db).set_endpoint(scene.endpoint, seen=scene.endpoint, transition=None, notices=())
    assert (await leases.versions())[topic] == 1
    await Admin(db).cancel_delivery(event.deliveries[0].id, now=NOW)
    assert (await leases.versions())[topic] == 2
    await leases.raise_topic("keys")
    versions = await leases.versions()
    assert versions["keys"] == 1
    assert versions["catalog"] == await Admin(db).catalog_version()


async def test_people_see_who_is_there_and_who_holds_what(db: Db) -> None:
    leases = Leases(db)
    one = await joined(leases)
    two = await joined(leases, "b:1", delivers=False)
    await leases.take(one.id, {3: 0, 4: 0})
    view = await Views(db).fleet()
    assert [it.id for it in view.members] == [one.id, two.id]
    assert view.buckets_of(one.id) == [3, 4]
    await leases.leave(one.id)
    view = await Views(db).fleet()
    assert [it.id for it in view.members] == [two.id]
    assert view.buckets_of(one.id) == []


async def test_a_transaction_left_open_is_seen(store: str, server: Server | None) -> None:
    if server is None:
        return  # SQLite has no vacuum to hold back.
    dsn = await server.make()
    db = await PostgresDb.open(dsn)
    other = await asyncpg.connect(dsn, server_settings={"application_name": "a report"})
    try:
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await other.fetch("SELECT count(*) FROM pending")
        await other.fetch("SELECT pg_sleep(0.05)")
        open_ms, whose = await Leases(db).oldest_snapshot()
        assert open_ms >= 50
        assert whose == "a report"
    finally:
        await other.close()
        await db.close()


async def test_everything_works_without_a_session_of_ones_own(
    store: str, server: Server | None
) -> None:
    """Behind PgBouncer in transaction mode: no prepared statements, settings by transaction."""
    if server is None:
        return
    db = await PostgresDb.open(await server.make(), pooled=True)
    try:
        scene = await Scene(db).begin()
        leases = Leases(db)
        me = await joined(leases)
        scene.fence = await leases.act(me.id) or 0
        epochs = await everything(leases, me)
        event = scene.make.event(scene.sub)
        await scene.publish([event])
        assert len((await scene.due()).fresh) == 1
        bucket = scene.endpoint.bucket
        batch = SettleBatch(
            number=scene.number(),
            fences=((bucket, epochs[bucket]),),
            fence=scene.fence,
            finished=(scene.make.finished(event.deliveries[0]),),
            attempts=(scene.make.attempt(event.deliveries[0]),),
        )
        assert (await Flow(db).settle(batch)).gone == frozenset()
        assert await pending_ids(db) == []
    finally:
        await db.close()


async def test_a_change_waits_for_processes_that_act_until_they_are_fenced(
    db: Db, leases: Leases, time: Time
) -> None:
    one, two = await joined(leases, "a:1"), await joined(leases, "b:2")
    only_api = await joined(leases, "c:3", delivers=False)  # It takes events, too.

    async def versions() -> dict[str, int]:
        return {it.name: it.version for it in await leases.acting(but=one.id)}

    assert await versions() == {}, "none of them has begun to act"
    for it in (one, two, only_api):
        assert await leases.act(it.id)
    assert await versions() == {"b:2": 0, "c:3": 0}
    await leases.knows(two.id, 4)
    await leases.knows(two.id, 3)  # It comes late.
    assert await versions() == {"b:2": 4, "c:3": 0}
    assert await leases.fence_ended() == []
    time.now += LEASE
    assert all(it.is_over for it in await leases.acting(but=one.id)), "they are waited for"
    assert await leases.fence_ended() == [one.id, two.id, only_api.id]
    assert await versions() == {}
    await leases.knows(two.id, 5)
    assert await versions() == {}, "it reads before it acts again"
    assert await leases.act(two.id) is None, "it has no lease"


async def test_a_process_that_is_fenced_publishes_nothing_until_it_acts_again(
    db: Db, leases: Leases, time: Time
) -> None:
    scene = await Scene(db).begin()
    one = await joined(leases, "a:1")
    fence = await leases.act(one.id) or 0
    flow = Flow(db, node=one.node, shared=True)
    await flow.publish([[scene.make.event(scene.sub)]], number=1, fence=fence)

    time.now += LEASE
    await leases.fence_ended()
    with pytest.raises(Fenced):
        await flow.publish([[scene.make.event(scene.sub)]], number=2, fence=fence)

    standing = await leases.renew(one.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    assert not standing.acts, "its heartbeat says so"
    again = await leases.act(one.id) or 0
    assert again > fence
    with pytest.raises(Fenced):
        await flow.publish([[scene.make.event(scene.sub)]], number=3, fence=fence)
    await flow.publish([[scene.make.event(scene.sub)]], number=4, fence=again)
    assert len(await pending_ids(db)) == 2


async def test_a_process_that_joins_or_leaves_fences_what_its_node_still_writes(
    db: Db, leases: Leases, time: Time
) -> None:
    scene = await Scene(db).begin()
    one = await joined(leases, "a:1")
    fence = await leases.act(one.id) or 0
    flow = Flow(db, node=one.node, shared=True)
    await leases.leave(one.id)
    with pytest.raises(Fenced):
        await flow.publish([[scene.make.event(scene.sub)]], number=1, fence=fence)


async def test_a_lease_given_by_a_clock_that_ran_ahead_ends_like_any_other(
    leases: Leases, time: Time
) -> None:
    """After the database's clock is set back by a day, no process waits a day for ended ones."""
    time.now += 24 * 3_600_000
    dead, living = await joined(leases, "dead:1"), await joined(leases, "living:1")
    assert await everything(leases, dead)
    time.now = NOW
    standing = await leases.renew(living.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    assert dead.id in {it.id for it in standing.members}, "it may only be slow"
    time.now += LEASE + 1
    assert len(await everything(leases, living)) == 256


async def test_a_heartbeat_that_comes_after_the_leave_does_not_bring_a_process_back(
    leases: Leases,
) -> None:
    one, other = await joined(leases), await joined(leases, "b:2")
    await everything(leases, one)
    await leases.leave(one.id)
    assert await leases.renew(one.id, delivers=False, lease_ms=LEASE) is None
    standing = await leases.renew(other.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    assert [it.id for it in standing.members] == [other.id]


async def test_buckets_that_are_taken_after_the_leave_stay_free(leases: Leases) -> None:
    """A heartbeat had its reply before its process left, and takes buckets that it saw as free."""
    one, other = await joined(leases), await joined(leases, "b:2")
    standing = await leases.renew(one.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    await leases.leave(one.id)
    assert await leases.take(one.id, {it.bucket: it.epoch for it in standing.leases}) == {}
    standing = await leases.renew(other.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    assert {it.owner for it in standing.leases} == {None}


async def test_of_a_take_and_a_leave_at_once_nothing_stays_with_who_has_left(
    leases: Leases,
) -> None:
    for number in range(10):
        one = await joined(leases, f"a:{number}")
        standing = await leases.renew(one.id, delivers=True, lease_ms=LEASE)
        assert standing is not None
        seen = {it.bucket: it.epoch for it in standing.leases}
        await asyncio.gather(leases.take(one.id, seen), leases.leave(one.id))
        other = await joined(leases, f"b:{number}")
        standing = await leases.renew(other.id, delivers=True, lease_ms=LEASE)
        assert standing is not None
        assert {it.owner for it in standing.leases} == {None}
        await leases.leave(other.id)


async def test_the_databases_clock_is_told_by_the_quickest_of_a_few_statements(db: Db) -> None:
    """The first one on a connection is slow, and not by as much on its way back."""
    read_at = iter((0, 900, 1_000, 1_040, 1_100, 1_400))
    told = await Leases(db, monotonic_ns=lambda: next(read_at)).time()
    assert (told.at_ns, told.round_ns) == (1_020, 40)
    assert not told.apart, "the test and its database are on one machine"


async def test_a_heartbeat_tells_when_it_read_the_databases_clock(leases: Leases) -> None:
    one = await joined(leases)
    read_at = iter((300, 400))
    leases._monotonic_ns = lambda: next(read_at)
    leases._clock = None
    standing = await leases.renew(one.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    assert (standing.time.at_ns, standing.time.round_ns) == (350, 100)
