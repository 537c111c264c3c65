"""The static files of the dashboard, its own and third-party, read once at start."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from msgspec import Struct
from msgspec.json import encode

from homing.languages.language import ENGLISH, LANGUAGES

_TYPES = {
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
    "txt": b"text/plain; charset=utf-8",
}


class File(Struct, frozen=True):
    """A file and its type."""

    content: bytes
    content_type: bytes


class Files:
    """All static files; their path contains a digest of their content, so they may be cached."""

    def __init__(self) -> None:
        self._files = dict(_read(files("homing.web.dashboard") / "static", ""))
        self._files.update(_messages())
        self._compressed: dict[str, bytes] = {}
        digest = hashlib.sha256()
        for name, file in sorted(self._files.items()):
            digest.update(name.encode() + b"\0" + file.content)
        self.root = f"/static/{digest.hexdigest()[:12]}"

    @property
    def names(self) -> list[str]:
        return list(self._files)

    def get(self, name: str) -> File | None:
        return self._files.get(name)

    def compressed(self, name: str) -> bytes:
        """A file with gzip; it is compressed when it is first asked for."""
        found = self._compressed.get(name)
        if found is None:
            found = self._compressed[name] = gzip.compress(self._files[name].content, mtime=0)
        return found


def _messages() -> Iterator[tuple[str, File]]:
    """The translations of the texts in scripts, a file for each language."""
    for code, language in LANGUAGES.items():
        if language is not ENGLISH:
            content = b"window.homingMessages = " + encode(language.scripts()) + b";\n"
            yield f"messages.{code}.js", File(content, _TYPES["js"])


def _read(folder: Traversable, path: str) -> Iterator[tuple[str, File]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _read(entry, f"{path}{entry.name}/")
        elif kind := _TYPES.get(entry.name.rpartition(".")[2]):
            yield path + entry.name, File(entry.read_bytes(), kind)
