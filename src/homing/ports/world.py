"""Time, and sending."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from homing.model import (
    Failure,
    Phases,
    Target,
)


class ClockState(Struct, frozen=True):
    """How the wall clock of this machine stands to steady time."""

    ahead_ms: int = 0  # of the wall clock; negative: it is behind
    steps: int = 0  # of more than a minute, seen since the start
    stepped_at: int | None = None  # the last of them, in steady time …
    stepped_by_ms: int = 0  # … and by how much


class Clock(Protocol):
    """Steady time, which never jumps and which schedules go by; and the wall clock."""

    def now(self) -> int:
        """Steady time: Unix milliseconds UTC."""

    def wall(self) -> int:
        """The wall clock of this machine, read now: Unix milliseconds UTC."""

    def stepped_at(self) -> int | None:
        """When the wall clock was last seen to have been set by more than a minute."""

    def state(self) -> ClockState:
        """How far the wall clock is from steady time, and its steps."""


class Request(Struct, frozen=True, gc=False):
    """One POST. The sender adds the request line, host and content-length."""

    tenant: str  # connections to a host are shared within one tenant only
    target: Target
    header_block: bytes  # "name: value\r\n" lines
    body: bytes
    deadline_ms: int  # for all of it: DNS, connect, TLS, answer

    def __repr__(self) -> str:
        return f"Request({self.target.host}, {len(self.body)} bytes)"


class Answer(Struct, frozen=True, gc=False):
    """What came back: a status code, or a failure; never an exception."""

    code: int | None
    failure: Failure | None
    detail: str  # one line for people about the failure, "" otherwise
    address: str | None  # dialled
    phases: Phases
    headers: bytes = b""  # raw header lines of the answer, at most 16 KiB
    excerpt: bytes = b""  # first bytes of the body, at most 1 KiB
    retry_after: str | None = None  # the header's value, unread
    remembered: bool = False  # the address dialled was known from before: no name was looked up


class Sender(Protocol):
    """Makes attempts. ``done`` is called exactly once, later, on the event loop."""

    def send(self, request: Request, done: Callable[[Answer], None]) -> None: ...

    async def close(self) -> None:
        """Drop idle connections; requests in flight are the engine's to wait for."""
