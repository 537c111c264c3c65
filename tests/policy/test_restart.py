"""What a start does with stored times, whatever happened to the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.policy.restart import STEP_MS, ClockReading, Resumed, passed_ms, resume

NOW = 1_800_000_000_000
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
BEGAN = NOW - HOUR
MARK = ClockReading(NOW, NOW, NOW, "kernel", HOUR)


def after(
    ms: int,
    *,
    set_by: int = 0,
    mark: ClockReading = MARK,
    rebooted: bool = False,
    synchronised: bool = False,
) -> ClockReading:
    """The clocks so long after the mark; the wall clock was set meanwhile."""
    clock = mark.clock_ms + ms + set_by
    boot_id, boot_ms = ("another", MINUTE) if rebooted else (mark.boot_id, mark.boot_ms + ms)
    return ClockReading(clock, clock, clock, boot_id, boot_ms, synchronised)


def resumed(mark: ClockReading, now: ClockReading, *, newest_ms: int = 0) -> Resumed:
    return resume(mark=mark, since_ms=BEGAN, newest_ms=newest_ms, now=now)


def test_after_a_quiet_restart_nothing_moves_and_the_time_goes_on() -> None:
    assert resumed(MARK, after(MINUTE)) == Resumed(0, 0, 0, 0, BEGAN, is_told=True)


@pytest.mark.parametrize("downtime", [2 * SECOND, 3 * DAY])
@pytest.mark.parametrize("by", [15 * SECOND, -15 * SECOND, 40 * SECOND])
def test_a_clock_that_was_set_a_little_while_no_process_ran_begins_where_steady_time_was(
    downtime: int, by: int
) -> None:
    found = resumed(MARK, after(downtime, set_by=by))
    assert (found.ahead_ms, found.move_by_ms, found.since_ms) == (-by, 0, BEGAN)


@pytest.mark.parametrize("downtime", [2 * SECOND, 3 * DAY])
@pytest.mark.parametrize("by", [600 * SECOND, -600 * SECOND, 2 * DAY, -2 * DAY])
def test_a_clock_that_was_set_far_while_no_process_ran_moves_times_by_as_much(
    downtime: int, by: int
) -> None:
    now = after(downtime, set_by=by)
    found = resumed(MARK, now)
    assert found.move_by_ms == by
    assert found.move_from_ms == (BEGAN if by > 0 else min(BEGAN, now.steady_ms))
    assert found.since_ms == found.move_from_ms + by


@pytest.mark.parametrize("by", [600 * SECOND, -600 * SECOND, DAY, -DAY])
def test_a_clock_that_was_stepped_while_a_process_ran_moves_times_by_the_step(by: int) -> None:
    """The process marked its steady time and the clock, which was ``by`` away from it."""
    mark = replace(MARK, clock_ms=NOW + by, wall_ms=NOW + by)
    assert resumed(mark, after(5 * SECOND, mark=mark)).move_by_ms == by


@pytest.mark.parametrize("ms", [2 * SECOND, 3 * DAY])
def test_after_a_reboot_a_downtime_counts_if_both_clocks_were_synchronised(ms: int) -> None:
    mark = replace(MARK, synchronised=True)
    now = after(ms, rebooted=True, synchronised=True)
    assert passed_ms(mark, now) == ms
    assert resumed(mark, now) == Resumed(0, 0, 0, 0, BEGAN, is_told=True)


@pytest.mark.parametrize(("then", "now"), [(False, False), (False, True), (True, False)])
def test_after_a_reboot_with_a_clock_that_may_have_been_set_no_time_has_passed(
    then: bool, now: bool
) -> None:
    mark = replace(MARK, synchronised=then)
    found = resumed(mark, after(3 * DAY, rebooted=True, synchronised=now))
    assert (found.ahead_ms, found.move_by_ms, found.is_told) == (-3 * DAY, 3 * DAY, False)
    found = resumed(mark, after(20 * SECOND, rebooted=True, synchronised=now))
    assert (found.ahead_ms, found.move_by_ms) == (-20 * SECOND, 0)


def test_the_clocks_of_two_machines_that_agree_tell_a_downtime() -> None:
    mark = replace(MARK, apart=True)
    now = replace(after(HOUR, rebooted=True), apart=True)
    assert passed_ms(mark, now) == HOUR
    assert passed_ms(mark, replace(now, wall_ms=now.wall_ms + 5 * SECOND)) == HOUR
    assert passed_ms(mark, replace(now, wall_ms=now.wall_ms - 5 * SECOND)) == HOUR - 5 * SECOND
    assert passed_ms(mark, replace(now, wall_ms=now.wall_ms + DAY)) is None
    assert passed_ms(mark, replace(now, apart=False)) is None
    assert passed_ms(MARK, now) is None, "the mark's two clocks were one"


def test_the_databases_clock_that_was_set_is_told_by_the_kernel() -> None:
    now = after(HOUR)
    found = resumed(MARK, replace(now, clock_ms=now.clock_ms + DAY, steady_ms=now.steady_ms + DAY))
    assert (found.move_by_ms, found.beside_ms) == (DAY, 0)


def test_an_older_mark_of_the_same_kernel_name_tells_nothing_of_a_younger_start() -> None:
    """As where a machine was put back to an older state."""
    assert passed_ms(MARK, replace(after(HOUR), boot_ms=5)) is None


def test_a_clock_that_was_set_back_while_no_process_ran_moves_times_to_where_it_stopped() -> None:
    found = resumed(MARK, after(0, set_by=-DAY, rebooted=True), newest_ms=NOW - MINUTE)
    assert (found.move_by_ms, found.move_from_ms) == (-DAY, NOW - DAY)
    assert found.since_ms == NOW - 2 * DAY


def test_the_newest_event_tells_that_time_went_on_after_the_last_mark() -> None:
    found = resumed(MARK, after(0, set_by=-DAY, rebooted=True), newest_ms=NOW + MINUTE)
    assert found.move_by_ms == -DAY - MINUTE


@pytest.mark.parametrize(("newest", "moves"), [(NOW - DAY, 0), (0, 0), (NOW + DAY, -DAY)])
def test_a_store_without_a_mark_is_told_by_its_newest_event(newest: int, moves: int) -> None:
    found = resume(mark=None, since_ms=0, newest_ms=newest, now=MARK)
    assert found.move_by_ms == moves
    assert found.since_ms == NOW


def test_there_and_back_again_all_times_are_where_they_were() -> None:
    """A machine boots years behind; the clock is set right while the server runs; it restarts."""
    years = 26 * 365 * DAY
    down = resumed(MARK, after(0, set_by=-years, rebooted=True), newest_ms=NOW)
    assert down.move_by_ms == -years
    mark = ClockReading(NOW - years + MINUTE, NOW + MINUTE, NOW + MINUTE, "another", 2 * MINUTE)
    up = resume(mark=mark, since_ms=down.since_ms, newest_ms=NOW, now=after(MINUTE, mark=mark))
    assert up.move_by_ms == years
    assert up.move_from_ms <= down.move_from_ms + down.move_by_ms, "what moved moves back"


times = st.integers(NOW - 40 * DAY, NOW + 40 * DAY)


@given(times, st.integers(0, 40 * DAY), st.integers(-40 * DAY, 40 * DAY), st.booleans())
def test_however_the_clock_was_set_no_wait_becomes_shorter_than_by_the_time_that_passed(
    steady: int, downtime: int, set_by: int, rebooted: bool
) -> None:
    mark = replace(MARK, steady_ms=steady)
    now = after(downtime, set_by=set_by, rebooted=rebooted)
    found = resumed(mark, now)
    begins = now.steady_ms + (0 if found.move_by_ms else found.ahead_ms)
    due = steady + 2 * HOUR
    wait = due + found.move_by_ms - begins
    assert wait == (2 * HOUR if rebooted else 2 * HOUR - downtime)
    assert bool(found.move_by_ms) == (abs(found.ahead_ms) > STEP_MS)
