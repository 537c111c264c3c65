"""Planted bugs: small changes of a function's syntax tree, or of a named SQL statement, in memory.

A change names a module, a function and the code to be replaced in it. The code is compared as a
syntax tree, so formatting and comments do not matter, and neither does the place of the code in
its function. Exactly one place must match; the error names the function and the nearest code.

In the old code ``...`` stands for any expression, or for any block of statements. The first
``...`` in the new code is then replaced by the code that the first ``...`` of the old code stood
for, the second by the second, and so on.

A changed function keeps its identity and only gets another code object. Every module that has
imported the function sees the bug, and the old code object comes back afterwards.
"""

from __future__ import annotations

import ast
import copy
import difflib
import importlib
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import homing
from homing.store.statements import statements

Code = ast.expr | list[ast.stmt]

_BLOCKS = ("body", "orelse", "finalbody")
_SKIPPED = frozenset({"ctx", "kind", "type_comment"})
_NEAREST = 3


class CannotPlant(AssertionError):
    """A change has no place in the code, or more than one."""


@dataclass(frozen=True)
class CodeChange:
    """In this function, this code becomes that; no new code: the old code is left out."""

    module: str
    function: str
    old: str
    new: str = ""

    @contextmanager
    def made(self) -> Iterator[None]:
        function = self.target()
        planted = self._changed(function)
        before = function.__code__
        function.__code__ = planted
        try:
            yield
        finally:
            function.__code__ = before

    def target(self) -> FunctionType:
        """The function that is changed."""
        try:
            found: object = importlib.import_module(self.module)
            for part in self.function.split("."):
                found = inspect.getattr_static(found, part)
        except (ImportError, AttributeError):
            raise CannotPlant(
                f"{self.module} has no {self.function}{_elsewhere(self.function)}"
            ) from None
        if isinstance(found, property):
            found = found.fget
        if isinstance(found, classmethod | staticmethod):
            found = found.__func__
        found = inspect.unwrap(found) if callable(found) else found
        if not isinstance(found, FunctionType):
            raise CannotPlant(f"{self.module}:{self.function} is no function: {found!r}")
        return found

    def _changed(self, function: FunctionType) -> CodeType:
        """The code of the function with the change: from the file in which it is written."""
        name, code = function.__code__.co_qualname, function.__code__
        file = Path(code.co_filename)
        tree = ast.parse(file.read_text(), str(file))
        node = _definition(tree, name, code.co_firstlineno)
        if node is None:
            raise CannotPlant(f"{file} has no {name}")
        replace_in(node, self.old, self.new, where=f"{self.module}:{self.function}")
        ast.fix_missing_locations(tree)
        changed = _code(compile(tree, str(file), "exec", dont_inherit=True), name)
        if changed.co_freevars != code.co_freevars:
            raise CannotPlant(
                f"{self.module}:{self.function} would close over {changed.co_freevars}, "
                f"not over {code.co_freevars}"
            )
        return changed


@dataclass(frozen=True)
class SqlChange:
    """In this statement of the SQLite store, this text becomes that, whatever the spacing."""

    statement: str
    old: str
    new: str

    @contextmanager
    def made(self) -> Iterator[None]:
        known = statements("sqlite")
        if self.statement not in known:
            near = ", ".join(difflib.get_close_matches(self.statement, known, _NEAREST)) or "none"
            raise CannotPlant(f"there is no statement {self.statement}; near it: {near}")
        before = known[self.statement]
        pattern = r"\s+".join(map(re.escape, self.old.split()))
        found = len(re.findall(pattern, before.text))
        if found != 1:
            raise CannotPlant(
                f"statement {self.statement} has {self.old!r} {found} times:\n{before.text}"
            )
        changed = re.sub(pattern, lambda _: self.new, before.text)
        known[self.statement] = before._replace(text=changed)
        try:
            yield
        finally:
            known[self.statement] = before


Change = CodeChange | SqlChange


def replace(module: str, function: str, old: str, new: str) -> Change:
    """In this function, the expression, argument or statements ``old`` become ``new``."""
    return CodeChange(module, function, old, new)


def remove(module: str, function: str, old: str) -> Change:
    """In this function, the statements or the keyword argument ``old`` are left out."""
    return CodeChange(module, function, old)


