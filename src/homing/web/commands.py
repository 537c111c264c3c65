"""Commands that more than one transport gives: each checks the caller's role and quotas first.

The API, the dashboard and the Workfront-compatible API call these functions instead of the engine,
so that none of them can forget a check that another one makes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from homing.model import Delivery, Subscription
from homing.policy.admission import EventDraft, SubscriptionDraft
from homing.ports import Receipt, ReplayFilter, ReplayJob
from homing.web.auth import MANAGERS, PUBLISHERS, Caller
from homing.web.options import Parts


def may_publish(who: Caller, drafts: Sequence[EventDraft]) -> None:
    """Raises Forbidden if the role does not publish, or an event is of another tenant."""
    who.must_be(PUBLISHERS)
    if who.tenant is not None:
        for draft in drafts:
            who.writes(draft.tenant)


async def publish(parts: Parts, who: Caller, drafts: Sequence[EventDraft]) -> list[Receipt]:
    """Publishes events that were checked; raises Forbidden, TooMany, or what the engine raises."""
    may_publish(who, drafts)
    quotas = parts.quotas
    if not quotas.limits_publishing:
        return await parts.engine.publish(drafts)
    await quotas.publish(drafts)
    receipts = await parts.engine.publish(drafts)
    quotas.published(drafts, receipts)
    return receipts


async def _nothing() -> None:
    return None


async def subscribe(
    parts: Parts,
    who: Caller,
    draft: SubscriptionDraft,
    *,
    check: Callable[[], Awaitable[None]] = _nothing,
) -> Subscription:
    """Creates a subscription from a draft that was checked; raises Forbidden or TooMany.

    ``check`` is awaited first; no other subscription is created in this process meanwhile.
    """
    who.must_be(MANAGERS)
    who.writes(draft.tenant)
    async with parts.subscribing:  # Two at a time would both find room for one.
        await check()
        await parts.quotas.subscription(draft.tenant)
        return await parts.engine.subscribe(draft)


async def replay(parts: Parts, who: Caller, old: Delivery) -> Delivery:
    """Makes a new delivery from a finished one; raises Forbidden, TooMany, and the engine's."""
    who.must_be(MANAGERS)
    who.writes(old.tenant)
    await parts.quotas.pending(old.tenant)
    return await parts.engine.replay(old.id)


async def start_replay(parts: Parts, who: Caller, conditions: ReplayFilter) -> ReplayJob:
    """Starts a bulk replay; raises Forbidden, also where it goes beyond the caller's tenant."""
    who.must_be(MANAGERS)
    if who.tenant is not None:
        who.writes(conditions.tenant or "")
    if conditions.tenant is not None:
        await parts.quotas.pending(conditions.tenant)
    return await parts.engine.start_replay(conditions)
