"""Two engines on one store: shares, hand-overs, take-overs, fencing, commands on any machine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.fleet_world import LEASE_MS, URL, FleetWorld, at, fleet, two
from engine.world import MINUTE, SECOND, always, balanced, changed
from homing.engine.options import EngineOptions
from homing.errors import StoreUnavailable
from homing.model import State, Status, bucket_of
from homing.ports import EndpointStart


def test_buckets_are_shared_evenly_and_again_when_one_joins_or_leaves() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        assert (len(one.buckets), len(other.buckets)) == (128, 128)
        assert not one.buckets & other.buckets
        third = await world.join()
        await world.wait(3 * SECOND)
        assert sorted(len(it.buckets) for it in world.machines) == [85, 85, 86]
        await other.engine.stop(grace_ms=1_000)
        await world.wait(3 * SECOND)
        assert (len(one.buckets), len(third.buckets)) == (128, 128)
        assert other.buckets == set()

    fleet(story)


def test_one_that_serves_the_api_only_takes_nothing() -> None:
    async def story(world: FleetWorld) -> None:
        api = await world.join(delivers=False)
        other = await world.join()
        await world.wait(SECOND)
        assert (len(api.buckets), len(other.buckets)) == (0, 256)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(50)
        assert (len(api.hits(URL)), len(other.hits(URL))) == (0, 1)
        await world.wait(SECOND)
        assert (await world.only_delivery()).status is Status.DELIVERED

    fleet(story)


@pytest.mark.parametrize("cut", [False, True])
def test_what_is_published_anywhere_goes_out_once_from_its_owner(cut: bool) -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, other, _ = await at(world)
        world.air.cut = cut
        for machine in world.machines:
            world.engine = machine.engine
            for _ in range(20):
                await world.publish()
        await world.wait(5 * SECOND if cut else 50)
        assert len(owner.hits(URL)) == 40
        assert len(set(owner.hits(URL))) == 40
        assert other.hits(URL) == []
        await world.wait(5 * SECOND)
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        await balanced(world)

    fleet(story)


def test_a_hand_over_waits_for_what_is_in_flight_and_doubles_nothing() -> None:
    async def story(world: FleetWorld) -> None:
        await world.join()
        urls = [f"https://{n}.example/" for n in range(40)]
        for url in urls:
            world.sender.scripts[url] = always(200, latency_ms=3_000)
            await world.subscribe(url)
        await world.publish()
        await world.wait(SECOND)
        await world.join()
        await world.wait(20 * SECOND)
        assert [len(world.all_hits(url)) for url in urls] == [1] * 40
        await world.publish()
        await world.wait(20 * SECOND)
        assert [len(world.all_hits(url)) for url in urls] == [2] * 40
        assert world.machines[1].sender.hits
        assert all(it.engine._settler.late == 0 for it in world.machines)
        await balanced(world)

    fleet(story)


def test_nothing_is_handed_to_one_that_has_fallen_silent() -> None:
    async def story(world: FleetWorld) -> None:
        one = await world.join()
        urls = [f"https://{n}.example/" for n in range(40)]
        for url in urls:
            world.sender.scripts[url] = always(200, latency_ms=4_000)
            await world.subscribe(url)
        await world.publish()
        await world.wait(SECOND)
        other = await world.join()
        other.beats.silent = True  # As if it had been killed, before anything was its own.
        joined_at = world.clock.now()
        await world.wait(500)
        assert len(one.buckets) < 256  # They are being handed over.
        while len(one.buckets) < 256:
            await world.wait(100)
        assert world.clock.now() < joined_at + LEASE_MS * 9 // 10  # Before its lease has ended.
        await world.publish()
        await world.wait(30 * SECOND)
        assert [len(one.hits(url)) for url in urls] == [2] * 40
        assert one.engine._settler.late == 0
        await balanced(world)

    fleet(story)


def test_nothing_starts_once_the_lease_is_over_even_in_the_middle_of_a_round() -> None:
    async def story(world: FleetWorld) -> None:
        one = await world.join()
        urls = [f"https://{n}.example/" for n in range(10)]
        held = one.engine._core.ownership

        def stopped_for_long(hit: object) -> object:
            held.extend(world.clock.now())  # Here it is stopped: the rest would be late.
            return always(200)(hit)  # type: ignore[arg-type]

        for url in urls:
            world.sender.scripts[url] = stopped_for_long  # type: ignore[assignment]
            await world.subscribe(url)
        await world.publish()
        await world.wait(10)
        assert len(one.sender.hits) < 10
        world.sender.scripts.clear()
        await world.wait(10 * SECOND)
        assert [len(one.hits(url)) for url in urls] == [1] * 10

    fleet(story)


def test_one_that_cannot_renew_stops_before_its_lease_ends_and_the_other_takes_over() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, other, _ = await at(world)
        owner.beats.silent = True
        world.engine = other.engine
        ends_at = world.clock.now() + LEASE_MS
        while world.clock.now() < ends_at + 20 * SECOND:
            await world.publish()
            await world.wait(500)
        last = max(hit.at for hit in owner.sender.hits)
        first = min(hit.at for hit in other.sender.hits)
        assert last < first
        assert last < ends_at
        assert len(other.buckets) == 256
        await world.wait(5 * SECOND)
        rows = await world.deliveries()
        assert {row.status for row in rows} == {Status.DELIVERED}
        assert len(set(world.all_hits(URL))) == len(rows)
        owner.beats.silent = False
        await world.wait(20 * SECOND)
        assert (len(owner.buckets), len(other.buckets)) == (128, 128)

    fleet(story)


@pytest.mark.parametrize("cut", [False, True])
def test_enable_freeze_and_cancel_act_within_a_second_from_any_machine(cut: bool) -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, other, endpoint = await at(world)
        world.air.cut = cut
        world.engine = owner.engine
        await other.engine.freeze(endpoint.id, by="someone")
        await world.wait(1_100)
        await world.publish()
        await world.wait(2 * MINUTE)
        assert owner.hits(URL) == []
        (row,) = [it for it in await world.deliveries() if it.event_type == "a.b"]
        assert row.status is Status.PENDING
        await other.engine.enable(endpoint.id, by="someone")
        await world.wait(1_100)
        assert len(owner.hits(URL)) >= 1
        assert owner.engine._dispatcher.queues[endpoint.id].enabled

        world.sender.scripts[URL] = always(500)
        await world.publish()
        await world.wait(5 * SECOND)
        tried = len(owner.hits(URL))
        pending = [it for it in await world.deliveries() if it.status is Status.PENDING]
        for it in pending:
            await other.engine.cancel(it.delivery.id)
        await world.wait(10 * MINUTE)
        assert len(owner.hits(URL)) == tried
        assert (await world.endpoint(URL)).health.state is State.ENABLED
        await balanced(world)

    fleet(story)


def test_an_owner_that_cannot_read_yet_starts_nothing_at_what_another_process_has_frozen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As while the store is busy: it only knows that something has changed."""

    async def refused(_: object) -> list[EndpointStart]:
        raise StoreUnavailable

    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, other, endpoint = await at(world)
        await world.publish()
        await world.wait(2 * SECOND)
        assert len(world.all_hits(URL)) == 1
        monkeypatch.setattr(owner.engine._dispatcher._loader._flow, "endpoints", refused)
        await other.engine.freeze(endpoint.id, by="ann")
        await world.wait(100)
        for machine in (owner, other):
            world.engine = machine.engine
            await world.publish()
        await world.wait(100)
        assert len(world.all_hits(URL)) == 1
        monkeypatch.undo()
        await world.wait(2 * SECOND)
        assert len(world.all_hits(URL)) == 1
        await other.engine.enable(endpoint.id, by="ann")
        await world.wait(2 * SECOND)
        assert len(world.all_hits(URL)) == 3

    fleet(story)


