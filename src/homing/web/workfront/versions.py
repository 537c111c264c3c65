"""The subscriptions that were made through the Workfront door, with those that stand in for them.

When a version changes, a second subscription stands in for the old one (``policy.workfront``): it
speaks under the same id and wants nothing after five minutes. What is pending for it goes on. All
that people change of the first is changed of the second in the same commit; it is used again at
the next change of version, and goes with the other.
"""

from __future__ import annotations

from homing.model import Subscription
from homing.web.options import Parts

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
