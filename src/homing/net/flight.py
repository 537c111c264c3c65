"""A flight: one request in progress, from ``send`` until ``done`` is called with its response.

Its deadline runs from the start of the attempt, so the wait in the sender's own queue of look-ups
is taken from the receiver's time. A timeout after such a wait is a limit of the sender.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

from homing.model import Failure, Phases
from homing.net.trouble import Trouble
from homing.ports import Request, Response

if TYPE_CHECKING:
    from homing.net.connection import Connection


HELD_UP_S = 0.05  # the precision of deadlines
_TIMEOUTS = frozenset((Failure.TIMEOUT, Failure.CONNECT_TIMEOUT))


class Stage(Enum):
    """How far a flight has come; it decides which failure a passed deadline is."""

    CONTEXT = "context"  # the TLS context of its client certificate is being made
    QUEUE = "queue"  # the sender's own queue, before the look-up
    LOOK_UP = "look_up"
    PROXY = "proxy"  # on the way to the proxy
    TUNNEL = "tunnel"  # the proxy is connecting to the target
    CONNECT = "connect"
    HANDSHAKE = "handshake"
    RESPONSE = "response"


class Flight(Struct, eq=False):
    """Mutable, on the hot path, compared by identity. Times are seconds of the monotonic clock."""

    request: Request
    done: Callable[[Response], None]
    started_at: float
    deadline_at: float
    written_at: float
    stage: Stage = Stage.RESPONSE
    task: asyncio.Task[None] | None = None  # only while a connection is being made
    connection: Connection | None = None
    address: str | None = None
    dns_us: int | None = None
    connect_us: int | None = None
    tls_us: int | None = None
    remembered: bool = False  # its address was cached: no name was looked up
    proxied: bool = False
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


# --- deadlines ------------------------------------------------------------------------------


def deadline_failure(flight: Flight) -> Trouble:
    """The failure of a flight whose deadline has passed, by the stage that it had reached."""
    within = f"within {flight.request.deadline_ms} ms"
    match flight.stage:
        case Stage.CONTEXT:
            said = f"the client certificate waited in the sender's own queue, not ready {within}"
            return Trouble(Failure.SENDER_LIMITS, said)
        case Stage.PROXY:
            return Trouble(Failure.SENDER_PROXY, f"no connection to the proxy {within}")
        case Stage.TUNNEL:
            return Trouble(Failure.SENDER_TUNNEL, f"the proxy did not reach the target {within}")
        case Stage.QUEUE:
            said = f"the look-up waited in the sender's own queue and did not begin {within}"
            return Trouble(Failure.SENDER_LIMITS, said)
        case Stage.LOOK_UP:
            # Which of the resolvers is slow cannot be known: the same as EAI_AGAIN.
            return Trouble(Failure.SENDER_DNS, f"the look-up did not end {within}")
        case Stage.CONNECT:
            why = Trouble(Failure.CONNECT_TIMEOUT, f"no connection {within}")
        case Stage.HANDSHAKE:
            why = Trouble(Failure.TIMEOUT, f"the TLS handshake did not end {within}")
        case Stage.RESPONSE:
            begun = (
                "the head of the response did not end" if flight.first_byte_at else "no response"
            )
            why = Trouble(Failure.TIMEOUT, f"{begun} {within}")
        case _:
            assert_never(flight.stage)
    return charged(flight, why)


def charged(flight: Flight, why: Trouble) -> Trouble:
    """The failure; if it is a timeout after a wait in the sender's queue, a limit of the sender."""
    if not flight.held_up or why.failure not in _TIMEOUTS:
        return why
    waited_ms = round(flight.queued_s * 1000)
    said = (
        f"{why.detail}, of which it waited {waited_ms} ms in the sender's own queue, for the "
        "look-up or the client certificate"
    )
    return Trouble(Failure.SENDER_LIMITS, said)
