"""The body memory budget: limits the bytes of request bodies in memory, over all connections.

The limit of one body does not limit many bodies at once. A body that exceeds the budget is refused
with a 503 while it arrives, before it is buffered. Small bodies are not counted: the number of
connections limits them.

A tenant may hold at most as many bytes as are still free. So a tenant that is alone gets half of
the budget, two that want more get a third each, and there is always room for one more tenant.
"""

from __future__ import annotations

from homing.errors import Busy

SMALL_BYTES = 16 * 1024
BUDGET_BYTES = 128 * 1024 * 1024


class BodyBudget:
    """Counts the bytes of bodies, in all and by tenant (None: callers of all tenants)."""

    __slots__ = ("by_tenant", "bytes_max", "held")

    def __init__(self, bytes_max: int = BUDGET_BYTES) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self.by_tenant: dict[str | None, int] = {}

    def of(self, tenant: str | None) -> BodyShare:
        """The share of the budget from which a request of this tenant takes its bytes."""
        return BodyShare(self, tenant)


class BodyShare:
    """What one tenant holds of the budget; a request gives its bytes back after its response."""

    __slots__ = ("_budget", "_tenant")

    def __init__(self, budget: BodyBudget, tenant: str | None) -> None:
        self._budget, self._tenant = budget, tenant

    def take(self, count: int) -> None:
        """Counts these bytes; raises Busy if the tenant's share does not allow them."""
        budget = self._budget
        mine = budget.by_tenant.get(self._tenant, 0) + count
        if mine > budget.bytes_max - budget.held:
            raise Busy
        budget.by_tenant[self._tenant] = mine
        budget.held += count

    def give_back(self, count: int) -> None:
        """Counts these bytes no longer."""
        budget = self._budget
        budget.held -= count
        left = budget.by_tenant.get(self._tenant, 0) - count
        if left > 0:
            budget.by_tenant[self._tenant] = left
        else:
            budget.by_tenant.pop(self._tenant, None)

    def release(self, body: bytes) -> None:
        """Gives back the bytes of a body after its response was sent."""
        if len(body) > SMALL_BYTES:
            self.give_back(len(body))
