"""Puts a mutant in the place of its module, in a process that nobody needs afterwards.

A change inside one function only needs that function's code: whoever has imported it has the
change. A change of the module itself (a constant, a default, a field) needs the module anew.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

SOURCES = Path(__file__).resolve().parents[2] / "src"


class Swap(MetaPathFinder):
    """Gives one module another text, when it is imported."""

    def __init__(self, file: Path, text: str) -> None:
        self._file, self._text = file, text
        self.name = ".".join(file.relative_to(SOURCES).with_suffix("").parts)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        swap = self

        class Loader(SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType | None:
                code: CodeType = compile(swap._text, self.path, "exec")
                return code

        loader = Loader(fullname, str(self._file))
        return importlib.util.spec_from_file_location(fullname, self._file, loader=loader)


def changed_function(before: str, after: str) -> CodeType | None:
    """The code of the one function that differs; None: the module itself does."""
    old, new = compile(before, "", "exec"), compile(after, "", "exec")
    if _outside(old) != _outside(new):
        return None
    were = {it.co_qualname: _shape(it) for it in functions(old)}
    differ = [it for it in functions(new) if were.get(it.co_qualname) != _shape(it)]
    alone = len(were) == sum(1 for _ in functions(old))  # no two functions of one name
    return differ[0] if alone and len(differ) == 1 else None


def functions(code: CodeType) -> Iterator[CodeType]:
    """Of a module: its functions and the methods of its classes, and nothing inside them."""
    for it in code.co_consts:
        if isinstance(it, CodeType):
            if _is_function(it):
                yield it
            elif not it.co_flags & inspect.CO_NEWLOCALS:  # a class body
                yield from functions(it)


def _is_function(code: CodeType) -> bool:
    """With a name by which it is found again: no lambda, no comprehension of the module."""
    return bool(code.co_flags & inspect.CO_NEWLOCALS) and not code.co_name.startswith("<")


def _outside(code: CodeType) -> tuple[object, ...]:
    """Module and class bodies without their functions."""
    consts = tuple(
        (it.co_qualname if _is_function(it) else _outside(it)) if isinstance(it, CodeType) else it
        for it in code.co_consts
    )
    return (code.co_code, code.co_names, repr(consts))


def _shape(code: CodeType) -> tuple[object, ...]:
    """What a function does, wherever it stands."""
    consts = tuple(_shape(it) if isinstance(it, CodeType) else repr(it) for it in code.co_consts)
    return (code.co_code, code.co_names, code.co_varnames, consts)


def put_in(file: Path, code: CodeType) -> bool:
    """Every function made from this file under this name gets the code; False: there is none."""
    found = [
        it
        for it in gc.get_objects()
        if isinstance(it, FunctionType)
        and it.__code__.co_qualname == code.co_qualname
        and it.__code__.co_filename == str(file)
    ]
    for function in found:
        function.__code__ = code
    return bool(found)
