"""Seen: once means once, a failure is forgotten, and memory has a limit."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from homing_client import Seen, StillHandling


@dataclass
class Clock:
    at: float = 0.0

    def __call__(self) -> float:
        return self.at


def handle(seen: Seen, webhook_id: str) -> bool:
    with seen.once(webhook_id) as new:
        return new


def test_what_was_handled_is_not_new_again() -> None:
    seen = Seen()
    assert [handle(seen, one) for one in ("a", "b", "a")] == [True, True, False]
    assert "a" in seen
    assert "c" not in seen
    assert len(seen) == 2


def fail(seen: Seen) -> None:
    with seen.once("a"):
        raise KeyError


def test_what_failed_is_new_again() -> None:
    seen = Seen()
    with pytest.raises(KeyError):
        fail(seen)
    assert handle(seen, "a")


def test_what_is_being_handled_is_neither_new_nor_done() -> None:
    seen = Seen()
    with seen.once("a"):
        with pytest.raises(StillHandling):
            handle(seen, "a")
        assert "a" not in seen
    assert not handle(seen, "a")


def test_ids_are_forgotten_after_their_time() -> None:
    clock = Clock()
    seen = Seen(keep_s=10, clock=clock)
    handle(seen, "a")
    clock.at = 9.9
    assert not handle(seen, "a")
    clock.at = 10.0
    assert handle(seen, "a")


def test_the_oldest_go_first_when_there_are_too_many() -> None:
    seen = Seen(max_ids=2)
    for one in "abc":
        handle(seen, one)
    assert [one in seen for one in "abc"] == [False, True, True]


@pytest.mark.parametrize("wrong", [{"keep_s": 0}, {"max_ids": 0}])
def test_it_keeps_at_least_one(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Seen(**wrong)


def test_of_many_threads_exactly_one_handles_an_id() -> None:
    seen = Seen()
    start = threading.Barrier(16)
    handled: list[int] = []

    def run(number: int) -> None:
        start.wait()
        for round_ in range(50):
            try:
                with seen.once(f"id-{round_}") as new:
                    if new:
                        handled.append(round_)
            except StillHandling:
                pass

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(handled) == list(range(50))
