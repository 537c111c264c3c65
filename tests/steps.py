"""Counts the steps of a piece of Python, exactly: the same on every machine and at any load.

A step is a line that is run, or a call into C. A call into C that walks its object (``list.count``,
``str.split``, ``bytes.join``) counts once for each item or character of it. Searches in text do
not: a scanner gives them the place where to begin, which is not seen here.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_WALKING = {
    *("copy", "count", "decode", "encode", "find", "index", "insert", "isascii", "join"),
    *("lower", "lstrip", "partition", "remove", "replace", "reverse", "rfind", "rindex"),
    *("rpartition", "rsplit", "rstrip", "sort", "split", "splitlines", "strip", "translate"),
    "upper",
}
_SEARCHES = {"count", "find", "index", "rfind", "rindex"}
_TEXT = (str, bytes, bytearray)
_SIZED = (str, bytes, bytearray, list, tuple, dict, set)


class Counted:
    """Counts what runs in this thread while it is open."""

    def __init__(self) -> None:
        self.steps = 0
        self._before: tuple[Any, Any] = (None, None)

    def __enter__(self) -> Counted:
        self._before = sys.gettrace(), sys.getprofile()
        sys.settrace(self._line)
        sys.setprofile(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before[0])
        sys.setprofile(self._before[1])

    def _line(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            self.steps += 1
        return self._line

    def _call(self, _frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            walked = getattr(arg, "__self__", None)
            walks = arg.__name__ in _WALKING and isinstance(walked, _SIZED)
            if arg.__name__ in _SEARCHES and isinstance(walked, _TEXT):
                walks = False
            self.steps += len(walked) if walks and walked is not None else 1


def steps(run: Callable[[], object]) -> int:
    """How many steps it takes, whether it returns or raises."""
    with Counted() as counted, contextlib.suppress(Exception):
        run()
    return counted.steps
