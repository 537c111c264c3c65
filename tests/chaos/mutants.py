"""Small changes of a module, one at a time: each should make some test fail."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
}
_NO_MATTER = {"strict", "gc", "frozen", "kw_only", "array_like", "forbid_unknown_fields"}
_BODIES = ("body", "orelse", "finalbody")


class Mutant(NamedTuple):
    """One change: where, what it was, what it is, and the module with it."""

    line: int
    before: str
    after: str
    text: str


class Change(NamedTuple):
    """How to make one change to a tree and how to take it back."""

    shown: ast.AST
    make: Callable[[], None]
    undo: Callable[[], None]


def mutants(text: str) -> list[Mutant]:
    """All of one module, in order of lines."""
    tree = ast.parse(text)
    _leave_out(tree)
    found = []
    for change in _changes(tree):
        before = ast.unparse(change.shown)
        change.make()
        after = ast.unparse(change.shown)
        found.append(
            Mutant(
                getattr(change.shown, "lineno", 0),
                " ".join(before.split())[:90],
                " ".join(after.split())[:90],
                ast.unparse(tree),
            )
        )
        change.undo()
    return sorted(it for it in found if it.before != it.after)


def _leave_out(tree: ast.AST) -> None:
    """Mark what would not change anything: assertions, types, logging, what memory looks like."""
    for node in ast.walk(tree):
        match node:
            case ast.Assert():
                _skip(node)
            case ast.AnnAssign():
                _skip(node.annotation)
            case ast.arg(annotation=ast.AST() as annotation):
                _skip(annotation)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.returns is not None:
                _skip(node.returns)
            case ast.keyword() if node.arg in _NO_MATTER:
                _skip(node)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=logger))) if ast.unparse(
                logger
            ).endswith("log"):
                _skip(node)
            case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):
                _skip(node)


def _skip(node: ast.AST) -> None:
    for it in ast.walk(node):
        it.skipped = True  # type: ignore[attr-defined]


def _changes(tree: ast.AST) -> Iterator[Change]:
    for node in ast.walk(tree):
        if not getattr(node, "skipped", False):
            yield from _inside(node)
            for name in _BODIES:
                yield from _dropped(node, getattr(node, name, None))


def _set(shown: ast.AST, holder: Any, name: str | int, value: Any) -> Change:
    """Put a value where another was."""
    if isinstance(name, int):
        old = holder[name]
        return Change(
            shown,
            lambda: holder.__setitem__(name, value),
            lambda: holder.__setitem__(name, old),
        )
    old = getattr(holder, name)
    return Change(shown, lambda: setattr(holder, name, value), lambda: setattr(holder, name, old))


def _inside(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                yield _set(node, node.ops, index, _COMPARE[type(operator)]())
        case ast.BinOp() if type(node.op) in _BINARY:
            yield _set(node, node, "op", _BINARY[type(node.op)]())
        case ast.BoolOp(op=ast.And()):
            yield _set(node, node, "op", ast.Or())
        case ast.BoolOp():
            yield _set(node, node, "op", ast.And())
        case ast.Constant(value=bool() as value):
            yield _set(node, node, "value", not value)
        case ast.Constant(value=int() as value):
            yield _set(node, node, "value", value + 1)
        case ast.If() | ast.IfExp():
            inverse = ast.UnaryOp(ast.Not(), node.test)
            yield _set(node, node, "test", ast.copy_location(inverse, node.test))
        case ast.Return(value=ast.expr() as value) if not (
            isinstance(value, ast.Constant) and value.value is None
        ):
            yield _set(node, node, "value", ast.Constant(None))


def _dropped(parent: ast.AST, body: object) -> Iterator[Change]:
    """A statement that does something, left out."""
    if not isinstance(body, list) or isinstance(parent, ast.Module | ast.ClassDef):
        return
    for index, statement in enumerate(body):
        if getattr(statement, "skipped", False):
            continue
        match statement:
            case ast.Expr(value=ast.Constant()):
                continue  # a docstring
            case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
                yield _drop(body, index, statement)
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield _drop(body, index, statement)


def _drop(body: list[ast.stmt], index: int, statement: ast.stmt) -> Change:
    shell = ast.Module([statement], [])
    shell.lineno = statement.lineno  # type: ignore[attr-defined]
    nothing = ast.copy_location(ast.Pass(), statement)

    def make() -> None:
        body[index] = nothing
        shell.body = [nothing]

    def undo() -> None:
        body[index] = statement

    return Change(shell, make, undo)
