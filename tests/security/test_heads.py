"""Heads and bodies of requests are bounded before anything reads them, trailers included."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from homing.web.dashboard.cookies import read_cookie
from homing.web.limits import (
    HEAD_BYTES_MAX,
    HEAD_WITHIN_S,
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    PARTS_MAX,
    PIPELINED_MAX,
    URL_BYTES_MAX,
)
from security.framing import CHUNKED, GOOD, HEAD, HOST
from security.served import served, until_end

GET = b"GET /sign-in HTTP/1.1\r\nhost: localhost\r\n"
CLOSE = b"connection: close\r\n"
QUOTED_COOKIE = b'cookie: a="' + b"\\" * 60_000 + b"\r\n"
READ_IN_PARTS = 300 * 1024  # more than a server takes from its socket at once


async def test_a_large_cookie_is_refused_before_it_is_read() -> None:
    async with served() as at:
        codes, got, ended = await at.say(GET + QUOTED_COOKIE + b"\r\n")
        assert (codes, ended) == ([431], True)
        assert b"content-type: application/problem+json" in got
        assert b'"header_too_large"' in got
        assert b"'cookie' and its value may have at most 8,192 bytes" in got


async def test_the_limit_of_a_header_is_the_same_at_every_path() -> None:
    async with served() as at:
        for path in (b"/", b"/healthz", b"/v1/events", b"/static/x/y", b"/nowhere"):
            for name in (b"cookie", b"authorization", b"x"):
                head = b"POST " + path + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n"
                value = b"v" * (HEADER_BYTES_MAX - len(name))
                codes, _, _ = await at.say(head + CLOSE + name + b": " + value + b"\r\n\r\n")
                assert len(codes) == 1
                assert codes != [431]
                codes, got, ended = await at.say(head + name + b": " + value + b"v\r\n\r\n")
                assert (codes, ended) == ([431], True)
                assert b'"header_too_large"' in got


async def test_the_sum_of_all_headers_has_a_limit() -> None:
    async with served() as at:
        eight = b"".join(b"x%d: " % n + b"y" * (HEADER_BYTES_MAX - 2) + b"\r\n" for n in range(8))
        codes, got, _ = await at.say(GET + eight + b"\r\n")
        assert codes == [431]
        assert b'"headers_too_large"' in got
        assert b"All headers may have at most %s bytes" % f"{HEAD_BYTES_MAX:,}".encode() in got


async def test_the_url_has_a_limit() -> None:
    async with served() as at:
        for path in (b"/", b"/v1/events/", b"/sign-in?to="):
            long = path + b"a" * (URL_BYTES_MAX - len(path))
            for more, code in ((b"", [303, 401, 405, 200, 404]), (b"a", [414])):
                codes, got, _ = await at.say(
                    b"GET " + long + more + b" HTTP/1.1\r\nhost: localhost\r\n" + CLOSE + b"\r\n"
                )
                assert codes[0] in code
                assert more == b"" or b"The URL may have at most 8,192 bytes" in got


async def test_a_good_event_after_a_refused_head_is_not_accepted() -> None:
    async with served() as at:
        more = HEAD + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD
        codes, _, ended = await at.say(HEAD + QUOTED_COOKIE + b"\r\n" + more)
        assert (codes, ended) == ([431], True)
        assert at.house.engine.pulse().published == 0


@pytest.mark.parametrize(
    "trailers",
    [b"".join(b"x%d: y\r\n" % n for n in range(2 * HEADERS_MAX)), b"x: " + b"y" * READ_IN_PARTS],
    ids=["many", "one that is large"],
)
async def test_trailers_count_for_the_limits_of_a_head(trailers: bytes) -> None:
    async with served() as at:
        for path in (b"/v1/events", b"/v1/subscriptions", b"/sign-in"):
            head = b"POST " + path + b" HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n"
            async with asyncio.timeout(HEAD_WITHIN_S - 1):  # The watch has not ended it.
                _, _, ended = await at.say(head + b"1\r\n{\r\n0\r\n" + trailers)
            assert ended
        assert at.house.engine.pulse().published == 0


async def test_a_chunk_whose_extension_never_ends_is_cut_off() -> None:
    async with served() as at:
        _, _, ended = await at.say(HEAD + CHUNKED + b"\r\n1;x=" + b"y" * READ_IN_PARTS)
        assert ended


async def test_a_body_of_tiny_chunks_is_joined_once_per_read() -> None:
    """Uvicorn would copy the whole body for each."""
    body = b'{"type":"a.b","data":"' + b"x" * 6_000 + b'"}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    async with served() as at:
        joined: list[int] = []

        class Counted(bytes):
            def __add__(self, more: Any) -> Counted:
                joined.append(len(self) + len(more))
                return Counted(bytes(self) + more)

        async with at.line() as (reader, writer):
            writer.write(HEAD + CHUNKED + b"\r\n" + b"1\r\n{\r\n")
            connections: set[Any] = at.server.server_state.connections
            while not any(it.cycle for it in connections):
                await asyncio.sleep(0.001)
            (connection,) = connections
            connection.cycle.body = Counted(connection.cycle.body)
            writer.write(chunks[len(b"1\r\n{\r\n") :])
            assert b"202 " in await reader.readuntil(b"\r\n")
        assert sum(joined) < 40 * len(body)


async def test_a_body_of_very_many_tiny_chunks_is_refused() -> None:
    async with served() as at:
        for path in (b"/v1/events", b"/v1/subscriptions", b"/sign-in"):
            head = b"POST " + path + b" HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n"
            sent = head + b"1\r\n \r\n" * (8 * PARTS_MAX)
            async with asyncio.timeout(HEAD_WITHIN_S - 1):
                _, got, ended = await at.say(sent)
            assert ended
            assert b" 202 " not in got


async def test_more_requests_than_wait_on_one_connection_end_it() -> None:
    async with served() as at:
        get = b"GET /healthz HTTP/1.1\r\nhost: x\r\n"
        _, got, _ = await at.say((get + b"\r\n") * 40 + get + CLOSE + b"\r\n")
        assert got.count(b"HTTP/1.1 200 ") == 41
        _, got, ended = await at.say((get + b"\r\n") * 20 * PIPELINED_MAX)
        assert ended
        assert got.count(b"HTTP/1.1 200 ") <= PIPELINED_MAX


def test_a_cookie_is_found_among_others() -> None:
    header = b'a="x;y"; homing_session=1.abc%20d ; b; =; homing_session=2; c=\xff'
    assert read_cookie(header, "homing_session") == "1.abc d"
    assert read_cookie(header, "y") == ""
    assert read_cookie(header, "session") == ""
    assert read_cookie(b"", "a") == ""
    assert read_cookie(b"a=" + b"x" * 5_000 + b"; b=1", "a") == ""
    assert read_cookie(b"a=" + b"x" * 5_000 + b"; b=1", "b") == "1"


async def test_a_head_in_single_bytes_is_read_as_one() -> None:
    async with served() as at, at.line() as (reader, writer):
        for byte in GET + CLOSE + b"\r\n":
            writer.write(bytes((byte,)))
            await asyncio.sleep(0)
        got, ended = await until_end(reader)
        assert ended
        assert got.startswith(b"HTTP/1.1 200 ")
