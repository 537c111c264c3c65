"""Limits of one caller: heads, bodies, connections, responses that are not read."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from homing.app.access import ANONYMOUS
from homing.errors import Busy, TooSlow
from homing.web import body as body_module
from homing.web.body import ClientGone, read_body
from homing.web.body_budget import SMALL_BYTES, BodyBudget
from homing.web.limits import HEAD_WITHIN_S, HEADERS_MAX, TAKEN_WITHIN_S, StallDetector
from security.framing import GOOD, HEAD, HOST, KEY
from security.served import RESPONSE_WITHIN_S, Served, served, until_end


@pytest.mark.parametrize(
    "endless",
    [b"x: y\r\n" * 500, b"y" * 4000],
    ids=["headers", "one header"],
)
async def test_a_head_that_never_ends_is_cut_off(endless: bytes) -> None:
    async with served() as at, at.line() as (reader, writer):
        writer.write(HEAD + b"x: ")
        sent = 0
        ending = asyncio.create_task(until_end(reader))
        while not ending.done() and sent < 64 * 1024 * 1024:
            try:
                writer.write(endless)
                await writer.drain()
            except ConnectionError:
                break
            sent += len(endless)
        got, ended = await ending
        assert ended
        assert sent < 16 * 1024 * 1024  # what fits into the buffers of the system
        assert got == b"" or got.startswith(b"HTTP/1.1 431 ")  # a reset may eat the response


async def test_many_headers_are_a_431_problem() -> None:
    async with served() as at:
        many = b"".join(b"x%d: y\r\n" % n for n in range(HEADERS_MAX))
        codes, got, _ = await at.say(
            b"GET /v1/ledger HTTP/1.1\r\n" + HOST + many + b"connection: close\r\n\r\n"
        )
        assert codes == [431]
        assert b'"too_many_headers"' in got


async def _connected(at: Served, count: int = 1) -> None:
    async with asyncio.timeout(RESPONSE_WITHIN_S):
        while len(at.server.server_state.connections) < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    "said",
    [b"", b"POST /v1/events HT", HEAD, HEAD + b"content-le"],
    ids=["nothing", "half a line", "half a head", "half a header"],
)
async def test_a_head_that_does_not_come_is_given_up(said: bytes) -> None:
    async with served() as at, at.line() as (reader, writer):
        writer.write(said)
        await _connected(at)
        detector = StallDetector()
        detector.abort_stalled(at.server.server_state.connections, 0.0)
        detector.abort_stalled(at.server.server_state.connections, HEAD_WITHIN_S - 0.1)
        assert not reader.at_eof()
        detector.abort_stalled(at.server.server_state.connections, HEAD_WITHIN_S)
        assert await until_end(reader) == (b"", True)


async def test_a_body_that_drips_on_after_its_response_is_given_up() -> None:
    async with served() as at, at.line() as (reader, writer):
        writer.write(b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nabc")
        await reader.readuntil(b"401")
        detector = StallDetector()
        detector.abort_stalled(at.server.server_state.connections, 0.0)
        writer.write(b"d")
        detector.abort_stalled(at.server.server_state.connections, HEAD_WITHIN_S)
        assert (await until_end(reader))[1]


@pytest.mark.parametrize("body", [GOOD, b"{}"], ids=["accepted", "refused"])
async def test_a_line_that_rests_after_its_response_is_ended(body: bytes) -> None:
    async with served() as at, at.line() as (reader, writer):
        writer.write(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        await reader.readuntil(b"HTTP/1.1 ")
        detector = StallDetector()
        detector.abort_stalled(at.server.server_state.connections, 0.0)
        detector.abort_stalled(at.server.server_state.connections, HEAD_WITHIN_S - 0.1)
        assert not reader.at_eof()
        detector.abort_stalled(at.server.server_state.connections, HEAD_WITHIN_S)
        assert (await until_end(reader))[1]


async def test_a_line_at_work_is_left_alone() -> None:
    async with served() as at, at.line() as (reader, writer):
        head = b"content-length: %d\r\n\r\n" % len(GOOD)
        detector = StallDetector()
        for turn in range(4):  # each on the same connection, never idle for as long as the limit
            writer.write(HEAD + head + GOOD)
            await reader.readuntil(b"202")
            detector.abort_stalled(at.server.server_state.connections, turn * (HEAD_WITHIN_S - 1))
        writer.write(HEAD + head + GOOD[:5])  # The body has a limit of its own.
        await asyncio.sleep(0.05)
        detector.abort_stalled(at.server.server_state.connections, 1_000.0)
        detector.abort_stalled(at.server.server_state.connections, 2_000.0)
        writer.write(GOOD[5:])
        assert await reader.readuntil(b"202")


class _Transport:
    def __init__(self) -> None:
        self.unsent, self.aborted = 100, False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True


class _Cycle:
    response_complete = False


class _Connection:
    def __init__(self) -> None:
        self.transport, self.cycle = _Transport(), _Cycle()


def test_a_response_that_is_not_taken_is_given_up_and_a_slow_one_is_not() -> None:
    stuck, slow = _Connection(), _Connection()
    detector = StallDetector()
    for second in range(int(TAKEN_WITHIN_S)):
        slow.transport.unsent += 1
        detector.abort_stalled([stuck, slow], float(second))
    assert not stuck.transport.aborted
    slow.transport.unsent += 1
    detector.abort_stalled([stuck, slow], TAKEN_WITHIN_S)
    assert stuck.transport.aborted
    assert not slow.transport.aborted


# --- bodies ---------------------------------------------------------------------------------


class _Body:
    """A body that comes in these parts."""

    def __init__(self, *parts: bytes, hangs: bool = False, goes: bool = False) -> None:
        self._parts, self._hangs, self._goes = list(parts), hangs, goes

    async def __call__(self) -> Message:
        if not self._parts:
            if self._goes:
                return {"type": "http.disconnect"}
            await asyncio.Event().wait()
        part = self._parts.pop(0)
        more = bool(self._parts) or self._hangs or self._goes
        return {"type": "http.request", "body": part, "more_body": more}


BODY_BYTES_MAX = 10 * SMALL_BYTES


async def _read(body: _Body, budget: BodyBudget, tenant: str = "a") -> bytes:
    share = budget.of(tenant)
    return await read_body(
        body, declared=None, bytes_max=BODY_BYTES_MAX, share=share, caller=ANONYMOUS
    )


@pytest.mark.parametrize(
    "parts",
    [
        (b"",),
        (b"x" * SMALL_BYTES,),
        (b"x" * (SMALL_BYTES + 1),),
        (b"x", b"y" * SMALL_BYTES),
        (b"x" * SMALL_BYTES, b"y" * SMALL_BYTES, b""),
    ],
)
async def test_budget_is_held_until_it_is_given_back(parts: tuple[bytes, ...]) -> None:
    budget = BodyBudget(2 * BODY_BYTES_MAX)
    got = await _read(_Body(*parts), budget)
    assert got == b"".join(parts)
    assert budget.held == (len(got) if len(got) > SMALL_BYTES else 0)
    budget.of("a").release(got)
    assert (budget.held, budget.by_tenant) == (0, {})


async def test_without_budget_a_body_is_refused_while_it_comes() -> None:
    budget = BodyBudget(5 * SMALL_BYTES)
    first = await _read(_Body(b"x" * SMALL_BYTES, b"x" * SMALL_BYTES), budget)
    with pytest.raises(Busy):
        await _read(_Body(b"y" * SMALL_BYTES, b"y"), budget)
    with pytest.raises(Busy):
        await _read(_Body(b"y" * (SMALL_BYTES + 1)), budget)
    assert await _read(_Body(b"small"), budget) == b"small"
    assert budget.held == len(first)
    budget.of("a").release(first)
    assert (budget.held, budget.by_tenant) == (0, {})


async def test_a_tenant_with_many_large_bodies_leaves_room_for_the_others() -> None:
    budget = BodyBudget(8 * SMALL_BYTES)
    large = b"x" * 2 * SMALL_BYTES
    held = [await _read(_Body(large), budget, "greedy") for _ in range(2)]
    with pytest.raises(Busy):
        await _read(_Body(large), budget, "greedy")
    assert await _read(_Body(large), budget, "neighbour") == large
    with pytest.raises(Busy):
        await _read(_Body(large), budget, "neighbour")
    for body in held:
        budget.of("greedy").release(body)
    assert await _read(_Body(large), budget, "neighbour") == large
    assert budget.by_tenant == {"neighbour": 4 * SMALL_BYTES}


async def test_whoever_leaves_or_drips_gives_its_budget_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = BodyBudget(2 * BODY_BYTES_MAX)
    with pytest.raises(ClientGone):
        await _read(_Body(b"x" * SMALL_BYTES, b"y", goes=True), budget)
    assert budget.held == 0
    monkeypatch.setattr(body_module, "ARRIVE_WITHIN_S", 0.01)
    with pytest.raises(TooSlow):
        await _read(_Body(b"x" * SMALL_BYTES, b"y", hangs=True), budget)
    assert budget.held == 0


async def test_a_full_budget_is_a_503_that_closes_and_is_free_again_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[BodyBudget] = []
    init = BodyBudget.__init__

    def remembered(budget: BodyBudget) -> None:
        init(budget)
        made.append(budget)

    monkeypatch.setattr(BodyBudget, "__init__", remembered)
    async with served() as at:
        (budget,) = made
        large = b'{"type":"a","data":"' + b"x" * 400_000 + b'"}'
        budget.bytes_max = 100_000
        request = HEAD + b"content-length: %d\r\n\r\n" % len(large) + large
        codes, got, ended = await at.say(request)
        assert (codes, ended) == ([503], True)
        assert b'"busy"' in got
        assert b"retry-after: 1" in got
        budget.bytes_max = 10_000_000
        codes, _, _ = await at.say(request.replace(b"host", b"connection: close\r\nhost", 1))
        assert codes == [202]
        assert budget.held == 0
        assert KEY.encode() not in got
