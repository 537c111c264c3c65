"""A share: how much of something each tenant may hold, so that no tenant leaves others without.

The rule is the one by which network switches divide their memory between ports. A tenant may take
more only while it holds less than ``weight`` times what is free, without a reserve. So a tenant
that is alone gets most, greedy tenants get equal parts, and one that holds nothing finds something,
for which the reserve is kept. The rule needs no list of tenants that wait.

It divides whatever is returned: places, bytes in memory, or time of the event loop that was spent
(and is returned when a second has passed).
"""

from __future__ import annotations


class Share:
    """Some total, and what each tenant holds of it."""

    def __init__(self, total: int, *, weight: float = 1, reserve: int = 0) -> None:
        assert 0 <= reserve < total, "something is left for tenants that hold something"
        self.total, self.free = total, total
        self._weight, self._reserve = weight, reserve
        self._held: dict[str, int] = {}

    def held_by(self, tenant: str) -> int:
        return self._held.get(tenant, 0)

    def may_take(self, tenant: str, amount: int = 1) -> bool:
        """Whether this tenant may take so much more now."""
        held = self._held.get(tenant, 0)
        if not held:
            return amount <= self.free
        left = self.free - self._reserve
        return amount <= left and held < self._weight * left

    def take(self, tenant: str, amount: int = 1) -> None:
        """Take so much, whether or not the rule allows it: what was spent is spent."""
        if amount:
            self.free -= amount
            self._held[tenant] = self._held.get(tenant, 0) + amount

    def give(self, tenant: str, amount: int = 1) -> None:
        """Return so much."""
        if amount:
            left = self._held[tenant] - amount
            assert left >= 0, "what was taken is returned once"
            self.free += amount
            if left:
                self._held[tenant] = left
            else:
                del self._held[tenant]
