"""An event loop on virtual time: waiting takes no time, and the clock jumps to the next timer.

It is asyncio's own loop with a selector that never waits. Time starts at 0 and moves only when
nothing is ready to run; if then no timer is set either, every task would wait for ever, and that is
an error (``WaitsForEver``), not a hang; so is time that stands still (``SpinsForEver``). There are
no threads, no sockets and no signals here.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")

TURNS_MOST = 1_000_000
START_MS = 1_750_000_000_000  # a date in 2025, so that virtual times read like real ones


class WaitsForEver(RuntimeError):
    """Every task waits for something that nothing will bring."""


class SpinsForEver(RuntimeError):
    """Tasks run and run, and no time passes."""


class _VirtualSelector(selectors.BaseSelector):
    """Knows the loop's own pipe, and turns waiting into moving the clock."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self.time = 0.0
        self.time_ms = 0
        self._turns = 0  # of the loop, since time last moved

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj, events, data)  # the loop gives numbers
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise WaitsForEver("every task waits and no timer is set")
        if timeout > 0:
            self.time += timeout
            self.time_ms = round(self.time * 1000)  # Asked for far more often than it moves.
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > TURNS_MOST:
                raise SpinsForEver(f"{TURNS_MOST:,} turns of the loop, and no time has passed")
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


class _Turn(asyncio.TimerHandle):
    """A timer that keeps its place among those of the same moment."""

    def __init__(self, turn: int, when: float, *more: Any) -> None:
        super().__init__(when, *more)
        self._place = (when, turn)

    def __lt__(self, other: object) -> bool:
        return isinstance(other, _Turn) and self._place < other._place


class OrderlyLoop(VirtualLoop):
    """Timers of the same moment go off in the order they were set: asyncio promises none."""

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
    """The loop's time as the engine's clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, start_ms: int = START_MS) -> None:
        assert isinstance(loop, VirtualLoop)
        self._loop_ms = loop.time_ms
        self._start_ms = start_ms
        self._stepped_at: int | None = None

    def now(self) -> int:
        return self._start_ms + self._loop_ms()

    def stepped_at(self) -> int | None:
        return self._stepped_at

    def step_seen(self) -> None:
        """Tell the engine that the wall clock was stepped just now."""
        self._stepped_at = self.now()


def run_virtual(main: Coroutine[Any, Any, T], loop: VirtualLoop | None = None) -> T:
    """Run to the end on virtual time; an exception that nobody took is raised, too."""
    loop = loop or VirtualLoop()
    lost: list[BaseException] = []

    def keep(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        lost.append(context.get("exception") or RuntimeError(context["message"]))

    loop.set_exception_handler(keep)
    try:
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(main)
        if lost:
            raise lost[0]
        return result
    finally:
        try:
            pending = asyncio.all_tasks(loop)
            for task in pending:
                task.cancel()
            if pending:
                loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        finally:
            asyncio.set_event_loop(None)
            loop.close()
