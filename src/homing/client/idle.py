"""Connections that wait for their next request; safe to share between threads.

A deque's append and pop are atomic, so there is no lock that a fork could leave locked. A process
that was forked never uses its parent's connections: their answers would go to both.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Generic, Protocol, TypeVar

IDLE_MAX = 32
IDLE_S = 4.0  # Uvicorn hangs up after five; a request must not cross the farewell.


class Line(Protocol):
    """A connection."""

    def stale(self) -> bool:
        """Whether the other side has hung up, or this one cannot be used from here."""

    def close(self) -> None: ...


L = TypeVar("L", bound=Line)


class Idle(Generic[L]):
    """Idle connections, the latest used first."""

    def __init__(self) -> None:
        self._lines: deque[tuple[L, float]] = deque()
        self._process = os.getpid()
        self.closed = False

    def take(self, now: float) -> L | None:
        """One that can be used, or None."""
        if self.closed:
            raise RuntimeError("this client is closed")
        if self._process != os.getpid():
            self._lines = deque()
            self._process = os.getpid()
        while True:
            try:
                line, since = self._lines.pop()
            except IndexError:
                return None
            if now - since < IDLE_S and not line.stale():
                return line
            line.close()

    def give(self, line: L, now: float) -> None:
        """It is free."""
        if self.closed or len(self._lines) >= IDLE_MAX or self._process != os.getpid():
            line.close()
            return
        self._lines.append((line, now))
        if self.closed:  # Meanwhile, by another thread.
            self.close()

    def close(self) -> None:
        """Hang up all of them."""
        self.closed = True
        while True:
            try:
                line, _ = self._lines.pop()
            except IndexError:
                return
            line.close()
