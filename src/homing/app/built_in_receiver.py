"""The built-in receiver of a tenant: its URL, and whether a request is for one."""

from __future__ import annotations

from homing.app.access import READERS, Caller, use_case
from homing.errors import NotFound
from homing.model import Subscription
from homing.policy.built_in_receiver import is_receiver_path, receiver_url
from homing.ports import ViewStore

SUBSCRIPTIONS_MAX = 2  # A tenant with more of them has taken its first steps.


class BuiltInReceiver:
    """Knows the addresses of the built-in receivers; they keep nothing of what they receive."""

    def __init__(self, views: ViewStore, admin_key: str, *, available: bool) -> None:
        self._views, self._key, self.available = views, admin_key.encode(), available

    def url(self, tenant: str) -> str:
        """Where a tenant's subscription sends events to its built-in receiver."""
        return receiver_url(self._key, tenant)

    def accepts(self, path: str) -> bool:
        """Whether this is the path of a built-in receiver."""
        return self.available and is_receiver_path(path, self._key)

    @use_case(READERS)
    async def only_subscription(self, caller: Caller, *, tenant: str) -> Subscription | None:
        """The subscription to the built-in receiver, if the tenant has no other; None: it has none.

        Raises NotFound if the tenant has other subscriptions: its first steps are over.
        """
        rows, _ = await self._views.subscriptions(
            tenant=caller.scope_one(tenant), before_id=None, limit=SUBSCRIPTIONS_MAX
        )
        if any(it.url != self.url(tenant) for it in rows):
            raise NotFound("The tenant has other subscriptions.")
        return rows[0] if rows else None
