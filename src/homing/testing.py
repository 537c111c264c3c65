"""A real server for the tests of an application: in memory, in a thread, on a clock of its own.

    with running_server() as server:
        server.client.subscribe(url, ["*"])
        server.client.publish("invoice.paid", {"invoice": 17})
        server.live_through(hours=49)      # every retry at its time, in less than a second

The clock stands still until a test moves it, so that due times are exact and nothing happens
unexpectedly. Connections, responses and the deadline of an attempt take real time. History is not
removed by this clock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
import uvloop

from homing.engine.engine import Engine
from homing.net.clock import SystemClock
from homing.ports import ClockReading, ClockState
from homing.server.serve import serving
from homing.server.settings import DeliverySettings, ListenSettings, ReachSettings, Settings
from homing_client import Homing

KEY = "hk_key-of-a-server-for-tests"
SETTLE_TIMEOUT_S = 30.0
_CALM_TURNS = 20  # of the event loop: enough for all work that needs no network
_LOG_LEVEL_WARNING = 30


class SettableClock:
    """Time that stands still until it is moved, forwards only; it begins at the real time."""

    def __init__(self, start_ms: int) -> None:
        self._now_ms = start_ms
        self.on_move: Callable[[], None] = lambda: None

    def now(self) -> int:
        """Unix milliseconds."""
        return self._now_ms

    def wall(self) -> int:
        """The same as ``now``: there is no other clock in a test."""
        return self._now_ms

    def time(self) -> float:
        """Unix seconds: give it to ``verify`` as ``now``."""
        return self._now_ms / 1000

    def utc(self) -> datetime:
        """The time as a datetime."""
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=self._now_ms)

    def stepped_at(self) -> int | None:
        """None: the clock of a test never steps, its time passes."""
        return None

    def state(self) -> ClockState:
        """The wall clock never differs from steady time."""
        return ClockState()

    def read(self) -> ClockReading:
        """There is one clock, and it is right."""
        return ClockReading(self._now_ms, self._now_ms, self._now_ms, synchronised=True)

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0) -> None:
        """Move forward at once; deliveries that are due by then are attempted soon after."""
        self.set(self._now_ms + _span_ms(seconds, minutes, hours))

    def set(self, to: datetime | int) -> None:
        """Move to a time, as a datetime or in Unix milliseconds."""
        self.put(round(to.timestamp() * 1000) if isinstance(to, datetime) else to)
        self.on_move()

    def put(self, to_ms: int) -> None:
        """Move without waking the engine."""
        if to_ms < self._now_ms:
            raise ValueError("time does not go back")
        self._now_ms = to_ms


class HomingServer:
    """A running server. Its methods block: in a coroutine, use ``asyncio.to_thread``."""

    def __init__(
        self, url: str, clock: SettableClock, engine: Engine, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.url, self.key, self.clock = url, KEY, clock
        self.client = Homing(url, KEY)
        self._engine, self._loop = engine, loop
        clock.on_move = lambda: self._on_loop(self._woken())

    def settle(self, timeout: float = SETTLE_TIMEOUT_S) -> None:
        """Wait until no attempt is in flight and no delivery is due."""
        self._on_loop(self._quiet(), timeout)

    def live_through(
        self,
        seconds: float = 0,
        *,
        minutes: float = 0,
        hours: float = 0,
        timeout: float = SETTLE_TIMEOUT_S,
    ) -> None:
        """Move the clock from one due time to the next, and settle at each of them."""
        until_ms = self.clock.now() + _span_ms(seconds, minutes, hours)
        self._on_loop(self._live(until_ms), timeout)

    async def _live(self, until_ms: int) -> None:
        await self._quiet()
        while (at := self._engine.wake()) is not None and at <= until_ms:
            self.clock.put(max(at, self.clock.now() + 1))
            self._engine.wake()
            await self._quiet()
        self.clock.put(max(until_ms, self.clock.now()))
        self._engine.wake()
        await self._quiet()

    async def _quiet(self) -> None:
        calm = 0
        while calm < _CALM_TURNS:
            pulse = self._engine.pulse()
            busy = sum(pulse.in_flight.values()) or pulse.unsettled or pulse.due_since is not None
            calm = 0 if busy else calm + 1
            await asyncio.sleep(0.001 if busy else 0)

    async def _woken(self) -> None:
        self._engine.wake()

    def _on_loop(self, work: Coroutine[Any, Any, None], timeout: float = SETTLE_TIMEOUT_S) -> None:
        doing = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            doing.result(timeout)
        except TimeoutError:
            doing.cancel()
            raise TimeoutError(f"the server was still busy after {timeout:.0f} s") from None


@contextmanager
def running_server(settings: Settings | None = None) -> Iterator[HomingServer]:
    """A server with these settings; by default on a free port, and allowed to send to loopback."""
    settings = settings or Settings(
        listen=ListenSettings(address="127.0.0.1:0"),
        reach=ReachSettings(allow_loopback=True),
        delivery=DeliverySettings(grace_ms=1_000),
    )
    ready: Future[tuple[HomingServer, Callable[[], None]]] = Future()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(settings, ready))
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    with _quiet_logs():
        thread = threading.Thread(target=run, name="homing-server", daemon=True)
        thread.start()
        server, stop = ready.result()
        try:
            yield server
        finally:
            server.client.close()
            stop()
            thread.join()


async def _serve(
    settings: Settings, ready: Future[tuple[HomingServer, Callable[[], None]]]
) -> None:
    clock = SettableClock(SystemClock().now())
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        loop.call_soon_threadsafe(stopping.set)

    async with serving(settings, admin_key=KEY, clock=clock, in_memory=True) as (url, parts):
        ready.set_result((HomingServer(url, clock, parts.engine, loop), stop))
        await stopping.wait()


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Log warnings only, unless the application has configured structlog itself."""
    if structlog.is_configured():
        yield
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_LOG_LEVEL_WARNING))
    try:
        yield
    finally:
        structlog.reset_defaults()


def _span_ms(seconds: float, minutes: float, hours: float) -> int:
    return round((seconds + 60 * minutes + 3600 * hours) * 1000)
