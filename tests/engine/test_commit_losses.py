"""A fleet meets a database that is older than what it has seen: a failover has lost commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog

from engine.fleet_world import URL, FleetWorld, at, fleet, two
from engine.world import SECOND
from homing.engine.options import EngineOptions
from homing.errors import CommitsLost, DatabaseBehind
from homing.model import Subscription, id_floor
from homing.policy.commit_loss import missing_text
from homing.sim.loop import run_virtual
from rollback import Standby

LOST = "the database has lost commits: a failover went to a standby that did not have them"


def holding(story: Callable[[FleetWorld], Awaitable[None]]) -> None:
    async def run() -> None:
        await story(await FleetWorld.begin(EngineOptions(hold_after_lost_commits=True)))

    run_virtual(run())


async def _lost(world: FleetWorld, story: Callable[[], Awaitable[object]]) -> list[dict[str, Any]]:
    """Lose what the story commits; returns the log lines about it."""
    standby = Standby(world.db)
    await story()
    with structlog.testing.capture_logs() as lines:
        standby.promote()
        await world.wait(4 * SECOND)
    return [dict(it) for it in lines if it["event"] == LOST]


def test_lost_publishes_are_noticed_without_a_further_one_and_said_with_their_time() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        await at(world)
        await world.publish()
        await world.wait(3 * SECOND)

        lines = await _lost(world, world.publish)

        assert [it["kind"] for it in lines][:1] == ["publish"]
        (loss,) = [it for it in world.engine.pulse().commit_losses if it.kind == "publish"]
        assert loss.process == "here:1"
        assert loss.from_at is not None
        assert loss.from_at < loss.upto_at <= loss.noticed_at
        assert "Publish them again with the same ids" in missing_text(loss)

    fleet(story)


def test_the_first_publish_after_the_loss_is_refused_and_the_next_one_is_accepted() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        await at(world)
        await world.publish()
        standby = Standby(world.db)
        await world.publish()
        standby.promote()

        with pytest.raises(DatabaseBehind):
            await world.publish(key="one")
        await world.publish(key="one")
        await world.wait(20 * SECOND)

        assert len(world.all_hits(URL)) == 2  # The lost one was not sent before it was lost.

    fleet(story)


def test_a_publish_without_a_loss_is_never_refused() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        await at(world)
        for _ in range(5):
            await world.publish()
            await world.wait(2 * SECOND)
            Standby(world.db).promote()  # Nothing is missing.
        assert world.engine.pulse().commit_losses == ()

    fleet(story)


def test_deliveries_whose_outcomes_are_lost_are_sent_again_and_settled() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, _, _ = await at(world)
        for _ in range(3):
            await world.publish()
        standby = Standby(world.db)
        await world.wait(3 * SECOND)
        assert len(owner.hits(URL)) == 3

        standby.promote()
        await world.wait(30 * SECOND)

        assert len(world.all_hits(URL)) == 6
        assert len(set(world.all_hits(URL))) == 3
        assert (await world.db.raw(lambda run: run("SELECT count(*) FROM pending"))) == [(0,)]

    fleet(story)


def test_a_second_loss_that_is_noticed_while_the_first_is_healed_leaves_no_bucket_behind() -> None:
    """The buckets were taken again meanwhile: in the store they are of this process."""

    async def story(world: FleetWorld) -> None:
        await two(world)
        owner, _, _ = await at(world)
        losses, honest = owner.engine.losses, owner.engine.losses.write

        async def slow() -> None:
            await world.wait(5 * SECOND)
            await honest()

        losses.write = slow  # type: ignore[method-assign]
        fleet_of_owner = owner.engine._fleet
        assert fleet_of_owner is not None
        for kind in ("publish", "settle"):
            fleet_of_owner.behind(
                DatabaseBehind(kind, seen=id_floor(world.clock.now()), found=None)
            )
            await world.wait(4 * SECOND)
        await world.wait(30 * SECOND)

        held = [bucket for it in world.machines for bucket in it.buckets]
        assert sorted(held) == list(range(256))
        assert {it.kind for it in await losses.confirm()} == {"publish", "settle"}
        assert losses.unconfirmed == ()
        await world.publish()
        await world.wait(3 * SECOND)
        assert len(world.all_hits(URL)) == 1

    fleet(story)


def test_a_lost_change_of_a_subscription_is_forgotten_and_changes_work_again() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        await at(world)
        standby = Standby(world.db)
        lost = await world.subscribe("https://b.example/")
        await world.wait(2 * SECOND)
        standby.promote()
        await world.wait(3 * SECOND)

        assert one.engine._core.catalog.get(lost.id) is None
        assert other.engine._core.catalog.get(lost.id) is None
        again = await world.subscribe("https://c.example/")
        await world.wait(2 * SECOND)
        assert other.engine._core.catalog.get(again.id) is not None
        await world.publish()
        await world.wait(20 * SECOND)
        assert len(world.all_hits("https://c.example/")) == 1
        assert len(world.all_hits("https://b.example/")) == 0
        assert "catalog" in {it.kind for it in one.engine.pulse().commit_losses}

    fleet(story)


@pytest.mark.parametrize("changes", [1, 2, 3])
def test_changes_right_after_a_failover_do_not_hide_that_others_are_lost(changes: int) -> None:
    """Without a step of the version they would get the numbers of those that are lost."""

    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        await at(world)
        await world.publish()
        await world.wait(3 * SECOND)
        standby = Standby(world.db)
        lost = [await world.subscribe(f"https://lost-{number}.example/") for number in range(2)]
        standby.promote()
        world.engine = other.engine
        new = [await world.subscribe(f"https://new-{it}.example/") for it in range(changes)]
        world.engine = one.engine
        await world.publish()
        await world.wait(60 * SECOND)

        assert await world.db.raw(lambda run: run("SELECT count(*) FROM pending")) == [(0,)]
        for machine in (one, other):
            catalog = machine.engine._core.catalog
            assert [it.id for it in lost if catalog.get(it.id)] == []
            assert [it.id for it in new if catalog.get(it.id) is None] == []
        assert [len(world.all_hits(it.url)) for it in new] == [1] * changes
        assert "catalog" in {it.kind for it in one.engine.pulse().commit_losses}

    fleet(story)


def test_two_failovers_in_a_row_do_not_give_the_same_version() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        await at(world)
        standby = Standby(world.db)
        standby.promote()
        lost = await world.subscribe("https://lost.example/")
        standby.promote()  # It has heard of neither.
        world.engine = other.engine
        new = await world.subscribe("https://new.example/")

        assert new.version != lost.version
        await world.wait(3 * SECOND)
        for machine in (one, other):
            assert machine.engine._core.catalog.get(lost.id) is None
            assert machine.engine._core.catalog.get(new.id) is not None

    fleet(story)


def test_a_failover_between_two_reads_of_the_catalog_leaves_nothing_of_the_lost_history() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        await at(world)
        standby = Standby(world.db)
        lost = await world.subscribe("https://lost.example/")
        await world.wait(SECOND)
        catalog = one.engine._core.catalog
        honest = catalog._admin.subscriptions_since

        async def late(version: int, **page: int) -> list[Subscription]:
            catalog._admin.subscriptions_since = honest  # type: ignore[method-assign]
            standby.promote()
            world.engine = other.engine
            await world.subscribe("https://new.example/")
            return await honest(version, **page)

        catalog._admin.subscriptions_since = late  # type: ignore[method-assign]
        await catalog.refresh()
        assert catalog.get(lost.id) is None

    fleet(story)


def test_a_change_after_a_failover_that_lost_nothing_is_no_loss() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        await at(world)
        for number in range(4):
            Standby(world.db).promote()
            new = await world.subscribe(f"https://{number}.example/")
            await world.wait(2 * SECOND)
            assert other.engine._core.catalog.get(new.id) is not None
        assert one.engine.pulse().commit_losses == ()

    fleet(story)


def test_buckets_whose_leases_are_lost_are_taken_again_with_epochs_that_were_never_given() -> None:
    async def story(world: FleetWorld) -> None:
        one = await world.join()
        await world.wait(5 * SECOND)
        standby = Standby(world.db)
        other = await world.join()
        await world.wait(15 * SECOND)
        epochs = dict(enumerate(other.engine._core.ownership.epochs))
        assert other.buckets
        standby.promote()  # It has never heard of the other process.
        await world.wait(30 * SECOND)

        assert other.buckets == set()
        assert len(one.buckets) == 256
        held = one.engine._core.ownership.epochs
        assert all(held[bucket] > epoch for bucket, epoch in epochs.items())

    fleet(story)


def test_all_processes_show_a_loss_until_it_is_confirmed() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        await at(world)
        await world.publish()
        await _lost(world, world.publish)
        shown = {it.kind for it in other.engine.pulse().commit_losses}
        assert "publish" in shown
        third = await world.join()
        assert {it.kind for it in third.engine.pulse().commit_losses} == shown

        confirmed = await one.engine.losses.confirm()
        await world.wait(2 * SECOND)

        assert {it.kind for it in confirmed} == shown
        assert other.engine.pulse().commit_losses == ()
        assert await other.engine.losses.confirm() == []

    fleet(story)


def test_with_hold_no_process_accepts_events_until_an_operator_confirms() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        await at(world)
        await world.publish()
        await _lost(world, world.publish)
        for machine in (one, other):
            world.engine = machine.engine
            with pytest.raises(CommitsLost, match="homing lost-commits confirm"):
                await world.publish()

        await other.engine.losses.confirm()
        await world.wait(2 * SECOND)

        for machine in (one, other):
            world.engine = machine.engine
            await world.publish()

    holding(story)


def test_the_operator_gets_one_notice_of_each_loss() -> None:
    async def story(world: FleetWorld) -> None:
        one, _ = await two(world)
        await at(world)
        told: list[tuple[str, str]] = []
        one.engine.losses.on_notice = lambda kind, facts: told.append((kind, facts["kind"]))
        await world.publish()
        await _lost(world, world.publish)
        assert told.count(("commits_lost", "publish")) == 1

    fleet(story)