@pytest.mark.parametrize("cut", [False, True])
def test_subscriptions_change_everywhere_and_their_pending_follows(cut: bool) -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, other, _ = await at(world)
        world.sender.scripts[URL] = always(500)
        await world.publish()
        await world.wait(SECOND)
        assert len(owner.hits(URL)) == 1
        world.air.cut = cut
        sub = other.engine._core.catalog.get((await world.deliveries())[0].delivery.subscription_id)
        assert sub is not None
        number, elsewhere = 0, "https://b0.example/"
        while True:  # a URL of the other machine
            if bucket_of("default", elsewhere) in other.buckets:
                break
            number += 1
            elsewhere = f"https://b{number}.example/"

        await other.engine.change(sub.id, changed(url=elsewhere))
        await world.wait(10 * SECOND)
        assert owner.hits(elsewhere) == []
        await world.wait(2 * MINUTE)
        assert len(other.hits(elsewhere)) == 1
        assert len(owner.hits(URL)) == 1
        assert (await world.only_delivery()).status is Status.DELIVERED

        await owner.engine.unsubscribe(sub.id)
        assert (await world.publish()).deliveries == 0
        await balanced(world)

    fleet(story)


def test_a_subscription_that_the_owner_has_not_read_yet_is_not_taken_for_a_deleted_one() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, other, _ = await at(world)
        world.engine, world.air.cut = other.engine, True
        await world.subscribe(URL)
        await world.wait(10)  # Word of it is lost …
        world.air.cut = False
        assert (await world.publish()).deliveries == 2  # … and word of the work is not.
        await world.wait(5 * SECOND)
        assert [row.status for row in await world.deliveries()] == [Status.DELIVERED] * 2
        assert len(owner.hits(URL)) == 2
        await balanced(world)

    fleet(story)


