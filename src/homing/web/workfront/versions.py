"""Versions of a subscription's messages, and the five minutes in which both are sent.

When a version changes, a second subscription stands in for the old one: it has the same URL,
filters and token, speaks under the same id, and wants nothing after five minutes. What is pending
for it goes on. It is used again at the next change, and goes with the other.
"""

from __future__ import annotations

from msgspec.structs import replace

from homing.model import Subscription, Workfront, show_id
from homing.policy.admission import draft_of
from homing.policy.workfront import BOTH_VERSIONS_MS
from homing.web.options import Parts
from homing.web.show import SUBSCRIPTION

_PAGE = 1_000


async def door_subscriptions(parts: Parts, tenant: str) -> list[Subscription]:
    """All of a tenant that were made through the door, and their twins, oldest first."""
    found: list[Subscription] = []
    before: int | None = None
    while True:
        page, before = await parts.views.subscriptions(tenant=tenant, before_id=before, limit=_PAGE)
        found += [one for one in page if one.workfront is not None]
        if before is None:
            return found[::-1]


async def set_version(parts: Parts, subscription: Subscription, version: str, *, now: int) -> None:
    """Change its version; for five minutes both are sent. The same version changes nothing."""
    own = subscription.workfront or Workfront()
    if own.version == version:
        return
    draft = draft_of(subscription)
    changed = replace(own, version=version, version_at=now)
    await parts.engine.change(
        subscription.id, lambda stored: replace(draft_of(stored), workfront=changed)
    )
    twin = await _twin(parts, subscription)
    stands_in = replace(
        draft,
        secret=subscription.secrets[0].value,
        description=f"Until five minutes after its change: {own.version} of "
        f"{show_id(SUBSCRIPTION, subscription.id)}.",
        workfront=replace(own, twin_of=subscription.id, until=now + BOTH_VERSIONS_MS),
    )
    if twin is None:
        await parts.engine.subscribe(stands_in)
    else:
        await parts.engine.change(twin.id, lambda _: stands_in)


async def delete(parts: Parts, subscription: Subscription) -> None:
    """With its twin, if it has one."""
    await parts.engine.unsubscribe(subscription.id)
    own = subscription.workfront
    if own is not None and own.twin_of is None:
        twin = await _twin(parts, subscription)
        if twin is not None:
            await parts.engine.unsubscribe(twin.id)


async def _twin(parts: Parts, subscription: Subscription) -> Subscription | None:
    for one in await door_subscriptions(parts, subscription.tenant):
        if one.workfront is not None and one.workfront.twin_of == subscription.id:
            return one
    return None
