"""Names become addresses, or a failure with an owner."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from typing import Any

import pytest

from homing.model import Failure
from homing.net.resolver import Address, Resolver
from homing.net.trouble import Trouble
from net.receiver import names


async def _addresses(resolver: Resolver, host: str) -> list[str]:
    found = await resolver.resolve(host, 443)
    assert not isinstance(found, Trouble), found
    return [str(address) for address in found]


async def test_addresses_come_in_the_order_of_the_system() -> None:
    resolver = Resolver(getaddrinfo=names(hook_test="2001:db8::1 192.0.2.1 192.0.2.2"))
    assert await _addresses(resolver, "hook.test") == [
        "[2001:db8::1]:443",
        "192.0.2.1:443",
        "192.0.2.2:443",
    ]


@pytest.mark.parametrize(
    ("host", "shown"), [("192.0.2.7", "192.0.2.7:443"), ("2001:db8::7", "[2001:db8::7]:443")]
)
async def test_a_literal_is_not_looked_up(host: str, shown: str) -> None:
    assert await _addresses(Resolver(getaddrinfo=names()), host) == [shown]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), Failure.DNS),
        (socket.gaierror(socket.EAI_NODATA, "No address"), Failure.DNS),
        (UnicodeError("label too long"), Failure.DNS),
        (ValueError("embedded null character"), Failure.DNS),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), Failure.SENDER_DNS),
        (socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure"), Failure.SENDER_DNS),
        (socket.gaierror(socket.EAI_SYSTEM, "System error"), Failure.SENDER_DNS),
        (OSError(errno.ECONNREFUSED, "refused"), Failure.SENDER_DNS),
        (OSError(errno.EMFILE, "Too many open files"), Failure.SENDER_LIMITS),
        (socket.gaierror(socket.EAI_MEMORY, "Memory"), Failure.SENDER_LIMITS),
        (MemoryError(), Failure.SENDER_LIMITS),
        (ZeroDivisionError(), Failure.SENDER_FAULT),
    ],
)
async def test_a_failed_look_up_is_a_value(error: Exception, failure: Failure) -> None:
    found = await Resolver(getaddrinfo=names(hook_test=error)).resolve("hook.test", 80)
    assert isinstance(found, Trouble)
    assert found.failure is failure
    assert found.detail


async def test_a_name_without_an_address_is_the_receivers_failure() -> None:
    found = await Resolver(getaddrinfo=names(hook_test="")).resolve("hook.test", 80)
    assert isinstance(found, Trouble)
    assert found.failure is Failure.DNS


class Held:
    """A look-up that responds when it is let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.let_go = threading.Event()

    def __call__(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        self.asked.append(host)
        self.let_go.wait(20)
        return [(socket.AF_INET, 1, 6, "", ("192.0.2.1", port))]


async def test_simultaneous_look_ups_of_one_name_are_one() -> None:
    held = Held()
    resolver = Resolver(getaddrinfo=held)
    waiting = [asyncio.create_task(resolver.resolve("hook.test", 80)) for _ in range(20)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    held.let_go.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    expected = (Address(socket.AF_INET, "192.0.2.1", ("192.0.2.1", 80)),)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [expected] * 19, "one who gives up leaves the others"
    assert held.asked == ["hook.test"]
    await resolver.resolve("hook.test", 80)
    assert held.asked == ["hook.test"] * 2, "nothing is remembered"


async def test_look_ups_beyond_the_threads_wait_and_abandoned_ones_are_skipped() -> None:
    held = Held()
    resolver = Resolver(getaddrinfo=held, threads_max=2)
    waiting = [asyncio.create_task(resolver.resolve(f"h{n}.test", 80)) for n in range(5)]
    await asyncio.sleep(0)
    waiting[3].cancel()
    await asyncio.sleep(0)
    held.let_go.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert sorted(held.asked) == ["h0.test", "h1.test", "h2.test", "h4.test"]


async def test_localhost_is_found_by_the_real_look_up() -> None:
    assert "127.0.0.1:443" in await _addresses(Resolver(), "localhost")


class Slow(Held):
    """A look-up that says how many threads are in it."""

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.asked) < count:
                await asyncio.sleep(0.001)


async def test_a_look_up_has_a_deadline_of_its_own() -> None:
    slow = Slow()
    resolver = Resolver(getaddrinfo=slow, look_up_s_max=0.05)
    for _ in range(3):
        found = await resolver.resolve("hook.test", 80)
        assert isinstance(found, Trouble)
        assert found.failure is Failure.SENDER_DNS
        await asyncio.sleep(0.06)
    assert slow.asked == ["hook.test"], "no second thread asks while the first one is stuck"
    slow.let_go.set()
    async with asyncio.timeout(20):
        while isinstance(await resolver.resolve("hook.test", 80), Trouble):
            await asyncio.sleep(0.001)


async def test_a_failure_is_remembered_for_as_long_as_it_took() -> None:
    now, asked = 0.0, list[str]()

    def silent(host: str, _port: int, **_: Any) -> list[tuple[Any, ...]]:
        nonlocal now
        asked.append(host)
        now += 8
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")

    resolver = Resolver(getaddrinfo=silent, monotonic=lambda: now)
    for _ in range(3):
        found = await resolver.resolve("hook.test", 80)
        assert isinstance(found, Trouble)
        assert found.failure is Failure.SENDER_DNS
    assert len(asked) == 1
    now += 8
    await resolver.resolve("hook.test", 80)
    assert len(asked) == 2


async def test_a_quick_no_is_not_remembered() -> None:
    asked = []

    def unknown(host: str, _port: int, **_: Any) -> list[tuple[Any, ...]]:
        asked.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    resolver = Resolver(getaddrinfo=unknown, monotonic=lambda: 7.0)
    for _ in range(3):
        assert isinstance(await resolver.resolve("hook.test", 80), Trouble)
    assert len(asked) == 3


async def test_a_name_found_lately_does_not_wait_in_our_own_queue() -> None:
    now, slow = 0.0, Slow()
    resolver = Resolver(getaddrinfo=slow, threads_max=1, monotonic=lambda: now)
    slow.let_go.set()
    found = await resolver.resolve("hook.test", 80, tenant="a")
    slow.let_go.clear()
    stuck = asyncio.create_task(resolver.resolve("dead.test", 80, tenant="a"))
    await slow.reached(2)
    now = 59.0
    assert await resolver.resolve("hook.test", 80, tenant="a") == found
    assert slow.asked == ["hook.test", "dead.test"]
    now = 60.0
    queued = asyncio.create_task(resolver.resolve("hook.test", 80, tenant="a"))
    await asyncio.sleep(0)
    assert not queued.done(), "what was found a minute ago says nothing any more"
    slow.let_go.set()
    assert await queued == found
    await stuck


async def test_who_joins_a_look_up_in_the_queue_of_another_tenant_starts_it() -> None:
    """The other tenant has used up its share, and its queue is long."""
    slow, told = Slow(), list[str]()
    resolver = Resolver(getaddrinfo=slow, threads_max=10)
    waiting = [
        asyncio.create_task(resolver.resolve(f"h{n}.test", 80, tenant="busy")) for n in range(50)
    ]
    await slow.reached(2)  # all that one tenant may hold
    started = resolver.resolve("h49.test", 80, tenant="calm", started=lambda: told.append("calm"))
    waiting.append(asyncio.create_task(started))
    await slow.reached(3)
    assert (slow.asked[-1], told) == ("h49.test", ["calm"])
    slow.let_go.set()
    assert len(set(await asyncio.gather(*waiting))) == 1
    assert slow.asked.count("h49.test") == 1
