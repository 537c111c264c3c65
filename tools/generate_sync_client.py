"""Generates the blocking client from the asynchronous one: ``make docs`` runs it.

    python tools/generate_sync_client.py            write src/homing_client/sync_client.py
    python tools/generate_sync_client.py --check    exit with 1 if that file is out of date

``async`` and ``await`` are removed, a few names and sentences are replaced;
ruff then sorts the imports and formats the file. Comments and layout stay as they are.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/homing_client/async_client.py"
TARGET = ROOT / "src/homing_client/sync_client.py"

NOTICE = "# Generated from async_client.py by tools/generate_sync_client.py: do not edit.\n"
NAMES = {
    "AsyncHoming": "Homing",
    "AsyncIterator": "Iterator",
    "StreamConnection": "SocketConnection",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "asyncio": "time",
}
SENTENCES = {
    "the client for asyncio. Any number of tasks may share one.": (
        "the blocking client. Any number of threads may share one."
    ),
    "Lists are asynchronous iterators\nthat fetch": "Lists are iterators\nthat fetch",
    "A client of the Homing API, for one event loop at a time.": (
        "A client of the Homing API. Threads may share it."
    ),
}


def generate(source: str) -> str:
    """The text of the blocking client."""
    for old, new in SENTENCES.items():
        if source.count(old) != 1:
            sys.exit(f"{SOURCE.name} must contain this sentence once: {old!r}")
        source = source.replace(old, new)
    parts: list[str] = []
    line, column = 1, 0
    drop_space = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.start[0] > line:
            line, column = token.start[0], 0
        space = token.line[column : token.start[1]]
        parts.append("" if drop_space else space)
        line, column = token.end
        drop_space = token.type == tokenize.NAME and token.string in {"async", "await"}
        if token.type == tokenize.STRING:
            parts.append(_without_await(token.string))
        elif not drop_space:
            parts.append(NAMES.get(token.string, token.string))
    return _formatted(NOTICE + "".join(parts))


def _without_await(text: str) -> str:
    """A string, mostly a docstring, with its examples of code changed in the same way."""
    text = re.sub(r"\b(?:async|await) ", "", text)
    return re.sub(r"\w+", lambda found: NAMES.get(found[0], found[0]), text)


def _formatted(text: str) -> str:
    for command in (
        ("check", "--quiet", "--fix", "--unsafe-fixes", "--select", "I,UP028"),
        ("format", "--quiet"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", TARGET, "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
        text = done.stdout
    return text


def main() -> None:
    text = generate(SOURCE.read_text(encoding="utf-8"))
    if "--check" not in sys.argv:
        TARGET.write_text(text, encoding="utf-8")
    elif text != TARGET.read_text(encoding="utf-8"):
        sys.exit(f"{TARGET.relative_to(ROOT)} is out of date: run `make docs`.")


if __name__ == "__main__":
    main()
