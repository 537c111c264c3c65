"""A table of what receivers say when they are broken or mean, and what each must come to."""

from __future__ import annotations

import gzip
import io
from enum import Enum
from typing import NamedTuple

from homing.model import Failure

H = b"HTTP/1.1 200 OK\r\n"
SHORT_MS = (250, 1_000, 4_000)  # where only the deadline ends it; the longer on a busy machine


class End(Enum):
    CLOSE = "close"
    RESET = "reset"
    HOLD = "hold"  # stays open and silent
    FOREVER = "forever"  # the last part again and again


class Hostile(NamedTuple):
    name: str
    parts: tuple[bytes, ...]
    end: End
    expected: int | Failure
    why: str

    @property
    def needs_deadline(self) -> bool:
        return self.end is End.HOLD and (self.expected is Failure.TIMEOUT or "deadline" in self.why)


def _bomb() -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as file:
        file.write(b"\0" * 4_000_000)
    body = packed.getvalue()
    head = H + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


def _plain_responses() -> list[Hostile]:
    close, hold = End.CLOSE, End.HOLD
    return [
        Hostile("length", (H + b"content-length: 2\r\n\r\nok",), hold, 200, "the plain case"),
        Hostile("no_reason", (b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n",), hold, 200, "legal"),
        Hostile("http_1_0", (b"HTTP/1.0 200 OK\r\n\r\nok",), close, 200, "ends with the stream"),
        Hostile("until_close", (H + b"\r\n", b"ok"), close, 200, "ends with the stream"),
        Hostile(
            "chunked",
            (H + b"transfer-encoding: chunked\r\n\r\n", b"2\r\nok\r\n", b"0\r\nt: x\r\n\r\n"),
            hold,
            200,
            "trailers are skipped",
        ),
        Hostile("no_content", (b"HTTP/1.1 204 No\r\n\r\n",), hold, 204, "has no body to wait for"),
        Hostile("not_modified", (b"HTTP/1.1 304 N\r\ncontent-length: 9\r\n\r\n",), hold, 304, ""),
        Hostile(
            "redirect",
            (b"HTTP/1.1 307 T\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n",),
            hold,
            307,
            "never followed",
        ),
        Hostile(
            "continue",
            (b"HTTP/1.1 100 C\r\n\r\n", H + b"content-length: 0\r\n\r\n"),
            hold,
            200,
            "interim responses are skipped",
        ),
        Hostile(
            "early_hints",
            (b"HTTP/1.1 103 E\r\nlink: x\r\n\r\n" * 5 + H + b"\r\n",),
            close,
            200,
            "interim responses are skipped",
        ),
        Hostile("bare_lf", (b"HTTP/1.1 200 OK\ncontent-length: 2\n\nok",), hold, 200, "tolerated"),
        Hostile(
            "blank_lines_first",
            (b"\r\n\r\n" + H + b"content-length: 0\r\n\r\n",),
            hold,
            200,
            "tolerated, as everywhere",
        ),
        Hostile(
            "odd_code",
            (b"HTTP/1.1 999 No\r\ncontent-length: 0\r\n\r\n",),
            hold,
            999,
            "not ours to judge",
        ),
        Hostile(
            "byte_by_byte",
            tuple(bytes([b]) for b in H + b"content-length: 1\r\n\r\nx"),
            hold,
            200,
            "segments mean nothing",
        ),
    ]


def _not_a_response() -> list[Hostile]:
    close, hold, bad = End.CLOSE, End.HOLD, Failure.BAD_RESPONSE
    chunked = b"transfer-encoding: chunked\r\n"
    return [
        Hostile("garbage", (b"\x16\x03\x01\x00\xff" * 20,), hold, bad, "not HTTP"),
        Hostile("html", (b"<html>hello</html>",), hold, bad, "HTTP/0.9, a body without a head"),
        Hostile("ssh_banner", (b"SSH-2.0-OpenSSH_9.2\r\n",), hold, bad, "another protocol"),
        Hostile("rtsp", (b"RTSP/1.0 200 OK\r\n\r\n",), hold, bad, "another protocol"),
        Hostile("a_request", (b"POST / HTTP/1.1\r\nhost: x\r\n\r\n",), hold, bad, "not a response"),
        Hostile("http_0_9_line", (b"HTTP/0.9 200 OK\r\n\r\n",), close, bad, "no such version"),
        Hostile("http_2_line", (b"HTTP/2.0 200 OK\r\n\r\n",), close, bad, "not spoken this way"),
        Hostile("http_2_frame", (b"\0\0\x06\x04\0\0\0\0\0\0\x05\0\0@\0",), hold, bad, "not asked"),
        Hostile("two_digits", (b"HTTP/1.1 20 OK\r\n\r\n",), close, bad, "no code"),
        Hostile("four_digits", (b"HTTP/1.1 2000 OK\r\n\r\n",), close, bad, "no code"),
        Hostile("code_000", (b"HTTP/1.1 000 OK\r\n\r\n",), close, bad, "below every class"),
        Hostile(
            "switching",
            (b"HTTP/1.1 101 S\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nzz",),
            hold,
            bad,
            "nothing was offered to switch to",
        ),
        Hostile("switching_bare", (b"HTTP/1.1 101 S\r\n\r\n",), hold, bad, "the same"),
        Hostile("flood_of_1xx", (b"HTTP/1.1 100 C\r\n\r\n",), End.FOREVER, bad, "over 20"),
        Hostile(
            "both_lengths",
            (H + b"content-length: 2\r\n" + chunked + b"\r\n0\r\n\r\n",),
            close,
            bad,
            "smuggling",
        ),
        Hostile(
            "both_lengths_2",
            (H + chunked + b"content-length: 2\r\n\r\n0\r\n\r\n",),
            close,
            bad,
            "smuggling",
        ),
        Hostile(
            "two_lengths",
            (H + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok",),
            close,
            bad,
            "which?",
        ),
        Hostile("length_negative", (H + b"content-length: -2\r\n\r\n",), close, bad, "nonsense"),
        Hostile("length_signed", (H + b"content-length: +2\r\n\r\nok",), close, bad, "nonsense"),
        Hostile(
            "length_huge",
            (H + b"content-length: 99999999999999999999\r\n\r\n",),
            close,
            bad,
            "overflow",
        ),
        Hostile(
            "folded", (H + b"x: a\r\n b\r\ncontent-length: 0\r\n\r\n",), close, bad, "obsolete"
        ),
        Hostile("nul_value", (H + b"x: a\0b\r\n\r\n",), close, bad, "forbidden byte"),
        Hostile("nul_name", (H + b"x\0: b\r\n\r\n",), close, bad, "forbidden byte"),
        Hostile("space_name", (H + b"x : b\r\n\r\n",), close, bad, "smuggling"),
        Hostile("no_name", (H + b": b\r\n\r\n",), close, bad, "nonsense"),
    ]


def _cut_short() -> list[Hostile]:
    close, reset, hold = End.CLOSE, End.RESET, End.HOLD
    closed, timeout = Failure.CLOSED, Failure.TIMEOUT
    return [
        Hostile("empty", (), close, closed, "no response"),
        Hostile("reset_at_once", (), reset, Failure.RESET, "no response"),
        Hostile("silence", (), hold, timeout, "no response"),
        Hostile("half_status", (b"HTTP/1.1 20",), close, closed, "the head never ended"),
        Hostile("half_head", (H + b"content-le",), close, closed, "the head never ended"),
        Hostile("half_head_reset", (H + b"content-le",), reset, Failure.RESET, "the same"),
        Hostile("half_head_held", (H + b"content-le",), hold, timeout, "the same"),
        Hostile("only_1xx", (b"HTTP/1.1 100 C\r\n\r\n",), close, closed, "no final response"),
        Hostile("only_1xx_held", (b"HTTP/1.1 100 C\r\n\r\n",), hold, timeout, "no final response"),
        Hostile(
            "body_short", (H + b"content-length: 10\r\n\r\nabc",), close, 200, "the head decides"
        ),
        Hostile(
            "body_reset", (H + b"content-length: 10\r\n\r\nabc",), reset, 200, "the head decides"
        ),
        Hostile(
            "body_held",
            (b"HTTP/1.1 500 E\r\ncontent-length: 10\r\n\r\nabc",),
            hold,
            500,
            "the head decides, the deadline ends the wait",
        ),
        Hostile(
            "until_close_held",
            (H + b"\r\nabc",),
            hold,
            200,
            "the head decides, the deadline ends the wait",
        ),
        Hostile(
            "chunk_half",
            (H + b"transfer-encoding: chunked\r\n\r\n5\r\nhe",),
            close,
            200,
            "the head decides",
        ),
    ]


def _too_much() -> list[Hostile]:
    close, hold, forever = End.CLOSE, End.HOLD, End.FOREVER
    large = Failure.RESPONSE_TOO_LARGE
    chunked = H + b"transfer-encoding: chunked\r\n\r\n"
    return [
        Hostile("endless_head", (H, b"x: y\r\n" * 500), forever, large, "64 KiB"),
        Hostile("endless_header", (H + b"x: ", b"y" * 5000), forever, large, "64 KiB"),
        Hostile("endless_reason", (b"HTTP/1.1 200 ", b"O" * 5000), forever, large, "64 KiB"),
        Hostile("endless_blank_lines", (b"\r\n" * 1000,), forever, large, "64 KiB"),
        Hostile(
            "head_at_once", (H + b"x: " + b"y" * 70_000 + b"\r\n\r\n",), close, large, "64 KiB"
        ),
        Hostile(
            "big_head", (H + b"x: " + b"y" * 60_000 + b"\r\n\r\n",), close, 200, "under 64 KiB"
        ),
        Hostile("endless_body", (H + b"\r\n", b"z" * 5000), forever, 200, "read to 16 KiB"),
        Hostile("endless_chunks", (chunked, b"5\r\nhello\r\n" * 100), forever, 200, "16 KiB"),
        Hostile("endless_extension", (chunked + b"5;x=", b"y" * 5000), forever, 200, "128 KiB raw"),
        Hostile(
            "endless_trailer", (chunked + b"0\r\nx: ", b"y" * 5000), forever, 200, "128 KiB raw"
        ),
        Hostile("gzip_bomb", (_bomb(),), hold, 200, "nothing is unpacked"),
        Hostile("chunk_size_bad", (chunked + b"zz\r\n",), hold, 200, "the head decides"),
        Hostile("chunk_size_negative", (chunked + b"-5\r\nhello",), hold, 200, "the head decides"),
        Hostile("chunk_size_huge", (chunked + b"f" * 17 + b"\r\n",), hold, 200, "the head decides"),
        Hostile("chunk_overlong", (chunked + b"2\r\nokay\r\n",), hold, 200, "the head decides"),
        Hostile(
            "two_responses",
            (H + b"content-length: 0\r\n\r\nHTTP/1.1 500 E\r\n\r\n",),
            hold,
            200,
            "the first counts",
        ),
        Hostile(
            "body_after_204",
            (b"HTTP/1.1 204 N\r\ncontent-length: 2\r\n\r\nok",),
            hold,
            204,
            "the head decides",
        ),
        Hostile(
            "bytes_after_close",
            (H + b"connection: close\r\ncontent-length: 0\r\n\r\nzzz",),
            hold,
            200,
            "the head decides",
        ),
        Hostile(
            "body_longer", (H + b"content-length: 2\r\n\r\nokay",), hold, 200, "the head decides"
        ),
    ]


HOSTILE = [*_plain_responses(), *_not_a_response(), *_cut_short(), *_too_much()]
