"""Connections are used again while that is safe, and no longer."""

from __future__ import annotations

import asyncio

import pytest

from homing.model import Failure
from homing.net.sender import HttpSender, SenderOptions
from homing.policy.reach import Reach
from net.receiver import (
    OK,
    Call,
    a_request,
    a_target,
    ask,
    receiver,
    say_ok,
)

PRIVATE = SenderOptions(reach=Reach(loopback=True))


async def test_a_connection_is_used_again_within_one_tenant_only(sender: HttpSender) -> None:
    async with receiver(say_ok) as peer:
        for tenant in ("a", "a", "a", "b", "b"):
            await ask(sender, a_request(a_target(peer.port), tenant=tenant))
    assert len(peer.calls) == 2


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n" + b"z" * 2_000_000,
    ],
    ids=["close", "http_1_0", "keeps_it_too_short", "stray_bytes", "not_read_to_its_end"],
)
async def test_some_responses_end_their_connection(sender: HttpSender, response: bytes) -> None:
    async def behave(call: Call) -> None:
        while await call.request():
            await call.say(response)

    async with receiver(behave) as peer:
        for _ in range(3):
            assert (await ask(sender, a_request(a_target(peer.port)))).code == 200
    assert len(peer.calls) == 3


async def test_a_closed_idle_connection_is_not_written_on(sender: HttpSender) -> None:
    closed = asyncio.Event()

    async def behave(call: Call) -> None:
        await call.request()
        await call.say(OK)
        call.writer.close()
        closed.set()

    async with receiver(behave) as peer:
        for _ in range(20):
            closed.clear()
            assert (await ask(sender, a_request(a_target(peer.port)))).code == 200
            await closed.wait()
            await asyncio.sleep(0.01)  # for the end to travel over loopback


async def test_stray_bytes_close_an_idle_connection(sender: HttpSender) -> None:
    strayed = asyncio.Event()

    async def behave(call: Call) -> None:
        await call.request()
        await call.say(OK)
        await asyncio.sleep(0.01)
        await call.say(b"HTTP/1.1 500 surprise\r\ncontent-length: 0\r\n\r\n")
        await call.gone()
        strayed.set()

    async with receiver(behave) as peer:
        assert (await ask(sender, a_request(a_target(peer.port)))).code == 200
        await strayed.wait()
        assert (await ask(sender, a_request(a_target(peer.port)))).code == 200
    assert len(peer.calls) == 2


@pytest.mark.parametrize("reset", [False, True])
async def test_a_reused_connection_that_ends_is_told_and_not_sent_again(
    sender: HttpSender, reset: bool
) -> None:
    async def behave(call: Call) -> None:
        await call.request()
        await call.say(OK)
        await call.request()
        if reset:
            call.reset()

    async with receiver(behave) as peer:
        assert (await ask(sender, a_request(a_target(peer.port)))).code == 200
        response = await ask(sender, a_request(a_target(peer.port)))
    assert response.failure is (Failure.RESET if reset else Failure.CLOSED)
    assert "kept from an earlier request" in response.detail
    assert len(peer.calls) == 1


class Ticking:
    """Monotonic time that stands still until a test moves it on."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return 1_000 + self.ahead_s


async def _connections_after(pauses_s: list[float], *, keep_alive: bytes = b"") -> int:
    async def behave(call: Call) -> None:
        while await call.request():
            await call.say(b"HTTP/1.1 200 OK\r\n" + keep_alive + b"content-length: 0\r\n\r\n")

    ticking = Ticking()
    sender = HttpSender(PRIVATE, monotonic=ticking)
    async with receiver(behave) as peer:
        for pause_s in [0.0, *pauses_s]:
            ticking.ahead_s += pause_s
            assert (await ask(sender, a_request(a_target(peer.port)))).code == 200
        await sender.close()
    return len(peer.calls)


async def test_an_idle_connection_is_kept_for_four_seconds() -> None:
    assert await _connections_after([3.0, 3.0]) == 1
    assert await _connections_after([4.1]) == 2


async def test_an_announced_keep_alive_is_kept_less_a_second_up_to_fifteen() -> None:
    announced = b"keep-alive: timeout=10\r\n"
    assert await _connections_after([8.0], keep_alive=announced) == 1
    assert await _connections_after([9.1], keep_alive=announced) == 2
    for_long = b"keep-alive: timeout=999\r\n"
    assert await _connections_after([14.0], keep_alive=for_long) == 1
    assert await _connections_after([15.1], keep_alive=for_long) == 2


async def test_an_address_is_checked_again_after_a_minute() -> None:
    for_long = b"keep-alive: timeout=999\r\n"
    assert await _connections_after([10.0] * 5, keep_alive=for_long) == 1
    assert await _connections_after([10.0] * 7, keep_alive=for_long) == 2


async def test_idle_connections_are_bounded_and_the_oldest_goes() -> None:
    sender = HttpSender(SenderOptions(reach=Reach(loopback=True), idle_connections_max=3))
    async with receiver(say_ok) as peer:
        for tenant in ("a", "b", "c", "d"):
            await ask(sender, a_request(a_target(peer.port), tenant=tenant))
        await asyncio.wait_for(peer.calls[0].over.wait(), 20)
        for tenant in ("b", "c", "d"):
            await ask(sender, a_request(a_target(peer.port), tenant=tenant))
        assert len(peer.calls) == 4
        await sender.close()


async def test_closing_ends_idle_connections(sender: HttpSender) -> None:
    async with receiver(say_ok) as peer:
        await ask(sender, a_request(a_target(peer.port)))
        await sender.close()
        await asyncio.wait_for(peer.calls[0].over.wait(), 20)


async def test_a_request_in_flight_outlives_closing(sender: HttpSender) -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def behave(call: Call) -> None:
        await call.request()
        asked.set()
        await closed.wait()
        await call.say(OK)
        await call.gone()

    async with receiver(behave) as peer:
        response = asyncio.create_task(ask(sender, a_request(a_target(peer.port))))
        await asked.wait()
        await sender.close()
        closed.set()
        assert (await response).code == 200
