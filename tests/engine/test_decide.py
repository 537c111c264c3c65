"""Decisions of a batch besides states and schedules: the log, the spread of jitter, probe times."""

from __future__ import annotations

import pytest

from engine.test_health import QUICK, URL, disable
from engine.world import MINUTE, SECOND, World, always, failing_with, live
from homing.engine.attempt import CompletedAttempt
from homing.engine.decide import Decision, Item, Misrouted
from homing.engine.options import EngineOptions
from homing.model import Attempt, Decided, Failure, Lane, Outcome
from homing.policy.retry import Anchor, Schedule

JITTER = EngineOptions(
    schedules={
        "jitter": Schedule(
            name="jitter",
            delays_ms=(100 * SECOND,),
            anchor=Anchor.FIRST_FAILURE,
            window_ms=10 * MINUTE,
            jitter=0.5,
        )
    },
    policy="jitter",
)


async def only_attempt(world: World) -> Attempt:
    row = await world.only_delivery()
    (attempt,) = await world.views.attempts(row.delivery.id)
    return attempt


def test_ten_minutes_are_counted_from_the_failure_of_a_probe_not_from_its_start() -> None:
    async def story(world: World) -> None:
        await disable(world)
        world.sender.scripts[URL] = always(500, latency_ms=3 * SECOND)
        before = len(world.hits(URL))
        await world.wait(21 * MINUTE)
        first, second = world.hits(URL)[before:]
        assert second == first + 3 * SECOND + 10 * MINUTE
        endpoint = await world.endpoint(URL)
        assert endpoint.next_probe_at == world.start_ms + second + 3 * SECOND + 10 * MINUTE

    live(story, QUICK)


def test_a_failure_that_is_no_probe_moves_no_probe() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL)
        await world.publish()
        await world.settled()
        assert (await world.endpoint(URL)).next_probe_at is None

    live(story, QUICK)


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        pytest.param(500, 1024, id="of a failing response the first KiB"),
        pytest.param(200, 0, id="of a good one nothing"),
    ],
)
def test_an_excerpt_of_the_response_is_kept(code: int, kept: int) -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(code, excerpt=b"x" * 1025)
        await world.subscribe(URL)
        await world.publish()
        await world.written()
        assert (await only_attempt(world)).excerpt == b"x" * kept

    live(story)


def test_trouble_of_our_own_is_logged_like_any_attempt() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = failing_with(Failure.SENDER_NETWORK)
        await world.subscribe(URL)
        await world.publish()
        await world.settled()
        attempt = await only_attempt(world)
        assert (attempt.outcome, attempt.decided) == (Outcome.SENDER_ERROR, Decided.WAIT)
        assert (attempt.lane, attempt.number, attempt.retry) == (Lane.FRESH, 1, 0)
        assert attempt.due_at == attempt.finished_at + 5 * SECOND

    live(story)


def test_every_attempt_says_what_was_decided() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL, "a.b")
        await world.publish()
        await world.wait(10 * MINUTE)
        row = await world.only_delivery()
        attempts = await world.views.attempts(row.delivery.id)
        assert [it.decided for it in attempts] == [Decided.RETRY, Decided.DROPPED]
        assert (await world.endpoint(URL)).dropped_unreported == 0  # It was told of at once,
        assert await world.event_types() == ["a.b", "homing.delivery.dropped"]
        seen = world.engine.recent(None, limit=10)  # and what watches sees both.
        assert [it.decided for it in seen.attempts] == [Decided.RETRY, Decided.DROPPED]

    live(story, JITTER)


def test_jitter_spreads_what_failed_together_over_all_of_its_part() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL, "a.*")
        for _ in range(60):
            await world.publish()
        await world.wait(1)
        rows = [row.delivery for row in await world.deliveries() if row.event_type == "a.b"]
        late = [row.due_at - (row.t0 or 0) - 100 * SECOND for row in rows]
        assert len(late) == 60
        assert all(0 <= it <= 50 * SECOND for it in late)
        assert min(late) < 10 * SECOND
        assert max(late) > 40 * SECOND

    live(story, JITTER)


@pytest.mark.parametrize("moved_first", [True, False])
@pytest.mark.parametrize(
    "code", [pytest.param(200, id="delivered"), pytest.param(500, id="failed")]
)
def test_a_delivery_that_was_moved_and_sent_at_its_new_endpoint_has_one_row(
    code: int, *, moved_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cleanup job moved it while its old queue found out that it belongs elsewhere."""

    taken: list[Item] = []
    take = Decision.take

    def take_and_keep(decision: Decision, items: list[Item]) -> None:
        taken.extend(items)
        take(decision, items)

    monkeypatch.setattr(Decision, "take", take_and_keep)

    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(code)
        await world.subscribe(URL)
        endpoint = await world.endpoint(URL)
        await world.publish()
        await world.written()
        (attempt,) = taken
        assert isinstance(attempt, CompletedAttempt)
        moved = Misrouted(attempt.work.delivery)
        core = world.engine._core
        decision = Decision({endpoint.id: endpoint}, core)
        decision.take([moved, attempt] if moved_first else [attempt, moved])
        batch = decision.batch(1)
        delivered = code == 200
        assert (len(batch.finished), len(batch.waiting)) == (delivered, not delivered)
        assert [it.attempts for it in batch.waiting] == [1] * (not delivered)
        decision = Decision({endpoint.id: endpoint}, core)
        decision.take([moved, moved])
        assert decision.batch(2).waiting == (moved.delivery,)

    live(story)
