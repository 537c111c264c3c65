"""The languages that people can choose, and their translations.

The translations of a language are in ``{code}.po`` beside this module, in the form that gettext and
every tool for translators use. ``make languages`` adds the messages that are new in the code, and a
test fails while one has no translation. A server reads all files once, at its start, with the texts
of scripts (``web/dashboard/files``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from msgspec import Struct

from homing.languages.sentences import At, Sentence, grouped, rfc3339

ACCEPTED_CHARS_MAX = 200  # of the browser's list of languages


class Entry(Struct, frozen=True):
    """A message with its translations: one for each form of a count."""

    one: str
    other: str
    forms: tuple[str, ...]
    is_script: bool  # it is in a script of a page


class Language(Struct, frozen=True):
    """A language: says sentences, and writes numbers."""

    code: str
    name: str  # in the language itself
    grouping: str = ","
    decimal: str = "."
    forms: int = 2  # of a count: one and other, or a single one

    def message(self, one: str, other: str = "", count: int = 0) -> str:
        """The translation of a message; a message without one stays English."""
        found = self._messages().get(one)
        if found is None:
            return other if other and count != 1 else one
        return found[0 if len(found) == 1 or count == 1 else 1] if other else found[0]

    def number(self, value: float, digits: int = 0) -> str:
        """``1,204.5`` as people who speak the language write it."""
        text = grouped(value, digits)
        if self.grouping == ",":
            return text
        return text.translate({ord(","): self.grouping, ord("."): self.decimal})

    def text(self, sentence: str) -> str:
        """A sentence in this language, with times in UTC; any other text as it is."""
        if not isinstance(sentence, Sentence):
            return sentence
        pieces = sentence.pieces(self)
        return "".join(rfc3339(it.ms) if isinstance(it, At) else it for it in pieces)

    def scripts(self) -> Mapping[str, tuple[str, ...]]:
        """The translations of the messages that scripts of pages use."""
        found = _entries(self.code) if self != ENGLISH else ()
        return {it.one: it.forms for it in found if it.is_script}

    def _messages(self) -> Mapping[str, tuple[str, ...]]:
        return {} if self.code == "en" else _translations(self.code)


ENGLISH = Language("en", "English")
LANGUAGES = {
    it.code: it
    for it in (
        ENGLISH,
        Language("nl", "Nederlands", ".", ","),
        Language("it", "Italiano", ".", ","),
        Language("ja", "日本語", forms=1),
        Language("zh", "中文", forms=1),
    )
}


def choose(chosen: str, accepted: str) -> Language:
    """The language that a person has chosen, or else the one that the browser prefers.

    ``accepted`` is the header ``Accept-Language``, like ``nl-BE,nl;q=0.9,en;q=0.8``.
    """
    if found := LANGUAGES.get(chosen):
        return found
    wanted: list[tuple[float, Language]] = []
    for part in accepted[:ACCEPTED_CHARS_MAX].split(","):
        tag, _, weight = part.partition(";")
        known = LANGUAGES.get(tag.strip().partition("-")[0].lower())
        if known is not None and (rank := _weight(weight)):
            wanted.append((-rank, known))
    return min(wanted, key=lambda it: it[0])[1] if wanted else ENGLISH


def _weight(text: str) -> float:
    name, _, value = text.strip().partition("=")
    if not name:
        return 1.0
    try:
        found = float(value)
    except ValueError:
        return 0.0
    return found if name.strip() == "q" and 0 <= found <= 1 else 0.0


@cache
def _translations(code: str) -> Mapping[str, tuple[str, ...]]:
    return {it.one: it.forms for it in _entries(code)}


@cache
def _entries(code: str) -> tuple[Entry, ...]:
    """The translated messages of a language; those that are fuzzy or empty are left out."""
    text = (files("homing.languages") / f"{code}.po").read_text("utf-8")
    found = (_entry(block) for block in text.split("\n\n")[1:])
    return tuple(it for it in found if it is not None)


def _entry(block: str) -> Entry | None:
    texts: dict[str, str] = {}
    name, is_script = "", False
    for line in block.splitlines():
        if line.startswith("#"):
            if line.startswith("#~") or (line.startswith("#,") and "fuzzy" in line):
                return None
            is_script |= line.startswith("#:") and ".js" in line
            continue
        before, quote, quoted = line.partition('"')
        if before.strip():
            name = before.strip()
        if quote:
            # The escapes of gettext (\" \\ \n \t) are those of JSON.
            texts[name] = texts.get(name, "") + json.loads(f'"{quoted}')
    forms = tuple(text for name, text in texts.items() if name.startswith("msgstr"))
    if not texts.get("msgid") or not all(forms):
        return None
    return Entry(texts["msgid"], texts.get("msgid_plural", ""), forms, is_script)
