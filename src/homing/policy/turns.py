"""Round robin over tenants, and within a tenant over its items.

A tenant with a thousand waiting items gets as many turns as a tenant with one. A new item joins at
the end, and so does one that left and comes back: leaving gains no place.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Turns(Generic[T]):
    """A ring of rings. An item stays in, turn after turn, until it is discarded."""

    def __init__(self) -> None:
        # OrderedDict, for its O(1) move to the end: a plain dict scans its deleted entries.
        self._rings: OrderedDict[str, OrderedDict[T, None]] = OrderedDict()
        self._tenant_of: dict[T, str] = {}

    def add(self, tenant: str, item: T) -> None:
        """Add an item at the end of its tenant's ring; if it is in already, it keeps its place."""
        home = self._tenant_of.setdefault(item, tenant)
        assert home == tenant, "an item has one tenant"
        ring = self._rings.get(tenant)
        if ring is None:
            ring = self._rings[tenant] = OrderedDict()
        ring.setdefault(item, None)

    def discard(self, tenant: str, item: T) -> None:
        """Remove an item, if it is there."""
        ring = self._rings.get(tenant)
        if ring is None or item not in ring:
            return
        del ring[item], self._tenant_of[item]
        if not ring:
            del self._rings[tenant]

    def next(self) -> T | None:
        """The item whose turn it is; None if there is none."""
        for tenant, ring in self._rings.items():
            item = next(iter(ring))
            ring.move_to_end(item)
            self._rings.move_to_end(tenant)
            return item
        return None

    def __len__(self) -> int:
        return len(self._tenant_of)

    def __contains__(self, item: object) -> bool:
        return item in self._tenant_of
