"""The line of every key in a TOML file, which ``tomllib`` does not report.

The text has been read by ``tomllib`` without an error, so nothing is checked again: keys are read
and values are skipped. ``("endpoints", 0, "name")`` is the path of a value. Values that are nested
too deeply or too long for a scenario raise ``TooMuch``, also where ``tomllib`` itself failed.
"""

from __future__ import annotations

import re
import tomllib

Path = tuple[str | int, ...]

DEEPEST = 16
NUMBER_MAX = 600  # characters; Python reads 4,300 digits, or another limit, never fewer than 640

_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\r\n#]*")
_STOP = re.compile(r"#[^\n]*|[\"'.,=\[{\n]")
_STRINGS = (  # The long ones first: they begin like the short ones.
    re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\])*"'),
    re.compile(r"'[^']*'"),
)


class TooMuch(Exception):
    """The first value that is nested too deeply or too long."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(reason)
        self.path, self.line, self.reason = path, line, reason


def check_keys(text: str) -> None:
    """Raises TooMuch for a key of too many dotted parts, which ``tomllib`` would read for hours.

    The cost is linear in the length of any text; ``tomllib`` reports text that is not TOML.
    """
    at, begin, line, dots = 0, 0, 1, 0
    while found := _STOP.search(text, at):
        at, sign = found.end(), found[0]
        if sign in "\"'":
            string = next(filter(None, (it.match(text, at - 1) for it in _STRINGS)), None)
            if string is None:
                return
            line += text.count("\n", at, string.end())
            at = string.end()
        elif sign == ".":
            dots += 1
            if dots > DEEPEST:
                path = tuple(part.strip() for part in text[begin : at - 1].split("."))
                raise TooMuch(path, line, f"is nested more than {DEEPEST} deep")
        else:
            line += sign == "\n"
            begin, dots = at, 0


def lines_of(text: str) -> dict[Path, int]:
    """The line (from 1) of every table, key and array item; raises TooMuch."""
    return _Walk(text).lines


class _Walk:
    """Reads the keys of a text from its begin to its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line, self._counted_to = 1, 0
        self._last_item: dict[Path, int] = {}  # of each array of tables
        self.lines: dict[Path, int] = {(): 1}
        table: Path = ()
        while self._skip(_GAP) < len(text):
            if text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return self._at

    def _mark(self, path: Path, at: int) -> None:
        self._line += self._text.count("\n", self._counted_to, at)
        self._counted_to = at
        if len(path) > DEEPEST:
            raise TooMuch(path, self._line, f"is nested more than {DEEPEST} deep")
        self.lines.setdefault(path, self._line)

    def _header(self) -> Path:
        begin = self._at
        double = self._text.startswith("[[", self._at)
        self._at += 2 if double else 1
        keys = self._keys()
        self._at += 2 if double else 1
        path: Path = ()
        for depth, key in enumerate(keys, start=1):
            path = (*path, key)
            if double and depth == len(keys):
                self._last_item[path] = self._last_item.get(path, -1) + 1
            if path in self._last_item:
                self._mark(path, begin)
                path = (*path, self._last_item[path])
        self._mark(path, begin)
        return path

    def _keys(self) -> list[str]:
        """The parts of a key like ``a.b."c d"``; moves behind the blanks that follow it."""
        keys: list[str] = []
        while True:
            self._skip(_BLANK)
            begin = self._at
            if self._text[begin] in "\"'":
                self._string()
                keys.append(tomllib.loads(f"k = {self._text[begin : self._at]}")["k"])
            else:
                self._skip(_BARE)
                keys.append(self._text[begin : self._at])
            self._skip(_BLANK)
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _pair(self, table: Path) -> None:
        begin = self._at
        path = table
        for key in self._keys():
            path = (*path, key)
            self._mark(path, begin)
        self._at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: Path) -> None:
        match self._text[self._at]:
            case '"' | "'":
                self._string()
            case "[":
                self._items(path)
            case "{":
                self._inline(path)
            case _:
                begin = self._at
                if len(self._text[begin : self._skip(_SCALAR)].rstrip()) > NUMBER_MAX:
                    reason = f"is a number of more than {NUMBER_MAX} characters"
                    raise TooMuch(path, self._line, reason)

    def _string(self) -> None:
        for pattern in _STRINGS:
            if found := pattern.match(self._text, self._at):
                self._at = found.end()
                return
        raise AssertionError("the text was read before")

    def _items(self, path: Path) -> None:
        self._at += 1
        index = 0
        while self._text[self._skip(_GAP)] != "]":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._mark((*path, index), self._at)
            self._value((*path, index))
            index += 1
        self._at += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        while self._text[self._skip(_GAP)] != "}":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._pair(path)
        self._at += 1
