"""The memory for queued deliveries, shared out by tenant.

A tenant may queue one more only while it has queued less than WEIGHT times what is left, by count
and by bytes. So the queue of one tenant, however long, leaves room for the others, and one that is
alone may fill four fifths. A delivery that can go at once needs no room of its tenant's.
"""

from __future__ import annotations

WEIGHT = 4


class Queued:
    """How much is queued, in all and by tenant."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max, self._bytes_max = count_max, bytes_max
        self.count = self.bytes = 0
        self._tenants: dict[str, tuple[int, int]] = {}

    def put(self, tenant: str, size: int) -> None:
        """One more is queued."""
        self.count += 1
        self.bytes += size
        count, total = self._tenants.get(tenant, (0, 0))
        self._tenants[tenant] = count + 1, total + size

    def take(self, tenant: str, size: int) -> None:
        """One is no longer queued."""
        self.count -= 1
        self.bytes -= size
        count, total = self._tenants[tenant]
        if count > 1:
            self._tenants[tenant] = count - 1, total - size
        else:
            del self._tenants[tenant]

    @property
    def room(self) -> int:
        """The bytes that are left, for all tenants together."""
        return self._bytes_max - self.bytes

    def may_queue(self, tenant: str) -> bool:
        """Whether this tenant may queue one more that cannot go at once."""
        count, total = self._tenants.get(tenant, (0, 0))
        return (
            count < WEIGHT * (self._count_max - self.count)
            and total < WEIGHT * (self._bytes_max - self.bytes)
        )  # fmt: skip
