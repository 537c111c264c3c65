"""Publishing: the checks before an event is accepted, for every transport that accepts events.

``publish`` waits for the commit. The fast publish path of the API has no task that could wait: it
calls ``check`` and then ``publish_then``, unless ``is_limited`` says that a quota must be read
first, or ``matches_types`` that the data of an event must be looked at more closely.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from homing.app.access import PUBLISHERS, Caller, use_case
from homing.app.quotas import Quotas
from homing.engine.engine import Engine
from homing.engine.publish import PublishResult
from homing.policy.admission import EVENT_BYTES_MAX, EventDraft, check_events
from homing.policy.keys import Role
from homing.policy.nesting import is_deep
from homing.ports import Receipt

__all__ = ["RELAY", "PublishResult", "Publishing"]

SLICE_BYTES = 256 * 1024  # of data whose levels are counted in one turn of the event loop
RELAY = Caller("the outbox relay", Role.PUBLISHER, None)


class Publishing:
    """Accepts events."""

    def __init__(self, engine: Engine, quotas: Quotas) -> None:
        self._engine, self._quotas = engine, quotas
        # Needs no task: the callback gets the result in a later turn of the event loop. It is the
        # engine's method itself, which saves the fast publish path a call.
        self.publish_then = engine.publish_then
        self.is_limited = quotas.limits_publishing  # for any tenant
        self._event_check = engine.event_check

    @use_case(PUBLISHERS, reads=False)
    async def publish(self, caller: Caller, drafts: Sequence[EventDraft]) -> list[Receipt]:
        """Accepts all events or none.

        Raises Invalid, TooLarge, Forbidden, TooMany, EventConflict, StoreUnavailable, ShuttingDown.
        """
        await self._check(caller, drafts)
        quotas = self._quotas
        if not quotas.limits_publishing:
            return await self._publish(drafts)
        await quotas.check_publish(drafts)
        receipts = await self._publish(drafts)
        quotas.published(drafts, receipts)
        return receipts

    async def publish_rows(self, drafts: Sequence[EventDraft]) -> list[Receipt]:
        """Accepts rows of the operator's outbox.

        Quotas do not apply: a row that had to wait would delay the rows of all tenants.
        """
        await self._check(RELAY, drafts)
        return await self._publish(drafts)

    async def _publish(self, drafts: Sequence[EventDraft]) -> list[Receipt]:
        """Publish events that match their types; raises Invalid if one is refused."""
        if not self._event_check.is_on:
            return await self._engine.publish(drafts)
        checked = await self._event_check.check(drafts)
        receipts = await self._engine.publish(checked)
        if any(draft.warning for draft in checked):
            pairs = zip(receipts, checked, strict=True)
            receipts = [replace(receipt, warning=draft.warning) for receipt, draft in pairs]
        return receipts

    def matches_types(self, drafts: Sequence[EventDraft]) -> bool:
        """Whether all events are known, without a wait, to match their event types."""
        return not self._event_check.is_on or self._event_check.passes(drafts)

    async def _check(self, caller: Caller, drafts: Sequence[EventDraft]) -> None:
        """As ``check``; other requests are served while much data is looked at."""
        caller.must_be(PUBLISHERS)
        deep = None
        if sum(len(draft.data) for draft in drafts) > SLICE_BYTES:
            deep = await _deep(drafts)
        self.check(caller, drafts, deep)

    def check(
        self, caller: Caller, drafts: Sequence[EventDraft], deep: Collection[int] | None = None
    ) -> None:
        """Raises Forbidden, TooLarge or Invalid for events that this caller may not publish.

        ``deep`` are the indexes of those whose data has too many levels, if that is known.
        """
        caller.must_be(PUBLISHERS)
        check_events(drafts, deep=deep)
        if caller.tenant is not None:
            for draft in drafts:
                caller.must_write(draft.tenant)


async def _deep(drafts: Sequence[EventDraft]) -> set[int]:
    """The indexes of events whose data has too many levels."""
    deep: set[int] = set()
    counted = 0
    for index, draft in enumerate(drafts):
        if len(draft.data) <= EVENT_BYTES_MAX and is_deep(draft.data):
            deep.add(index)
        counted += len(draft.data)
        if counted > SLICE_BYTES:
            counted = 0
            await sleep(0)
    return deep
