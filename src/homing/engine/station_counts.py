"""What all stations add up to, counted as each of them changes: asking costs nothing."""

from __future__ import annotations

from homing.model import State


class StationCounts:
    """Counters of the stations of one dispatcher; a station counts itself here."""

    __slots__ = ("probes", "retries", "states")

    def __init__(self) -> None:
        self.states = dict.fromkeys(State, 0)  # stations whose endpoint is in this state
        self.retries = 0  # deliveries in the queues of the retry lane
        self.probes = 0  # probes that are being taken or are in flight
