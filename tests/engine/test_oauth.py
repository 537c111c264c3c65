"""OAuth 2.0 through the engine: a 401 spends no retry, and failures are told apart."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine.world import DAY, MINUTE, SECOND, Hit, Reply, World, balanced, changed, live
from homing.engine.options import EngineOptions
from homing.model import Attempt, Decided, Failure, Outcome, State, Status, Subscription
from homing.policy.health import HealthRules
from homing.policy.outage import OutageRules, OutageState
from homing.policy.presets import PRESETS

URL = "https://a.example/hook"
TOKEN_URL = "https://auth.example/token"
OAUTH = {"oauth_token_url": TOKEN_URL, "oauth_client_id": "me", "oauth_client_secret": "s3cret"}


class Issuer:
    """A token endpoint and the receivers that check its tokens."""

    def __init__(self, world: World, *, life_s: int = 3600) -> None:
        self._world, self._life_s = world, life_s
        self.issued = 0
        self.valid: set[str] = set()
        self.asked: list[int] = []
        self.fails: Reply | None = None
        world.sender.scripts[TOKEN_URL] = self.issue

    def issue(self, hit: Hit) -> Reply:
        self.asked.append(hit.at - self._world.start_ms)
        if self.fails is not None:
            return self.fails
        self.issued += 1
        self.valid.add(f"t{self.issued}")
        body = f'{{"access_token": "t{self.issued}", "expires_in": {self._life_s}}}'
        return Reply(excerpt=body.encode())

    def receive(self, hit: Hit) -> Reply:
        token = hit.headers["authorization"].removeprefix("Bearer ")
        return Reply(code=200 if token in self.valid else 401)


async def attempts_of(world: World, delivery_id: int) -> list[Attempt]:
    return sorted(await world.views.attempts(delivery_id), key=lambda it: it.number)


def with_issuer(world: World, **more: Any) -> Issuer:
    issuer = Issuer(world, **more)
    world.sender.scripts[URL] = issuer.receive
    return issuer


def test_a_token_is_fetched_and_used_until_it_ends() -> None:
    async def story(world: World) -> None:
        issuer = with_issuer(world, life_s=600)
        await world.subscribe(URL, **OAUTH)
        for _ in range(10):
            await world.publish()
            await world.wait(2 * MINUTE)

        assert len(issuer.asked) == 2  # The second one ahead of the end of the first.
        assert {row.status for row in await world.deliveries()} == {Status.DELIVERED}
        first = (await world.deliveries())[0].delivery.id
        (attempt,) = await attempts_of(world, first)
        assert b"authorization: Bearer ****\r\n" in attempt.request_headers
        assert b"t1" not in attempt.request_headers
        assert attempt.detail.startswith("a new access token was fetched")

    live(story)


def test_a_refused_token_on_the_last_attempt_spends_no_retry() -> None:
    schedule = PRESETS["workfront"]

    async def story(world: World) -> None:
        with_issuer(world)
        codes = iter((401, 200))
        world.sender.scripts[URL] = lambda _: Reply(code=500)
        await world.subscribe(URL, **OAUTH)
        await world.publish()
        await world.wait(schedule.delays_ms[-1] - MINUTE)
        assert (await world.only_delivery()).delivery.retry == len(schedule.delays_ms)
        world.sender.scripts[URL] = lambda _: Reply(code=next(codes))
        await world.wait(2 * MINUTE)

        row = await world.only_delivery()
        assert row.status is Status.DELIVERED
        *_, last = await attempts_of(world, row.delivery.id)
        assert last.number == 1 + len(schedule.delays_ms)
        assert "fetched after a 401" in last.detail

    live(story)


def test_a_receiver_that_refuses_new_tokens_as_well_has_failed() -> None:
    async def story(world: World) -> None:
        issuer = with_issuer(world)
        world.sender.scripts[URL] = lambda _: Reply(code=401)
        await world.subscribe(URL, **OAUTH)
        await world.publish()
        await world.wait(SECOND)

        row = await world.only_delivery()
        (attempt,) = await attempts_of(world, row.delivery.id)
        assert (attempt.outcome, attempt.code) == (Outcome.FAILED, 401)
        assert attempt.decided is Decided.RETRY
        assert (len(issuer.asked), len(world.hits(URL))) == (2, 2)
        assert (await world.endpoint(URL)).health.failures == 1

    live(story)


def test_a_failure_of_the_token_endpoint_is_a_failed_attempt_with_its_cause() -> None:
    async def story(world: World) -> None:
        issuer = with_issuer(world)
        issuer.fails = Reply(code=401, excerpt=b'{"error": "invalid_client"}')
        await world.subscribe(URL, **OAUTH)
        await world.publish()
        await world.wait(SECOND)

        row = await world.only_delivery()
        (attempt,) = await attempts_of(world, row.delivery.id)
        assert (attempt.outcome, attempt.failure) == (Outcome.FAILED, Failure.TOKEN)
        assert attempt.detail == "the token endpoint auth.example responded 401 invalid_client"
        assert (row.delivery.retry, world.hits(URL)) == (1, [])
        issuer.fails = None
        await world.wait(2 * MINUTE)
        assert (await world.only_delivery()).status is Status.DELIVERED

    live(story)


@pytest.mark.parametrize(
    "failure", [Failure.SENDER_DNS, Failure.SENDER_NETWORK, Failure.SENDER_TLS]
)
def test_a_fetch_that_fails_on_our_side_spends_no_retry(failure: Failure) -> None:
    async def story(world: World) -> None:
        issuer = with_issuer(world)
        issuer.fails = Reply(code=None, failure=failure)
        await world.subscribe(URL, **OAUTH)
        await world.publish()
        await world.wait(5 * MINUTE)

        row = await world.only_delivery()
        found = await attempts_of(world, row.delivery.id)
        assert {it.outcome for it in found} == {Outcome.SENDER_ERROR}
        assert (row.delivery.retry, row.delivery.t0) == (0, None)
        assert (await world.endpoint(URL)).health.attempts == 0
        issuer.fails = None
        await world.wait(2 * MINUTE)
        assert (await world.only_delivery()).status is Status.DELIVERED

    live(story)


def test_a_token_endpoint_that_cannot_be_asked_for_ten_minutes_has_failed_after_all() -> None:
    async def story(world: World) -> None:
        issuer = with_issuer(world)
        issuer.fails = Reply(code=None, failure=Failure.SENDER_DNS)
        await world.subscribe(URL, **OAUTH)
        await world.subscribe("https://b.example/", "b")
        await world.publish()
        for _ in range(30):
            await world.publish("b")  # Others get through.
            await world.wait(30 * SECOND)

        row = next(it for it in await world.deliveries() if it.url == URL)
        outcomes = Counter(it.outcome for it in await attempts_of(world, row.delivery.id))
        assert outcomes[Outcome.FAILED] >= 1

    live(story)


def test_a_dead_token_endpoint_of_many_hosts_is_no_outage_of_the_sender() -> None:
    """Every endpoint fails at once, because one token endpoint refuses connections."""
    urls = [f"https://h{number}.example/" for number in range(20)]

    async def story(world: World) -> None:
        issuer = Issuer(world, life_s=60)
        for url in urls:
            world.sender.scripts[url] = issuer.receive
            await world.subscribe(url, **OAUTH)
        await world.publish()
        await world.settled()
        issuer.fails = Reply(code=None, failure=Failure.REFUSED)
        await world.wait(2 * MINUTE)
        await world.publish()
        await world.wait(30 * SECOND)

        assert world.engine.pulse().outage.state is OutageState.NONE
        health = [(await world.endpoint(url)).health for url in urls]
        assert {it.consecutive_failures for it in health} == {1}

    live(story)


def test_in_an_outage_a_failed_fetch_waits_for_the_verdict_and_counts_for_nobody() -> None:
    """Half of the endpoints need a token; the other half are the evidence."""
    urls = [f"https://h{number}.example/" for number in range(20)]
    rules = OutageRules(endpoints_min=4, hosts_min=2)

    async def story(world: World) -> None:
        issuer = Issuer(world, life_s=60)
        for number, url in enumerate(urls):
            if number < 5:
                world.sender.scripts[url] = issuer.receive
            await world.subscribe(url, **(OAUTH if number < 5 else {}))
        await world.publish()
        await world.wait(2 * MINUTE)
        issuer.fails = Reply(code=None, failure=Failure.UNREACHABLE)
        for url in urls:
            world.sender.scripts[url] = lambda _: Reply(code=None, failure=Failure.UNREACHABLE)
        await world.publish()
        await world.wait(30 * SECOND)

        assert world.engine.pulse().outage.state is OutageState.CONFIRMED
        health = [(await world.endpoint(url)).health for url in urls]
        assert {it.consecutive_failures for it in health} == {0}

    live(story, EngineOptions(outage=rules))


def test_a_dead_token_endpoint_disables_the_url_and_a_probe_with_a_token_enables_it() -> None:
    rules = HealthRules(rate_after_attempts=5)

    async def story(world: World) -> None:
        issuer = with_issuer(world)
        issuer.fails = Reply(code=503)
        await world.subscribe(URL, **OAUTH)
        for _ in range(8):
            await world.publish()
            await world.wait(SECOND)
        assert (await world.endpoint(URL)).health.state is State.DISABLED
        assert len(issuer.asked) < 5  # It is not asked for every attempt.
        issuer.fails = None
        await world.wait(DAY)
        assert (await world.endpoint(URL)).health.state is State.ENABLED
        rows = [it for it in await world.deliveries() if it.url == URL]
        assert {it.status for it in rows} == {Status.DELIVERED}

    live(story, EngineOptions(health=rules))


def test_many_hanging_token_endpoints_of_one_tenant_take_no_slot_of_another() -> None:
    """More URLs than there are slots, each with a token endpoint of its own that never responds."""

    async def story(world: World) -> None:
        for number in range(60):
            token_url = f"https://auth{number}.example/"
            world.sender.scripts[token_url] = lambda _: Reply(latency_ms=DAY)
            url = f"https://noisy{number}.example/"
            more = OAUTH | {"oauth_token_url": token_url, "tenant": "noisy"}
            await world.subscribe(url, **more)
        await world.subscribe("https://quiet.example/", tenant="quiet")
        for _ in range(20):
            await world.publish(tenant="noisy")
            await world.wait(SECOND)
            await world.publish(tenant="quiet")
            await world.settled()

        seen = [round(at / 1000) for at in world.hits("https://quiet.example/")]
        assert seen == list(range(1, 21))
        health = [(await world.endpoint(f"https://noisy{it}.example/")).health for it in range(60)]
        assert sum(it.failures for it in health) > 0

    live(story, EngineOptions(fresh_slots=16, retry_slots=8))


def test_a_test_send_fetches_a_token_and_says_so() -> None:
    async def story(world: World) -> None:
        issuer = with_issuer(world)
        made = await world.subscribe(URL, **OAUTH)
        attempt = await world.engine.test_send(made.id)
        assert (attempt.outcome, attempt.code) == (Outcome.DELIVERED, 200)
        assert "a new access token was fetched" in attempt.detail
        issuer.fails, issuer.valid = Reply(code=400, excerpt=b'{"error": "invalid_scope"}'), set()
        attempt = await world.engine.test_send(made.id)
        assert (attempt.outcome, attempt.failure) == (Outcome.FAILED, Failure.TOKEN)
        assert attempt.detail.endswith(
            "responded 400 invalid_scope (after a 401 from the receiver)"
        )

    live(story)


def test_basic_authentication_is_sent_and_masked() -> None:
    async def story(world: World) -> None:
        await world.subscribe(URL, basic_user="Aladdin", basic_password="open sesame")
        await world.publish()
        await world.wait(SECOND)
        (hit,) = world.sender.hits
        assert hit.headers["authorization"] == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
        row = await world.only_delivery()
        (attempt,) = await attempts_of(world, row.delivery.id)
        assert b"authorization: Basic ****\r\n" in attempt.request_headers

    live(story)


OTHER = "https://b.example/hook"


async def _change_both(world: World, made: Subscription, event: str) -> None:
    del event
    new = {"url": OTHER, "oauth_client_id": "you", "oauth_client_secret": "new"}
    await world.engine.change(made.id, changed(**new))


async def _delete(world: World, made: Subscription, event: str) -> None:
    del event
    await world.engine.unsubscribe(made.id)


async def _pause(world: World, made: Subscription, event: str) -> None:
    del event
    await world.engine.pause(made.id)


async def _erase_event(world: World, made: Subscription, event: str) -> None:
    await world.engine.erasures.erase_event(made.tenant, event)


async def _erase_tenant(world: World, made: Subscription, event: str) -> None:
    del event
    await world.engine.erasures.erase_tenant(made.tenant)


def _sent(world: World) -> list[tuple[str, str]]:
    """Where requests went, and with which tokens."""
    found = [(hit.url, hit.headers.get("authorization", "")) for hit in world.sender.hits]
    return [(url, own[7:]) for url, own in found if own.startswith("Bearer ")]


def _token_of_the_client(hit: Hit) -> Reply:
    basic = b64decode(hit.headers["authorization"].removeprefix("Basic ")).decode()
    body = f'{{"access_token": "{basic.replace(":", "-")}", "expires_in": 3600}}'
    return Reply(excerpt=body.encode(), latency_ms=3 * SECOND)


@pytest.mark.parametrize("act", [_change_both, _delete, _pause, _erase_event, _erase_tenant])
@pytest.mark.parametrize("waits", ["for its first token", "for another one after a 401"])
def test_a_request_that_waits_for_a_token_is_not_sent_after_a_change_is_answered(
    act: Callable[[World, Subscription, str], Awaitable[None]], waits: str
) -> None:
    async def story(world: World) -> None:
        codes = [401] if waits == "for another one after a 401" else []
        world.sender.scripts[TOKEN_URL] = _token_of_the_client
        world.sender.scripts[URL] = lambda _: Reply(code=codes.pop() if codes else 200)
        made = await world.subscribe(URL, **OAUTH)
        receipt = await world.publish()
        await world.wait(4 * SECOND if codes else SECOND)
        before = _sent(world)
        assert before == [(URL, "me-s3cret")] * bool(waits == "for another one after a 401")
        await act(world, made, receipt.key)
        await world.wait(10 * MINUTE)
        after = [(OTHER, "you-new")] if act is _change_both else []
        assert _sent(world) == before + after
        await balanced(world)

    live(story)


def test_a_request_that_waits_for_a_token_is_sent_although_another_tenant_changes() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[TOKEN_URL] = _token_of_the_client
        await world.subscribe(URL, **OAUTH)
        other = await world.subscribe(OTHER, tenant="other")
        await world.publish()
        await world.publish(tenant="other", key="e1")
        await world.wait(SECOND)
        await world.engine.change(other.id, changed(description="new"))
        await world.engine.erasures.erase_event("other", "e1")
        await world.wait(5 * SECOND)
        assert _sent(world) == [(URL, "me-s3cret")]

    live(story)
