"""The files of translations: complete, up to date, and read as Babel reads them."""

from __future__ import annotations

import re
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from babel.messages.catalog import Catalog
from babel.messages.catalog import Message as Found
from babel.messages.plurals import get_plural
from babel.messages.pofile import read_po
from babel.numbers import format_decimal

from homing.languages.language import ENGLISH, LANGUAGES, Language, _entries

TOOL = Path(__file__).parents[2] / "tools" / "collect_texts.py"
OTHERS = [it for it in LANGUAGES.values() if it is not ENGLISH]
PLACES = re.compile(r"\{[a-z_0-9]+\}|%\([a-z_0-9]+\)s|%%|</?[a-z][^>]*>")
LETTERS = re.compile(r"[぀-ヿ㐀-鿿]")  # of Japanese and Chinese


def _tool() -> Any:
    spec = spec_from_file_location(TOOL.stem, TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _tool()


@pytest.fixture(scope="module")
def messages() -> Catalog:
    found: Catalog = tool.template()
    return found


def catalog(language: Language) -> Catalog:
    with (tool.FOLDER / f"{language.code}.po").open("rb") as file:
        return read_po(file, locale=language.code)


def forms(message: Found) -> list[tuple[str, str]]:
    """Every translation of a message with the English text that it stands for."""
    if isinstance(message.id, str):
        return [(message.id, str(message.string))]
    return [(message.id[min(place, 1)], text) for place, text in enumerate(message.string or ())]


@pytest.mark.parametrize("language", OTHERS, ids=lambda it: it.code)
def test_every_text_of_the_code_has_a_translation(language: Language, messages: Catalog) -> None:
    path = tool.FOLDER / f"{language.code}.po"
    assert path.read_text() == tool.updated(language.code, messages), "run `make languages`"
    assert tool.missing(language.code) == []


@pytest.mark.parametrize("language", OTHERS, ids=lambda it: it.code)
def test_a_translation_has_the_values_and_tags_of_its_text(language: Language) -> None:
    wrong = []
    for message in catalog(language):
        for text, translated in forms(message) if message.id else ():
            expected = [text]
            if language.forms == 1 and not isinstance(message.id, str):
                expected = list(message.id)  # One form stands for both.
            places = Counter(PLACES.findall(translated))
            if not any(Counter(PLACES.findall(it)) == places for it in expected):
                wrong.append((text, translated))
    assert not wrong


@pytest.mark.parametrize("language", OTHERS, ids=lambda it: it.code)
def test_a_translation_ends_no_attribute(language: Language) -> None:
    """A message may stand in an attribute of a tag, between double quotes."""
    pairs = [pair for it in catalog(language) if it.id for pair in forms(it)]
    assert [text for text, said in pairs if '"' not in text and '"' in said] == []


@pytest.mark.parametrize("language", OTHERS, ids=lambda it: it.code)
def test_the_server_reads_a_file_as_babel_does(language: Language) -> None:
    read = {it.one: (it.other, it.forms) for it in _entries(language.code)}
    expected = {}
    for it in catalog(language):
        if not it.id:
            continue
        one, other = (it.id, "") if isinstance(it.id, str) else it.id
        texts = (it.string,) if isinstance(it.string, str) else tuple(it.string or ())
        expected[one] = (other, texts)
    assert read == expected


@pytest.mark.parametrize("language", OTHERS, ids=lambda it: it.code)
def test_few_translations_are_the_english_text(language: Language) -> None:
    same, without = [], []
    texts = [pair for it in catalog(language) if it.id for pair in forms(it)]
    for text, translated in texts:
        words = re.findall(r"[a-z]{3,}", PLACES.sub("", text))
        if text == translated and len(words) > 2:
            same.append(text)
        if language.forms == 1 and len(words) > 2 and not LETTERS.search(translated):
            without.append(text)
    assert not without, "no letter of the language"
    assert len(same) <= len(texts) // 100, same


@pytest.mark.parametrize("language", LANGUAGES.values(), ids=lambda it: it.code)
def test_numbers_and_forms_of_counts_are_those_of_babel(language: Language) -> None:
    for number in (0, 1, 999, 1_000, 1_234, 9_999, 10_000, 1_234_567):
        assert language.number(number) == format_decimal(number, locale=language.code)
    for value in (0.5, 99.5, 1_234.5):
        expected = format_decimal(value, format="#,##0.0", locale=language.code)
        assert language.number(value, 1) == expected
    rule = get_plural(language.code)
    assert rule.num_plurals == language.forms
    if language.forms == 2:
        assert rule.plural_expr == "(n != 1)", "as Language.message and language.js choose"
