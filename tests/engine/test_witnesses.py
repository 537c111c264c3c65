"""The counts of healthy and fallen endpoints are right after every step, at a constant cost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.engine.outage import witnesses as module
from homing.engine.outage.witnesses import AGAIN_MS, Fall, Witness, Witnesses

HEALTHY_MS = 10_000
STEPS = st.sampled_from(("success", "silent", "unreached", "lives", "through", "forget", "wait"))


def _endpoint(number: int, at: int) -> Witness:
    return Witness(f"tenant {number % 3}", f"host {number % 4}", at)


class Model:
    """The same counts, by a scan of everything each time."""

    def __init__(self) -> None:
        self.healthy: dict[int, int] = {}  # its last success
        self.fallen: dict[int, str] = {}  # how it fell

    def expire(self, since: int) -> None:
        self.healthy = {it: at for it, at in self.healthy.items() if at >= since}
        self.fallen = {it: how for it, how in self.fallen.items() if it in self.healthy}

    def fall(self, number: int, how: str) -> Fall:
        if number not in self.healthy:
            return Fall.NONE
        fall = Fall.AGAIN if number in self.fallen else Fall.NEW
        if self.fallen.get(number) != "unreached":
            self.fallen[number] = how
        return fall

    def step(self, step: str, number: int, now: int) -> None:
        match step:
            case "success":
                if now - self.healthy.get(number, 0) >= AGAIN_MS:
                    self.healthy[number] = now
            case "lives":
                self.fallen = {it: how for it, how in self.fallen.items() if how != "silent"}
            case "through":
                self.healthy = {it: at for it, at in self.healthy.items() if it not in self.fallen}
                self.fallen = {}
            case "forget":
                self.healthy.pop(number, None)
                self.fallen.pop(number, None)
            case _:
                pass


def _step(found: Witnesses, step: str, number: int, now: int) -> None:
    match step:
        case "success":
            if not found.again(number, now):
                found.add(number, _endpoint(number, now))
        case "lives":
            found.rise_silent()
        case "through":
            found.disprove()
        case "forget":
            found.forget(number)
        case _:
            pass


@given(st.lists(st.tuples(STEPS, st.integers(0, 7), st.integers(0, 3_000)), max_size=60))
def test_the_counts_are_those_of_a_simple_model(steps: list[tuple[str, int, int]]) -> None:
    found, model, now = Witnesses(), Model(), 100_000
    for step, number, passes in steps:
        now += passes
        since = now - HEALTHY_MS
        found.expire(since)
        model.expire(since)
        if step in {"silent", "unreached"}:
            fall = found.fall(number, now=now, since=since, silent=step == "silent")
            assert fall is model.fall(number, step)
        _step(found, step, number, now)
        model.step(step, number, now)
        for group, members in ((found.healthy, model.healthy), (found.fallen, model.fallen)):
            assert set(group.members) == set(members)
            assert group.hosts == len({it % 4 for it in members})
            assert group.tenants == len({it % 3 for it in members})


def test_what_was_read_from_the_store_ages_from_its_own_success() -> None:
    found = Witnesses()
    found.add(1, _endpoint(1, 5_000))
    found.add(2, _endpoint(2, 1_000), read=True)
    found.add(3, _endpoint(3, 2_000), read=True)
    found.again(3, 6_000)
    found.expire(4_000)
    assert set(found.healthy.members) == {1, 3}


def _lines(work: Callable[[], object]) -> int:
    """How many lines of the module were run."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != module.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("what", ["success", "fall", "expire"])
def test_an_outcome_costs_the_same_among_ten_endpoints_and_ten_thousand(what: str) -> None:
    def cost(endpoints: int) -> int:
        found = Witnesses()
        for number in range(endpoints):
            found.add(number, _endpoint(number, 1_000))
        match what:
            case "success":
                return _lines(lambda: found.again(5, 9_000))
            case "fall":
                return _lines(lambda: found.fall(5, now=9_000, since=500, silent=False))
            case _:
                return _lines(lambda: found.expire(500))

    assert 0 < cost(10) == cost(10_000) < 30
