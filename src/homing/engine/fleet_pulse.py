"""How a process stands in its fleet, at one moment."""

from __future__ import annotations

from msgspec import Struct


class FleetPulse(Struct, frozen=True):
    """Counters count since the start of the process."""

    buckets: int = 0
    closing: int = 0  # of them, being handed over
    lost: int = 0
    late: int = 0  # outcomes dropped because their bucket had gone
    processes: int = 0
    heartbeat_age_ms: int = 0
    wire_live: bool = False
