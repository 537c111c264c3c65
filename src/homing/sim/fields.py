"""Reads the fields of a table one by one, and collects everything that is wrong with them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any

from homing.sim.toml_lines import Path

DAY_MS = 86_400_000

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": DAY_MS}
_PART = r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)"
_PARTS = re.compile(_PART, re.ASCII)
_DURATION = re.compile(rf"\s*(?:{_PART}\s*)+", re.ASCII)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_MS = 1e18  # Longer durations become this: more than any limit, and still exact.
_SHOWN_MAX = 60
_DECIMAL_BITS = 2_000  # Python refuses to write very long numbers with decimal digits.
DURATION_RULE = 'must be a duration like "90s", "1h30m" or "500ms"'


class Problems:
    """Everything that is wrong, with the path of the value."""

    def __init__(self) -> None:
        self.found: list[tuple[Path, str]] = []

    def add(self, path: Path, reason: str) -> None:
        self.found.append((path, reason))


def field_name(path: Path) -> str:
    """``endpoints[0].outages[1].from``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{_short(part if _BARE.fullmatch(part) else shown(part))}"
    return text.removeprefix(".")


def read_duration(text: str) -> int | None:
    """Milliseconds, or None if it is not a duration."""
    if not _DURATION.fullmatch(text):
        return None
    ms = sum(float(number) * _UNITS_MS[unit] for number, unit in _PARTS.findall(text))
    return round(min(ms, _LONGEST_MS))


class Fields:
    """One table. A value that is wrong is reported and read as its default."""

    def __init__(self, table: Any, path: Path, problems: Problems) -> None:
        self._path, self._problems = path, problems
        self._asked: list[str] = []
        self.values: dict[str, Any] = {}
        self.fine = True  # no problem of its own so far
        if isinstance(table, dict):
            self.values = table
        else:
            self.wrong("", "must be a table")
            self._problems = Problems()  # Problems that follow from that are not reported.

    def has(self, key: str) -> bool:
        return key in self.values

    def wrong(self, key: str, reason: str) -> None:
        """Report a problem; ``key`` is "" if it is about the whole table."""
        self.fine = False
        self._problems.add((*self._path, key) if key else self._path, reason)

    def _get(self, key: str, *, needed: bool) -> Any:
        self._asked.append(key)
        value = self.values.get(key)
        if value is None and needed:
            self.wrong("", f"needs {key}")
        return value

    def text(self, key: str, default: str = "", *, needed: bool = False) -> str:
        value = self._get(key, needed=needed)
        if value is None:
            return default
        if not isinstance(value, str) or not 1 <= len(value) <= 256 or not value.isprintable():
            self.wrong(key, "must be text of 1 to 256 printable characters")
            return default
        return value

    def choice(self, key: str, choices: Collection[str], *, what: str = "") -> str:
        value = self._get(key, needed=True)
        if value is None:
            return ""
        if not isinstance(value, str) or value not in choices:
            known = ", ".join(islice(choices, 12)) + (", …" if len(choices) > 12 else "")
            self.wrong(key, f"must be {what or 'one of'} {known}, not {shown(value)}")
            return ""
        return str(value)

    def whole(self, key: str, low: int, high: int) -> int | None:
        value = self._get(key, needed=False)
        if value is None:
            return None
        if type(value) is not int or not low <= value <= high:
            self.wrong(key, f"must be a whole number from {low} to {high}, not {shown(value)}")
            return None
        return value

    def number(self, key: str, low: float, high: float) -> float | None:
        value = self._get(key, needed=False)
        if value is None:
            return None
        if type(value) not in (int, float) or not low <= value <= high:
            self.wrong(key, f"must be a number from {low:g} to {high:g}, not {shown(value)}")
            return None
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._get(key, needed=False)
        if value is None:
            return False
        if value is not True:
            self.wrong(key, f"can only be true, not {shown(value)}")
        return True

    def switch(self, key: str, *, default: bool) -> bool:
        """A switch that is true or false."""
        value = self._get(key, needed=False)
        if value is not None and not isinstance(value, bool):
            self.wrong(key, f"must be true or false, not {shown(value)}")
        return value if isinstance(value, bool) else default

    def duration(self, key: str, low: int, high: int, *, needed: bool = False) -> int | None:
        """A duration in milliseconds, from its text."""
        value = self._get(key, needed=needed)
        if value is None:
            return None
        ms = read_duration(value) if isinstance(value, str) else None
        if ms is None:
            self.wrong(key, f"{DURATION_RULE}, not {shown(value)}")
        elif not low <= ms <= high:
            self.wrong(key, f"must be {show_ms(low)} to {show_ms(high)}, not {shown(value)}")
        else:
            return ms
        return None

    def tables(self, key: str) -> list[Fields]:
        value = self._get(key, needed=False)
        if value is None:
            return []
        if not isinstance(value, list):
            self.wrong(key, "must be an array of tables")
            return []
        path = (*self._path, key)
        return [Fields(one, (*path, index), self._problems) for index, one in enumerate(value)]

    def table(self, key: str) -> Fields:
        value = self._get(key, needed=False)
        return Fields({} if value is None else value, (*self._path, key), self._problems)

    def take(self, key: str) -> Any:
        """The value as it is, without a check."""
        return self._get(key, needed=True)

    def spelled(self, key: str) -> str:
        """The key as it was written: ``window`` may stand for ``window_ms``."""
        short = key.removesuffix("_ms")
        return short if key not in self.values and short in self.values else key

    def end(self, known: Sequence[str] = ()) -> None:
        """Report keys that were not read."""
        names = sorted({*self._asked, *known})
        for key in self.values:
            if key not in self._asked:
                close = difflib.get_close_matches(key, names, n=1)
                known = f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
                self.wrong(key, f"is not known here ({known})")


def show_ms(ms: int) -> str:
    """A duration as a scenario writes it: ``500ms``, ``90s``, ``1h30m``."""
    if ms == 0:
        return "0s"
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, ms = divmod(ms, _UNITS_MS[unit])
        text += f"{count}{unit}" if count else ""
    return text


def shown(value: object) -> str:
    """A value as a scenario writes it, on one line, cut if it is long."""
    match value:
        case str():
            return _short(printable(json.dumps(value, ensure_ascii=False)))
        case bool():
            return str(value).lower()
        case int():
            return _short(str(value) if value.bit_length() <= _DECIMAL_BITS else hex(value))
        case list():
            return "an array"
        case dict():
            return "a table"
        case _:
            return _short(str(value))


def printable(text: str) -> str:
    """The text with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}…"
