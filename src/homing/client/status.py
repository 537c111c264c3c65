"""How a server is, as a client reads it."""

from __future__ import annotations

from msgspec import Struct


class Gate(Struct, frozen=True, kw_only=True):
    """The server's gate: ``closed`` in an outage of its own, when nothing is sent but canaries."""

    state: str  # open, judging or closed
    since: str | None = None
    why: str = ""
    waiting: int = 0
    canaries: int = 0
    closings: int = 0


class ServerStatus(Struct, frozen=True, kw_only=True):
    """One process of a server at this moment."""

    version: str
    gate: Gate
    draining: bool
    store_ok: bool
    late_ms: int
    slots: dict[str, int]
    in_flight: dict[str, int]
    ready: dict[str, int]
    unsettled: int
    endpoints: dict[str, int]
    published: int
    accepted: int
    finished: dict[str, int]
    memory_bytes: int
