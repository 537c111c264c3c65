"""Checks the address to open after signing in: only pages of the dashboard are allowed.

Browsers remove tabs and line breaks from an address and treat a backslash as a slash, so a text
that looks like a path can name another host. So no address is repaired here: it is used only if
every character is harmless and its path is the path of a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from starlette.routing import compile_path

CHARS_MAX = 2_000
_HARMLESS = re.compile(r"/[A-Za-z0-9_.~%/!$&'()*+,;=:@-]*(\?[A-Za-z0-9_.~%/!$&'()*+,;=:@?-]*)?")


class Targets:
    """The addresses of all pages."""

    def __init__(self, paths: Iterable[str], *, home: str = "/") -> None:
        self._pages = [compile_path(path)[0] for path in paths]
        self._home = home

    def own(self, to: str) -> str:
        """The address itself if it is the address of a page, otherwise that of the first page."""
        if len(to) > CHARS_MAX or not _HARMLESS.fullmatch(to):
            return self._home
        path = unquote(to.partition("?")[0])
        segments = path.split("/")[1:]
        if path != "/" and any(it in {"", ".", ".."} for it in segments):
            return self._home
        return to if any(page.match(path) for page in self._pages) else self._home
