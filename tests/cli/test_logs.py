"""Log lines: bounded in length, one record in one line, exceptions in short."""

from __future__ import annotations

import json
import sys

import pytest

from homing.cli.logs import (
    LINE_CHARS_MAX,
    Line,
    console_line,
    json_line,
    short_exception,
    short_lines,
)


@pytest.mark.parametrize("write", [console_line, json_line])
@pytest.mark.parametrize(
    "values",
    [
        {"url": "https://x.example/" + "y" * 10_000},
        {"a": "é" * 3_000, "b": "\x00" * 3_000, "c": 7},
        {f"f{number}": "z" * 100 for number in range(10)},
    ],
)
def test_a_line_has_at_most_500_characters(write: Line, values: dict[str, object]) -> None:
    record = {"time": "T", "level": "info", "event": "attempt", **values}
    line = short_lines(write)(None, "info", record)
    assert len(line) <= LINE_CHARS_MAX
    assert "\n" not in line
    assert "attempt" in line
    assert "…" in line or "\\u2026" in line
    if write is json_line:
        assert json.loads(line).keys() == record.keys()


def test_a_short_line_is_left_as_it_is() -> None:
    record = {"time": "T", "level": "info", "event": "e", "n": 1}
    assert short_lines(json_line)(None, "info", record) == json.dumps(record)


def test_an_exception_is_one_value_with_its_innermost_place_first() -> None:
    def inner() -> None:
        raise ValueError("bad\nvalue")

    try:
        inner()
    except ValueError as error:
        for given in (True, error, sys.exc_info()):
            record = short_exception(None, "error", {"event": "e", "exc_info": given})
            text = record["exception"]
            assert text.startswith("ValueError: bad\nvalue at test_logs.py:")
            assert text.index(" inner") < text.index(" test_an_exception")
            line = short_lines(console_line)(None, "error", record)
            assert "\n" not in line
    assert short_exception(None, "error", {"event": "e"}) == {"event": "e"}
    assert short_exception(None, "error", {"exc_info": None}) == {}
