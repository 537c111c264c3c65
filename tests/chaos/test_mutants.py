"""The mutator makes the small changes that it should, and leaves alone what does not matter."""

from __future__ import annotations

import pytest

from chaos.mutants import mutants


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("a = b < c", {"b <= c"}),
        ("a = b is None", {"b is not None"}),
        ("a = b + 7", {"b - 7", "8"}),
        ("a = b and c", {"b or c"}),
        ("a = b if c else d", {"b if not c else d"}),
        ("def f():\n    return a", {"return None"}),
        ("def f():\n    g()\n    self.x = 1", {"pass", "2"}),
        ("def f():\n    raise a", {"pass"}),
        ("def f(a: 'x' = 1) -> int:\n    'Docs.'\n    return None", {"2"}),
        ("def f():\n    assert a == 1\n    log.info('x', n=1)", set()),
        ("class A(Struct, frozen=True, gc=False):\n    pass", set()),
    ],
)
def test_each_change_is_made_alone(text: str, after: set[str]) -> None:
    found = mutants(text)
    assert {it.after for it in found} == after
    assert len({it.text for it in found}) == len(found)
