"""Secrets over time: what signs, until when, and how many at most."""

from __future__ import annotations

from homing.model import Secret
from homing.policy.rotation import LIVE_MAX, live, rotated
from policy.build import HOUR, NOW


def test_a_secret_signs_until_its_end_and_not_at_it() -> None:
    lasting, ending, ended = Secret("a"), Secret("b", until=NOW + 1), Secret("c", until=NOW)
    assert live((lasting, ending, ended), now=NOW) == (lasting, ending)


def test_the_new_one_comes_first_and_the_others_end_with_the_overlap_or_before() -> None:
    before = (Secret("a"), Secret("b", until=NOW + 2 * HOUR), Secret("c", until=NOW + 1))
    assert rotated(before, "new", now=NOW, overlap_ms=HOUR) == (
        Secret("new"),
        Secret("a", until=NOW + HOUR),
        Secret("b", until=NOW + HOUR),
        Secret("c", until=NOW + 1),
    )


def test_without_an_overlap_only_the_new_one_signs() -> None:
    assert rotated((Secret("a"),), "new", now=NOW, overlap_ms=0) == (Secret("new"),)


def test_a_secret_that_is_given_again_is_the_new_one() -> None:
    again = rotated((Secret("a"), Secret("b", until=NOW + 1)), "b", now=NOW, overlap_ms=HOUR)
    assert again == (Secret("b"), Secret("a", until=NOW + HOUR))


def test_of_too_many_the_oldest_end_at_once() -> None:
    secrets: tuple[Secret, ...] = (Secret("0"),)
    for number in range(1, LIVE_MAX + 3):
        secrets = rotated(secrets, str(number), now=NOW, overlap_ms=HOUR)
    newest = LIVE_MAX + 2
    assert [one.value for one in secrets] == [str(newest - age) for age in range(LIVE_MAX)]
