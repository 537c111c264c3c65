"""The ring of the latest attempts."""

from __future__ import annotations

from homing.engine.recent import Recent
from homing.model import Attempt, Decided, Lane, Outcome, Phases


def attempt(number: int) -> Attempt:
    return Attempt(
        delivery_id=number,
        number=1,
        endpoint_id=1,
        subscription_id=1,
        lane=Lane.FRESH,
        started_at=0,
        finished_at=0,
        outcome=Outcome.DELIVERED,
        code=200,
        failure=None,
        detail="",
        address=None,
        phases=Phases(),
        request_headers=b"",
        response_headers=b"",
        excerpt=b"",
        decided=Decided.DELIVERED,
    )


def filled(count: int) -> Recent:
    recent = Recent(after=1_000, kept=5)
    recent.add([attempt(number) for number in range(1, count + 1)])
    return recent


def shown(recent: Recent, after: int | None, limit: int = 50) -> tuple[list[int], int, int]:
    seen = recent.after(after, limit=limit)
    return [one.delivery_id for one in seen.attempts], seen.last, seen.missed


def test_without_a_number_the_latest_are_shown() -> None:
    assert shown(filled(3), None) == ([1, 2, 3], 1_003, 0)
    assert shown(filled(3), None, limit=2) == ([2, 3], 1_003, 0)
    assert shown(filled(0), None) == ([], 1_000, 0)


def test_the_next_ones_follow_and_none_is_shown_twice() -> None:
    recent = filled(4)
    assert shown(recent, 1_001, limit=2) == ([2, 3], 1_003, 0)
    assert shown(recent, 1_003, limit=2) == ([4], 1_004, 0)
    assert shown(recent, 1_004) == ([], 1_004, 0)


def test_what_has_left_the_ring_is_counted() -> None:
    assert shown(filled(8), 1_001) == ([4, 5, 6, 7, 8], 1_008, 2)


def test_a_number_of_an_earlier_process_gets_all_of_this_one() -> None:
    assert shown(filled(3), 17) == ([1, 2, 3], 1_003, 0)
    assert shown(filled(7), 17) == ([3, 4, 5, 6, 7], 1_007, 2)


def test_a_number_of_the_future_gets_nothing() -> None:
    assert shown(filled(3), 9_999) == ([], 1_003, 0)
