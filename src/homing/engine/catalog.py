"""The subscriptions in memory: what publishing matches against and attempts are addressed by.

The store counts a version up with every change. Publishing names the version it matched against,
and its transaction refuses an older one: a subscription just created is never missed.
"""

from __future__ import annotations

import asyncio

from homing.model import Subscription
from homing.policy.match import Index
from homing.policy.wants import Wants, picked, wants_of
from homing.ports import AdminStore


class Catalog:
    """All subscriptions that are not deleted, as of ``version``."""

    def __init__(self, admin: AdminStore) -> None:
        self._admin = admin
        self._index = Index()
        self._by_id: dict[int, Subscription] = {}
        self._twins: dict[int, int] = {}  # of a subscription, the one that sends its old version
        self._wants: dict[str, dict[int, Wants]] = {}  # per tenant: of those that want not all
        self.version = 0
        self._reading = asyncio.Lock()

    def get(self, subscription_id: int) -> Subscription | None:
        return self._by_id.get(subscription_id)

    def twin(self, subscription_id: int) -> Subscription | None:
        """What sends the old version of this one, if there is such a subscription."""
        twin_id = self._twins.get(subscription_id)
        return None if twin_id is None else self._by_id.get(twin_id)

    def match(
        self,
        tenant: str,
        event_type: str,
        *,
        data: bytes,
        now: int,
        not_to_endpoint: int | None = None,
    ) -> list[Subscription]:
        found = self._index.match(tenant, event_type, not_to_endpoint=not_to_endpoint)
        wants = self._wants.get(tenant)
        return found if wants is None else picked(found, wants, data, now=now)

    async def refresh(self) -> None:
        """Read what has changed since; one at a time, so that nothing old comes after the new."""
        async with self._reading:
            await self._refresh()

    async def _refresh(self) -> None:
        # The version first: a change in between is read too, and only read again.
        version = await self._admin.catalog_version()
        for subscription in await self._admin.subscriptions_since(self.version):
            self._index.remove(subscription.id)
            self._want(subscription)
            self._pair(subscription)
            if subscription.deleted_at is None:
                self._by_id[subscription.id] = subscription
                self._index.add(subscription)
            else:
                self._by_id.pop(subscription.id, None)
            version = max(version, subscription.version)
        self.version = version

    def _pair(self, subscription: Subscription) -> None:
        """Remember which subscription it is the twin of, or forget it."""
        own = subscription.workfront
        if own is None or own.twin_of is None:
            return
        if subscription.deleted_at is None:
            self._twins[own.twin_of] = subscription.id
        elif self._twins.get(own.twin_of) == subscription.id:
            del self._twins[own.twin_of]

    def _want(self, subscription: Subscription) -> None:
        """Compile its filters, or forget them."""
        tenant = subscription.tenant
        test = wants_of(subscription) if subscription.deleted_at is None else None
        if test is not None:
            self._wants.setdefault(tenant, {})[subscription.id] = test
        elif wants := self._wants.get(tenant):
            wants.pop(subscription.id, None)
            if not wants:
                del self._wants[tenant]
