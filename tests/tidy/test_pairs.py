"""The table of pairs of features names features and tests that exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from pairs import FEATURES, PAIRS, Pair

TESTS = Path(__file__).resolve().parents[1]


@cache
def names(path: Path) -> set[str]:
    """The functions of a file."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {it.name for it in ast.walk(ast.parse(path.read_text())) if isinstance(it, functions)}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda it: f"{it.one}, {it.other}")
def test_the_test_of_a_pair_exists(pair: Pair) -> None:
    file, _, name = pair.test.partition("::")
    assert name.startswith("test_")
    assert name in names(TESTS / file)


def test_every_row_has_two_known_features_and_is_there_once() -> None:
    unknown = {it for pair in PAIRS for it in (pair.one, pair.other)} - set(FEATURES)
    assert unknown == set()
    assert [it for it in PAIRS if it.one == it.other] == []
    assert len(set(PAIRS)) == len(PAIRS)
    assert len(set(FEATURES)) == len(FEATURES)


def test_every_feature_meets_another() -> None:
    """A feature without a row has not been thought of, or is no feature that meets others."""
    assert set(FEATURES) - {it for pair in PAIRS for it in (pair.one, pair.other)} == set()
