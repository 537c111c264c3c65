"""The outcomes that wait for a verdict, since a healthy endpoint fell."""

from __future__ import annotations

from collections import Counter

from homing.engine.attempt import Made
from homing.model import Lane


class Doubt:
    """What waits keeps its slot, so there is a limit for each lane."""

    __slots__ = ("_lanes", "fell_at", "held", "proven", "seen_at", "since")

    def __init__(self, since: int) -> None:
        self.since = self.fell_at = self.seen_at = since  # fell: a new one; seen: any sign of it
        self.held: list[Made] = []
        self._lanes: Counter[Lane] = Counter()
        self.proven = False  # the verdict was: ours

    def hold(self, made: Made, *, slots: dict[Lane, int]) -> bool:
        """Let it wait; False: half of its lane's slots are held already, others need the rest."""
        if made.lane in slots and self._lanes[made.lane] >= slots[made.lane] // 2:
            return False
        self.held.append(made)
        self._lanes[made.lane] += 1
        return True

    def take(self, endpoint_ids: set[int]) -> list[Made]:
        """Those of these endpoints wait no longer."""
        taken = [one for one in self.held if one.endpoint_id in endpoint_ids]
        self.held = [one for one in self.held if one.endpoint_id not in endpoint_ids]
        self._lanes.subtract([one.lane for one in taken])
        return taken
