"""Brings the translations up to date with the texts in the code (``make languages``).

New messages are added without a translation, messages that are gone are removed. ``--check``
changes nothing and fails if a file is not up to date or lacks a translation, as ``make test`` does.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from babel.messages.catalog import Catalog
from babel.messages.plurals import get_plural
from babel.messages.pofile import read_po, write_po
from jinja2.ext import babel_extract

from homing.languages.language import ENGLISH, LANGUAGES

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "homing"
FOLDER = SOURCES / "languages"
NOT_SHOWN = frozenset(("BadSetting", "DataInUse", "Stale"))  # with those that are made from them
_SCRIPT = re.compile(
    r'\bt\(\s*("(?:[^"\\]|\\.)*")|\btn\(\s*("(?:[^"\\]|\\.)*"),\s*("(?:[^"\\]|\\.)*")'
)
_SCRIPT_CALL = re.compile(r"(?<![.\w])tn?\((?!\s*\")")
_JINJA = {
    "newstyle_gettext": "true",
    "trimmed": "true",
    "trim_blocks": "true",
    "lstrip_blocks": "true",
    "silent": "false",
}


class Message(NamedTuple):
    """A message of the code; ``other`` is its plural, or empty."""

    one: str
    other: str
    place: str


class NotLiteral(Exception):
    """A message that no tool can collect: it is not written as a literal."""


def collect() -> list[Message]:
    """All messages of the code, in the order of files."""
    found: list[Message] = []
    for path in sorted(SOURCES.rglob("*")):
        place = path.relative_to(SOURCES).as_posix()
        if path.suffix == ".py":
            found += of_python(path.read_text(), place)
        elif path.suffix == ".html":
            found += of_template(path.read_bytes(), place)
        elif path.suffix == ".js" and "vendor" not in place and path.name != "language.js":
            found += of_script(path.read_text(), place)
    return [*found, *of_errors()]


def of_python(text: str, place: str) -> Iterator[Message]:
    """The messages of ``say(…)`` and ``many(…)``."""
    if place == "languages/sentences.py":
        text = text.replace("def say(", "def _say(")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        wanted = {"say": 1, "many": 2}.get(node.func.id)
        if wanted is None:
            continue
        texts = [it.value for it in node.args[:wanted] if isinstance(it, ast.Constant)]
        if len(texts) != wanted or not all(isinstance(it, str) for it in texts):
            raise NotLiteral(f"{place}:{node.lineno}: {node.func.id}() needs literals")
        yield Message(str(texts[0]), str(texts[1]) if wanted == 2 else "", place)


def of_template(content: bytes, place: str) -> Iterator[Message]:
    """The messages of ``{% trans %}`` and ``_(…)``."""
    for line, function, message, _ in babel_extract(
        io.BytesIO(content), ("_", "gettext", "ngettext"), (), _JINJA
    ):
        wanted = 2 if function == "ngettext" else 1
        given = (message,) if isinstance(message, str) else tuple(message or ())
        texts = [it for it in given[:wanted] if it is not None]
        if len(texts) != wanted:
            raise NotLiteral(f"{place}:{line}: {function}() needs literals")
        yield Message(texts[0], texts[1] if wanted == 2 else "", place)


def of_script(text: str, place: str) -> Iterator[Message]:
    """The messages of ``t(…)`` and ``tn(…)``."""
    if found := _SCRIPT_CALL.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise NotLiteral(f"{place}:{line}: t() and tn() need literals in double quotes")
    for alone, one, other in _SCRIPT.findall(text):
        yield Message(json.loads(alone or one), json.loads(other) if other else "", place)


def of_errors() -> Iterator[Message]:
    """The titles of errors that a page can show: the docstrings of their classes."""
    found: dict[str, ast.ClassDef] = {}
    for path in (SOURCES / "errors.py", *sorted((SOURCES / "web").rglob("*.py"))):
        for node in ast.parse(path.read_text()).body:
            bases = [it.id for it in getattr(node, "bases", ()) if isinstance(it, ast.Name)]
            if not isinstance(node, ast.ClassDef) or node.name in NOT_SHOWN:
                continue
            if node.name == "HomingError" or any(it in found for it in bases):
                found[node.name] = node
    for text in sorted({ast.get_docstring(it) or "" for it in found.values()}):
        yield Message(text, "", "errors.py")


def template() -> Catalog:
    """A catalog with all messages and no translation."""
    catalog = Catalog(fuzzy=False)
    for it in collect():
        known = catalog.get(it.one)
        if known is not None and it.other and not known.pluralizable:
            catalog.delete(it.one)
        catalog.add(
            (it.one, it.other) if it.other else it.one,
            locations=[(it.place, 1)],
            flags=["no-python-format"],
        )
    return catalog


def written(catalog: Catalog, code: str) -> str:
    """The text of the file of a language."""
    forms = get_plural(code)
    head = (
        f'# {LANGUAGES[code].name}\nmsgid ""\nmsgstr ""\n"Language: {code}\\n"\n'
        '"MIME-Version: 1.0\\n"\n"Content-Type: text/plain; charset=utf-8\\n"\n'
        f'"Plural-Forms: nplurals={forms.num_plurals}; plural={forms.plural_expr};\\n"\n\n'
    )
    for message in catalog:
        message.flags.discard("no-python-format")
        message.flags.discard("python-format")
        message.flags.discard("python-brace-format")
    out = io.BytesIO()
    write_po(out, catalog, width=0, omit_header=True, sort_by_file=True, include_lineno=False)
    return head + out.getvalue().decode().rstrip("\n") + "\n"


def updated(code: str, messages: Catalog) -> str:
    """The file of a language with all messages of the code."""
    path = FOLDER / f"{code}.po"
    known = Catalog(locale=code)
    if path.exists():
        with path.open("rb") as file:
            known = read_po(file, locale=code)
    known.update(messages, no_fuzzy_matching=True)
    known.obsolete.clear()
    return written(known, code)


def missing(code: str) -> list[str]:
    """The messages of the file of a language that have no translation."""
    with (FOLDER / f"{code}.po").open("rb") as file:
        catalog = read_po(file, locale=code)
    return [
        str(it.id if isinstance(it.id, str) else it.id[0])
        for it in catalog
        if it.id and not (all(it.string) if isinstance(it.string, tuple | list) else it.string)
    ]


def main() -> int:
    is_check, problems = "--check" in sys.argv, 0
    messages = template()
    for code in LANGUAGES:
        if code == ENGLISH.code:
            continue
        path, text = FOLDER / f"{code}.po", updated(code, messages)
        if is_check and (not path.exists() or path.read_text() != text):
            print(f"{path.name} is not up to date: run `make languages`")
            problems += 1
            continue
        path.write_text(text)
        left = missing(code)
        problems += len(left)
        print(f"{code}: {len(messages)} messages, {len(left)} without a translation")
    return 1 if problems and is_check else 0


if __name__ == "__main__":
    sys.exit(main())
