"""The resolver: names to addresses through the system's look-up, on threads of its own.

``loop.getaddrinfo`` shares four to six threads with everything else, so a few names whose servers
never respond would block every other look-up. Here each look-up has a thread, up to a limit, and
simultaneous requests for one name share a look-up: a hanging name costs one thread however many
deliveries wait for it. The threads are daemons, because the C library's look-up cannot be
cancelled and must not delay an exit. Tenants have fair shares of them (``policy/look_ups``).

A look-up has a deadline of its own, after which the requests that wait for it fail. Its thread goes
on: it counts for its tenant until it ends, and no second thread looks up the same name meanwhile.

Every new connection looks its name up again, so a change of its address is noticed; how long a
connection may be used is decided by the pool. There are two exceptions, both in bounded caches with
fair shares:

- a name that was found within the last minute does not wait in the sender's own queue: if no thread
  is free for its tenant, the cached addresses are used, and the guard checks them again;
- a failure is cached for as long as the look-up took: a name whose server is silent for ten seconds
  is not looked up again for ten seconds, and a quick "no such name" is not cached noticeably.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from homing.model import Failure
from homing.net import trouble
from homing.net.clock import monotonic as system_monotonic
from homing.net.trouble import Trouble
from homing.policy.look_ups import FairCache, LookUpQueue

THREADS_MAX = 160  # of which one tenant can take 26
LOOK_UP_S_MAX = 10.0  # The system tries a second name server after 5 s.
STUCK_S_MAX = 60.0  # then a second thread may look up the name of a thread that never ended
KNOWN_S_MAX = 60.0  # the same as for an idle connection
FAILED_S_MAX = 30.0
REMEMBERED_MAX = 16_384
GetAddrInfo = Callable[..., list[tuple[Any, ...]]]

# The name is wrong or has no address. Every other code is a resolver that is down or refuses.
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
    """An address to connect to."""

    family: int
    ip: str
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        port = self.sockaddr[1]
        return f"[{self.ip}]:{port}" if self.family == socket.AF_INET6 else f"{self.ip}:{port}"


Found = tuple[Address, ...] | Trouble
Question = tuple[str, int]


class _LookUp:
    """One look-up: in the queue, in a thread, or in a thread and past its deadline."""

    __slots__ = ("begun_at", "future", "overdue", "starting", "timer")

    def __init__(self, future: asyncio.Future[Found]) -> None:
        self.future = future
        self.begun_at: float | None = None  # None while it is queued
        self.starting: list[Callable[[], None]] = []  # called when it leaves the queue
        self.overdue = False
        self.timer: asyncio.TimerHandle | None = None


def _ignore() -> None:
    """The default of ``started``."""


class Remembered(tuple[Address, ...]):
    """Addresses from the cache: no name was looked up."""


class Resolver:
    """Looks names up; a failure is a value, not an exception."""

    def __init__(
        self,
        *,
        getaddrinfo: GetAddrInfo = socket.getaddrinfo,
        threads_max: int = THREADS_MAX,
        look_up_s_max: float = LOOK_UP_S_MAX,
        monotonic: Callable[[], float] = system_monotonic,
    ) -> None:
        self._getaddrinfo = getaddrinfo
        self._look_up_s_max = look_up_s_max
        self._monotonic = monotonic
        self._queue: LookUpQueue[Question] = LookUpQueue(threads_max)
        self._look_ups: dict[Question, _LookUp] = {}
        self._known: FairCache[Question, tuple[Address, ...]] = FairCache(
            REMEMBERED_MAX, keep_s_max=KNOWN_S_MAX
        )
        self._failed: FairCache[Question, Trouble] = FairCache(
            REMEMBERED_MAX, keep_s_max=FAILED_S_MAX
        )

    async def resolve(
        self, host: str, port: int, *, tenant: str = "", started: Callable[[], None] = _ignore
    ) -> tuple[Address, ...] | Trouble:
        """The addresses of a host in the system's order of preference.

        ``started`` is called when the request no longer waits in the sender's own queue: at once,
        or when the look-up leaves the queue.
        """
        literal = _literal(host, port)
        if literal is not None:
            started()
            return (literal,)
        question = (host, port)
        look_up = self._look_ups.get(question)
        if look_up is None or look_up.overdue:
            failed = self._failed.get(question, self._monotonic())
            if failed is not None:
                started()
                return failed
        if look_up is None:
            look_up = _LookUp(asyncio.get_running_loop().create_future())
            self._look_ups[question] = look_up
        if look_up.begun_at is None:
            return await self._queued(question, look_up, tenant, started)
        started()
        return await asyncio.shield(
            look_up.future
        )  # A request that is cancelled does not cancel the others.

    async def _queued(
        self, question: Question, look_up: _LookUp, tenant: str, started: Callable[[], None]
    ) -> Found:
        self._queue.join(tenant, question)
        look_up.starting.append(started)
        self._start_next()
        if look_up.begun_at is None:
            known = self._known.get(question, self._monotonic())
            if known is not None:
                self._leave(question, look_up, tenant, started)
                started()
                return Remembered(known)
        try:
            return await asyncio.shield(look_up.future)
        finally:
            if look_up.begun_at is None:
                self._leave(question, look_up, tenant, started)

    def _leave(
        self, question: Question, look_up: _LookUp, tenant: str, started: Callable[[], None]
    ) -> None:
        look_up.starting.remove(started)
        if self._queue.leave(tenant, question):
            del self._look_ups[question]

    def _start_next(self) -> None:
        while (turn := self._queue.start()) is not None:
            self._start(*turn)

    def _start(self, tenant: str, question: Question) -> None:
        look_up = self._look_ups[question]
        look_up.begun_at = self._monotonic()
        starting, look_up.starting = look_up.starting, []
        for started in starting:
            started()
        try:
            self.begin(question, partial(self._finish, tenant, question, look_up))
        except (RuntimeError, MemoryError):
            self._queue.end(tenant)
            del self._look_ups[question]
            look_up.future.set_result(
                Trouble(Failure.SENDER_LIMITS, "no thread could be started for the look-up")
            )
            return
        look_up.timer = look_up.future.get_loop().call_later(
            self._look_up_s_max, self._overdue, tenant, question
        )

    def _overdue(self, tenant: str, question: Question) -> None:
        """Fail the requests that wait for a look-up past its deadline; its thread goes on."""
        look_up = self._look_ups[question]
        look_up.overdue = True
        within = f"within {self._look_up_s_max:g} s"
        gone = Trouble(Failure.SENDER_DNS, f"the name servers did not respond {within}")
        if not look_up.future.done():
            look_up.future.set_result(gone)
        self._fails(tenant, question, gone, self._look_up_s_max)
        stuck_s = max(STUCK_S_MAX - self._look_up_s_max, 0)
        look_up.timer = look_up.future.get_loop().call_later(
            stuck_s, self._look_ups.pop, question, None
        )

    def _fails(self, tenant: str, question: Question, why: Trouble, took_s: float) -> None:
        self._failed.put(tenant, question, why, now=self._monotonic(), keep_s=took_s)

    def begin(self, question: Question, done: Callable[[Found], None]) -> None:
        """Look up on a thread; ``done`` is called on the loop, once. RuntimeError: no thread."""
        loop = asyncio.get_running_loop()
        threading.Thread(
            target=self._run,
            args=(question, done, loop),
            name=f"resolve {question[0]}",
            daemon=True,
        ).start()

    def _run(
        self, question: Question, done: Callable[[Found], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        found = self._ask(*question)
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(done, found)

    def _finish(self, tenant: str, question: Question, look_up: _LookUp, found: Found) -> None:
        self._queue.end(tenant)
        if look_up.timer is not None:
            look_up.timer.cancel()
        if self._look_ups.get(question) is look_up:
            del self._look_ups[question]
        assert look_up.begun_at is not None
        now = self._monotonic()
        if isinstance(found, Trouble):
            self._fails(tenant, question, found, now - look_up.begun_at)
        else:
            self._failed.forget(question)
            self._known.put(tenant, question, found, now=now, keep_s=KNOWN_S_MAX)
        if not look_up.future.done():
            look_up.future.set_result(found)
        self._start_next()

    def _ask(self, host: str, port: int) -> Found:
        try:
            rows = self._getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            return _of_gaierror(error)
        except OSError as error:
            known = trouble.of_error(error)
            if known.failure is Failure.SENDER_LIMITS:
                return known
            return Trouble(Failure.SENDER_DNS, f"the look-up failed: {error.strerror}")
        except ValueError:  # UnicodeError included
            return Trouble(Failure.DNS, "not a name that can be looked up")
        except Exception as error:  # noqa: BLE001 - a thread has no caller to raise to
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
        return Trouble(Failure.SENDER_LIMITS, f"the look-up failed: {text}")
    return Trouble(Failure.SENDER_DNS, f"the resolver did not respond: {text}")
