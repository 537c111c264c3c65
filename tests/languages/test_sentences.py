"""Sentences: English text that remembers what it was made from."""

from __future__ import annotations

import copy
import pickle

import msgspec
import pytest

from homing.languages import language
from homing.languages.language import ENGLISH, LANGUAGES, choose
from homing.languages.sentences import (
    At,
    Capital,
    Number,
    Sentence,
    Span,
    many,
    say,
    unpack,
)

DUTCH = LANGUAGES["nl"]
WORDS = {
    "{count} attempt": ("{count} poging", "{count} pogingen"),
    "{attempts} until {at}": ("tot {at}: {attempts}",),
    "the endpoint": ("het eindpunt",),
    "{what} waits for {span}": ("{what} wacht {span}",),
    "{h} h {m} min": ("{h} u {m} min",),
    "{rate} of {limit}": ("{rate} van {limit}",),
}


@pytest.fixture(autouse=True)
def dutch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "_translations", lambda _code: WORDS)


def _tried(count: int) -> Sentence:
    return many("{count} attempt", "{count} attempts", count)


def test_a_sentence_is_its_english_text() -> None:
    sentence = say("{attempts} until {at}", attempts=_tried(1_200), at=At(0))
    assert sentence == "1,200 attempts until 1970-01-01T00:00:00.000Z"
    assert type(str(sentence)) is str
    assert msgspec.json.encode(str(sentence)) == msgspec.json.encode(sentence + "")


@pytest.mark.parametrize(
    ("sentence", "english", "said"),
    [
        (_tried(0), "0 attempts", "0 pogingen"),
        (_tried(1), "1 attempt", "1 poging"),
        (_tried(2_000), "2,000 attempts", "2.000 pogingen"),
        (say("not translated"), "not translated", "not translated"),
        (say("{a}", a="{b}"), "{b}", "{b}"),
        (
            say(
                "{what} waits for {span}", what=Capital(say("the endpoint")), span=Span(173_580_000)
            ),
            "The endpoint waits for 48 h 13 min",
            "Het eindpunt wacht 48 u 13 min",
        ),
        (say("{rate} of {limit}", rate=Number(0.5, 1), limit=72), "0.5 of 72", "0,5 van 72"),
    ],
)
def test_a_sentence_is_said_in_a_language(sentence: Sentence, english: str, said: str) -> None:
    assert (sentence, ENGLISH.text(sentence), DUTCH.text(sentence)) == (english, english, said)


def test_times_stay_values_in_the_order_of_the_language() -> None:
    sentence = say("{attempts} until {at}", attempts=_tried(2), at=At(5))
    assert sentence.pieces(ENGLISH) == ["2 attempts until ", At(5)]
    assert sentence.pieces(DUTCH) == ["tot ", At(5), ": 2 pogingen"]
    assert sentence.text(lambda ms: f"<{ms}>", DUTCH) == "tot <5>: 2 pogingen"


def test_a_value_is_never_read_as_a_message() -> None:
    evil = "{at} {count} %(x)s"
    assert say("{attempts} until {at}", attempts=evil, at=At(0)).startswith(evil)


def test_a_sentence_survives_another_process_and_the_database() -> None:
    what = Capital(say("the endpoint"))
    sentence = say("{what} waits for {span}", span=Span(1_000), what=what)
    outer = say("{rate} of {limit}", rate=Number(0.5, 1), limit=sentence)
    outer = say("{a} {b} {c} {d}", a=outer, b=At(7), c=_tried(3), d="{text}")
    stored = msgspec.json.decode(msgspec.json.encode(outer.pack()))
    for again in (pickle.loads(pickle.dumps(outer)), copy.deepcopy(outer), unpack(stored)):
        assert again == outer
        assert isinstance(again, Sentence)
        assert DUTCH.text(again) == DUTCH.text(outer)
    assert unpack("text of an older version") == "text of an older version"


@pytest.mark.parametrize(
    ("chosen", "accepted", "expected"),
    [
        ("", "", "en"),
        ("nl", "en", "nl"),
        ("xx", "ja", "ja"),
        ("", "nl-BE,nl;q=0.9,en;q=0.8", "nl"),
        ("", "fr, it;q=0.4, zh-TW;q=0.6", "zh"),
        ("", "en;q=0.1, ja;q=0", "en"),
        ("", "it;q=2, nl;q=x, ja;z=1", "en"),
        ("", "NL", "nl"),
        ("", "*", "en"),
        ("", ", ;q=1,,nl" + "," * 10_000, "nl"),
        ("", "xx," * 100 + "nl", "en"),
        ("../../etc", "\x00é", "en"),
    ],
)
def test_a_language_is_chosen_by_the_person_then_by_the_browser(
    chosen: str, accepted: str, expected: str
) -> None:
    assert choose(chosen, accepted).code == expected
