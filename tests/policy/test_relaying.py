"""How a relay parts a refused batch, and how long it waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.errors import FieldProblem
from homing.policy.relaying import apart, named, pause_s, reason_text


def test_a_refusal_names_rows_by_their_index() -> None:
    problems = [FieldProblem("events[3].type", "x"), FieldProblem("events[0]", "y")]
    assert named(problems) == {0, 3}
    assert named([FieldProblem("body", "z")]) == set()


@given(rows=st.lists(st.integers(), min_size=2, max_size=40), bad=st.sets(st.integers(0, 50)))
def test_parting_keeps_every_row_once_and_always_gets_smaller(
    rows: list[int], bad: set[int]
) -> None:
    parts = apart(rows, bad)
    assert sorted(it for part in parts for it in part) == sorted(rows)
    assert all(0 < len(part) < len(rows) for part in parts)


def test_what_is_named_stands_alone() -> None:
    assert apart("abcde", {1, 3}) == [["a", "c", "e"], "b", "d"]
    assert apart("abcde", set()) == ["ab", "cde"]
    assert apart("ab", {0, 1}) == ["a", "b"]


@pytest.mark.parametrize(
    ("failures", "after_s", "random", "pause"),
    [
        (0, None, 1.0, 0.1),
        (0, None, 0.0, 0.05),
        (3, None, 1.0, 0.8),
        (1_000, None, 1.0, 30.0),
        (0, 7.0, 1.0, 7.1),
        (0, 1e9, 1.0, 300.1),
    ],
)
def test_pauses_grow_and_honour_retry_after(
    failures: int, after_s: float | None, random: float, pause: float
) -> None:
    assert pause_s(failures, retry_after_s=after_s, random=random) == pytest.approx(pause)


def test_the_reason_forgets_the_place_in_the_batch() -> None:
    assert reason_text([FieldProblem("events[0].type", "is bad")], "x") == "type is bad"
    assert reason_text([FieldProblem("events[0]", "is not JSON")], "x") == "is not JSON"
    assert reason_text([], "413 too large") == "413 too large"
