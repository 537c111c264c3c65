"""Counts the steps of a piece of Python, exactly: the same on every machine and at any load.

A step is a line that is run, or a call into C. A call into C that walks its object (``list.count``,
``str.split``, ``bytes.join``) counts once for each item or character of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

_WALKING = {
    *("copy", "count", "decode", "encode", "extend", "find", "index", "insert", "isascii", "join"),
    *("lower", "lstrip", "partition", "remove", "replace", "reverse", "rfind", "rindex"),
    *("rpartition", "rsplit", "rstrip", "sort", "split", "splitlines", "strip", "translate"),
    "upper",
}
_SIZED = (str, bytes, bytearray, list, tuple, dict, set)


def steps(run: Callable[[], object]) -> int:
    """How many steps it takes, whether it returns or raises."""
    counted = 0

    def line(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal counted
        if event == "line":
            counted += 1
        return line

    def call(_frame: FrameType, event: str, arg: Any) -> None:
        nonlocal counted
        if event == "c_call":
            walked = getattr(arg, "__self__", None)
            walks = arg.__name__ in _WALKING and isinstance(walked, _SIZED)
            counted += len(walked) if walks and walked is not None else 1

    before = sys.gettrace(), sys.getprofile()
    sys.settrace(line)
    sys.setprofile(call)
    try:
        run()
    except Exception:  # noqa: BLE001 - a refusal has its cost too
        pass
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return counted
