"""Characters of a text that hide or reorder it get a name; ``characters.js`` does the same.

Letters that a URL has in percent-encoding are shown as letters.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import islice
from urllib.parse import unquote_to_bytes

from markupsafe import Markup, escape

# Control and format characters, odd spaces, tags; not the tab and the line feed.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u061c\u115f\u1160\u180e\u2000-\u200f\u2028-\u202f"
    "\u205f-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
NAMED_MAX = 1_000
_ENCODED = re.compile("(?:%[89A-Fa-f][0-9A-Fa-f])+")
_SHOWN = Markup('<span class="v-char" title="{}">U+{}</span>')


def readable(url: str) -> str:
    """The URL with percent-encoded letters of other scripts decoded; nothing else is changed."""
    return _ENCODED.sub(_decoded, url)


def _decoded(match: re.Match[str]) -> str:
    """The characters, if all of them can be read; else the text as it is."""
    try:
        text = unquote_to_bytes(match[0]).decode()
    except UnicodeDecodeError:
        return match[0]
    return text if text.isprintable() and not _HIDDEN.search(text) else match[0]


def visible(text: str) -> Markup:
    """The text as markup, with a name in place of each hidden character.

    After NAMED_MAX of them the others become U+FFFD: a page is not much larger than its texts.
    """
    named = islice(_HIDDEN.finditer(text), NAMED_MAX)
    parts: list[Markup] = []
    at = 0
    for match in named:
        parts += [escape(text[at : match.start()]), _named(match[0])]
        at = match.end()
    parts.append(escape(_HIDDEN.sub("\ufffd", text[at:])))
    return Markup("").join(parts)


@lru_cache(maxsize=512)
def _named(character: str) -> Markup:
    name = unicodedata.name(character, "control character").lower()
    return _SHOWN.format(name, f"{ord(character):04X}")
