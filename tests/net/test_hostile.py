"""Whatever a receiver sends, there is one response, of the right class, within bounds."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.model import Failure
from homing.net import response as response_module
from homing.net.response import (
    EXCERPT_BYTES_MAX,
    HEADERS_KEPT_BYTES_MAX,
    SEEN_BYTES_MAX,
    SEEN_MAX,
    WIRE_BYTES_MAX,
    Received,
    ResponseReader,
)
from homing.net.sender import HttpSender
from net.hostile import HOSTILE, SHORT_MS, End, Hostile
from net.receiver import OK, PATIENT_MS, Call, a_request, a_target, ask, receiver


async def _behave(row: Hostile, call: Call) -> None:
    await call.request()
    await call.say(*row.parts)
    match row.end:
        case End.RESET:
            call.reset()
        case End.HOLD:
            await call.gone()
        case End.FOREVER:
            while not call.writer.is_closing():
                await call.say(row.parts[-1])
                await asyncio.sleep(0)
        case End.CLOSE:
            pass


@pytest.mark.parametrize("row", HOSTILE, ids=[row.name for row in HOSTILE])
async def test_a_hostile_response_has_its_class(sender: HttpSender, row: Hostile) -> None:
    async def behave(call: Call) -> None:
        await _behave(row, call)

    async with receiver(behave) as peer:
        for deadline_ms in SHORT_MS if row.needs_deadline else (PATIENT_MS,):
            response = await ask(sender, a_request(a_target(peer.port), deadline_ms=deadline_ms))
            if (response.code or response.failure) == row.expected:
                break
    assert (response.code or response.failure) == row.expected, f"{row.why}: {response}"
    assert (response.code is None) == (response.failure is not None)
    assert (response.detail == "") == (response.failure is None)
    assert len(response.headers) <= HEADERS_KEPT_BYTES_MAX
    assert len(response.excerpt) <= EXCERPT_BYTES_MAX
    assert response.address == f"127.0.0.1:{peer.port}"


def test_the_table_is_as_long_as_it_should_be() -> None:
    assert len(HOSTILE) >= 70
    assert len({row.name for row in HOSTILE}) == len(HOSTILE)


@pytest.mark.parametrize(
    "response",
    [
        OK,
        b"HTTP/1.1 500 E\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
        b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 204 N\r\n\r\n",
    ],
)
async def test_a_response_cut_at_any_byte_is_one_response(
    sender: HttpSender, response: bytes
) -> None:
    cut = 0

    async def behave(call: Call) -> None:
        await call.request()
        await call.say(response[:cut])

    head_bytes = response.rindex(b"\r\n\r\n") + 4
    if b"chunked" in response:
        head_bytes = response.index(b"\r\n\r\n") + 4
    async with receiver(behave) as peer:
        for cut in range(len(response) + 1):
            got = await ask(sender, a_request(a_target(peer.port)))
            if cut < head_bytes:
                assert got.failure is Failure.CLOSED, (cut, got)
            else:
                assert got.code in {200, 204, 500}, (cut, got)


@given(
    row=st.sampled_from([row for row in HOSTILE if row.end is not End.FOREVER]),
    cuts=st.lists(st.integers(1, 400), max_size=20),
)
def test_segments_change_nothing(row: Hostile, cuts: list[int]) -> None:
    """However the bytes are cut, the verdict is that of the whole."""
    stream = b"".join(row.parts)
    whole = _read(ResponseReader(), stream)[0]
    reader, pieces = ResponseReader(), None
    for piece in _cut(stream, cuts):
        if (pieces := reader.feed(piece)) is not None:
            break
    pieces = pieces or reader.received()
    assert (pieces.code, pieces.failure) == (whole.code, whole.failure)
    assert pieces.headers == whole.headers
    assert pieces.excerpt.startswith(whole.excerpt) or whole.excerpt.startswith(pieces.excerpt)


def _read(reader: ResponseReader, stream: bytes) -> tuple[Received, bool]:
    received = reader.feed(stream) if stream else None
    return (received or reader.received(), received is not None)


_ORDINARY = (
    OK,
    b"HTTP/1.1 204 N\r\ndate: now\r\nkeep-alive: timeout=9\r\n\r\n",
    b"HTTP/1.1 429 S\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nslow",
    b"HTTP/1.1 200 K\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    b"HTTP/1.1 200 K\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 204 N\r\n\r\n",
    OK + OK,
)


@pytest.mark.parametrize(
    "stream", [*_ORDINARY, *(b"".join(row.parts) for row in HOSTILE if row.end is not End.FOREVER)]
)
def test_a_response_seen_before_is_read_as_at_the_first_time(
    stream: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[bytes, object] = {}
    monkeypatch.setattr(response_module, "_seen", seen)
    if not stream:
        return
    first = _read(ResponseReader(), stream)
    assert _read(ResponseReader(), stream) == first
    kept = ResponseReader()  # One connection: the same again, and another after it.
    assert _read(kept, stream) == first
    if first[0].reusable:
        for again in (stream, OK, stream):
            kept.next()
            assert _read(kept, again) == _read(ResponseReader(), again)
    assert all(len(it) <= SEEN_BYTES_MAX for it in seen)


def test_what_is_remembered_of_responses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[bytes, object] = {}
    monkeypatch.setattr(response_module, "_seen", seen)
    for number in range(3 * SEEN_MAX):
        reader = ResponseReader()
        assert reader.feed(b"HTTP/1.1 200 OK\r\nid: %d\r\ncontent-length: 0\r\n\r\n" % number)
        assert len(seen) <= SEEN_MAX
    assert seen


def _cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    pieces = []
    for size in cuts:
        pieces.append(stream[:size])
        stream = stream[size:]
    return [piece for piece in [*pieces, stream] if piece]


@given(st.lists(st.binary(min_size=1, max_size=5000), max_size=200), st.booleans())
def test_any_bytes_are_read_within_bounds(pieces: list[bytes], headed: bool) -> None:
    reader = ResponseReader()
    fed = 0
    for piece in [b"HTTP/1.1 200 OK\r\n\r\n" if headed else b"HTTP", *pieces]:
        fed += len(piece)
        if reader.feed(piece):
            assert (reader.code is None) == (reader.failure is not None)
            return
    assert fed <= WIRE_BYTES_MAX


def test_kept_headers_are_whole_lines() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\n" + b"name: 0123456789\r\n" * 2000 + b"\r\n")
    headers = reader.received().headers
    assert HEADERS_KEPT_BYTES_MAX - 20 < len(headers) <= HEADERS_KEPT_BYTES_MAX
    assert headers.endswith(b"name: 0123456789\r\n")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"timeout=5", 5),
        (b"timeout=5, max=100", 5),
        (b"max=100; Timeout = 30", 30),
        (b"max=100", None),
        (b"timeout=never", None),
        (b"xtimeout=3", None),
        (b"timeout=99999999999999999999", 999999999),
    ],
)
def test_an_announced_keep_alive_is_understood(value: bytes, seconds: int | None) -> None:
    reader = ResponseReader()
    head = b"HTTP/1.1 200 OK\r\nKeep-Alive: " + value
    received = reader.feed(head + b"\r\ncontent-length: 0\r\n\r\n")
    assert received is not None
    assert received.keep_alive_s == seconds


def test_retry_after_is_handed_over_unread() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 503 B\r\nRETRY-AFTER:  Wed, 21 Oct 2015 07:28:00 GMT \r\n\r\n")
    assert reader.retry_after == "Wed, 21 Oct 2015 07:28:00 GMT"
