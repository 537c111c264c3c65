"""Text that every database can hold: Unicode without NUL and without half a surrogate pair."""

from __future__ import annotations

import re

from homing.languages.sentences import say

TEXT_RULE = say(
    "must be Unicode text without NUL: remove the NUL (U+0000), "
    "the half of a surrogate pair or the byte that is not UTF-8"
)

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Whether both SQLite and PostgreSQL can hold this text."""
    if text.isascii():
        return "\0" not in text
    return _UNSTORABLE.search(text) is None


def storable(text: str) -> str:
    """The text with U+FFFD in place of each character that a database cannot hold."""
    return text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)
