"""Only ``EndpointQueue`` assigns the attributes of an endpoint in memory."""

from __future__ import annotations

import ast
from collections import deque
from pathlib import Path
from types import MappingProxyType

import pytest

ENGINE = Path(__file__).resolve().parents[2] / "src" / "homing" / "engine"
QUEUE = ENGINE / "queue.py"
# The methods that change a container: those that its frozen relatives do not have.
CHANGES = {it for kind in (deque, dict, list, set) for it in dir(kind)} - {
    it for kind in (tuple, frozenset, MappingProxyType) for it in dir(kind)
}


def owned_attributes() -> set[str]:
    """What ``EndpointQueue`` alone may assign."""
    owner = next(
        it
        for it in ast.parse(QUEUE.read_text()).body
        if isinstance(it, ast.ClassDef) and it.name == "EndpointQueue"
    )
    slots = next(
        it.value
        for it in owner.body
        if isinstance(it, ast.Assign) and ast.unparse(it.targets[0]) == "__slots__"
    )
    return set(ast.literal_eval(slots))


def assigned(text: str, owned: set[str]) -> list[str]:
    """The places in a module that change such an attribute of another object than ``self``."""

    def is_owned(node: ast.AST) -> bool:
        if isinstance(node, ast.Subscript | ast.Starred):
            return is_owned(node.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr == "queued"  # It returns one of the lanes.
        if not isinstance(node, ast.Attribute) or ast.unparse(node.value) == "self":
            return False
        return node.attr in owned

    found = []
    for node in ast.walk(ast.parse(text)):
        changed: list[ast.expr] = []
        match node:
            case ast.Attribute() | ast.Subscript() if not isinstance(node.ctx, ast.Load):
                changed = [node]
            case ast.Call(func=ast.Attribute(value=value, attr=verb)) if verb in CHANGES:
                changed = [value]
            case ast.Call(
                func=ast.Name(id="setattr" | "delattr"), args=[_, ast.Constant(name), *_]
            ):
                if name in owned:
                    found.append(ast.unparse(node))
            case _:
                pass
        found += [f"line {it.lineno}: {ast.unparse(it)}" for it in changed if is_owned(it)]
    return found


@pytest.mark.parametrize(
    "path", sorted(ENGINE.rglob("*.py")), ids=lambda path: str(path.relative_to(ENGINE))
)
def test_only_the_queue_of_an_endpoint_assigns_its_attributes(path: Path) -> None:
    if path != QUEUE:
        assert assigned(path.read_text(), owned_attributes()) == []


@pytest.mark.parametrize(
    "line",
    [
        "queue.more_fresh = True",
        "queue.more_fresh, x = True, 1",
        "queue.expire_at: int = 0",
        "queue.slots_taken[lane] += 1",
        "queue.in_flight[1] = lane",
        "del queue.in_flight[1]",
        "for queue.ramp in ():\n    pass",
        "one.queue.fresh.append(work)",
        "queue.queued(lane).popleft()",
        "self.queues[1].rate_limited.clear()",
        "setattr(queue, 'ramp', None)",
    ],
)
def test_a_module_that_changes_a_queue_from_outside_is_found(line: str) -> None:
    assert len(assigned(line, owned_attributes())) == 1
