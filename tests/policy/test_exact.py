"""JSON read exactly: in one go, in slices, and written as it was read."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.policy import exact
from homing.policy.workfront import collapse
from policy.test_filters_agree import VALUES


def slowly(data: bytes, steps: int = 1) -> Any:
    """Token by token."""
    walk = exact.JsonWalk(data)
    while not walk.complete:
        assert walk.read(steps) <= steps
    return walk.value


@settings(max_examples=150, deadline=None)
@given(VALUES, st.sampled_from([None, 1]))
def test_reading_token_by_token_reads_the_same(value: Any, indent: int | None) -> None:
    data = json.dumps(value, indent=indent).encode()
    assert slowly(data) == exact.decode(data) == json.loads(data, parse_float=Decimal)


@pytest.mark.parametrize(
    "text",
    [
        "1.10",
        "-0.5e-7",
        "1E400",
        "1e-400",
        "9007199254740993.0",
        "12345678901234567890123",
        "7" * 5_000,
        "-" + "7" * 5_000,
    ],
)
def test_a_number_is_read_exactly_in_both(text: str) -> None:
    read, slow = exact.decode(f"[{text}]"), slowly(f"[{text}]".encode())
    assert read == slow == [Decimal(text)]
    assert Decimal(exact.encode(read).decode()[1:-1]) == Decimal(text)


@pytest.mark.parametrize("text", ["", "[", "[1", '{"a"', '"a', "nope", "]", "}"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|Unterminated|Input"):
        slowly(text.encode())
    with pytest.raises(ValueError, match=r"JSON|Unterminated|Input"):
        exact.decode(text)


def finished(slices: Generator[None, int, tuple[Any, int]], steps: int) -> tuple[Any, int]:
    """The value, and how many slices were needed."""
    count = 1
    try:
        next(slices)
        while True:
            count += 1
            slices.send(steps)
    except StopIteration as end:
        return end.value[0], count


def test_what_would_take_long_is_read_in_slices() -> None:
    data = b'{"a":[' + b",".join([b"[]"] * 90_000) + b"]}"
    value, count = finished(exact.decoding(data, 1_000), 1_000)
    assert value == {"a": [[]] * 90_000}
    assert count == -(-(2 * 90_000 + 5) // 1_000)  # a token is a step
    flat = json.dumps(list(range(50_000))).encode()
    assert finished(exact.decoding(flat, 1_000), 1_000) == (list(range(50_000)), 1)
    assert finished(exact.decoding(b"nope", 1_000), 1_000) == (None, 1)


def collapsed(value: Any, depth: int = 0) -> Any:
    """What ``collapse`` means, on values."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0]
    if isinstance(value, dict) and depth < 16:
        return {name: collapsed(inner, depth + 1) for name, inner in value.items()}
    return value


LISTS = st.lists(st.sampled_from(['a"', "]", "[", '": ["', "\\", ""]), min_size=1, max_size=2)
STATES = st.recursive(
    st.one_of(VALUES, LISTS, LISTS.map(lambda it: it[:1])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["a", '["', '"]']), inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=120, deadline=None)
@given(STATES, st.sampled_from([None, 1]))
def test_collapsing_changes_lists_of_one_text_only(state: Any, indent: int | None) -> None:
    data = json.dumps(state, indent=indent).encode()
    made = collapse(data)
    assert json.loads(made) == collapsed(state)
    assert re.sub(rb"[\[\]\s]", b"", made) == re.sub(rb"[\[\]\s]", b"", data)


@pytest.mark.parametrize("depth", [15, 16, 17, 18])
def test_the_depth_of_collapsing_is_bounded_as_for_filters(depth: int) -> None:
    state: Any = ["a"]
    for _ in range(depth):
        state = {"a": state}
    assert json.loads(collapse(json.dumps(state).encode())) == collapsed(state)


def test_no_byte_of_a_long_number_is_changed() -> None:
    state = b'{"long": ' + b"7" * 5_000 + b', "huge":1e400,"price":1.10,"sizes":["S"]}'
    assert collapse(state) == state.replace(b'["S"]', b'"S"')


def test_collapsing_never_looks_at_the_same_twice() -> None:
    """Nothing after the last bracket, and much of everything before it."""
    for rest in (" " * 50_000, '"' + "a " * 20_000 + '"', ",1" * 20_000, "[[]]" * 3_500):
        state = f'{{"a":["x"],"b":{rest}'.encode()
        assert collapse(state) == state.replace(b'["x"]', b'"x"')
