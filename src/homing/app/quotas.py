"""Quotas of tenants: 429 with ``Retry-After`` when one is used up.

The rates of publishing and of changes are of the installation: once a second each process of a
fleet tells the others what it has granted, so a tenant can exceed them by what it gets in that
second. The number of pending deliveries is calculated from the ledger, which every commit keeps
exact. It is read at most once a second per tenant, and deliveries that were published here since
then are added. So a tenant can exceed this quota by what it publishes through other processes
within that second, and by the deliveries of one batch. Without any limit, a publish costs one check
of a flag.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from homing.errors import TooMany
from homing.languages.sentences import many
from homing.policy.quota import (
    BURST_MS,
    MINUTE_MS,
    Quota,
    Spent,
    too_many_subscriptions,
    use_change,
    use_elsewhere,
    use_rate,
)
from homing.ports import Receipt, ViewStore

if TYPE_CHECKING:
    from homing.policy.admission import EventDraft

_V = TypeVar("_V")

READ_EVERY_MS = 1_000
PENDING_AGAIN_MS = 5_000
TENANTS_MAX = 10_000  # remembered at a time


class Quotas:
    """The quotas of tenants and their current use."""

    def __init__(
        self,
        views: ViewStore,
        now: Callable[[], int],
        *,
        default: Quota,
        tenants: Mapping[str, Quota],
    ) -> None:
        self._views, self._now = views, now
        self._default, self._tenants = default, dict(tenants)
        everyone = (default, *self._tenants.values())
        self.limits_publishing = any(it.publish_per_second or it.pending_max for it in everyone)
        # By tenant: until when its rate of publishing, or of changes, is used up.
        self._rates: OrderedDict[str, int] = OrderedDict()
        self._changes: OrderedDict[str, int] = OrderedDict()
        self._spent: Counter[tuple[Literal["publish", "change"], str]] = Counter()
        self._pending: OrderedDict[str, tuple[int, int]] = OrderedDict()  # read at, count

    def of(self, tenant: str) -> Quota:
        return self._tenants.get(tenant, self._default)

    async def check_publish(self, drafts: Sequence[EventDraft]) -> None:
        """Counts the events; raises TooMany, and counts none, if a tenant is over its quota."""
        counts: dict[str, int] = {}
        for draft in drafts:
            counts[draft.tenant] = counts.get(draft.tenant, 0) + 1
        for tenant in counts:
            await self.check_pending(tenant)
        now, used = self._now(), {}
        for tenant, count in counts.items():
            rate = self.of(tenant).publish_per_second
            if not rate:
                continue
            use = use_rate(self._rates.get(tenant, 0), count, rate, now=now)
            if use.wait_ms:
                detail = many(
                    "The tenant {tenant} may publish {count} event per second.",
                    "The tenant {tenant} may publish {count} events per second.",
                    rate,
                    tenant=tenant,
                )
                raise TooMany(detail, after_ms=use.wait_ms)
            used[tenant] = use.until
        for tenant, until in used.items():
            since = max(self._rates.get(tenant, 0), now - BURST_MS)
            self._spend("publish", tenant, until - since)
            _remember(self._rates, tenant, until)

    def published(self, drafts: Sequence[EventDraft], receipts: Sequence[Receipt]) -> None:
        """Adds deliveries to the pending count; repeated events count too until the next read."""
        for draft, receipt in zip(drafts, receipts, strict=True):
            known = self._pending.get(draft.tenant)
            if known is not None:
                self._pending[draft.tenant] = (known[0], known[1] + receipt.deliveries)

    async def check_pending(self, tenant: str) -> None:
        """Raises TooMany if a tenant has used up its quota of pending deliveries."""
        limit = self.of(tenant).pending_max
        if not limit:
            return
        known = self._pending.get(tenant)
        if known is None or self._now() >= known[0] + READ_EVERY_MS:
            at = self._now()
            known = (at, await self._views.pending_of(tenant))
            _remember(self._pending, tenant, known)
        if known[1] >= limit:
            detail = many(
                "The tenant {tenant} may have at most {count} pending delivery.",
                "The tenant {tenant} may have at most {count} pending deliveries.",
                limit,
                tenant=tenant,
            )
            raise TooMany(detail, after_ms=PENDING_AGAIN_MS)

    def count_change(self, tenant: str) -> None:
        """Counts a changing call; raises TooMany if the callers of a tenant make too many."""
        limit = self.of(tenant).changes_per_minute
        if not limit:
            return
        now = self._now()
        use = use_change(self._changes.get(tenant, 0), limit, now=now)
        if use.wait_ms:
            detail = many(
                "The tenant {tenant} may make {count} change per minute.",
                "The tenant {tenant} may make {count} changes per minute.",
                limit,
                tenant=tenant,
            )
            raise TooMany(detail, after_ms=use.wait_ms)
        since = max(self._changes.get(tenant, 0), now - MINUTE_MS)
        self._spend("change", tenant, use.until - since)
        _remember(self._changes, tenant, use.until)

    # --- the other processes of a fleet ------------------------------------------------------

    def _spend(self, rate: Literal["publish", "change"], tenant: str, ms: int) -> None:
        if len(self._spent) < TENANTS_MAX:
            self._spent[rate, tenant] += ms

    def take_spent(self) -> list[Spent]:
        """What was granted here since the last call, the most first."""
        spent, self._spent = self._spent, Counter()
        return [Spent(rate, tenant, ms) for (rate, tenant), ms in spent.most_common()]

    def spent_elsewhere(self, spent: Iterable[Spent]) -> None:
        """Count what other processes have granted."""
        now = self._now()
        for it in spent:
            kept, burst_ms = self._changes, MINUTE_MS
            if it.rate == "publish":
                kept, burst_ms = self._rates, BURST_MS
            known = kept.get(it.tenant, 0)
            until = use_elsewhere(known, it.ms, now=now, burst_ms=burst_ms)
            _remember(kept, it.tenant, max(until, known))

    async def check_subscriptions(self, tenant: str) -> None:
        """Raises TooMany if a tenant has used up its quota of subscriptions.

        Before a creation that takes long: its commit counts them again.
        """
        limit = self.of(tenant).subscriptions_max
        if limit and await self._views.subscriptions_of(tenant, limit=limit) >= limit:
            raise too_many_subscriptions(tenant, limit)


def _remember(kept: OrderedDict[str, _V], tenant: str, value: _V) -> None:
    kept[tenant] = value
    kept.move_to_end(tenant)
    if len(kept) > TENANTS_MAX:
        kept.popitem(last=False)