def test_an_endpoint_is_not_forgotten_while_its_bucket_is_read_the_row_is_older() -> None:
    async def story(world: FleetWorld) -> None:
        world.options = EngineOptions(queues_max=0)
        owner = await world.join()
        await world.subscribe(URL)
        endpoint = await world.endpoint(URL)
        joined, flow = owner.engine._fleet, owner.engine._core.flow
        assert joined is not None
        read = flow.bucket_page

        async def slowly(after: dict[int, int], *, limit: int) -> Any:
            page = await read(after, limit=limit)
            await world.wait(SECOND)
            return page

        flow.bucket_page = slowly  # type: ignore[method-assign, assignment]
        page = asyncio.ensure_future(joined._read_page({endpoint.bucket: 0}))
        for _ in range(2):  # The first is settled while the page is on its way.
            await world.publish()
            await world.wait(2 * SECOND)
        assert page.done()
        assert (await world.endpoint(URL)).health.attempts == 2

    fleet(story)


def test_a_probe_is_made_once_in_the_whole_fleet_whoever_takes_over() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        world.sender.scripts[URL] = always(500)
        owner, _, _ = await at(world)
        world.engine = owner.engine
        for _ in range(110):
            await world.publish()
        await world.wait(30 * SECOND)
        assert (await world.endpoint(URL)).health.state is State.DISABLED
        tried = len(world.all_hits(URL))
        since = world.clock.now()
        await world.wait(9 * MINUTE)
        await owner.engine.stop(grace_ms=1_000)
        await world.wait(35 * MINUTE)
        probes = len(world.all_hits(URL)) - tried
        assert probes == (world.clock.now() - since) // (10 * MINUTE)

    fleet(story)


def test_replay_jobs_and_cleanup_jobs_are_done_by_one_process_and_survive_it() -> None:
    async def story(world: FleetWorld) -> None:
        from homing.ports import ReplayFilter

        await two(world)
        await at(world)
        for _ in range(30):
            await world.publish()
        await world.wait(10 * SECOND)
        keeper = world.owner_of(0)
        asked = world.other_than(keeper)
        job = await asked.engine.start_replay(ReplayFilter(status=Status.DELIVERED))
        await world.wait(30 * SECOND)
        done = await asked.engine.replay_job(job.id)
        assert (done.state, done.replayed) == ("done", 30)
        assert len(world.all_hits(URL)) == 60
        assert keeper.engine._replayer.accepted == 30
        await balanced(world)

    fleet(story)
