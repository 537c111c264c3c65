"""The built-in receiver of a tenant: its URL, and whether a request is for one."""

from __future__ import annotations

from collections.abc import Sequence

from homing.app.access import MANAGERS, READERS, Caller, use_case
from homing.app.subscriptions import Drafted, Subscriptions
from homing.errors import Conflict, NotFound
from homing.languages.sentences import say
from homing.model import Subscription
from homing.policy.admission import SubscriptionDraft
from homing.policy.built_in_receiver import is_receiver_path, receiver_url
from homing.ports import ViewStore

SEARCHED_MAX = 200  # newest subscriptions that are searched for one to the built-in receiver
FEW = 2  # A tenant with more of them has taken its first steps.


class BuiltInReceiver:
    """Knows the addresses of the built-in receivers; they keep nothing of what they receive."""

    def __init__(
        self,
        views: ViewStore,
        subscriptions: Subscriptions,
        keys: Sequence[bytes],
        *,
        available: bool,
    ) -> None:
        self._views, self._subscriptions = views, subscriptions
        self._keys, self.available = keys, available

    def url(self, tenant: str) -> str:
        """Where a tenant's subscription sends events to its built-in receiver."""
        return receiver_url(self._keys, tenant)

    def accepts(self, path: str) -> bool:
        """Whether this is the path of a built-in receiver."""
        return self.available and is_receiver_path(path, self._keys)

    @use_case(MANAGERS, changes=True)
    async def add(self, caller: Caller, *, tenant: str | None) -> Subscription:
        """Subscribes the built-in receiver to every event of a tenant.

        Raises NotFound, Forbidden, TooMany, or Conflict if the tenant has it already.
        """
        if not self.available:
            raise NotFound(say("This process has no built-in receiver."))
        tenant = caller.tenant_or_default(tenant)
        draft = SubscriptionDraft(
            tenant=tenant, url=self.url(tenant), types=("*",), description="The built-in receiver"
        )
        return await self._subscriptions.add(caller, Drafted(draft), condition=self._is_first)

    async def _is_first(self, draft: SubscriptionDraft) -> None:
        rows, _ = await self._views.subscriptions(
            tenant=draft.tenant, before_id=None, limit=SEARCHED_MAX
        )
        if any(it.url == draft.url for it in rows):
            raise Conflict(say("The tenant has the built-in receiver already."))

    @use_case(READERS)
    async def only_subscription(self, caller: Caller, *, tenant: str) -> Subscription | None:
        """The subscription to the built-in receiver, if the tenant has no other; None: it has none.

        Raises NotFound if the tenant has other subscriptions: its first steps are over.
        """
        rows, _ = await self._views.subscriptions(
            tenant=caller.scope_one(tenant), before_id=None, limit=FEW
        )
        if any(it.url != self.url(tenant) for it in rows):
            raise NotFound(say("The tenant has other subscriptions."))
        return rows[0] if rows else None
