"""Twice the input costs at most about twice the steps, in every reader of input.

Promised: what-homing-promises.md#hostile-input.
"""

from __future__ import annotations

import pytest

from security.inputs import INPUTS, Input
from steps import steps

SLACK = 1.15  # what does not grow may shrink its share, and dictionaries grow in leaps


@pytest.mark.parametrize("one", INPUTS, ids=[one.name for one in INPUTS])
def test_twice_the_input_costs_at_most_twice_the_steps(one: Input) -> None:
    steps(one.of(one.size - 1))  # what is imported or made once is not counted
    first, second, third = (steps(one.of(one.size * times)) for times in (1, 2, 4))
    assert second <= 2 * first * SLACK
    assert third <= 2 * second * SLACK


def test_a_quadratic_reader_is_found() -> None:
    def names_twice(size: int) -> int:
        names = [str(n) for n in range(size)]
        return steps(lambda: [name for name in names if names.count(name) > 1])

    assert names_twice(400) > 3.5 * names_twice(200)


def test_a_refusal_is_counted_too() -> None:
    assert steps(lambda: int("x")) > 0
