"""Whether data has too many levels is found without decoding it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from homing.policy.nesting import LEVELS_MAX, is_deep

TEXTS = ("", "[", "}", '"', '\\"', "\\", "\\\\", '[[["', 'a"]{', '\\\\"[', "é\n]", "]" * 99)


def levels(value: Any) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) and 1 + max(map(levels, below), default=0)


def chain(random: Random, depth: int) -> Any:
    """A value with exactly this many levels, and shallow values beside each."""
    value: Any = random.choice(TEXTS)
    for _ in range(depth):
        beside = [random.choice(TEXTS), [[random.choice(TEXTS)], {}], {"[": "{"}]
        several = [*random.sample(beside, random.randrange(3)), value]
        random.shuffle(several)
        named = {random.choice(TEXTS) + str(it): one for it, one in enumerate(several)}
        value = several if random.random() < 0.5 else named
    return value


@pytest.mark.parametrize("depth", [0, 1, 50, 98, 99, 100, 101, 102, 150, 400])
@pytest.mark.parametrize("seed", range(20))
def test_levels_are_counted_outside_texts_only(depth: int, seed: int) -> None:
    random = Random(seed)
    value = chain(random, depth)
    wide = [chain(random, random.randrange(90)) for _ in range(random.randrange(20))]
    for one in (value, [*wide, value], [value, *wide], {"a": wide, "b": [value] * 3}):
        for spaces in (None, 1):
            data = json.dumps(one, indent=spaces, ensure_ascii=random.random() < 0.5).encode()
            assert is_deep(data) is (levels(one) > LEVELS_MAX)


@pytest.mark.parametrize("depth", [LEVELS_MAX, LEVELS_MAX + 1])
@pytest.mark.parametrize("offset", range(0, 130, 3))
def test_the_deepest_place_may_be_anywhere_in_the_data(depth: int, offset: int) -> None:
    inner = b"[" * (depth - 1) + b"]" * (depth - 1)
    low = b"[" * 90 + b"]" * 90
    for beside in (b"[]", low):
        data = b"[" + b",".join([beside] * offset + [inner] + [beside] * offset) + b"]"
        assert is_deep(data) is (depth > LEVELS_MAX)


def test_brackets_in_texts_are_no_levels() -> None:
    assert not is_deep(b'["' + b"[" * 500 + b'"]')
    assert not is_deep(b'{"a":"' + b'\\"[' * 500 + b'\\\\"}')
    assert is_deep(b'["\\\\",' + b"[" * 100 + b"]" * 100 + b"]")
