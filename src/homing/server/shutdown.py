"""The stop of a process: the first SIGTERM or SIGINT requests it, and starts its time limit.

With ``drain_ms`` a stop first goes on serving for so long, while the process says that it is not
ready: load balancers need some time to choose other processes.

A store that does not respond could otherwise block a stop for ever. After the grace period, and a
few seconds to close the store, the process and its child processes end whatever they still wait
for. A second signal ends them at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import structlog

from homing.net.clock import monotonic
from homing.store.process.worker import kill_workers

T = TypeVar("T")

log = structlog.get_logger("homing")

CLOSE_S = 5.0  # after the grace period, to close the store and leave the fleet
SETTLE_MS = 1_000  # of the grace period that the engine always has, however long requests took
EXIT_UNSETTLED = 1


class Shutdown:
    """Requested by a signal or by ``request``, limited in time, and forced where that is over."""

    def __init__(self, *, grace_ms: int, drain_ms: int = 0) -> None:
        self._grace_ms, self._drain_ms = grace_ms, drain_ms
        self._requested_s: float | None = None
        self.is_draining = False  # A stop has begun, or it begins after ``drain_ms``.
        self.requested = asyncio.Event()
        self._on_drain: Callable[[], None] | None = None
        self._on_request: Callable[[], None] | None = None
        self.all_settled = True
        self.unfinished: Callable[[], Mapping[str, int]] = dict  # counts for the log

    def handle_signals(self, *, supervised: bool = False) -> None:
        """Take SIGTERM and SIGINT from now on.

        A process with a supervisor may get the same signal twice, from the supervisor and as a
        member of its group. It is the supervisor that ends it at once.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.drain if supervised else self._signalled)

    async def unless_requested(self, start: Coroutine[Any, Any, T]) -> T | None:
        """The result of a start-up; None if a stop was requested first: the start is cancelled."""
        starting = asyncio.ensure_future(start)
        requested = asyncio.ensure_future(self.requested.wait())
        await asyncio.wait((starting, requested), return_when=asyncio.FIRST_COMPLETED)
        requested.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            if starting.cancelled():
                return None
        return None if self.requested.is_set() else starting.result()

    def on_request(
        self, begin: Callable[[], None], *, drain: Callable[[], None] | None = None
    ) -> None:
        """From now on a stop has work to finish, within the grace period: ``begin`` starts it.

        ``drain`` is called before that, if there is time for it.
        """
        self._on_request, self._on_drain = begin, drain
        if self.requested.is_set():
            begin()

    def grace_ms(self) -> int:
        """The rest of the grace period; all of it before a stop is requested."""
        if self._requested_s is None:
            return self._grace_ms
        passed_ms = int((monotonic() - self._requested_s) * 1000)
        return max(self._grace_ms - passed_ms, min(self._grace_ms, SETTLE_MS))

    def _signalled(self) -> None:
        if self.is_draining:
            self._end("a second signal came")
        self.drain()

    def drain(self) -> None:
        """Say that this process is not ready, and stop after ``drain_ms``."""
        if self.is_draining:
            return
        self.is_draining = True
        if not self._drain_ms or self._on_request is None:
            self.request()
            return
        log.info("draining: /readyz responds 503 until the port is closed", ms=self._drain_ms)
        if self._on_drain is not None:
            self._on_drain()
        asyncio.get_running_loop().call_later(self._drain_ms / 1000, self.request)

    def request(self) -> None:
        """Stop without draining; a second request changes nothing."""
        if self._requested_s is not None:
            return
        self._requested_s, self.is_draining = monotonic(), True
        log.info("stopping: no new requests are taken, attempts in flight are finished")
        limit_s = (self._grace_ms / 1000 if self._on_request is not None else 0.0) + CLOSE_S
        # In a thread: what blocks the stop may block the event loop, too.
        timer = threading.Timer(limit_s, self._end, ["the grace period is over"])
        timer.daemon = True
        timer.start()
        self.requested.set()
        if self._on_request is not None:
            self._on_request()

    def _end(self, reason: str) -> None:
        log.error(
            "the process ends before all outcomes are settled: unsettled deliveries that were sent"
            " will be sent again",
            why=reason,
            **self.unfinished(),
        )
        kill_workers()
        os._exit(EXIT_UNSETTLED)
