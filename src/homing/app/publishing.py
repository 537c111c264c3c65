"""Publishing: the checks before an event is accepted, for every transport that accepts events.

``publish`` waits for the commit. The fast publish path of the API has no task that could wait: it
calls ``check`` and then ``publish_then``, unless ``is_limited`` says that a quota must be read
first.
"""

from __future__ import annotations

from collections.abc import Sequence

from homing.app.access import PUBLISHERS, Caller, use_case
from homing.app.quotas import Quotas
from homing.engine.engine import Engine
from homing.engine.publish import PublishResult
from homing.policy.admission import EventDraft, check_events
from homing.policy.keys import Role
from homing.ports import Receipt

__all__ = ["RELAY", "PublishResult", "Publishing"]

RELAY = Caller("the outbox relay", Role.PUBLISHER, None)


class Publishing:
    """Accepts events."""

    def __init__(self, engine: Engine, quotas: Quotas) -> None:
        self._engine, self._quotas = engine, quotas
        # Needs no task: the callback gets the result in a later turn of the event loop. It is the
        # engine's method itself, which saves the fast publish path a call.
        self.publish_then = engine.publish_then
        self.is_limited = quotas.limits_publishing  # for any tenant

    @use_case(PUBLISHERS)
    async def publish(self, caller: Caller, drafts: Sequence[EventDraft]) -> list[Receipt]:
        """Accepts all events or none.

        Raises Invalid, TooLarge, Forbidden, TooMany, EventConflict, StoreUnavailable, ShuttingDown.
        """
        self.check(caller, drafts)
        quotas = self._quotas
        if not quotas.limits_publishing:
            return await self._engine.publish(drafts)
        await quotas.check_publish(drafts)
        receipts = await self._engine.publish(drafts)
        quotas.published(drafts, receipts)
        return receipts

    async def publish_rows(self, drafts: Sequence[EventDraft]) -> list[Receipt]:
        """Accepts rows of the operator's outbox.

        Quotas do not apply: a row that had to wait would delay the rows of all tenants.
        """
        self.check(RELAY, drafts)
        return await self._engine.publish(drafts)

    def check(self, caller: Caller, drafts: Sequence[EventDraft]) -> None:
        """Raises Forbidden, TooLarge or Invalid for events that this caller may not publish."""
        caller.must_be(PUBLISHERS)
        check_events(drafts)
        if caller.tenant is not None:
            for draft in drafts:
                caller.must_write(draft.tenant)
