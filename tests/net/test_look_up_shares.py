"""Look-ups of one tenant leave threads for the others, and our own queue is nobody's fault."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from homing.model import Failure
from homing.net.resolver import Resolver
from homing.net.sender import HttpSender, SenderOptions
from homing.policy.reach import Reach
from homing.ports import Response
from net.receiver import Call, a_request, a_target, ask, receiver, say_ok

PRIVATE = SenderOptions(reach=Reach(loopback=True))
DEAD = 200


class Zone:
    """A look-up in which the names that begin with ``dead`` have servers that do not respond."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked: Counter[str] = Counter()
        self.stuck = 0
        self._lock = threading.Lock()

    def __call__(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            self.asked[host] += 1
            self.stuck += host.startswith("dead")
        if host.startswith("dead"):
            self.let_go.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")
        return [(socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]


@pytest.fixture
def zone() -> Iterator[Zone]:
    it = Zone()
    yield it
    it.let_go.set()


def _send_dead(sender: HttpSender, responses: list[Response], *, tenant: str = "noisy") -> None:
    for n in range(DEAD):
        target = a_target(80, host=f"dead{n}.{tenant}.test")
        sender.send(a_request(target, tenant=tenant), responses.append)


async def test_names_that_never_resolve_hold_up_no_other_tenant(zone: Zone) -> None:
    responses: list[Response] = []
    sender = HttpSender(PRIVATE, resolver=Resolver(getaddrinfo=zone))
    async with receiver(say_ok) as peer, asyncio.timeout(20):
        _send_dead(sender, responses)
        for n in range(100):
            target = a_target(peer.port, host=f"ok{n}.test")
            response = await ask(sender, a_request(target, tenant="quiet"))
            assert response.code == 200
        assert responses == [], "the other look-ups have not ended"
    zone.let_go.set()
    await sender.close()


async def test_several_tenants_with_dead_names_hold_up_no_other_tenant(zone: Zone) -> None:
    responses: list[Response] = []
    sender = HttpSender(PRIVATE, resolver=Resolver(getaddrinfo=zone))
    async with receiver(say_ok) as peer, asyncio.timeout(20):
        for n in range(10):
            _send_dead(sender, responses, tenant=f"noisy{n}")
        response = await ask(sender, a_request(a_target(peer.port, host="ok.test"), tenant="quiet"))
        assert response.code == 200
    zone.let_go.set()
    await sender.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_timeout_after_a_wait_in_our_own_queue_is_not_charged_to_the_receiver(
    zone: Zone, scheme: str
) -> None:
    """The receiver had less than its deadline, because we were busy."""

    async def hang(call: Call) -> None:
        await call.gone()

    responses: list[Response] = []
    sender = HttpSender(PRIVATE, resolver=Resolver(getaddrinfo=zone))
    loop = asyncio.get_running_loop()
    async with receiver(hang) as peer, asyncio.timeout(20):
        _send_dead(sender, responses, tenant="one")
        target = a_target(peer.port, scheme=scheme, host="hangs.test")
        loop.call_later(0.4, zone.let_go.set)
        # On a busy machine the look-ups before it take a while even when they are let go.
        response = await ask(sender, a_request(target, tenant="one", deadline_ms=4_000))
    assert response.code is None
    assert response.failure is Failure.SENDER_LIMITS
    assert "look-up" in response.detail
    await sender.close()


async def test_a_receiver_that_hangs_without_a_wait_of_ours_is_charged(zone: Zone) -> None:
    async def hang(call: Call) -> None:
        await call.gone()

    sender = HttpSender(PRIVATE, resolver=Resolver(getaddrinfo=zone))
    async with receiver(hang) as peer:
        target = a_target(peer.port, host="hangs.test")
        response = await ask(sender, a_request(target, deadline_ms=200))
    assert response.failure is Failure.TIMEOUT
    await sender.close()
