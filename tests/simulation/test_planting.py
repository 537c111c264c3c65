"""Planted bugs are addressed by module, function and code: every one has its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType

import pytest

from simulation.bugs import BUGS, Bug
from simulation.lives import MortalWorld
from simulation.planting import (
    CannotPlant,
    CodeChange,
    planted,
    remove,
    replace,
    replace_in,
    replace_sql,
)
from simulation.reference import name

HEALTH = "homing.policy.health"
FUNCTION = """
def due(rows, now):  # a comment
    for row in rows:
        if row.due_at <= now:
            send(
                row,
                late=False,
            )
    with lock(now):
        count(rows)
    return len(rows)
"""


def changed(old: str, new: str, text: str = FUNCTION) -> str:
    tree = ast.parse(text)
    replace_in(tree, old, new, where="here")
    return ast.unparse(tree)


def shape(code: CodeType) -> tuple[object, ...]:
    def consts() -> Iterator[object]:
        for it in code.co_consts:
            yield shape(it) if isinstance(it, CodeType) else repr(it)

    return code.co_code, code.co_names, code.co_varnames, tuple(consts())


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_planted_bug_has_its_place_changes_its_functions_and_is_undone(bug: Bug) -> None:
    functions = [it.target() for it in bug.changes if isinstance(it, CodeChange)]
    before = [it.__code__ for it in functions]

    with planted(bug.changes):
        for function, code in zip(functions, before, strict=True):
            assert shape(function.__code__) != shape(code)

    assert [it.__code__ for it in functions] == before


def test_an_expression_is_found_whatever_its_formatting() -> None:
    one_line = "def due(rows, now): return [it for it in rows if it.due_at<=now]"
    assert "it.due_at < now" in changed("it.due_at  <=\\\n now", "it.due_at < now", one_line)


def test_statements_are_replaced_or_left_out() -> None:
    assert "pass" in changed("send(row, late=False)", "")
    assert "return 0" in changed("count(rows)", "return 0")
    two = changed("count(rows)", "count(rows); rows = ()")
    assert "count(rows)\n        rows = ()" in two


def test_a_keyword_argument_is_left_out() -> None:
    assert "send(row)" in changed("late=False", "")


def test_three_dots_stand_for_any_code_and_are_kept() -> None:
    assert "if row.due_at < now" in changed("... <= now", "... < now")
    assert "for row in rows[1:]:\n        if row" in changed(
        "for row in rows: ...", "for row in rows[1:]: ..."
    )
    assert "if True:\n        count(rows)" in changed("with lock(now): ...", "if True: ...")


def test_a_method_that_is_inherited_or_imported_is_changed_where_it_is_written() -> None:
    inherited = CodeChange("simulation.machine", "Machine.wait", "ms / 1000", "ms")
    imported = CodeChange("simulation.checker", "name", "'dlv'", "'evt'")
    assert inherited.target() is MortalWorld.wait
    with planted((inherited, imported)):
        assert name(1).startswith("evt_")
    assert name(1).startswith("dlv_")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (replace("homing.nowhere", "f", "1", "2"), "homing.nowhere has no f"),
        (
            replace("homing.policy.retry", "_rate_over", "1", "2"),
            f"homing.policy.retry has no _rate_over; {HEALTH} has one",
        ),
        (replace(HEALTH, "State", "1", "2"), "is no function"),
        (
            replace(HEALTH, "_rate_over", "health.attempts > rules.rate_after", "True"),
            "_rate_over has no 'health.attempts > rules.rate_after'; "
            "nearest: health.attempts > rules.rate_after_attempts",
        ),
        (remove(HEALTH, "enable", "health"), "enable has no 'health'"),
        (replace(HEALTH, "_rate_over", "health", "None"), "has this 3 times"),
        (replace_sql("probe_takes", "a", "b"), "no statement probe_takes; near it: probe_take"),
        (replace_sql("probe_take", "no such text", "b"), "has 'no such text' 0 times"),
    ],
)
def test_a_change_without_a_place_says_what_was_not_found(change: CodeChange, said: str) -> None:
    with pytest.raises(CannotPlant) as error, planted((change,)):
        pass
    assert said in str(error.value)
