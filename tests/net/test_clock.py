"""The clock never jumps, never goes back, and follows the wall clock slowly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.net.clock import LOOK_EVERY_NS, SystemClock

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
        return SystemClock(wall_ns=self.wall_ns, monotonic_ns=self.monotonic_ns)


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
