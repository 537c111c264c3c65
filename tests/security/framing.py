"""A table of requests on whose end two readers might disagree; all of them must be refused.

Each has a second, complete request with the right key inside the part that one reader takes for its
body: if that request is ever executed, request smuggling is possible.
"""

from __future__ import annotations

from typing import NamedTuple

KEY = "hk_security-test-key"
LINE = b"POST /v1/events HTTP/1.1\r\n"
HOST = b"host: homing.test\r\nauthorization: Bearer " + KEY.encode() + b"\r\n"
HEAD = LINE + HOST
GOOD = b'{"type":"a.b","data":1}'
CHUNKED = b"transfer-encoding: chunked\r\n"


class Attack(NamedTuple):
    name: str
    sent: bytes  # what stands before the second request


def smuggled(event: str) -> bytes:
    """A request that must never be executed."""
    body = b'{"type":"smuggled","data":1,"id":"%b"}' % event.encode()
    return HEAD + b"content-length: %d\r\n\r\n" % len(body) + body


def _lengths() -> list[Attack]:
    end = b"0\r\n\r\n"
    good = b"content-length: %d\r\n" % len(GOOD)
    both = [
        ("length_then_chunked", b"content-length: 5\r\n" + CHUNKED + b"\r\n" + end),
        ("chunked_then_length", CHUNKED + b"content-length: 5\r\n\r\n" + end),
        ("length_zero_and_chunked", b"content-length: 0\r\n" + CHUNKED + b"\r\n" + end),
        ("two_lengths", b"content-length: 0\r\n" + good + b"\r\n" + GOOD),
        ("two_equal_lengths", good + good + b"\r\n" + GOOD),
        ("length_list", b"content-length: 23, 23\r\n\r\n" + GOOD),
    ]
    numbers = [
        ("plus", b"+23"),
        ("minus", b"-1"),
        ("hexadecimal", b"0x17"),
        ("underscore", b"2_3"),
        ("space_inside", b"2 3"),
        ("empty", b""),
        ("letters", b"abc"),
        ("dot", b"23.0"),
        ("overflow", b"18446744073709551639"),
        ("huge", b"9" * 40),
        ("arabic", "٢٣".encode()),
    ]
    odd = [
        (f"length_{name}", b"content-length: " + text + b"\r\n\r\n" + GOOD)
        for name, text in numbers
    ]
    return [Attack(name, HEAD + rest) for name, rest in both + odd]


def _encodings() -> list[Attack]:
    end = b"0\r\n\r\n"
    codings = [
        ("identity", b"identity"),
        ("unknown", b"xchunked"),
        ("chunked_not_last", b"chunked, identity"),
        ("chunked_then_gzip", b"chunked, gzip"),
        ("quoted", b'"chunked"'),
        ("vertical_tab", b"\x0bchunked"),
        ("nul", b"chunked\x00"),
        ("empty", b""),
        ("comma", b",chunked,x"),
    ]
    odd = [
        Attack(f"coding_{name}", HEAD + b"transfer-encoding: " + text + b"\r\n\r\n" + end)
        for name, text in codings
    ]
    return [
        *odd,
        Attack("coding_twice", HEAD + CHUNKED + b"transfer-encoding: identity\r\n\r\n" + end),
        Attack("space_before_colon", HEAD + b"transfer-encoding : chunked\r\n\r\n" + end),
        Attack("tab_before_colon", HEAD + b"transfer-encoding\t: chunked\r\n\r\n" + end),
        Attack("folded_coding", HEAD + b"transfer-encoding:\r\n chunked\r\n\r\n" + end),
        Attack("length_space", HEAD + b"content-length : 23\r\n\r\n" + GOOD),
    ]


