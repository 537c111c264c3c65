"""The subscriptions in memory: what publishing matches against and attempts are addressed by.

The store counts a version up with every change. Publishing names the version it matched against,
and its transaction refuses an older one: a subscription just created is never missed.
"""

from __future__ import annotations

import asyncio

from homing.model import Subscription
from homing.policy.match import Index
from homing.ports import AdminStore


class Catalog:
    """All subscriptions that are not deleted, as of ``version``."""

    def __init__(self, admin: AdminStore) -> None:
        self._admin = admin
        self._index = Index()
        self._by_id: dict[int, Subscription] = {}
        self.version = 0
        self._reading = asyncio.Lock()

    def get(self, subscription_id: int) -> Subscription | None:
        return self._by_id.get(subscription_id)

    def match(
        self, tenant: str, event_type: str, *, not_to_endpoint: int | None = None
    ) -> list[Subscription]:
        return self._index.match(tenant, event_type, not_to_endpoint=not_to_endpoint)

    async def refresh(self) -> None:
        """Read what has changed since; one at a time, so that nothing old comes after the new."""
        async with self._reading:
            await self._refresh()

    async def _refresh(self) -> None:
        # The version first: a change in between is read too, and only read again.
        version = await self._admin.catalog_version()
        for subscription in await self._admin.subscriptions_since(self.version):
            self._index.remove(subscription.id)
            if subscription.deleted_at is None:
                self._by_id[subscription.id] = subscription
                self._index.add(subscription)
            else:
                self._by_id.pop(subscription.id, None)
            version = max(version, subscription.version)
        self.version = version
