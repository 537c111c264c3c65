"""Commands in a fleet: a change that one process confirmed holds in all processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from engine.fleet_world import LEASE_MS, URL, FleetWorld, Machine, at, fleet, two
from engine.world import MINUTE, SECOND, always, balanced, changed
from homing.errors import StoreUnavailable
from homing.model import Signature
from homing.policy.notices import TargetDraft, TargetKind
from referee import accepted_v1a

OTHER = "https://other.example/"


def test_a_new_subscription_can_be_changed_at_a_process_that_has_not_heard_of_it() -> None:
    async def story(world: FleetWorld) -> None:
        _, other = await two(world)
        world.air.cut = True
        made = await world.subscribe(URL)
        assert (await other.engine.change(made.id, changed(description="new"))).description == "new"
        rotated = await other.engine.rotate(made.id, None, overlap_ms=0)
        assert rotated.description == "new"
        assert (await other.engine.test_send(made.id)).code == 200

    fleet(story)


def test_a_change_elsewhere_does_not_bring_a_rotated_secret_back() -> None:
    async def story(world: FleetWorld) -> None:
        _, other = await two(world)
        made = await world.subscribe(URL)
        await world.wait(2 * SECOND)
        world.air.cut = True
        rotated = await world.engine.rotate(made.id, None, overlap_ms=0)
        after = await other.engine.change(made.id, changed(description="new"))
        assert [it.value for it in after.secrets] == [it.value for it in rotated.secrets]

    fleet(story)


def test_of_two_changes_at_once_both_hold() -> None:
    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        made = await world.subscribe(URL)
        await world.wait(2 * SECOND)
        async with other.engine._settler.lock:  # It has read, and does not write yet.
            late = [
                asyncio.ensure_future(other.engine.change(made.id, changed(types=("a.*",)))),
                asyncio.ensure_future(other.engine.rotate(made.id, None, overlap_ms=60_000)),
            ]
            await world.wait(1)
            await one.engine.change(made.id, changed(description="new"))
        await asyncio.gather(*late)
        stored = await world.views.subscription(made.id)
        assert stored is not None
        assert (stored.description, stored.types) == ("new", ("a.*",))
        assert len(stored.secrets) == 2

    fleet(story)


async def with_backlog(world: FleetWorld) -> tuple[Machine, Machine, int]:
    """An owner that is busy for ten seconds and gets no messages, another one, a subscription."""
    await two(world)
    owner, other, _ = await at(world)
    world.sender.scripts[URL] = always(200, latency_ms=1_000)
    for _ in range(100):
        await world.publish()
    await world.wait(SECOND)
    world.air.cut = True
    return owner, other, (await world.deliveries())[0].delivery.subscription_id


def test_no_attempt_starts_anywhere_after_a_delete_is_answered() -> None:
    async def story(world: FleetWorld) -> None:
        owner, other, subscription_id = await with_backlog(world)
        await other.engine.unsubscribe(subscription_id)
        seen = len(owner.hits(URL))
        await world.wait(MINUTE)
        assert 0 < len(owner.hits(URL)) == seen < 100
        await balanced(world)

    fleet(story)


def test_no_attempt_starts_at_the_old_url_after_its_change_is_answered() -> None:
    async def story(world: FleetWorld) -> None:
        owner, other, subscription_id = await with_backlog(world)
        await other.engine.change(subscription_id, changed(url=OTHER))
        seen = len(owner.hits(URL))
        await world.wait(MINUTE)
        assert 0 < len(owner.hits(URL)) == seen < 100
        assert len(world.all_hits(OTHER)) == 100 - seen
        await balanced(world)

    fleet(story)


def cut_off(machine: Machine) -> Callable[[], None]:
    """Cut the connection of a process to the database; returns a function that restores it."""
    machine.beats.silent = True
    core = machine.engine._core
    calls = {
        machine.beats: ("versions", "knows", "recent"),
        core.admin: ("catalog_version", "subscriptions_since", "cleanup_jobs"),
        core.flow: ("settle", "due", "endpoints", "bucket_page"),
    }
    for store, names in calls.items():
        for name in names:
            setattr(store, name, unanswered)

    def mend() -> None:
        machine.beats.silent = False
        for store, names in calls.items():
            for name in names:
                delattr(store, name)

    return mend


async def unanswered(*_args: Any, **_more: Any) -> None:
    raise StoreUnavailable


def test_a_response_does_not_wait_for_a_process_that_has_died() -> None:
    async def story(world: FleetWorld) -> None:
        owner, other, subscription_id = await with_backlog(world)
        cut_off(owner)
        asked_at = world.clock.now()
        await other.engine.unsubscribe(subscription_id)
        assert world.clock.now() <= asked_at + LEASE_MS
        seen = len(owner.hits(URL))
        await world.wait(MINUTE)
        assert len(owner.hits(URL)) == seen

    fleet(story)


def test_a_process_that_cannot_read_the_subscriptions_keeps_sending_and_nobody_waiting() -> None:
    async def story(world: FleetWorld) -> None:
        owner, other, _ = await with_backlog(world)
        owner.engine._core.catalog.refresh = unanswered  # type: ignore[method-assign]
        made, asked_at = await world.subscribe(OTHER), world.clock.now()
        await other.engine.change(made.id, changed(description="new"))
        assert world.clock.now() <= asked_at + LEASE_MS
        await world.wait(MINUTE)
        assert len(owner.hits(URL)) == 100

    fleet(story)


def test_a_process_that_comes_back_after_its_lease_knows_what_was_deleted_meanwhile() -> None:
    async def story(world: FleetWorld) -> None:
        owner, other = await world.join(), await world.join(delivers=False)
        await world.wait(5 * SECOND)
        made = await world.subscribe(URL)
        await world.wait(2 * SECOND)
        world.sender.scripts[URL] = always(500)
        for _ in range(10):
            await world.publish()
        await world.wait(80 * SECOND)  # Their retries are due in five seconds.
        world.air.cut = True
        mend = cut_off(owner)
        await world.wait(LEASE_MS + 2 * SECOND)
        await other.engine.unsubscribe(made.id)
        mend()  # Nobody has taken its buckets.
        await world.wait(MINUTE)
        assert len(owner.hits(URL)) == 10
        await balanced(world)

    fleet(story)


def test_the_first_signing_key_of_a_tenant_is_in_the_key_set_of_every_process() -> None:
    """A receiver that meets it in a request finds it, whichever process it asks."""

    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        world.air.cut = True
        await one.engine.subscribe(world.draft(URL, signature=Signature.ED25519))
        (key,) = one.engine.public_keys("default")
        assert other.engine.public_keys("default") == (key,)

    fleet(story)


def test_a_rotation_of_signing_keys_is_answered_when_every_process_signs_with_the_new_key() -> None:
    async def story(world: FleetWorld) -> None:
        await two(world)
        await world.subscribe(URL, signature=Signature.ED25519)
        await world.wait(2 * SECOND)
        owner = world.owner_of((await world.endpoint(URL)).bucket)
        world.engine = world.other_than(owner).engine
        world.air.cut = True
        await world.engine.rotate_signing_keys("default", overlap_ms=0)
        (key,) = world.engine.public_keys("default")
        assert owner.engine.public_keys("default") == (key,)
        await world.publish()
        await world.wait(5 * SECOND)
        hit = owner.sender.hits[-1]
        assert accepted_v1a(hit.headers, hit.body, key.value)

    fleet(story)


def test_one_process_of_a_fleet_sends_the_notices_of_all_and_another_takes_over() -> None:
    hook = "https://people.example/notices"

    async def story(world: FleetWorld) -> None:
        one, other = await two(world)
        endpoints = []
        for n in range(6):
            await world.subscribe(f"https://{n}.example/")
            endpoints.append(await world.endpoint(f"https://{n}.example/"))
        draft = TargetDraft(kind=TargetKind.WEBHOOK, address=hook, tenant="default")
        world.air.cut = True
        await other.engine.notice_targets.create(draft)  # Both know of it when this returns.
        for number, endpoint in enumerate(endpoints):
            machine = (one, other)[number % 2]
            await machine.engine.freeze(endpoint.id, by="ada")
        await world.wait(30 * SECOND)
        leader = world.owner_of(0)
        follower = world.other_than(leader)
        assert _told(follower, hook) == []
        assert sorted(_told(leader, hook)) == sorted(it.url for it in endpoints)
        await leader.engine.stop(grace_ms=0)
        await follower.engine.enable(endpoints[0].id, by="ada")
        await world.wait(30 * SECOND)
        assert _told(follower, hook) == [endpoints[0].url]

    fleet(story)


def _told(machine: Machine, hook: str) -> list[str]:
    """The URLs that a process has sent notices about."""
    bodies = [msgspec.json.decode(hit.body) for hit in machine.sender.hits if hit.url == hook]
    return [it["url"] for body in bodies for it in body["notices"]]
