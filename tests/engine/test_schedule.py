"""The whole life of a delivery on virtual time, to the millisecond.

Promised: what-homing-promises.md#retry-schedule.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.world import HOUR, MINUTE, SECOND, Reply, World, always, live
from homing.engine.options import EngineOptions
from homing.model import Lane, Reason, Status
from homing.policy.health import HealthRules
from homing.policy.presets import PRESETS, WORKFRONT
from homing.policy.retry import OnRetryAfter
from homing.policy.sent_headers import logged_lines
from homing.sim.loop import START_MS

STRICT = replace(WORKFRONT, name="strict", retry_after=OnRetryAfter.IGNORE)
URL = "https://receiver.example/hook"
TABLE = [
    0, 84_800, 254_400, 593_600, 1_272_000, 2_628_800, 5_342_400, 10_769_600,
    21_624_000, 43_332_800, 86_750_400, 173_585_600,
]  # fmt: skip


def test_the_48_hours_of_one_delivery_are_exactly_the_table() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(404)
        await world.subscribe(URL, "a.*")
        await world.publish()
        await world.wait(60 * HOUR)
        assert world.hits(URL) == TABLE
        row = await world.only_delivery()
        assert (row.status, row.reason) == (Status.DROPPED, Reason.EXHAUSTED)
        attempts = await world.views.attempts(row.delivery.id)
        assert [attempt.number for attempt in attempts] == list(range(1, 13))
        assert [attempt.lane for attempt in attempts] == [Lane.FRESH] + [Lane.RETRY] * 11
        assert "homing.delivery.dropped" in await world.event_types()

    live(story)


def test_a_restart_between_any_two_attempts_changes_nothing() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL)
        await world.publish()
        for _ in range(59):
            await world.wait(HOUR)
            await world.crash()
        assert world.hits(URL) == TABLE

    live(story)


def test_the_chained_preset_ends_with_its_eleventh_attempt() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL, policy="workfront-chained")
        await world.publish()
        await world.wait(100 * HOUR)
        assert len(world.hits(URL)) == 11
        assert world.hits(URL)[-1] == 172_652_800

    live(story)


def test_a_policy_without_retries_drops_at_the_first_failure_which_counts_for_the_url() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL, policy="once")
        await world.publish()
        await world.wait(100 * HOUR)
        assert world.hits(URL) == [0]
        row = await world.only_delivery()
        assert (row.status, row.reason) == (Status.DROPPED, Reason.EXHAUSTED)
        (endpoint,), _ = await world.views.endpoints(
            tenant=None, state=None, before_id=None, limit=9
        )
        assert (endpoint.health.attempts, endpoint.health.failures) == (1, 1)

    live(story)


def test_without_retries_a_disabled_url_is_probed_and_then_gets_its_one_attempt() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL, policy="once")
        for _ in range(4):  # The fourth finds the endpoint disabled.
            await world.publish()
            await world.wait(SECOND)
        await world.wait(11 * MINUTE)  # A probe fails, and drops nothing.
        statuses = [row.status for row in await world.deliveries()]
        assert statuses.count(Status.PENDING) == 1
        assert len(world.hits(URL)) == 4
        world.sender.scripts[URL] = always(200)
        await world.wait(HOUR)
        statuses = [row.status for row in await world.deliveries()]
        assert (statuses.count(Status.DELIVERED), statuses.count(Status.DROPPED)) == (1, 3)

    live(story, EngineOptions(health=HealthRules(consecutive_disable=3)))


def test_a_failure_that_takes_time_anchors_the_schedule_where_it_ended() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500, latency_ms=700)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(HOUR)
        assert world.hits(URL)[:3] == [0, 700 + 84_800, 700 + 254_400]

    live(story)


def test_retry_after_moves_the_retry_and_holds_the_whole_endpoint() -> None:
    async def story(world: World) -> None:
        responses = [Reply(code=503, retry_after="600")]
        world.sender.scripts[URL] = lambda _: responses.pop() if responses else Reply()
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        await world.publish()  # would run into the same response
        await world.wait(HOUR)
        first, *others = world.hits(URL)
        assert first == 0
        assert others == [600_000, 600_000]
        rows = await world.deliveries()
        assert {row.status for row in rows} == {Status.DELIVERED}

    live(story)


@pytest.mark.parametrize("named_by", ["subscription", "tenant", "installation"])
@pytest.mark.parametrize("code", [429, 503])
def test_a_policy_that_ignores_retry_after_keeps_the_schedule_and_holds_nothing(
    code: int, named_by: str
) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(code, retry_after="3600")
        await world.subscribe(URL, policy="strict" if named_by == "subscription" else None)
        await world.publish()
        await world.wait(SECOND)
        await world.publish()
        await world.wait(2 * SECOND)
        endpoint = await world.endpoint(URL)
        assert endpoint.hold_until == 0
        await world.wait(HOUR)
        retries = [after for after in WORKFRONT.delays_ms if after < HOUR]
        assert world.hits(URL) == sorted([0, *retries, *(SECOND + it for it in (0, *retries))])

    schedules = {**PRESETS, "strict": STRICT}
    match named_by:
        case "tenant":
            options = EngineOptions(schedules=schedules, tenant_policies={"default": "strict"})
        case "installation":
            options = EngineOptions(schedules=schedules, policy="strict")
        case _:
            options = EngineOptions(schedules=schedules)
    live(story, options)


def test_of_two_subscriptions_of_a_url_each_has_the_policy_of_its_own() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503, retry_after="600")
        await world.subscribe(URL, "strict.one", policy="strict")
        await world.publish("strict.one")
        await world.wait(SECOND)
        assert (await world.endpoint(URL)).hold_until == 0
        await world.subscribe(URL, "other.one")
        await world.publish("other.one")
        await world.wait(SECOND)
        assert (await world.endpoint(URL)).hold_until == START_MS + SECOND + 600_000

    live(story, EngineOptions(schedules={**PRESETS, "strict": STRICT}))


def test_the_same_webhook_id_on_every_attempt_and_a_new_timestamp() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL, token="sesame")
        await world.publish()
        await world.wait(HOUR)
        hits = world.sender.hits
        assert len({hit.headers["webhook-id"] for hit in hits}) == 1
        assert len({hit.headers["webhook-timestamp"] for hit in hits}) == len(hits)
        assert [hit.headers["homing-attempt"] for hit in hits] == [
            str(number + 1) for number in range(len(hits))
        ]
        assert hits[0].headers["authorization"] == "Bearer sesame"
        row = await world.only_delivery()
        (attempt, *_) = await world.views.attempts(row.delivery.id)
        assert b"sesame" not in attempt.request_headers
        assert b"authorization: Bearer ****\r\n" in logged_lines(attempt)

    live(story)
