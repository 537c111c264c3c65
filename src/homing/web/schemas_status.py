"""How the process is, as the API shows it."""

from __future__ import annotations

from msgspec import Struct


class GateShown(Struct, frozen=True):
    """The gate: `closed` in an outage of our own, when nothing is sent but a few canaries."""

    state: str  # open, judging or closed
    since: str | None  # of this state; null if it was open all the time
    why: str
    waiting: int  # failures that wait for the verdict
    canaries: int  # sent since the process started
    closings: int  # since the process started


class Well(Struct, frozen=True, omit_defaults=True):
    """All is well with this process; the gate, unless it is open, tells of its network."""

    ok: bool
    gate: GateShown | None = None


class StatusView(Struct, frozen=True):
    """One process at this moment; counters count since it started."""

    version: str
    gate: GateShown
    draining: bool
    store_ok: bool
    late_ms: int  # how long something was due with a free slot
    slots: dict[str, int]
    in_flight: dict[str, int]
    ready: dict[str, int]
    unsettled: int
    endpoints: dict[str, int]
    published: int
    accepted: int
    finished: dict[str, int]
    memory_bytes: int
