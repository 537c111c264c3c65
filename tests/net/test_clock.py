"""The clock never jumps, never goes back, and follows the wall clock slowly."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.net.clock import LOOK_EVERY_NS, SystemClock, is_synchronised, kernel_run
from homing.ports import ClockReading, ClockState, DatabaseTime

START_MS = 1_760_000_000_000
SECOND = 1_000_000_000
HOUR = 3600 * SECOND


class Hardware:
    """A wall clock that can be set and a monotonic clock that cannot."""

    def __init__(self) -> None:
        self.wall = START_MS * 1_000_000
        self.mono = 77 * SECOND
        self.looks = 0

    def wall_ns(self) -> int:
        self.looks += 1
        return self.wall

    def monotonic_ns(self) -> int:
        return self.mono

    def pass_ns(self, ns: int) -> None:
        self.wall += ns
        self.mono += ns

    def clock(self) -> SystemClock:
        return SystemClock(
            wall_ns=self.wall_ns,
            monotonic_ns=self.monotonic_ns,
            kernel_run=lambda: ("kernel", self.mono // 1_000_000),
            is_synchronised=lambda: True,
        )


def test_it_starts_at_the_wall_clock_and_runs_with_it() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    assert clock.now() == START_MS
    hardware.pass_ns(HOUR)
    assert clock.now() == START_MS + 3_600_000
    assert clock.stepped_at() is None


def test_a_step_is_noticed_and_not_followed() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    hardware.wall += 2 * HOUR
    hardware.pass_ns(SECOND)
    assert clock.now() == START_MS + 1000
    assert clock.stepped_at() == START_MS + 1000
    hardware.pass_ns(SECOND)
    assert clock.now() == START_MS + 2000  # and half a millisecond, drawn
    assert clock.stepped_at() == START_MS + 1000, "the same step is not a new one"


def test_a_step_there_and_back_is_two_steps() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    hardware.wall -= 2 * HOUR
    hardware.pass_ns(SECOND)
    assert clock.stepped_at() == START_MS + 1000
    hardware.wall += 2 * HOUR
    hardware.pass_ns(10 * SECOND)
    stepped_at = clock.stepped_at()
    assert stepped_at is not None
    assert abs(stepped_at - (START_MS + 11_000)) <= 6


def test_a_small_difference_is_no_step_and_is_drawn_in() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    clock.now()
    hardware.wall += SECOND
    for _ in range(2001):
        hardware.pass_ns(SECOND)
        clock.now()
    assert clock.now() == hardware.wall // 1_000_000
    assert clock.stepped_at() is None


def test_a_long_silence_does_not_overshoot() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    hardware.wall += SECOND // 10
    hardware.pass_ns(SECOND)
    clock.now()
    hardware.pass_ns(30 * HOUR)
    assert clock.now() == hardware.wall // 1_000_000


def test_the_wall_clock_is_looked_at_only_now_and_then() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    for _ in range(1000):
        hardware.pass_ns(1_000_000)
        clock.now()
    assert hardware.looks <= 1 + SECOND // LOOK_EVERY_NS


@given(
    st.lists(
        st.tuples(st.integers(0, 2 * HOUR), st.integers(-(10**15), 10**15) | st.just(0)),
        max_size=60,
    )
)
def test_it_never_goes_back_and_never_leaps(moves: list[tuple[int, int]]) -> None:
    hardware = Hardware()
    clock = hardware.clock()
    before = clock.now()
    for passed, set_by in moves:
        hardware.pass_ns(passed)
        hardware.wall += set_by
        now = clock.now()
        assert abs((now - before) * 1_000_000 - passed) <= passed // 2000 + 1_000_000
        assert now >= before
        before = now


def test_in_a_fleet_it_begins_with_the_databases_clock_and_is_drawn_after_it() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    clock.begin_at(START_MS + 600_000)  # this machine is ten minutes behind
    assert clock.now() == START_MS + 600_000
    hardware.pass_ns(HOUR)
    assert clock.now() == START_MS + 600_000 + 3_600_000
    assert clock.stepped_at() is None
    before = clock.now()
    clock.follow(1_000)  # the database is a second ahead of us by now
    hardware.pass_ns(LOOK_EVERY_NS)
    clock.now()
    assert clock.now() - before == 250, "it does not leap"
    for _ in range(3 * 3600):
        hardware.pass_ns(SECOND)
        clock.now()
    assert abs(clock.now() - (before + 250 + 3 * 3_600_000 + 1_000)) <= 1


def test_the_wall_clock_is_read_at_that_moment() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    hardware.pass_ns(SECOND)
    hardware.wall += 600 * SECOND
    assert clock.wall() == START_MS + 601_000
    assert clock.now() == START_MS + 1000


@pytest.mark.parametrize("by_s", [600, -600, 86_400, -86_400])
def test_a_step_is_told_with_its_size_and_how_far_the_wall_clock_is_away(by_s: int) -> None:
    hardware = Hardware()
    clock = hardware.clock()
    assert clock.state() == ClockState()
    hardware.pass_ns(SECOND)
    hardware.wall += by_s * SECOND
    state = clock.state()
    assert (state.steps, state.stepped_by_ms) == (1, by_s * 1000)
    assert (state.ahead_ms, state.stepped_at) == (by_s * 1000, START_MS + 1000)
    hardware.pass_ns(HOUR)
    assert clock.state().steps == 1
    assert clock.state().ahead_ms == pytest.approx(by_s * 1000, abs=1_801)  # 500 ppm of an hour


def test_a_monotonic_clock_that_stood_still_while_we_were_suspended_is_a_step() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    hardware.wall += 2 * HOUR
    assert clock.now() == START_MS
    hardware.pass_ns(SECOND)
    assert clock.state().stepped_by_ms == 7_200_000


def test_a_slow_drift_is_no_step_and_its_distance_is_told() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    for _ in range(1_000):
        hardware.pass_ns(10 * SECOND)
        hardware.wall += SECOND // 10  # one percent: faster than steady time is drawn
        clock.now()
    state = clock.state()
    assert state.steps == 0
    assert 94_000 < state.ahead_ms < 96_000


def test_in_a_fleet_a_step_of_our_own_wall_clock_is_told_once_and_not_followed() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    clock.begin_at(START_MS)
    hardware.pass_ns(SECOND)
    clock.now()
    hardware.wall += 600 * SECOND
    hardware.pass_ns(LOOK_EVERY_NS // 2)
    clock.follow(0)  # The database's clock was not set.
    for _ in range(3_600):
        hardware.pass_ns(SECOND)
        clock.now()
    clock.follow(0)
    state = clock.state()
    assert (state.steps, state.stepped_by_ms, state.ahead_ms) == (1, 600_000, 600_000)
    assert clock.now() == START_MS + 1_000 + 125 + 3_600_000


def test_in_a_fleet_a_step_of_the_databases_clock_is_told_and_drawn_after() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    clock.begin_at(START_MS)
    hardware.pass_ns(SECOND)
    clock.follow(600_000)
    hardware.pass_ns(HOUR)
    now = clock.now()
    assert 1_700 < now - (START_MS + 1_000 + 3_600_000) < 1_801
    assert (clock.state().steps, clock.state().stepped_by_ms) == (1, 600_000)
    clock.follow(600_000 - (now - START_MS - 3_601_000))
    assert clock.state().steps == 1


def test_the_databases_clock_counts_from_when_it_was_read() -> None:
    """Between that and the start of the clock, slow statements may have run."""
    hardware = Hardware()
    clock = hardware.clock()
    read = DatabaseTime(START_MS + 5_000, at_ns=hardware.mono, round_ns=0, apart=True)
    hardware.pass_ns(2_400_000_000)
    clock.begin_with(read)
    assert clock.now() == START_MS + 7_400
    assert clock.state().ahead_ms == -5_000
    assert clock.read().apart
    later = DatabaseTime(START_MS + 7_400, at_ns=hardware.mono, round_ns=0)
    hardware.pass_ns(HOUR)
    clock.follow_database(later)
    hardware.pass_ns(HOUR)
    assert clock.now() == START_MS + 7_400 + 7_200_000, "it was right and still is"


def test_it_goes_on_where_steady_time_was_and_approaches_the_wall_clock_slowly() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    clock.go_on_at(START_MS - 15_000)
    assert clock.now() == START_MS - 15_000
    assert clock.state() == ClockState(ahead_ms=15_000)
    hardware.pass_ns(LOOK_EVERY_NS)
    assert clock.now() == START_MS - 15_000 + 250
    for _ in range(9 * 3_600):
        hardware.pass_ns(SECOND)
        clock.now()
    assert clock.state() == ClockState()


def test_it_goes_on_where_steady_time_was_and_approaches_the_databases_clock_slowly() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    clock.begin_at(START_MS + 600_000)
    clock.go_on_at(START_MS + 585_000)
    for _ in range(9 * 3_600):
        hardware.pass_ns(SECOND)
        clock.now()
    assert clock.now() == START_MS + 600_000 + 9 * 3_600_000
    assert clock.state().steps == 0


def test_a_reading_has_all_clocks() -> None:
    hardware = Hardware()
    clock = hardware.clock()
    hardware.pass_ns(SECOND)
    hardware.wall += 20 * SECOND
    assert clock.read() == ClockReading(
        steady_ms=START_MS + 1_000,
        clock_ms=START_MS + 21_000,
        wall_ms=START_MS + 21_000,
        boot_id="kernel",
        boot_ms=78_000,
        synchronised=True,
    )
    clock.begin_at(START_MS + 600_000)
    hardware.pass_ns(SECOND)
    clock.now()
    hardware.wall += 20 * SECOND
    now = clock.read()
    assert now.clock_ms == START_MS + 601_000, "the database's clock was not set"
    assert now.wall_ms == START_MS + 42_000
    clock.follow(300)
    assert clock.read().clock_ms == START_MS + 601_300


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_the_kernel_names_its_run_and_counts_from_its_start() -> None:
    (name, before), (same, after) = kernel_run(), kernel_run()
    assert name == same != ""
    assert 0 < before <= after
    assert isinstance(is_synchronised(), bool)


@pytest.mark.parametrize(("state", "told"), [(0, True), (4, True), (5, False), (-1, False)])
def test_the_kernel_says_whether_the_clock_is_synchronised(
    state: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = SimpleNamespace(adjtimex=lambda _: state)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert is_synchronised() is told
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    assert not is_synchronised(), "another system than Linux"
