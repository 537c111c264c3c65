"""A flight: one request on its way, from ``send`` until its answer is handed over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from homing.model import Phases
from homing.ports import Answer, Request

if TYPE_CHECKING:
    from homing.net.connection import Connection


class Stage(Enum):
    """How far a flight has come; it decides what a deadline that passes is called."""

    LOOK_UP = "look_up"
    CONNECT = "connect"
    HANDSHAKE = "handshake"
    ANSWER = "answer"


class Flight:
    """Mutable and hot: plain slots, times in seconds of the monotonic clock."""

    __slots__ = (
        "address",
        "checked_at",
        "connect_us",
        "connection",
        "deadline_at",
        "dns_us",
        "done",
        "first_byte_at",
        "request",
        "stage",
        "started_at",
        "task",
        "tls_us",
        "written_at",
    )

    def __init__(self, request: Request, done: Callable[[Answer], None], started_at: float) -> None:
        self.request = request
        self.done = done
        self.started_at = started_at
        self.deadline_at = started_at + request.deadline_ms / 1000
        self.stage = Stage.ANSWER
        self.task: asyncio.Task[None] | None = None  # only while a connection is being made
        self.connection: Connection | None = None
        self.address: str | None = None
        self.dns_us: int | None = None
        self.connect_us: int | None = None
        self.tls_us: int | None = None
        self.checked_at = 0.0
        self.written_at = started_at
        self.first_byte_at = 0.0

    def phases(self, now: float) -> Phases:
        first_byte = self.first_byte_at
        return Phases(
            self.dns_us,
            self.connect_us,
            self.tls_us,
            int((first_byte - self.written_at) * 1e6) if first_byte else None,
            int((now - self.started_at) * 1e6),
        )
