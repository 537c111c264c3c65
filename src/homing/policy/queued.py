"""The memory for queued deliveries, divided among tenants.

A tenant may queue another delivery only while its queue is smaller than WEIGHT times the free
memory, by count and by bytes. So the queue of one tenant, however long, leaves room for the others,
and a single tenant may fill four fifths. A delivery that can start at once needs no share.
"""

from __future__ import annotations

WEIGHT = 4


class Queued:
    """How many deliveries and bytes are queued, in all and by tenant."""

    def __init__(self, *, count_max: int, bytes_max: int) -> None:
        self._count_max, self._bytes_max = count_max, bytes_max
        self.count = self.bytes = 0
        self._tenants: dict[str, tuple[int, int]] = {}

    def put(self, tenant: str, size: int) -> None:
        """Count a delivery that is queued."""
        self.count += 1
        self.bytes += size
        count, total = self._tenants.get(tenant, (0, 0))
        self._tenants[tenant] = count + 1, total + size

    def take(self, tenant: str, size: int) -> None:
        """Count a delivery that is no longer queued."""
        self.count -= 1
        self.bytes -= size
        count, total = self._tenants[tenant]
        if count > 1:
            self._tenants[tenant] = count - 1, total - size
        else:
            del self._tenants[tenant]

    @property
    def room(self) -> int:
        """The free bytes, for all tenants together."""
        return self._bytes_max - self.bytes

    def may_queue(self, tenant: str) -> bool:
        """Whether this tenant may queue another delivery that cannot start at once."""
        count, total = self._tenants.get(tenant, (0, 0))
        return (
            count < WEIGHT * (self._count_max - self.count)
            and total < WEIGHT * (self._bytes_max - self.bytes)
        )  # fmt: skip
