"""Payload fields: which values of an event's data are indexed, and how they are found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.filters_reading import SLICE_STEPS, OutOfSteps
from homing.policy.payload_fields import FIELDS_MAX, HASH_BYTES, PayloadFields, path_problem

PATH = "data.invoice.id"
KEY, OTHER = b"k" * 32, b"o" * 32


def fields(*paths: str, keys: tuple[bytes, ...] = (KEY,)) -> PayloadFields:
    return PayloadFields(paths or (PATH,), keys)


def is_found(value: str, data: Any) -> bool:
    """Whether an event with this data is found by this value of the path."""
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    own = fields()
    return any(digest in own.at_once(text) for digest in own.wanted(PATH, value))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("4711", b"4711"),
        ("4711", b'"4711"'),
        ("4711", b"4711.0"),
        ("4711", b"4.711e3"),
        ("4711.0", b"4711"),
        ("4.711e3", b"4711"),
        ("4711.0", b'"4711.0"'),
        ("0", b"-0.0"),
        ("0.1", b"0.10"),
        ("-7", b"-7"),
        ("true", b"true"),
        ("false", b"false"),
        ("Käse 😀", '"Käse 😀"'.encode()),
        ("a:b.c", b'"a:b.c"'),
        ("\u202egnp.exe", '"\u202egnp.exe"'.encode()),
        ("9" * 256, b"9" * 256),
        ("x" * 256, b'"%s"' % (b"x" * 256)),
        ("%", b'"%"'),
    ],
)
def test_a_value_finds_its_event(value: str, written: bytes) -> None:
    assert is_found(value, b'{"invoice":{"id":%s}}' % written)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("4711", b"4712"),
        ("4711", b'"04711"'),
        ("%", b'"a"'),
        ("A", b'"a"'),
        ("1", b"true"),
        ("1", b"[1]"),
    ],
)
def test_another_value_does_not(value: str, written: bytes) -> None:
    assert not is_found(value, b'{"invoice":{"id":%s}}' % written)


@pytest.mark.parametrize(
    "written",
    [
        b"null",
        b"[]",
        b"{}",
        b"[1]",
        b'""',
        b'"%s"' % (b"x" * 257),
        b"9" * 257,
        b"1e9999",
        b"1e-999",
    ],
)
def test_other_values_are_not_indexed(written: bytes) -> None:
    assert fields().at_once(b'{"invoice":{"id":%s}}' % written) == ()


@pytest.mark.parametrize(
    "data", [b"1", b"null", b'"x"', b"[]", b"{}", b'{"invoice":1}', b"no json"]
)
def test_data_without_the_path_has_nothing(data: bytes) -> None:
    assert fields().at_once(data) == ()


def test_a_path_is_read_as_a_filter_reads_it() -> None:
    assert is_found("7", {"invoice.id": 7})


def test_the_hash_is_of_path_value_and_key() -> None:
    data = b'{"a":1,"b":1}'
    one, other = fields("data.a", "data.b").at_once(data)
    assert one != other
    assert len(one) == HASH_BYTES
    assert fields("data.a", keys=(OTHER,)).at_once(data) != (one,)
    assert b"1" not in {one, other}


def test_an_older_key_still_finds() -> None:
    data = b'{"invoice":{"id":7}}'
    (before,) = fields(keys=(OTHER,)).at_once(data)
    assert before in fields(keys=(KEY, OTHER)).wanted(PATH, "7")
    assert before not in fields(keys=(KEY,)).wanted(PATH, "7")


def test_without_paths_nothing_is_read() -> None:
    none = PayloadFields()
    assert not none
    assert none.at_once(b"no json") == ()
    assert repr(fields()) == "PayloadFields(data.invoice.id)"


def in_slices(own: PayloadFields, data: bytes, steps: int) -> tuple[tuple[bytes, ...], int]:
    """The hashes, and how many slices they took."""
    reading, slices = own.reading(data, steps), 1
    try:
        next(reading)
        while True:
            slices += 1
            reading.send(SLICE_STEPS)
    except StopIteration as end:
        return end.value[0], slices


def test_long_data_is_read_in_slices_with_the_same_result() -> None:
    short = json.dumps({"invoice": {"id": 7}, "rest": [1] * 10}).encode()
    assert in_slices(fields(), short, SLICE_STEPS) == (fields().at_once(short), 1)
    assert in_slices(fields(), short, 1) == (fields().at_once(short), 2)
    long = json.dumps({"rest": [{"a": 1}] * 60_000, "invoice": {"id": 7}}).encode()
    with pytest.raises(OutOfSteps):
        fields().at_once(long)
    hashes, slices = in_slices(fields(), long, SLICE_STEPS)
    assert hashes == fields().at_once(short)
    assert slices > 50


@given(st.text(min_size=1, max_size=256))
def test_every_text_finds_itself(text: str) -> None:
    assert is_found(text, {"invoice": {"id": text}})


@given(st.integers() | st.decimals(allow_nan=False, allow_infinity=False, places=6))
def test_every_number_finds_itself_as_it_is_written(number: Any) -> None:
    text = str(number)
    if len(text) <= 40:
        assert is_found(text, b'{"invoice":{"id":%s}}' % text.encode())


@pytest.mark.parametrize(
    "path",
    [
        "",
        "data",
        "data.",
        "invoice.id",
        "data..id",
        "data.a b",
        "data.a:b",
        "data.a,b",
        "data.a\n",
        "data.\u202ea",
        "data." + "x" * 200,
        "data" + ".a" * 17,
        "$.data.id",
    ],
)
def test_a_bad_path_is_refused(path: str) -> None:
    assert "paths like data.invoice.id" in (path_problem([path]) or "")


def test_good_paths_are_taken_up_to_the_limit_and_each_once() -> None:
    paths = [f"data.ä{number}.id-x_y" for number in range(FIELDS_MAX)]
    assert path_problem(paths) is None
    assert path_problem([]) is None
    assert path_problem([*paths, "data.ninth"]) == "at most 8 paths, not 9"
    assert "data.a is listed twice" in (path_problem(["data.a", "data.b", "data.a"]) or "")
