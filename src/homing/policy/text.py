"""Text that every database can hold, and names that are compared ignoring case.

Text that can be stored is Unicode without NUL and without half a surrogate pair.
"""

from __future__ import annotations

import re
import string

from homing.languages.sentences import say

TEXT_RULE = say(
    "must be Unicode text without NUL: remove the NUL (U+0000), "
    "the half of a surrogate pair or the byte that is not UTF-8"
)

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def ascii_lower(text: str) -> str:
    """The text with the letters A to Z in lower case.

    For names that decide who somebody is. Full case folding makes two different names one: it
    turns the long s into "s", and the sign of Kelvin into "k".
    """
    return text.translate(_LOWER)


def is_storable(text: str) -> bool:
    """Whether both SQLite and PostgreSQL can hold this text."""
    if text.isascii():
        return "\0" not in text
    return _UNSTORABLE.search(text) is None


def storable(text: str) -> str:
    """The text with U+FFFD in place of each character that a database cannot hold."""
    return text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)