def replace_sql(statement: str, old: str, new: str) -> Change:
    """In this statement of the SQLite store, the text ``old`` becomes ``new``."""
    return SqlChange(statement, old, new)


@contextmanager
def planted(changes: tuple[Change, ...]) -> Iterator[None]:
    """While this is open, the build has these changes."""
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change.made())
        yield


def some_in_every_run(values: Iterable[Any]) -> list[Any]:
    """The values as parameters of a test: two are in every run, the others in ``make long``."""
    every = set(itertools.islice(values, 2))
    return [pytest.param(it, marks=[] if it in every else pytest.mark.long) for it in values]


# --- finding a function ----------------------------------------------------------------------


def _definition(tree: ast.AST, name: str, line: int) -> ast.AST | None:
    """The function of this qualified name; of several, the one that begins at this line."""
    found: list[ast.AST] = [tree]
    for part in (it for it in name.split(".") if it != "<locals>"):
        found = [inner for outer in found for inner in _named(outer, part)]
    begins = [it for it in found if line in {_first_line(it), _line(it)}]
    return next(iter(begins or found), None)


def _named(outer: ast.AST, name: str) -> Iterator[ast.AST]:
    """Classes and functions of this name, directly inside, under whatever condition."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    for node in ast.iter_child_nodes(outer):
        if isinstance(node, kinds):
            if node.name == name:
                yield node
        elif isinstance(node, ast.stmt):
            yield from _named(node, name)


def _first_line(node: ast.AST) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([_line(node), *map(_line, decorators)])


def _code(module: CodeType, name: str) -> CodeType:
    for it in module.co_consts:
        if isinstance(it, CodeType):
            if it.co_qualname == name:
                return it
            if name.startswith(f"{it.co_qualname}."):
                return _code(it, name)
    raise CannotPlant(f"{module.co_filename} compiles to no {name}")


def _elsewhere(function: str) -> str:
    """Other modules of the package that define such a function, for the error."""
    root = Path(homing.__file__).parent
    found = []
    for file in sorted(root.rglob("*.py")):
        if _definition(ast.parse(file.read_text()), function, 0) is not None:
            parts = file.relative_to(root.parent).with_suffix("").parts
            found.append(".".join(parts).removesuffix(".__init__"))
    return f"; {', '.join(found)} has one" if found else ", nor has any other module"


# --- matching and replacing ------------------------------------------------------------------


def replace_in(tree: ast.AST, old: str, new: str, *, where: str) -> None:
    """Change the one place of the tree whose code is ``old``."""
    places = list(_places(tree, old, new))
    if len(places) != 1:
        lines = ", ".join(str(it.line) for it in places)
        raise CannotPlant(
            f"{where} has this {len(places)} times (lines {lines}): {old!r}"
            if places
            else f"{where} has no {old!r}; nearest: {_nearest(tree, old)}"
        )
    places[0].change()


@dataclass(frozen=True)
class _Place:
    """Where a change can be made: items of a list, or an attribute of a node."""

    holder: ast.AST
    field: str
    first: int | None  # None: the attribute itself
    old: list[ast.AST]
    new: list[ast.AST]

    @property
    def line(self) -> int:
        return _line(self.old[0])

    def change(self) -> None:
        if self.first is None:
            (value,) = self.new
            setattr(self.holder, self.field, value)
        else:
            block = getattr(self.holder, self.field)
            block[self.first : self.first + len(self.old)] = self.new


def _line(node: ast.AST) -> int:
    line: int = getattr(node, "lineno", 0)
    return line


def _places(tree: ast.AST, old: str, new: str) -> Iterator[_Place]:
    wanted, given = _parsed(old), _parsed(new)
    lone = _expression(wanted)
    if lone is not None and (value := _expression(given)) is not None:
        yield from _expressions(tree, lone, value)
    elif wanted is not None and given is not None:
        yield from _statements(tree, wanted, given or [ast.Pass()])
    if not new and (argument := _argument(old)) is not None:
        yield from _arguments(tree, argument)


def _parsed(text: str) -> list[ast.stmt] | None:
    try:
        return ast.parse(inspect.cleandoc(text)).body
    except SyntaxError:
        return None


def _expression(body: list[ast.stmt] | None) -> ast.expr | None:
    """The expression, if it is nothing more."""
    if body is not None and len(body) == 1 and isinstance(body[0], ast.Expr):
        return body[0].value
    return None


def _argument(text: str) -> ast.keyword | None:
    call = _expression(_parsed(f"call({text})"))
    if isinstance(call, ast.Call) and not call.args and len(call.keywords) == 1:
        return call.keywords[0]
    return None


def _expressions(tree: ast.AST, wanted: ast.expr, given: ast.expr) -> Iterator[_Place]:
    for holder in ast.walk(tree):
        for field, value in ast.iter_fields(holder):
            several = isinstance(value, list)
            for number, it in enumerate(value if several else [value]):
                stood_for: list[Code] = []
                if isinstance(it, ast.expr) and _same(wanted, it, stood_for):
                    new = _filled(given, stood_for, line=it.lineno)
                    if hasattr(new, "ctx"):
                        new.ctx = getattr(it, "ctx", ast.Load())
                    yield _Place(holder, field, number if several else None, [it], [new])


def _statements(tree: ast.AST, wanted: list[ast.stmt], given: list[ast.stmt]) -> Iterator[_Place]:
    for holder in ast.walk(tree):
        for field in _BLOCKS:
            block = getattr(holder, field, None)
            if not isinstance(block, list):
                continue
            for first in range(len(block) - len(wanted) + 1):
                part = block[first : first + len(wanted)]
                stood_for: list[Code] = []
                if _same(wanted, part, stood_for):
                    new = _filled(ast.Module(given, []), stood_for, line=part[0].lineno)
                    assert isinstance(new, ast.Module)
                    yield _Place(holder, field, first, part, list(new.body))


def _arguments(tree: ast.AST, wanted: ast.keyword) -> Iterator[_Place]:
    for holder in ast.walk(tree):
        if isinstance(holder, ast.Call):
            for number, it in enumerate(holder.keywords):
                if _same(wanted, it, []):
                    yield _Place(holder, "keywords", number, [it], [])


def _is_anything(node: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _is_any_block(block: object) -> bool:
    if not isinstance(block, list) or len(block) != 1 or not isinstance(block[0], ast.Expr):
        return False
    return _is_anything(block[0].value)


def _same(wanted: object, found: object, stood_for: list[Code]) -> bool:
    """Whether the code is as wanted; the code that each ``...`` stands for is appended."""
    if _is_anything(wanted) and isinstance(found, ast.expr):
        stood_for.append(found)
        return True
    if _is_any_block(wanted) and isinstance(found, list):
        stood_for.append(found)
        return True
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(wanted) == len(found)
            and all(_same(a, b, stood_for) for a, b in zip(wanted, found, strict=True))
        )
    if isinstance(wanted, ast.AST):
        return type(wanted) is type(found) and all(
            _same(value, getattr(found, field), stood_for)
            for field, value in ast.iter_fields(wanted)
            if field not in _SKIPPED
        )
    return type(wanted) is type(found) and wanted == found


def _filled(given: ast.AST, stood_for: list[Code], *, line: int) -> ast.AST:
    """The new code at this line, with the code that each ``...`` of the old code stood for."""
    new = copy.deepcopy(given)
    for node in ast.walk(new):
        if isinstance(node, ast.expr | ast.stmt | ast.keyword):
            node.lineno = node.end_lineno = line
    filled: ast.AST = _Fill(stood_for).visit(new)
    return filled


class _Fill(ast.NodeTransformer):
    def __init__(self, stood_for: list[Code]) -> None:
        self._left = iter(stood_for)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        if not _is_anything(node.value):
            return self.generic_visit(node)
        code = next(self._left)
        return code if isinstance(code, list) else ast.copy_location(ast.Expr(code), node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        code = next(self._left) if _is_anything(node) else node
        assert isinstance(code, ast.AST)
        return code


def _nearest(tree: ast.AST, old: str) -> str:
    """The pieces of the function's code that look most like it."""
    pieces = {
        ast.unparse(it).split("\n")[0]: None
        for it in ast.walk(tree)
        if isinstance(it, ast.expr | ast.stmt | ast.keyword)
    }
    near = difflib.get_close_matches(old, list(pieces), _NEAREST, 0.3)
    return " | ".join(near) if near else "nothing like it"