def _chunks() -> list[Attack]:
    head = HEAD + CHUNKED + b"\r\n"
    whole = b"17\r\n" + GOOD + b"\r\n"
    return [
        Attack("chunk_hexadecimal", head + b"0x17\r\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("chunk_minus", head + b"-17\r\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("chunk_plus", head + b"+17\r\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("chunk_letters", head + b"zz\r\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("chunk_empty_size", head + b"\r\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("chunk_overflow", head + b"f" * 17 + b"\r\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("chunk_bare_lf", head + b"17\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("chunk_without_end", head + b"17\r\n" + GOOD + b"0\r\n\r\n"),
        Attack("chunk_longer", head + b"16\r\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("chunk_lf_in_extension", head + b"17;a\nb\r\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("chunk_nul_extension", head + b"17;\x00\r\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("trailer_without_colon", head + whole + b"0\r\nwhat is this\r\n\r\n"),
        Attack("trailer_bare_lf", head + whole + b"0\r\na: b\n\r\n"),
    ]


def _heads() -> list[Attack]:
    length = b"content-length: %d\r\n" % len(GOOD)
    rest = length + b"\r\n" + GOOD
    return [
        Attack("folded", HEAD + b"x: a\r\n b: c\r\n" + rest),
        Attack("line_begins_with_space", LINE + b" " + HOST + rest),
        Attack("no_colon", HEAD + b"nothing\r\n" + rest),
        Attack("empty_name", HEAD + b": x\r\n" + rest),
        Attack("nul_in_name", HEAD + b"a\x00b: x\r\n" + rest),
        Attack("nul_in_value", HEAD + b"a: x\x00y\r\n" + rest),
        Attack("bare_cr_in_value", HEAD + b"a: x\ry: z\r\n" + rest),
        Attack("bare_cr_ends", HEAD.replace(b"\r\n", b"\r") + length + b"\r" + GOOD),
        Attack("bare_lf_ends", HEAD.replace(b"\r\n", b"\n") + length.replace(b"\r", b"") + b"\n"),
        Attack("space_in_name", HEAD + b"a b: x\r\n" + rest),
        Attack("eight_bit_name", HEAD + b"\xff: x\r\n" + rest),
        Attack("delete_in_value", HEAD + b"a: \x7f\r\n" + rest),
    ]


def _lines() -> list[Attack]:
    rest = HOST + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD
    lines = [
        ("http_2_preface", b"PRI * HTTP/2.0"),
        ("http_9_9", b"POST /v1/events HTTP/9.9"),
        ("lower_version", b"POST /v1/events http/1.1"),
        ("lower_method", b"post /v1/events HTTP/1.1"),
        ("no_method", b"/v1/events HTTP/1.1"),
        ("two_targets", b"POST /v1/events /x HTTP/1.1"),
        ("space_in_target", b"POST /v1/ events HTTP/1.1"),
        ("nul_in_target", b"POST /v1/ev\x00ents HTTP/1.1"),
        ("tab_in_target", b"POST /v1/ev\tents HTTP/1.1"),
        ("version_and_more", b"POST /v1/events HTTP/1.1 x"),
        ("a_response", b"HTTP/1.1 200 OK"),
        ("tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    ]
    return [Attack(f"line_{name}", line + b"\r\n" + rest) for name, line in lines]


def _odd() -> list[Attack]:
    """Unambiguous requests: executed once, and the connection ends."""
    length = b"content-length: %d\r\n" % len(GOOD)
    rest = HOST + length + b"\r\n" + GOOD
    close = HOST + length + b"connection: close\r\n\r\n" + GOOD
    old = b"POST /v1/events HTTP/1.0\r\n"
    return [
        Attack("more_after_close", LINE + close),
        Attack("http_1_0", old + rest),
        Attack("http_1_0_chunked", old + HOST + CHUNKED + b"\r\n17\r\n" + GOOD + b"\r\n0\r\n\r\n"),
        Attack("http_0_9", b"POST /v1/events\r\n" + rest),
        Attack("rtsp", b"POST /v1/events RTSP/1.0\r\n" + rest),
        Attack("connect", b"CONNECT homing.test:443 HTTP/1.1\r\n" + HOST + b"\r\n"),
        Attack("method_too_large", HEAD + b"content-length: 9000000\r\n\r\n"),
    ]


ODD = _odd()
ATTACKS = [*_lengths(), *_encodings(), *_chunks(), *_heads(), *_lines()]
