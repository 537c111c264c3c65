"""Streams of subscriptions without a URL: positions in the order of commits, readers, retention.

Promised: what-homing-promises.md#pull, what-homing-promises.md#order-of-acceptance.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from homing.errors import BehindRetention, Conflict, NotFound
from homing.model import id_floor
from homing.policy.erasure import ErasedIds
from homing.ports import NewEvent
from homing.ports.erasures import Erasure, ErasureKind
from homing.ports.pull import PAGE_BYTES_MAX, READERS_MAX, PullPage
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.postgres import PostgresDb
from homing.store.pull import Pulls
from homing.store.tx import Db, Tx
from homing.store.writes import append_events
from postgres import Server
from store.build import HOUR, NOW, Maker
from store.costs import measured
from store.scene import count


class Stream:
    """A subscription without a URL on a database."""

    def __init__(self, db: Db) -> None:
        self.db, self.flow, self.pulls, self.make = db, Flow(db), Pulls(db), Maker()
        self.number = 0

    async def begin(self) -> Stream:
        endpoint = self.make.endpoint()
        self.sub = replace(self.make.subscription(endpoint), url="", endpoint_id=0, workfront=None)
        self.sub = await Admin(self.db).create_subscription(self.sub, endpoint=None)
        return self

    async def another(self) -> int:
        """The id of a second subscription."""
        other = replace(self.sub, id=self.make.id())
        return (await Admin(self.db).create_subscription(other, endpoint=None)).id

    def event(self, key: str | None = None, *, data: bytes = b"{}") -> NewEvent:
        return replace(self.make.event(key=key, data=data), pulled=(self.sub.id,))

    async def publish(self, *events: NewEvent) -> None:
        self.number += 1
        await self.flow.publish([list(events)], number=self.number)

    async def page(
        self, after: int | None = None, *, reader: str = "r", limit: int = 100, bound_id: int = 0
    ) -> PullPage:
        return await self.pulls.page(
            self.sub.id,
            tenant="acme",
            reader=reader,
            after=after,
            bound_id=bound_id,
            limit=limit,
        )

    async def keys(self, after: int | None = None, *, reader: str = "r") -> list[str]:
        return [it.event.key for it in (await self.page(after, reader=reader)).entries]

    async def ack(self, position: int, reader: str = "r") -> int:
        acked = await self.pulls.ack(self.sub.id, reader, position=position, now=NOW)
        return acked.position


@pytest.fixture
async def stream(db: Db) -> Stream:
    return await Stream(db).begin()


async def test_a_page_has_the_events_in_the_order_of_their_commits(stream: Stream) -> None:
    later, sooner = stream.event("later"), stream.event("sooner")
    await stream.publish(sooner)
    await stream.publish(later)  # Its id is the lower one.
    await stream.publish(stream.event("b0"), stream.event("b1"))
    page = await stream.page()
    assert [it.event.key for it in page.entries] == ["sooner", "later", "b0", "b1"]
    assert [it.position for it in page.entries] == [1, 2, 3, 4]
    assert (page.after, page.upto, page.head) == (0, 4, 4)


async def test_a_repeated_event_has_one_entry(stream: Stream) -> None:
    await stream.publish(stream.event("same"))
    await stream.publish(stream.event("same"))
    assert await stream.keys() == ["same"]


async def test_a_page_is_bounded_by_number_and_by_bytes(stream: Stream) -> None:
    large = b'"' + b"x" * (PAGE_BYTES_MAX // 2) + b'"'
    await stream.publish(*(stream.event(f"k{n}", data=large) for n in range(3)))
    page = await stream.page()
    assert [it.event.key for it in page.entries] == ["k0"]
    assert (page.upto, page.head) == (1, 3)
    assert len((await stream.page(limit=1)).entries) == 1


async def test_a_reader_goes_on_after_what_it_has_acknowledged(stream: Stream) -> None:
    await stream.publish(*(stream.event(f"k{n}") for n in range(4)))
    assert await stream.ack(2) == 2
    assert await stream.keys() == ["k2", "k3"]
    assert await stream.keys(reader="other") == ["k0", "k1", "k2", "k3"]


async def test_a_reader_never_moves_backward_and_not_beyond_the_newest_entry(
    stream: Stream,
) -> None:
    await stream.publish(*(stream.event() for _ in range(4)))
    assert await stream.ack(3) == 3
    assert await stream.ack(1) == 3
    with pytest.raises(Conflict, match="ahead of the database"):
        await stream.ack(5)
    with pytest.raises(Conflict, match="ahead of the database"):
        await stream.page(5)


async def test_a_reader_that_begins_now_gets_only_later_events(stream: Stream) -> None:
    await stream.publish(stream.event("old"))
    begun = await stream.pulls.begin_reader(stream.sub.id, "r", now=NOW)
    assert (begun.position, begun.acked_at) == (1, None)
    await stream.publish(stream.event("new"))
    assert await stream.keys() == ["new"]
    assert (await stream.pulls.begin_reader(stream.sub.id, "r", now=NOW)).position == 1


async def test_a_subscription_has_a_limited_number_of_readers(stream: Stream) -> None:
    for n in range(READERS_MAX):
        await stream.ack(0, f"r{n}")
    with pytest.raises(Conflict, match="at most 16 readers"):
        await stream.ack(0, "one too many")
    await stream.pulls.remove_reader(stream.sub.id, "r3")
    with pytest.raises(NotFound):
        await stream.pulls.remove_reader(stream.sub.id, "r3")
    await stream.ack(0, "another")
    readers, head = await stream.pulls.readers(stream.sub.id)
    assert len(readers) == READERS_MAX
    assert head == 0


async def test_events_past_retention_are_refused_and_not_skipped(stream: Stream) -> None:
    await stream.publish(stream.event("old"), stream.event("older"))
    await stream.ack(1)
    stream.make.now += HOUR
    await stream.publish(stream.event("new"))
    bound_id = id_floor(NOW + 1)
    with pytest.raises(BehindRetention) as refused:
        await stream.page(bound_id=bound_id)
    assert refused.value.oldest == 2
    fresh = await stream.page(reader="new", bound_id=bound_id)
    assert [it.event.key for it in fresh.entries] == ["new"]
    assert (await stream.page(3, bound_id=bound_id)).entries == []


async def test_retention_removes_entries_in_order_and_remembers_it(stream: Stream) -> None:
    await stream.publish(*(stream.event() for _ in range(3)))
    stream.make.now += HOUR
    await stream.publish(stream.event("new"))
    for _ in range(4):
        await stream.flow.remove_history(before=NOW + 1, limit=2)
    assert await count(stream.db, "pull_entry") == 1
    assert await stream.keys() == ["new"]
    with pytest.raises(BehindRetention) as refused:
        await stream.page(0)
    assert refused.value.oldest == 3


async def test_the_stream_of_a_deleted_subscription_is_removed(stream: Stream) -> None:
    await stream.publish(*(stream.event() for _ in range(3)))
    await stream.ack(1)
    await Admin(stream.db).delete_subscription(
        stream.sub.id, now=NOW, cleanup_job_id=stream.make.id()
    )
    assert await count(stream.db, "cleanup_job") == 0
    for _ in range(6):
        await stream.flow.remove_history(before=NOW + HOUR, limit=2)
    for table in ("pull_entry", "pull_reader", "pull_stream", "subscription"):
        assert await count(stream.db, table) == 0, table


async def test_an_erased_event_is_left_out(stream: Stream) -> None:
    await stream.publish(*(stream.event(f"k{n}") for n in range(3)))
    admin, ids = Admin(stream.db), ErasedIds((b"k",))
    hashes = [it.hash for it in ids.of("acme", "k1")]
    erasure = _erasure(stream, ErasureKind.EVENT, subject=hashes[0])
    erasure = await admin.begin_erasure(erasure, key="k1", earlier=hashes)
    erasure = await admin.bound_erasure(erasure.id)
    events, _ = await admin.erasable(erasure, after_key="", limit=10)
    hashed = [(it, ids.of(it.tenant, it.key)[0]) for it in events]
    await admin.erase_events(erasure.id, hashed, limit=10)
    assert await stream.keys() == ["k0", "k2"]
    assert (await stream.page(limit=2)).upto == 2


async def test_erasing_a_tenant_removes_its_streams_and_no_others(stream: Stream) -> None:
    await stream.publish(*(stream.event() for _ in range(3)))
    await stream.ack(1)
    other = replace(stream.sub, id=stream.make.id(), tenant="bolt")
    admin = Admin(stream.db)
    await admin.create_subscription(other, endpoint=None)
    erasure = _erasure(stream, ErasureKind.TENANT)
    erasure = await admin.begin_erasure(erasure, key=None, earlier=())
    erasure = await admin.bound_erasure(erasure.id)
    assert await stream.keys() == []  # Hidden at once.
    for _ in range(20):
        done = (await admin.erase_rest_of_tenant(erasure, limit=2)).done
        if done:
            break
    assert done
    assert await count(stream.db, "pull_entry") == 0
    assert await count(stream.db, "pull_reader") == 0
    assert await count(stream.db, "pull_stream") == await count(stream.db, "subscription") == 1


def _erasure(stream: Stream, kind: ErasureKind, *, subject: bytes = b"") -> Erasure:
    return Erasure(stream.make.id(), "acme", kind, "", subject, created_at=NOW)


@asynccontextmanager
async def two_processes(postgres: Server) -> AsyncIterator[tuple[Db, Db]]:
    async with postgres.migrated() as url:
        one, two = await PostgresDb.open(url), await PostgresDb.open(url)
        try:
            yield one, two
        finally:
            await one.close()
            await two.close()


async def test_an_event_that_is_committed_late_is_never_skipped(postgres: Server) -> None:
    """A publisher is held between its id and its commit while others commit."""
    async with two_processes(postgres) as (one, two):
        stream = await Stream(one).begin()
        held, go_on = asyncio.Event(), asyncio.Event()
        slow = stream.event("slow")  # It has its id, lower than those of the others.

        async def publish_slowly(tx: Tx) -> None:
            held.set()
            await go_on.wait()
            await append_events(tx, [slow], node=0)

        publishing = asyncio.create_task(one.run(publish_slowly))
        await held.wait()
        others = Stream(two)
        others.sub, others.make = stream.sub, stream.make
        seen: list[str] = []
        for n in range(5):
            await others.publish(others.event(f"k{n}"))
            page = await stream.page(len(seen))
            seen += [it.event.key for it in page.entries]
        go_on.set()
        await publishing
        await others.publish(others.event("last"))
        page = await stream.page(len(seen))
        seen += [it.event.key for it in page.entries]
        assert seen == ["k0", "k1", "k2", "k3", "k4", "slow", "last"]


async def test_a_page_costs_the_same_however_many_entries_follow(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL must not choose a plan that reads all of them, whatever its statistics say."""
    async with two_processes(postgres) as (db, _):
        stream = await Stream(db).begin()

        async def one_page() -> None:
            assert len((await stream.page(0, limit=10)).entries) == 10

        await stream.publish(*[stream.event() for _ in range(20)])
        before = (await measured(db, one_page, monkeypatch))["pull_sizes"]
        await stream.publish(*[stream.event() for _ in range(2_000)])
        after = (await measured(db, one_page, monkeypatch))["pull_sizes"]
        assert after <= 2 * before


async def test_publishers_of_one_stream_wait_for_each_other_and_lose_nothing(
    postgres: Server,
) -> None:
    async with two_processes(postgres) as (one, two):
        stream = await Stream(one).begin()
        other_id = await stream.another()
        flows = (Flow(one, node=1), Flow(two, node=2))

        async def publish(flow: Flow, number: int) -> None:
            events = [
                replace(stream.event(), pulled=(stream.sub.id, other_id)[:: 1 if n % 2 else -1])
                for n in range(3)
            ]
            await flow.publish([events], number=number)

        async def many(flow: Flow) -> None:
            for number in range(1, 21):
                await publish(flow, number)

        await asyncio.gather(*(many(flow) for flow in flows))
        page = await stream.page(limit=1_000)
        assert [it.position for it in page.entries] == list(range(1, 121))
