"""``homing find``: a table of what was found, JSON for programs, and examples if nothing was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cli.terminal import Terminal

NOWHERE = "http://127.0.0.1:1027/"  # nobody listens there


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal in a directory where a server with a payload field is at work."""
    terminal = Terminal(tmp_path_factory.mktemp("town"))
    terminal.more["HOMING_SEARCH_FIELDS"] = "data.invoice.id"
    with terminal.serving():
        yield terminal


def test_everything_is_found_by_one_text(terminal: Terminal) -> None:
    made = terminal.well("subscribe", f"{NOWHERE}find", "find.*", "--json").document
    terminal.well("publish", "find.me", '{"invoice": {"id": 4711}}', "--id", "find-1")
    for text, kind, shown in (
        ("data.invoice.id:4711", "event", "find-1"),
        ("find-1", "event", "find-1"),
        ("find.me", "type", "find.me"),
        ("127.0.0.1:1027/fin", "endpoint", made["endpoint"]),
        (made["id"], "subscription", made["id"]),
    ):
        (hit,) = terminal.well("find", text, "--json").document["items"]
        assert (hit["kind"], hit["id"]) == (kind, shown)
    told = terminal.well("find", "find-1")
    assert told.out.splitlines()[0].split() == ["kind", "id", "status", "at", "tenant"]
    assert "find.me" in told.out


def test_nothing_found_shows_texts_that_find_something(terminal: Terminal) -> None:
    terminal.well("publish", "find.other", '{"invoice": {"id": "x"}}', "--id", "find-2")
    told = terminal.well("find", "nothing\u202e\x1b[31m")
    assert "Nothing was found." in told.err
    assert "data.invoice.id:x" in told.out
    assert "\x1b" not in told.out + told.err
    assert terminal.well("find", "find-1", "--tenant", "other", "--json").document["items"] == []


def test_a_text_that_cannot_be_searched_is_refused(terminal: Terminal) -> None:
    refused = terminal.run("find", "data.customer:7")
    assert refused.code == 1
    assert "only data.invoice.id can be searched" in refused.err
