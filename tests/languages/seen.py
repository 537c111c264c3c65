"""What a person can read in a page that no translation made: text outside of ⟦…⟧."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser

OPEN, CLOSE = "⟦", "⟧"
READ = ("title", "aria-label", "placeholder", "alt", "data-name", "data-label", "data-message")
LITERAL = frozenset(("script", "style", "pre", "code", "kbd", "time", "textarea"))
DATA = frozenset(("mono", "url", "tenant", "breaks", "url-title", "signed-in-as", "attempt-detail"))
VOID = frozenset(("meta", "link", "input", "img", "br", "hr", "path", "rect", "circle", "line"))
_LETTERS = re.compile(r"[A-Za-z]{2,}")


class Pseudo(Mapping[str, tuple[str, ...]]):
    """Translations of a language that does not exist: every message stands between brackets."""

    def __getitem__(self, message: str) -> tuple[str, ...]:
        return (f"{OPEN}{message}{CLOSE}",)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._depth = 0  # of brackets, which may be around elements
        self._hidden: list[str] = []  # elements whose text is data, from the outermost on

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        for name in READ:
            is_literal = name == "placeholder" and given.get("spellcheck") == "false"
            if name in given and not is_literal and not self._hidden:
                self._read(given[name], f"<{tag} {name}>")
        if tag in VOID:
            return
        is_data = tag in LITERAL or given.get("translate") == "no"
        is_data = is_data or bool(DATA & set(given.get("class", "").split()))
        is_data = is_data or (tag == "option" and "lang" in given)
        if self._hidden or is_data:
            self._hidden.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and tag == self._hidden[-1]:
            self._hidden.pop()

    def handle_data(self, data: str) -> None:
        text = ""
        for char in data:
            if char == OPEN:
                self._depth += 1
            elif char == CLOSE:
                self._depth -= 1
            elif not self._depth:
                text += char
        if not self._hidden:
            self._note(text, "text")

    def _read(self, value: str, place: str) -> None:
        depth, text = 0, ""
        for char in value:
            depth += (char == OPEN) - (char == CLOSE)
            text += char if not depth and char != CLOSE else ""
        self._note(text, place)

    def _note(self, text: str, place: str) -> None:
        if _LETTERS.search(text):
            self.found.append(f"{place}: {' '.join(text.split())}")


def untranslated(page: str, data: tuple[str, ...]) -> list[str]:
    """The texts of a page that are neither translated nor one of these patterns of data."""
    reader = _Reader()
    reader.feed(page)
    allowed = re.compile("|".join(data))
    return [it for it in reader.found if _LETTERS.search(allowed.sub("", it.partition(": ")[2]))]
