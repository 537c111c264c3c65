"""What holds for every schedule and every history of failures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.model import Delivery
from homing.policy import retry
from homing.policy.presets import PRESETS, check_schedule
from homing.policy.retry import Anchor, Schedule
from policy.build import HOUR, NOW, a_delivery


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    if draw(st.booleans()):
        return draw(st.sampled_from(list(PRESETS.values())))
    delays = draw(st.lists(st.integers(1, 10_000_000), max_size=12, unique=True))
    anchor = draw(st.sampled_from(Anchor))
    first = anchor is Anchor.FIRST_FAILURE
    if first:
        delays.sort()
    least = delays[-1] if first and delays else 1
    schedule = Schedule(
        name="drawn",
        delays_ms=tuple(delays),
        anchor=anchor,
        window_ms=draw(st.integers(least, least + 100_000_000)),
        jitter=draw(st.floats(0, 1)),
    )
    check_schedule(schedule)
    return schedule


RANDOM = st.floats(0, 1, exclude_max=True)
LATE = st.one_of(st.just(0), st.integers(0, 6_000), st.integers(0, 60 * HOUR))
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["fail", "fail", "fail", "probe", "sender_error"]),
        LATE,
        RANDOM,
        st.one_of(st.none(), st.integers(1, HOUR)),
    ),
    max_size=40,
)


@given(schedules(), MOVES, st.integers(-HOUR, HOUR))
def test_every_life_of_a_delivery_keeps_to_its_schedule(
    schedule: Schedule, moves: list[tuple[str, int, float, int | None]], enabled: int
) -> None:
    row = a_delivery(expires_at=retry.window_end(NOW, schedule))
    now = NOW
    for kind, late, random, asked in moves:
        now = max(now, row.due_at) + late
        before = row
        if kind == "sender_error":
            row = retry.after_sender_error(row, now=now)
            assert (row.retry, row.t0, row.expires_at) == (
                before.retry,
                before.t0,
                before.expires_at,
            )
            continue
        if kind == "probe":
            row = retry.after_probe_failure(row, schedule, now=now)
            assert row.t0 is not None
            if before.t0 is None and row.retry:
                assert_ahead(row, now=now)
            continue
        after = retry.after_failure(
            row,
            schedule,
            now=now,
            enabled_since=NOW + enabled,
            random=random,
            retry_after_at=None if asked is None else now + asked,
        )
        if after is None:
            return
        row = after
        assert row.retry > before.retry
        assert row.attempts == before.attempts + 1
        assert before.t0 is None or row.t0 == before.t0
        assert_ahead(row, now=now)
        assert_not_early(row, schedule, now=now)


def assert_ahead(row: Delivery, *, now: int) -> None:
    assert now < row.due_at <= row.expires_at


def assert_not_early(row: Delivery, schedule: Schedule, *, now: int) -> None:
    assert row.t0 is not None
    delay = schedule.delays_ms[row.retry - 1]
    start = row.t0 if schedule.anchor is Anchor.FIRST_FAILURE else now
    assert row.due_at >= min(start + delay, row.expires_at)


@given(schedules(), st.integers(0, 60 * HOUR), RANDOM)
def test_jitter_only_adds(schedule: Schedule, failed_after: int, random: float) -> None:
    waiting = a_delivery(t0=NOW, retry=1, attempts=1)
    now = NOW + failed_after
    plain = retry.after_failure(waiting, schedule, now=now, enabled_since=0)
    jittered = retry.after_failure(waiting, schedule, now=now, enabled_since=0, random=random)
    assert (plain is None) == (jittered is None)
    if plain is not None and jittered is not None:
        assert plain.due_at <= jittered.due_at <= plain.expires_at
        assert plain.retry == jittered.retry


@given(schedules(), st.integers(0, 60 * HOUR), st.integers(1, HOUR))
def test_retry_after_only_moves_later_and_changes_nothing_else(
    schedule: Schedule, failed_after: int, asked: int
) -> None:
    waiting = a_delivery(t0=NOW, retry=0, attempts=1)
    now = NOW + failed_after
    plain = retry.after_failure(waiting, schedule, now=now, enabled_since=0)
    asked_row = retry.after_failure(
        waiting, schedule, now=now, enabled_since=0, retry_after_at=now + asked
    )
    assert (plain is None) == (asked_row is None)
    if plain is not None and asked_row is not None:
        assert asked_row.retry == plain.retry
        assert asked_row.due_at == min(max(plain.due_at, now + asked), plain.expires_at)


@given(schedules(), st.integers(0, 60 * HOUR))
def test_what_remains_is_what_then_happens(schedule: Schedule, first_failure: int) -> None:
    row = retry.after_failure(a_delivery(), schedule, now=NOW + first_failure, enabled_since=NOW)
    if not schedule.delays_ms:
        assert row is None
        return
    assert row is not None
    ahead = retry.remaining(row, schedule)
    lived = []
    while row is not None:
        lived.append((row.retry, row.due_at))
        row = retry.after_failure(row, schedule, now=row.due_at, enabled_since=NOW)
    assert ahead == tuple(lived)


@given(st.text(max_size=40), st.integers(0, 4_000_000_000_000), st.integers(0, 4_000_000_000_000))
def test_any_retry_after_is_ahead_by_at_most_an_hour_or_nothing(
    value: str, now: int, wall: int
) -> None:
    at = retry.retry_after_at(value, now=now, wall=wall)
    assert at is None or now < at <= now + HOUR
