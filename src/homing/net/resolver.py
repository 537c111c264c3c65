"""The resolver: names to addresses through the system's own look-up, on threads of its own.

``loop.getaddrinfo`` shares four to six threads with everything else, so a handful of names whose
servers never answer would hold up every other look-up. Here each look-up has a thread, up to a
limit, and simultaneous questions for one name share one: a hanging name costs one thread however
many deliveries wait for it. The threads are daemons, because the C library's look-up cannot be
called back and must not hold up an exit.

Nothing is remembered after the answer: how long an address may be used is the pool's rule.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from homing.model import Failure
from homing.net import trouble
from homing.net.trouble import Trouble

THREADS_MAX = 32
GetAddrInfo = Callable[..., list[tuple[Any, ...]]]

# The name is wrong or has no address. Everything else is a resolver that is down or refuses.
_THEIRS = frozenset(
    code
    for code in (
        socket.EAI_NONAME,
        getattr(socket, "EAI_NODATA", None),
        getattr(socket, "EAI_ADDRFAMILY", None),
    )
    if code is not None
)


class Address(Struct, frozen=True):
    """Where to connect to."""

    family: int
    ip: str
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        port = self.sockaddr[1]
        return f"[{self.ip}]:{port}" if self.family == socket.AF_INET6 else f"{self.ip}:{port}"


_Found = tuple[Address, ...] | Trouble


class _LookUp:
    """One question on its way, and how many wait for it."""

    __slots__ = ("future", "waiting")

    def __init__(self, future: asyncio.Future[_Found]) -> None:
        self.future = future
        self.waiting = 0


class Resolver:
    """Looks names up; a failure is a value."""

    def __init__(
        self, *, getaddrinfo: GetAddrInfo = socket.getaddrinfo, threads_max: int = THREADS_MAX
    ) -> None:
        self._getaddrinfo = getaddrinfo
        self._threads_max = threads_max
        self._threads = 0
        self._look_ups: dict[tuple[str, int], _LookUp] = {}
        self._queue: deque[tuple[str, int]] = deque()

    async def resolve(self, host: str, port: int) -> tuple[Address, ...] | Trouble:
        """The addresses of a host in the system's order of preference."""
        literal = _literal(host, port)
        if literal is not None:
            return (literal,)
        question = (host, port)
        look_up = self._look_ups.get(question)
        if look_up is None:
            look_up = _LookUp(asyncio.get_running_loop().create_future())
            self._look_ups[question] = look_up
            self._queue.append(question)
        look_up.waiting += 1
        self._start_next()
        try:
            return await asyncio.shield(look_up.future)  # One who gives up leaves the others.
        finally:
            look_up.waiting -= 1

    def _start_next(self) -> None:
        while self._queue and self._threads < self._threads_max:
            question = self._queue.popleft()
            look_up = self._look_ups[question]
            if look_up.waiting == 0:  # All gave up while it was queued.
                del self._look_ups[question]
                continue
            thread = threading.Thread(
                target=self._run,
                args=(question, look_up.future.get_loop()),
                name=f"resolve {question[0]}",
                daemon=True,
            )
            try:
                thread.start()
            except (RuntimeError, MemoryError):
                del self._look_ups[question]
                look_up.future.set_result(
                    Trouble(Failure.OUR_LIMITS, "no thread could be started for the look-up")
                )
                continue
            self._threads += 1

    def _run(self, question: tuple[str, int], loop: asyncio.AbstractEventLoop) -> None:
        found = self._ask(*question)
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(self._finish, question, found)

    def _finish(self, question: tuple[str, int], found: _Found) -> None:
        self._threads -= 1
        future = self._look_ups.pop(question).future
        if not future.done():
            future.set_result(found)
        self._start_next()

    def _ask(self, host: str, port: int) -> _Found:
        try:
            rows = self._getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            return _of_gaierror(error)
        except OSError as error:
            known = trouble.of_error(error)
            if known.failure is Failure.OUR_LIMITS:
                return known
            return Trouble(Failure.OUR_DNS, f"the look-up failed: {error.strerror}")
        except ValueError:  # UnicodeError included
            return Trouble(Failure.DNS, "not a name that can be looked up")
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to
            return trouble.of_error(error)
        addresses = tuple(
            Address(family, str(sockaddr[0]), sockaddr)
            for family, _, _, _, sockaddr in rows
            if family in {socket.AF_INET, socket.AF_INET6}
        )
        return addresses or Trouble(Failure.DNS, "the name has no address")


def _literal(host: str, port: int) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return Address(socket.AF_INET, host, (host, port))
    if "%" in host:
        return None  # A zone has to be looked up.
    return Address(socket.AF_INET6, host, (host, port, 0, 0))


def _of_gaierror(error: socket.gaierror) -> Trouble:
    text = error.strerror or "look-up failed"
    if error.errno in _THEIRS:
        return Trouble(Failure.DNS, f"unknown host: {text}")
    if error.errno == socket.EAI_MEMORY:
        return Trouble(Failure.OUR_LIMITS, f"the look-up failed: {text}")
    return Trouble(Failure.OUR_DNS, f"the resolver gave no answer: {text}")
