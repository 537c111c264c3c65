"""What differs between two attempts, in bounded time."""

from __future__ import annotations

import time

from homing.policy.changed_text import (
    COMPARED_MAX,
    CONTEXT,
    LINES_MAX,
    HeaderChange,
    Line,
    header_changes,
    line_changes,
)


def test_equal_texts_have_no_changes() -> None:
    assert line_changes("a\nb", "a\nb") == []


def test_changed_lines_stand_between_the_equal_ones_around_them() -> None:
    before = "\n".join([*"abcdefgh", "old", "z"])
    after = "\n".join([*"abcdefgh", "new", "more", "z"])
    assert line_changes(before, after) == [
        Line("gap", "5 equal lines"),
        Line("same", "f"),
        Line("same", "g"),
        Line("same", "h"),
        Line("removed", "old"),
        Line("added", "new"),
        Line("added", "more"),
        Line("same", "z"),
    ]


def test_many_different_lines_are_not_compared_with_each_other() -> None:
    count = COMPARED_MAX * 20
    before = "\n".join(f"a{n % 7}" for n in range(count)) + "\nx"
    after = "\n".join(f"b{n % 7}" for n in range(count)) + "\ny"
    begun = time.process_time()
    found = line_changes(before, after)
    assert time.process_time() - begun < 1
    assert found[0] == Line("removed", "a0")


def test_headers_are_compared_by_name_and_repeated_ones_are_joined() -> None:
    before, after = "A: 1\nset-cookie: x\nSet-Cookie: y", "a: 1\nb: 2"
    assert header_changes(before, after) == [
        HeaderChange("a", "1", "1"),
        HeaderChange("set-cookie", "x\ny", None),
        HeaderChange("b", None, "2"),
    ]


def test_texts_of_many_lines_are_compared_quickly_and_shown_in_part() -> None:
    before = time.thread_time()
    old, new = ("\n".join(str(n % count) for n in range(30_000)) for count in (4, 3))
    assert len(line_changes(old, new)) <= LINES_MAX + 2 * CONTEXT + 2
    one = "a\n" * 30_000
    assert [it.kind for it in line_changes(f"{one}b\n{one}", f"{one}c\n{one}")] == [
        "gap",
        *["same"] * CONTEXT,
        "removed",
        "added",
        *["same"] * CONTEXT,
        "gap",
    ]
    assert time.thread_time() - before < 0.2
