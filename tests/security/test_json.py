"""JSON is read strictly: other text is refused, and JSON is delivered byte for byte."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec import Raw, Struct

from homing.errors import BadRequest, Invalid, TooLarge
from homing.policy.admission import check_events
from homing.web.api.publish import read_drafts
from homing.web.body import decode
from homing.web.schemas import FilterTryIn, SubscriptionIn, SubscriptionPatch, read_spec

REFUSED = [
    *(b"[1,] [,1] [1,,2] [1 2] [1;2] [1 1] ] } [ { [} {]".split(b" ")),
    *(b'{"a":1,} {a:1} {\'a\':1} {"a";1} {"a":1;} {"a"} {1:2} {"a":} {:1} {"a":1:2} {,}'.split()),
    *(b"nul True TRUE nil undefined NaN -NaN Infinity -Infinity None".split()),
    *(b"01 -01 00 +1 .5 -.5 5. 1e 1e+ 1E- 0x1 1_000 --1 - 1.2.3 1e1.5 0b1 1a".split()),
    b'"\x01"',
    b'"\n"',
    b'"\t"',
    b'"\x00"',
    b'"\\x41"',
    b'"\\a"',
    b'"\\\n"',
    b'"\\u12"',
    b'"\\u12g4"',
    b'"\\ud800"',
    b'"\\udc00"',
    b'"\\ud800x"',
    b'"\\ud800\\u0041"',
    b'"\\udc00\\ud800"',
    b'"abc',
    b'abc"',
    b"'a'",
    b"`a`",
    b'"a" "b"',
    b"",
    b" ",
    b"\x00",
    b"\xff",
    b'"\xff"',
    b'"\xc0\xaf"',
    b'"\xc3"',
    b'"\xed\xa0\x80"',
    b'"\xf4\x90\x80\x80"',
    b"\xef\xbb\xbf1",
    b"\xff\xfe1\x00",
    b"/*c*/1",
    b"1//c",
    b"#c\n1",
    b"[\x0b1]",
    b"[\x0c1]",
    b"1\xc2\xa0",
    b"\xe2\x80\xa81",
    b"[1\x00]",
    # The reader accepts about 1,000 levels on Python 3.11, and 10,000 on 3.13.
    b"[" * 20_000 + b"]" * 20_000,
    b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    b"[" * 100_000,
]
KEPT = [
    *(b"0 -0 1 -1 0.0 1e5 1E+5 1e-400 1.7976931348623159e400 -1.5e-3".split()),
    b"1" * 5_000,
    b"0." + b"1" * 5_000,
    *(b'true false null [] {} "" [[[]]] {"":0} {"a":{"a":{}}}'.split()),
    b'{"a":1,"a":2}',
    b' { "b" : 1 , "a" : [ ] } ',
    b"[\n1,\r\n\t2]",
    b'"\\u0000\\u001f\\u007f"',
    b'"\\ud83d\\ude00"',
    '"😀 é \u2028 \ufeff"'.encode(),
    b'"\\/\\b\\f\\n\\r\\t\\"\\\\"',
    b'"\x7f"',
    b'"<script>alert(1)</script>"',
    b"[" * 400 + b"]" * 400,
]


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_is_not_json_is_refused_in_every_form(text: bytes) -> None:
    event = b'{"type":"a","data":' + text + b"}"
    for body, lines in ((event, False), (b"[" + event + b"]", False), (event + b"\n", True)):
        with pytest.raises((BadRequest, Invalid)):
            read_drafts(body, "default", lines=lines)


@pytest.mark.parametrize("text", KEPT, ids=range(len(KEPT)))
def test_what_is_json_is_kept_byte_for_byte(text: bytes) -> None:
    event = b'{"type":"a","data":' + text + b"}"
    for body in (event, b"[" + event + b"]"):
        (draft,) = read_drafts(body, "default", lines=False)
        assert draft.data.strip() == text.strip()


@pytest.mark.parametrize(
    "body",
    [
        b'{"url":"https://a.example","url":"https://b.example","types":["*"]}',
        b'{"url":"https://a.example","types":["*"],"headers":{"a":"1","a":"2"}}',
        b'{"url":"https://a.example","types":["*"],"\\u0075rl":"https://b.example"}',
    ],
)
def test_a_command_that_names_a_field_twice_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="twice"):
        decode(body, SubscriptionIn)


def _many(count: int, item: bytes) -> bytes:
    return b",".join([item] * count)


@pytest.mark.parametrize(
    "value",
    [
        b"[" + _many(20_001, b"[]") + b"]",
        b"[" + _many(20_001, b"{}") + b"]",
        b"{" + b",".join(b'"%d" : ""' % n for n in range(10_001)) + b"}",
        b"[" + _many(10_001, b'{"":1}') + b"]",
    ],
    ids=["lists", "objects", "names of one object", "names of many objects"],
)
def test_a_command_with_very_many_parts_is_refused_before_its_names_are_compared(
    value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homing.web.body.json", None)
    body = b'{"filters":[{"fieldName":"a","fieldValue":' + value + b"}]}"
    with pytest.raises(BadRequest, match="at most"):
        decode(body, FilterTryIn)


@pytest.mark.parametrize("field", ["headers", "metadata"])
@pytest.mark.parametrize("kind", [SubscriptionIn, SubscriptionPatch])
def test_pairs_far_above_the_limit_are_refused_while_they_are_read(
    field: str, kind: type[Struct]
) -> None:
    pairs = b",".join(b'"%d":""' % n for n in range(1_001))
    body = b'{"url":"https://a.example","types":["*"],"' + field.encode() + b'":{' + pairs + b"}}"
    with pytest.raises(Invalid) as caught:
        decode(body, kind)
    assert [it.field for it in caught.value.problems] == [field]
    assert "1000" in caught.value.problems[0].reason


def test_the_data_of_an_event_may_have_many_parts_and_a_name_twice() -> None:
    data = b"{" + b",".join([b'"a":[1]'] * 15_000) + b"}"
    tried = decode(b'{"filters":[],"data":' + data + b"}", FilterTryIn)
    assert bytes(cast("Raw", tried.data)) == data
    with pytest.raises(BadRequest, match="at most 10,000 names"):
        decode(b'{"filters":[],"data":' + data + b',"data":1}', FilterTryIn)
    with pytest.raises(BadRequest, match="twice"):
        decode(b'{"filters":[],"data":1,"data":' + data + b"}", FilterTryIn)


def test_a_command_is_read_as_before() -> None:
    body = b'{"url":"https://a.example","types":["*"],"deadline_ms":5000}'
    assert read_spec(decode(body, SubscriptionIn))["deadline_ms"] == 5000


EVENT = b'{"type":"a","data":1}'


@pytest.mark.parametrize("count", [999, 1_000, 1_001, 50_000])
@pytest.mark.parametrize("bad", [b"", b"1"], ids=["good", "with one that is wrong"])
@pytest.mark.parametrize("lines", [False, True], ids=["array", "lines"])
def test_a_batch_of_too_many_events_is_refused(count: int, bad: bytes, lines: bool) -> None:
    items = [EVENT] * (count - 1) + [bad or EVENT]
    body = b"\n".join(items) if lines else b"[" + b",".join(items) + b"]"
    if count <= 1_000 and not bad:
        assert len(read_drafts(body, "default", lines=lines)) == count
        return
    with pytest.raises((Invalid, TooLarge)) as caught:
        check_events(read_drafts(body, "default", lines=lines))
    assert caught.type is (Invalid if count <= 1_000 else TooLarge)
