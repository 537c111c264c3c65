"""An event loop on virtual time: waiting takes no time, and the clock jumps to the next timer.

It is asyncio's own loop with a selector that never waits. Time starts at 0 and moves only when
nothing is ready to run. If there is no timer either, every task would wait for ever: that raises
``WaitsForEver`` instead of hanging. Tasks that run without end while no time passes raise
``SpinsForEver``. There are no sockets or signals, except for an interrupt, which waits for the end
of a turn: in the middle of one it would leave coroutines that were never started. There are no
threads: what is given to one runs at once, because the clock would jump while a thread works.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context
from itertools import count
from typing import Any, TypeVar

from msgspec.structs import replace

from homing.ports import ClockReading, ClockState

T = TypeVar("T")

TURNS_MAX = 1_000_000
ENDING_TURNS = 20  # for tasks that start others while they end
START_MS = 1_750_000_000_000  # a date in 2025, so that virtual times read like real ones


class WaitsForEver(RuntimeError):
    """Every task waits, and no timer is set."""


class SpinsForEver(RuntimeError):
    """Tasks run without end, and no time passes."""


class _VirtualSelector(selectors.BaseSelector):
    """Moves the clock instead of waiting; it has only the loop's own pipe."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self.time = 0.0
        self.time_ms = 0
        self._turns = 0  # of the loop, since time last moved
        self.interrupted = False

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj, events, data)  # the loop gives numbers
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt
        if timeout is None:
            raise WaitsForEver("every task waits and no timer is set")
        if timeout > 0:
            self.time += timeout
            self.time_ms = round(self.time * 1000)  # It is read far more often than it moves.
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > TURNS_MAX:
                raise SpinsForEver(f"{TURNS_MAX:,} turns of the loop, and no time has passed")
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time is its own."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)
        self._clock_resolution = 1e-6  # timers must not miss their moment by a rounding error

    def time(self) -> float:
        return self._virtual.time

    def time_ms(self) -> int:
        return self._virtual.time_ms

    def run_in_executor(  # type: ignore[override]
        self, _executor: Executor | None, call: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(call(*args))
        except Exception as error:  # noqa: BLE001 - handed on, as a thread does
            done.set_exception(error)
        return done

    def interrupt(self) -> None:
        """Stop at the end of this turn; the second time at once."""
        if self._virtual.interrupted:
            raise KeyboardInterrupt
        self._virtual.interrupted = True


class _Turn(asyncio.TimerHandle):
    """A timer that keeps its place among those of the same moment."""

    def __init__(self, turn: int, when: float, *more: Any) -> None:
        super().__init__(when, *more)
        self._place = (when, turn)

    def __lt__(self, other: object) -> bool:
        return isinstance(other, _Turn) and self._place < other._place


class OrderlyLoop(VirtualLoop):
    """Timers of the same moment run in the order in which they were set, unlike in asyncio."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = count()

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Turn(next(self._turns), round(when, 6), callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer


class VirtualClock:
    """The loop's time as the engine's clock.

    ``kernel`` names the run of the kernel, ``synchronised`` is what that says of the wall clock.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        start_ms: int = START_MS,
        kernel: str = "first",
        synchronised: bool = False,
    ) -> None:
        assert isinstance(loop, VirtualLoop)
        self._loop_ms = loop.time_ms
        self._kernel, self._synchronised = kernel, synchronised
        self._start_ms = start_ms
        self._ahead_ms = 0  # of the wall clock
        self._state = ClockState()

    def now(self) -> int:
        return self._start_ms + self._loop_ms()

    def wall(self) -> int:
        return self._start_ms + self._loop_ms() + self._ahead_ms

    def stepped_at(self) -> int | None:
        return self._state.stepped_at

    def state(self) -> ClockState:
        return self._state

    def read(self) -> ClockReading:
        return ClockReading(
            steady_ms=self.now(),
            clock_ms=self.wall(),
            wall_ms=self.wall(),
            boot_id=self._kernel,
            boot_ms=self._loop_ms(),
            synchronised=self._synchronised,
        )

    def go_on_at(self, now_ms: int) -> None:
        """Begin where steady time was; the wall clock stays as it is."""
        by_ms = now_ms - self.now()
        self._start_ms += by_ms
        self._ahead_ms -= by_ms
        self._state = replace(self._state, ahead_ms=self._ahead_ms)

    def step(self, by_ms: int) -> None:
        """Set the wall clock; the step is noticed at once, and steady time stays as it was."""
        self._ahead_ms += by_ms
        self._synchronised = False  # as the kernel says after a step
        self._state = ClockState(self._ahead_ms, self._state.steps + 1, self.now(), by_ms)


def run_virtual(main: Coroutine[Any, Any, T], loop: VirtualLoop | None = None) -> T:
    """Run to the end on virtual time; raises also the exceptions of tasks nobody awaited."""
    loop = loop or VirtualLoop()
    lost: list[BaseException] = []

    def keep(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        lost.append(context.get("exception") or RuntimeError(context["message"]))

    loop.set_exception_handler(keep)
    try:
        asyncio.set_event_loop(loop)
        with _interrupts(loop):
            result = loop.run_until_complete(main)
        if lost:
            raise lost[0]
        return result
    finally:
        try:
            _end_tasks(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()


@contextmanager
def _interrupts(loop: VirtualLoop) -> Iterator[None]:
    """Let an interrupt stop the loop, unless the program has its own handler."""
    alone = threading.current_thread() is threading.main_thread()
    if not alone or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: loop.interrupt())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_tasks(loop: VirtualLoop) -> None:
    for _ in range(ENDING_TURNS):
        pending = asyncio.all_tasks(loop)
        if not pending:
            return
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
