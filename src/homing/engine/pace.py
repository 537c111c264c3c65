"""Keeps deliveries to the rate of their subscription, and of the host over all tenants.

A delivery whose turn is later gets that time as its due time, in the store: it holds no slot and
no memory, the others of its endpoint go on, and a restart finds it where it was. When its turn has
come it goes in the lane that it belongs to, a first attempt in the fresh one.
"""

from __future__ import annotations

from homing.model import Delivery, Subscription
from homing.policy.pace import Pace, interval_us, take

PACES_MOST = 20_000


class Pacer:
    """The paces in use, by subscription and by host."""

    def __init__(self, host_rate_per_second: float) -> None:
        self.host_rate = host_rate_per_second  # 0: none
        self._paces: dict[int | str, Pace] = {}

    def later(
        self, subscription: Subscription, host: str, delivery: Delivery, now: int
    ) -> int | None:
        """When its turn comes. None: it may go now, and its turn is taken."""
        waited = delivery.due_at > delivery.accepted_at
        taken: dict[int | str, Pace] = {}
        for key, rate in ((subscription.id, subscription.rate_per_second), (host, self.host_rate)):
            if not rate:
                continue
            pace, turn_at = take(
                self._paces.get(key, Pace()),
                interval_us=interval_us(rate),
                now=now,
                waited=waited,
            )
            if turn_at is not None:
                self._keep(key, pace, now)
                return turn_at
            taken[key] = pace
        for key, pace in taken.items():
            self._keep(key, pace, now)
        return None

    def _keep(self, key: int | str, pace: Pace, now: int) -> None:
        if len(self._paces) >= PACES_MOST and key not in self._paces:
            over = now * 1000
            self._paces = {one: at for one, at in self._paces.items() if at.free_us > over}
        self._paces[key] = pace
