"""A client that has said all it has to say may close its side, and still gets its responses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from security.framing import GOOD, HEAD, HOST
from security.served import served, until_end


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return "asyncio", {"use_uvloop": request.param}


POST = HEAD + b"content-length: %d\r\n\r\n" % len(GOOD) + GOOD


def _get(path: bytes) -> bytes:
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.mark.parametrize(
    ("said", "codes"),
    [
        (POST, [b"202"]),
        (POST + POST, [b"202", b"202"]),
        (_get(b"/v1/ledger"), [b"200"]),
        (_get(b"/healthz"), [b"200"]),
        (_get(b"/v1/ledger") + POST + _get(b"/healthz"), [b"200", b"202", b"200"]),
        (_get(b"/v1/nothing"), [b"404"]),
        (POST.replace(b"HTTP/1.1", b"HTTP/1.0", 1), [b"202"]),
    ],
    ids=["publish", "two publishes", "read", "open route", "three at once", "refusal", "HTTP/1.0"],
)
async def test_a_client_that_half_closes_gets_its_response(said: bytes, codes: list[bytes]) -> None:
    async with served() as at, at.line() as (reader, writer):
        writer.write(said)
        writer.write_eof()
        got, ended = await until_end(reader)
        assert [part[:3] for part in got.split(b"HTTP/1.1 ")[1:]] == codes
        assert ended, "the connection ends after the last response"


async def test_a_large_response_is_sent_whole() -> None:
    async with served() as at, at.line() as (reader, writer):
        writer.write(_get(b"/openapi.json"))
        writer.write_eof()
        got, ended = await until_end(reader)
        head, _, body = got.partition(b"\r\n\r\n")
        assert ended
        assert b"content-length: %d" % len(body) in head


@pytest.mark.parametrize(
    "said",
    [b"", HEAD, HEAD + b"content-length: 100\r\n\r\n{", _get(b"/healthz")[:-2]],
    ids=["nothing", "half a head", "half a body", "no end of the head"],
)
async def test_a_client_that_closes_before_its_request_is_whole_is_let_go(said: bytes) -> None:
    async with served() as at, at.line() as (reader, writer):
        writer.write(said)
        writer.write_eof()
        assert (await until_end(reader))[1]
        async with asyncio.timeout(20):
            while at.server.server_state.connections:
                await asyncio.sleep(0.001)


async def test_a_connection_kept_after_a_response_ends_with_the_client() -> None:
    async with served() as at, at.line() as (reader, writer):
        writer.write(_get(b"/healthz"))
        await reader.readuntil(b"200")
        writer.write_eof()
        assert (await until_end(reader))[1]
