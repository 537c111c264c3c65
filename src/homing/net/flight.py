"""A flight: one request in progress, from ``send`` until ``done`` is called with its response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from homing.model import Phases
from homing.ports import Answer, Request

if TYPE_CHECKING:
    from homing.net.connection import Connection


HELD_UP_S = 0.05  # the precision of deadlines


class Stage(Enum):
    """How far a flight has come; it decides which failure a passed deadline is."""

    QUEUE = "queue"  # the sender's own queue, before the look-up
    LOOK_UP = "look_up"
    CONNECT = "connect"
    HANDSHAKE = "handshake"
    ANSWER = "answer"


class Flight(Struct, eq=False):
    """Mutable, on the hot path, compared by identity. Times are seconds of the monotonic clock."""

    request: Request
    done: Callable[[Answer], None]
    started_at: float
    deadline_at: float
    written_at: float
    stage: Stage = Stage.ANSWER
    task: asyncio.Task[None] | None = None  # only while a connection is being made
    connection: Connection | None = None
    address: str | None = None
    dns_us: int | None = None
    connect_us: int | None = None
    tls_us: int | None = None
    remembered: bool = False  # its address was cached: no name was looked up
    queued_s: float = 0.0  # time in the sender's own queue, before the look-up
    checked_at: float = 0.0
    first_byte_at: float = 0.0

    @property
    def held_up(self) -> bool:
        """Whether the sender's own queue took time from the receiver."""
        return self.queued_s > HELD_UP_S

    def phases(self, now: float) -> Phases:
        first_byte = self.first_byte_at
        return Phases(
            self.dns_us,
            self.connect_us,
            self.tls_us,
            int((first_byte - self.written_at) * 1e6) if first_byte else None,
            int((now - self.started_at) * 1e6),
        )
