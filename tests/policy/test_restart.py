"""What a start does with stored times, whatever happened to the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.restart import GAP_MS, STEP_MS, Resumed, resume

NOW = 1_800_000_000_000
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def test_after_a_quiet_restart_nothing_moves_and_the_time_goes_on() -> None:
    told = resume(
        steady_ms=NOW, clock_ms=NOW + 50, since_ms=NOW - DAY, newest_ms=NOW, now=NOW + MINUTE
    )
    assert told == Resumed(0, 0, NOW - DAY)


def test_after_a_long_downtime_nothing_moves_and_nobody_knows_of_the_clock_before() -> None:
    now = NOW + 3 * DAY
    told = resume(steady_ms=NOW, clock_ms=NOW, since_ms=NOW - DAY, newest_ms=NOW, now=now)
    assert told == Resumed(0, 0, now)


@pytest.mark.parametrize("by", [600 * SECOND, -600 * SECOND, DAY, -DAY])
def test_a_clock_that_was_stepped_while_a_process_ran_moves_times_by_the_step(by: int) -> None:
    """The process marked its steady time and the clock, which was ``by`` away from it."""
    began = NOW - HOUR
    told = resume(
        steady_ms=NOW, clock_ms=NOW + by, since_ms=began, newest_ms=NOW, now=NOW + by + 5 * SECOND
    )
    assert told.move_by_ms == by
    now = NOW + by + 5 * SECOND
    assert told.move_from_ms == (began if by > 0 else min(began, now))
    assert told.since_ms == told.move_from_ms + by


def test_a_clock_that_was_set_back_while_no_process_ran_moves_times_to_where_it_stopped() -> None:
    told = resume(
        steady_ms=NOW, clock_ms=NOW, since_ms=NOW - HOUR, newest_ms=NOW - MINUTE, now=NOW - DAY
    )
    assert told == Resumed(-DAY, NOW - DAY, NOW - 2 * DAY)


def test_the_newest_event_tells_that_time_went_on_after_the_last_mark() -> None:
    told = resume(
        steady_ms=NOW, clock_ms=NOW, since_ms=NOW - HOUR, newest_ms=NOW + MINUTE, now=NOW - DAY
    )
    assert told.move_by_ms == -DAY - MINUTE


@pytest.mark.parametrize(("newest", "moves"), [(NOW - DAY, 0), (0, 0), (NOW + DAY, -DAY)])
def test_a_store_without_a_mark_is_told_by_its_newest_event(newest: int, moves: int) -> None:
    told = resume(steady_ms=None, clock_ms=0, since_ms=0, newest_ms=newest, now=NOW)
    assert told.move_by_ms == moves
    assert told.since_ms == NOW


def test_there_and_back_again_all_times_are_where_they_were() -> None:
    """A machine boots years behind; the clock is set right while the server runs; it restarts."""
    years = 26 * 365 * DAY
    began, now = NOW - HOUR, NOW - years
    down = resume(steady_ms=NOW, clock_ms=NOW, since_ms=began, newest_ms=NOW, now=now)
    assert down.move_by_ms == -years
    up = resume(
        steady_ms=now + MINUTE,
        clock_ms=NOW + MINUTE,
        since_ms=down.since_ms,
        newest_ms=NOW,
        now=NOW + 2 * MINUTE,
    )
    assert up.move_by_ms == years
    assert up.move_from_ms <= down.move_from_ms + down.move_by_ms, "what moved moves back"


times = st.integers(NOW - 40 * DAY, NOW + 40 * DAY)


@given(times, times, times, times, times)
def test_steady_time_never_goes_back_and_never_leaps_over_a_restart(
    steady: int, clock: int, since: int, newest: int, now: int
) -> None:
    """A wait after the move is what it was before it, less the downtime, as far as it is known."""
    told = resume(steady_ms=steady, clock_ms=clock, since_ms=since, newest_ms=newest, now=now)
    due = steady + 2 * HOUR
    wait = due + told.move_by_ms - now
    downtime = now - clock
    if downtime >= 0:
        assert abs(wait - (2 * HOUR - downtime)) <= STEP_MS
    else:
        assert wait <= 2 * HOUR + STEP_MS
    assert downtime <= GAP_MS or told.since_ms == now
