"""An unproved URL gets nothing but the challenge."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from engine.world import HOUR, SECOND, Hit, Reply, World, always, changed, live
from homing.engine.options import EngineOptions
from homing.errors import Conflict, NotVerified, TooMany
from homing.model import Failure, Status, Subscription, Verification
from homing.policy.verification import (
    ALL_PER_MINUTE_MAX,
    ALL_RESERVE,
    HOST_PER_MINUTE_MAX,
    TENANT_PER_MINUTE_MAX,
)

MINUTE = 60 * SECOND
URL, OTHER = "https://receiver.example/hook", "https://other.example/hook"
CHALLENGE, HANDSHAKE = Verification.CHALLENGE, Verification.CLOUDEVENTS
OPTIONS = EngineOptions(origin="homing.example")
Script = Callable[[Hit], Reply]


def is_challenge(hit: Hit) -> bool:
    return hit.headers.get("homing-event-type") == "homing.challenge"


def echoing(hit: Hit) -> Reply:
    """A receiver that proves that it owns its URL."""
    if not is_challenge(hit):
        return Reply()
    return Reply(excerpt=json.loads(hit.body)["challenge"].encode() + b"\n")


def allowing(headers: bytes) -> Script:
    return lambda hit: Reply(headers=headers if hit.method == "OPTIONS" else b"")


def others(world: World, url: str = URL) -> list[Hit]:
    """Requests that are no challenges."""
    hits = [hit for hit in world.sender.hits if hit.url == url]
    return [hit for hit in hits if not is_challenge(hit) and hit.method == "POST"]


async def stored(world: World, subscription: Subscription) -> Subscription:
    found = await world.views.subscription(subscription.id)
    assert found is not None
    return found


def test_a_receiver_that_returns_the_challenge_gets_events() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = echoing
        made = await world.subscribe(URL, verification=CHALLENGE, token="secret-token")
        assert not made.is_unverified
        (hit,) = world.sender.hits
        assert hit.headers["webhook-signature"].startswith("v1,")
        assert "authorization" not in hit.headers
        assert (await world.publish()).deliveries == 1
        await world.settled()
        assert len(others(world)) == 1

    live(story)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(),
        Reply(excerpt=b"ok"),
        Reply(code=404),
        Reply(code=301),
        Reply(code=None, failure=Failure.REFUSED),
        Reply(code=None, failure=Failure.FORBIDDEN_ADDRESS),
    ],
)
def test_without_a_proof_nothing_else_is_ever_sent(reply: Reply) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = lambda _: reply
        made = await world.subscribe(URL, verification=CHALLENGE)
        assert made.is_unverified
        assert made.receiver is not None
        assert made.receiver.problem
        assert (await world.publish()).deliveries == 0
        with pytest.raises(Conflict):
            await world.engine.test_send(made.id)
        await world.wait(HOUR)
        assert others(world) == []
        assert len(world.sender.hits) == 1

    live(story)


def test_a_server_that_returns_every_body_proves_nothing() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = lambda hit: Reply(excerpt=hit.body)
        assert (await world.subscribe(URL, verification=CHALLENGE)).is_unverified

    live(story)


def test_an_object_with_the_challenge_is_a_proof() -> None:
    async def story(world: World) -> None:
        def script(hit: Hit) -> Reply:
            challenge = json.loads(hit.body)["challenge"]
            return Reply(code=202, excerpt=json.dumps({"challenge": challenge}).encode())

        world.sender.scripts[URL] = script
        assert not (await world.subscribe(URL, verification=CHALLENGE)).is_unverified

    live(story)


def test_a_later_proof_is_asked_for_by_a_person() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503)
        made = await world.subscribe(URL, verification=CHALLENGE)
        again = await world.engine.verify(made.id)
        assert again.is_unverified
        assert again.receiver is not None
        assert "503" in again.receiver.problem
        world.sender.scripts[URL] = echoing
        assert not (await world.engine.verify(made.id)).is_unverified
        assert (await world.publish()).deliveries == 1
        await world.engine.test_send(made.id)
        world.sender.scripts[URL] = always(500)
        with pytest.raises(NotVerified):
            await world.engine.verify(made.id)
        assert not (await stored(world, made)).is_unverified

    live(story)


def test_a_subscription_without_verification_has_nothing_to_verify() -> None:
    async def story(world: World) -> None:
        made = await world.subscribe(URL)
        assert world.sender.hits == []
        with pytest.raises(Conflict):
            await world.engine.verify(made.id)

    live(story)


def test_a_proof_survives_a_crash() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = echoing
        await world.subscribe(URL, verification=CHALLENGE)
        await world.subscribe(OTHER, verification=CHALLENGE)
        await world.crash()
        assert (await world.publish()).deliveries == 1

    live(story)


def test_a_new_url_must_prove_itself_before_anything_changes() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = echoing
        made = await world.subscribe(URL, verification=CHALLENGE)
        world.sender.scripts[URL] = always(500)
        await world.publish()
        await world.settled()
        with pytest.raises(NotVerified) as refused:
            await world.engine.change(made.id, changed(url=OTHER))
        assert refused.value.problems[0].field == "url"
        assert (await stored(world, made)).url == URL
        world.sender.scripts[OTHER] = echoing
        after = await world.engine.change(made.id, changed(url=OTHER))
        assert (after.url, after.is_unverified) == (OTHER, False)
        await world.wait(HOUR)
        assert len(others(world, OTHER)) == 1
        assert (await world.only_delivery()).status is Status.DELIVERED

    live(story)


def test_verification_of_a_url_in_use_must_succeed_at_once() -> None:
    async def story(world: World) -> None:
        made = await world.subscribe(URL)
        with pytest.raises(NotVerified):
            await world.engine.change(made.id, changed(verification=CHALLENGE))
        assert (await stored(world, made)).verification is Verification.NONE
        world.sender.scripts[URL] = echoing
        after = await world.engine.change(made.id, changed(verification=CHALLENGE))
        assert not after.is_unverified

    live(story)


def test_an_unproved_subscription_may_get_another_url_which_is_asked_at_once() -> None:
    async def story(world: World) -> None:
        made = await world.subscribe(URL, verification=CHALLENGE)
        world.sender.scripts[OTHER] = echoing
        after = await world.engine.change(made.id, changed(url=OTHER))
        assert not after.is_unverified
        again = await world.engine.change(made.id, changed(description="x"))
        assert not again.is_unverified
        assert sum(hit.url == OTHER for hit in world.sender.hits) == 1

    live(story)


def test_a_url_that_changes_during_the_challenge_is_not_proved_by_it() -> None:
    async def story(world: World) -> None:
        made = await world.subscribe(URL, verification=CHALLENGE)

        def slow(hit: Hit) -> Reply:
            reply = echoing(hit)
            reply.latency_ms = 2 * SECOND
            return reply

        world.sender.scripts[URL] = slow
        verifying = asyncio.ensure_future(world.engine.verify(made.id))
        await world.wait(SECOND)
        await world.engine.change(made.id, changed(url=OTHER))
        with pytest.raises(Conflict):
            await verifying
        assert (await stored(world, made)).is_unverified

    live(story)


def test_challenges_to_one_host_are_limited_over_all_tenants() -> None:
    async def story(world: World) -> None:
        for number in range(HOST_PER_MINUTE_MAX + 5):
            url = f"https://victim.example/{number}"
            made = await world.subscribe(url, tenant=f"t{number}", verification=CHALLENGE)
        assert len(world.sender.hits) == HOST_PER_MINUTE_MAX
        assert made.receiver is not None
        assert "Too many challenges" in made.receiver.problem
        with pytest.raises(TooMany) as refused:
            await world.engine.verify(made.id)
        await world.wait(refused.value.after_ms)
        await world.engine.verify(made.id)

    live(story)


def test_challenges_to_one_host_are_shared_out_by_tenant() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = echoing

        async def sent_by(tenant: str, most: int) -> int:
            made = await world.subscribe(URL, tenant=tenant, verification=CHALLENGE)
            for count in range(1, most):
                try:
                    await world.engine.verify(made.id)
                except TooMany:
                    return count
            return most

        greedy = [await sent_by(f"greedy{number}", 100) for number in range(5)]
        assert greedy == [10, 5, 3, 1, 1]
        for number in range(10):
            made = await world.subscribe(URL, tenant=f"calm{number}", verification=CHALLENGE)
            assert not made.is_unverified
        assert len(world.sender.hits) == HOST_PER_MINUTE_MAX
        await world.wait(MINUTE)
        assert await sent_by("greedy0", 100) == 10

    live(story)


def test_a_few_tenants_do_not_use_up_the_challenges_of_all() -> None:
    async def story(world: World) -> None:
        for tenant in range(ALL_PER_MINUTE_MAX // TENANT_PER_MINUTE_MAX):
            for number in range(TENANT_PER_MINUTE_MAX):
                url = f"https://h{tenant}-{number}.example/"
                await world.subscribe(url, tenant=f"greedy{tenant}", verification=CHALLENGE)
        world.sender.scripts[URL] = echoing
        made = await world.subscribe(URL, tenant="calm", verification=CHALLENGE)
        assert not made.is_unverified
        assert len(world.sender.hits) <= ALL_PER_MINUTE_MAX - ALL_RESERVE + 20

    live(story)


def test_the_handshake_of_cloudevents_allows_the_origin_and_sets_the_rate() -> None:
    async def story(world: World) -> None:
        headers = b"WebHook-Allowed-Origin: homing.example\r\nwebhook-allowed-rate: 120\r\n"
        world.sender.scripts[URL] = allowing(headers)
        made = await world.subscribe(URL, verification=HANDSHAKE, rate_per_second=10)
        (hit,) = world.sender.hits
        assert (hit.method, hit.body) == ("OPTIONS", b"")
        assert hit.headers["webhook-request-origin"] == "homing.example"
        assert hit.headers["webhook-request-rate"] == "600"
        assert not made.is_unverified
        assert made.rate_per_second == 2.0
        faster = await world.engine.change(made.id, changed(rate_per_second=50))
        assert faster.rate_per_second == 2.0
        slower = await world.engine.change(made.id, changed(rate_per_second=1))
        assert slower.rate_per_second == 1

    live(story, OPTIONS)


@pytest.mark.parametrize(
    ("headers", "rate"),
    [
        (b"webhook-allowed-origin: *\r\n", None),
        (b"webhook-allowed-origin: *\r\nwebhook-allowed-rate: *\r\n", None),
    ],
)
def test_a_handshake_without_a_rate_leaves_the_rate(headers: bytes, rate: float | None) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = allowing(headers)
        made = await world.subscribe(URL, verification=HANDSHAKE)
        assert (made.is_unverified, made.rate_per_second) == (False, rate)

    live(story, OPTIONS)


@pytest.mark.parametrize(
    "headers",
    [
        b"",
        b"webhook-allowed-origin: other.example\r\n",
        b"webhook-allowed-origin: homing.example\r\nwebhook-allowed-rate: 0\r\n",
        b"webhook-allowed-origin: homing.example\r\nwebhook-allowed-rate: many\r\n",
    ],
)
def test_a_handshake_that_does_not_allow_this_sender_is_no_proof(headers: bytes) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = allowing(headers)
        assert (await world.subscribe(URL, verification=HANDSHAKE)).is_unverified

    live(story, OPTIONS)
