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


class ClockShown(Struct, frozen=True):
    """The wall clock of this machine, compared with steady time, which schedules go by."""

    ahead_ms: int  # of the wall clock; negative: it is behind
    steps: int  # of more than a minute, seen since the process started
    stepped_at: str | None  # the last of them, in steady time; null if there was none
    stepped_by_ms: int  # negative: the wall clock was set back
    detail: str


class Well(Struct, frozen=True, omit_defaults=True):
    """All is well with this process.

    `gate` is there unless it is open: it tells of its network. `clock` is there while the wall
    clock is more than a minute away from steady time, and for an hour after it was stepped.
    """

    ok: bool
    gate: GateShown | None = None
    clock: ClockShown | None = None


class StatusView(Struct, frozen=True):
    """One process at this moment; counters count since it started."""

    version: str
    gate: GateShown
    clock: ClockShown
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
