"""One deadline over everything, and no timer without work."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from homing.model import Failure
from homing.net.resolver import Resolver
from homing.net.sender import REPORTED_MIN, HttpSender, SenderOptions
from homing.policy.reach import Reach
from homing.ports import Response
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


async def test_the_deadline_is_total(sender: HttpSender) -> None:
    """A receiver that drips a byte now and then is not held longer; the fastest of three counts,
    so that a busy machine does not decide."""

    async def drip(call: Call) -> None:
        await call.request()
        for byte in b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1000:
            await call.say(bytes([byte]))
            await asyncio.sleep(0.02)

    async with receiver(drip) as peer:
        request = a_request(a_target(peer.port), deadline_ms=300)
        responses = [await ask(sender, request) for _ in range(3)]
    assert {response.failure for response in responses} == {Failure.TIMEOUT}
    assert all("did not end within 300 ms" in response.detail for response in responses)
    assert 300_000 <= min(response.phases.total_us for response in responses) <= 600_000


async def test_many_that_are_late_at_once_are_told_a_few_at_a_time(sender: HttpSender) -> None:
    """What two hundred failures cause at once would hold up everybody else."""
    loop, told = asyncio.get_running_loop(), list[int]()
    portion, ended = 0, asyncio.Event()

    def done(response: Response) -> None:
        nonlocal portion
        # On a busy machine some are still waiting or connecting when their time is up.
        assert response.failure in {
            Failure.TIMEOUT,
            Failure.CONNECT_TIMEOUT,
            Failure.SENDER_LIMITS,
        }
        assert response.phases.total_us >= 200_000
        if not told or told[-1] != portion:
            loop.call_soon(next_portion)
        told.append(portion)
        if len(told) == 200:
            ended.set()

    def next_portion() -> None:
        nonlocal portion
        portion += 1

    async def hang(call: Call) -> None:
        await call.gone()

    async with receiver(hang) as peer:
        for n in range(200):
            request = a_request(a_target(peer.port), deadline_ms=200, tenant=str(n))
            sender.send(request, done)
        async with asyncio.timeout(30):
            await ended.wait()
    assert max(Counter(told).values()) <= REPORTED_MIN
    assert len(told) == 200


async def test_a_slow_body_ends_with_the_deadline_and_keeps_its_code(sender: HttpSender) -> None:
    async def behave(call: Call) -> None:
        await call.request()
        await call.say(b"HTTP/1.1 200 OK\r\nretry-after: 3\r\ncontent-length: 100\r\n\r\nabc")
        await call.gone()

    async with receiver(behave) as peer:
        response = await ask(sender, a_request(a_target(peer.port), deadline_ms=250))
    assert (response.code, response.failure, response.excerpt) == (200, None, b"abc")
    assert response.retry_after == "3"


async def test_a_late_look_up_is_our_trouble() -> None:
    let_go = threading.Event()

    def never(*_: Any, **__: Any) -> list[tuple[Any, ...]]:
        let_go.wait(20)
        return []

    sender = HttpSender(PRIVATE, resolver=Resolver(getaddrinfo=never))
    request = a_request(a_target(80, host="hook.test"), deadline_ms=150)
    response = await ask(sender, request)
    let_go.set()
    assert response.failure is Failure.SENDER_DNS
    assert response.address is None
    await sender.close()


async def test_a_connection_that_is_not_taken_times_out(sender: HttpSender) -> None:
    """A full backlog makes the kernel drop new connections silently."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        target = a_target(listener.getsockname()[1])
        fillers = [_connecting(target.port) for _ in range(4)]
        await asyncio.sleep(0.05)
        response = await ask(sender, a_request(target, deadline_ms=250))
        for filler in fillers:
            filler.close()
    assert response.failure is Failure.CONNECT_TIMEOUT
    assert response.address == f"127.0.0.1:{target.port}"


def _connecting(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", port))
    return sock


async def test_our_own_pause_is_not_the_receivers_timeout(sender: HttpSender) -> None:
    """The response waits in the kernel while this process stands still past the deadline."""

    async def behave(call: Call) -> None:
        while await call.request():
            await call.say(OK)
            time.sleep(0.5)

    async with receiver(behave) as peer:
        for _ in range(3):
            response = await ask(sender, a_request(a_target(peer.port), deadline_ms=300))
            assert response.code == 200


async def test_without_work_no_timer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.BaseEventLoop):
        pytest.skip("only the plain loop can be watched")
    pending: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def watched(delay: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        handle = call_later(delay, callback, *args)
        pending.append(handle)
        return handle

    sender = HttpSender(SenderOptions(reach=Reach(loopback=True), idle_ms_max=100))
    async with receiver(say_ok) as peer:
        monkeypatch.setattr(loop, "call_later", watched)
        await ask(sender, a_request(a_target(peer.port)))
        assert any(not handle.cancelled() and handle.when() > loop.time() for handle in pending)
        await asyncio.wait_for(peer.calls[0].over.wait(), 20)
        await asyncio.sleep(0.12)
        pending.clear()
        await asyncio.sleep(0.2)
        assert [handle for handle in pending if "_sweep" in repr(handle)] == []
