"""SIGTERM and SIGINT: the first asks a process to stop, and bounds how long that takes.

A store that does not answer would otherwise hold a stop up for ever. After the grace, and a few
seconds to close the store, the process ends whatever it still waits for, and so do its children.
A second signal ends it at once. Only ``wiring`` and ``cli`` use it.
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

CLOSE_S = 5.0  # after the grace, to close the store and leave the fleet
SETTLE_MS = 1_000  # of the grace that the engine always has, however long requests took
EXIT_UNSETTLED = 1


class Stopping:
    """The stop of this process: asked for, bounded, and forced if need be."""

    def __init__(self, *, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._asked_at: float | None = None
        self.asked = asyncio.Event()
        self._on_stop: Callable[[], None] | None = None
        self.all_settled = True
        self.left: Callable[[], Mapping[str, int]] = dict  # what is not finished

    def listen(self) -> None:
        """Take SIGTERM and SIGINT from here on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)

    async def unless_asked(self, start: Coroutine[Any, Any, T]) -> T | None:
        """Return what a start-up gives; None if a signal came first, and then it is given up."""
        starting = asyncio.ensure_future(start)
        asked = asyncio.ensure_future(self.asked.wait())
        await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            if starting.cancelled():
                return None
        return None if self.asked.is_set() else starting.result()

    def begin(self, on_stop: Callable[[], None]) -> None:
        """From here on there is something to finish; ``on_stop`` begins to do so."""
        self._on_stop = on_stop
        if self.asked.is_set():
            on_stop()

    def grace_ms(self) -> int:
        """Return what is left of the grace; all of it, unless a signal came."""
        if self._asked_at is None:
            return self._grace_ms
        passed_ms = int((monotonic() - self._asked_at) * 1000)
        return max(self._grace_ms - passed_ms, min(self._grace_ms, SETTLE_MS))

    def _signalled(self) -> None:
        if self._asked_at is not None:
            self._end("a second signal came")
        self.ask()

    def ask(self) -> None:
        """Stop, if that was not asked for before."""
        if self._asked_at is not None:
            return
        self._asked_at = monotonic()
        log.info("stopping: no new requests, what is in flight is finished")
        within_s = (self._grace_ms / 1000 if self._on_stop is not None else 0.0) + CLOSE_S
        # A thread, because whatever holds the stop up may hold the event loop up, too.
        timer = threading.Timer(within_s, self._end, ["the grace is over"])
        timer.daemon = True
        timer.start()
        self.asked.set()
        if self._on_stop is not None:
            self._on_stop()

    def _end(self, why: str) -> None:
        log.error(
            "ended before all was settled: what was sent and is not settled will be sent again",
            why=why,
            **self.left(),
        )
        kill_workers()
        os._exit(EXIT_UNSETTLED)
