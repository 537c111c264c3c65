"""Which subscriptions an event goes to.

Every publish uses the index, so it never scans the subscriptions: an event type is looked up as it
is, then by each of its dotted prefixes (``a.b.c`` has ``a`` and ``a.b``), and subscriptions to all
types are added. The cost is a few dictionary lookups plus the number of matches, however many
subscriptions there are.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from operator import attrgetter

from homing.model import Subscription

ALL = "*"

_by_id = attrgetter("id")


def type_matches(pattern: str, event_type: str) -> bool:
    """Whether an exact pattern, ``*``, or ``a.*`` (types that begin with ``a.``) matches a type."""
    if pattern == ALL:
        return True
    if pattern.endswith(".*"):
        prefix = pattern[:-1]
        return event_type.startswith(prefix) and len(event_type) > len(prefix)
    return pattern == event_type


class _TenantIndex:
    """The active subscriptions of one tenant, each list in order of id."""

    __slots__ = ("all", "exact", "prefix")

    def __init__(self) -> None:
        self.exact: dict[str, list[Subscription]] = {}
        self.prefix: dict[str, list[Subscription]] = {}
        self.all: list[Subscription] = []

    def names(self, event_type: str) -> bool:
        """Whether a subscription names this type, exactly or by a prefix."""
        return event_type in self.exact or any(
            event_type[:dot] in self.prefix
            for dot, char in enumerate(event_type)
            if char == "." and dot + 1 < len(event_type)
        )

    def put(self, subscription: Subscription) -> None:
        for pattern in set(subscription.types):
            row = self._row(pattern)
            row.insert(bisect_left(row, subscription.id, key=_by_id), subscription)

    def take(self, subscription: Subscription) -> None:
        for pattern in set(subscription.types):
            row = self._row(pattern)
            del row[bisect_left(row, subscription.id, key=_by_id)]
            if not row:
                self._forget(pattern)

    def _row(self, pattern: str) -> list[Subscription]:
        if pattern == ALL:
            return self.all
        if pattern.endswith(".*"):
            return self.prefix.setdefault(pattern[:-2], [])
        return self.exact.setdefault(pattern, [])

    def _forget(self, pattern: str) -> None:
        if pattern.endswith(".*"):
            self.prefix.pop(pattern[:-2], None)
        else:
            self.exact.pop(pattern, None)

    @property
    def empty(self) -> bool:
        return not (self.exact or self.prefix or self.all)


class Index:
    """The active subscriptions by tenant and event type."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, _TenantIndex] = {}
        self._known: dict[int, Subscription] = {}

    def add(self, subscription: Subscription) -> None:
        """Add or replace a subscription by its id; one that is inactive or deleted is removed."""
        self.remove(subscription.id)
        if (
            not subscription.active
            or subscription.is_unverified
            or subscription.deleted_at is not None
        ):
            return
        self._known[subscription.id] = subscription
        self._by_tenant.setdefault(subscription.tenant, _TenantIndex()).put(subscription)

    def replace(self, subscription: Subscription) -> None:
        """Replace a subscription in the index."""
        self.add(subscription)

    def remove(self, subscription_id: int) -> None:
        """Remove a subscription, if it is there."""
        subscription = self._known.pop(subscription_id, None)
        if subscription is None:
            return
        own = self._by_tenant[subscription.tenant]
        own.take(subscription)
        if own.empty:
            del self._by_tenant[subscription.tenant]

    def names(self, event_type: str, *, tenant: str | None, tenants_max: int) -> bool | None:
        """Whether a subscription names this type, exactly or by a prefix, of one tenant or any.

        None: no subscription of the first ``tenants_max`` tenants does, and there are more.
        """
        if tenant is not None:
            own = self._by_tenant.get(tenant)
            return own is not None and own.names(event_type)
        if any(own.names(event_type) for own in islice(self._by_tenant.values(), tenants_max)):
            return True
        return None if len(self._by_tenant) > tenants_max else False

    def match(
        self, tenant: str, event_type: str, *, not_to_endpoint: int | None = None
    ) -> list[Subscription]:
        """The active subscriptions that want this event type, each once, in order of id."""
        own = self._by_tenant.get(tenant)
        if own is None:
            return []
        rows = [row] if (row := own.exact.get(event_type)) else []
        if own.prefix:
            dot = event_type.find(".")
            last = len(event_type) - 1
            while -1 < dot < last:
                if row := own.prefix.get(event_type[:dot]):
                    rows.append(row)
                dot = event_type.find(".", dot + 1)
        if own.all:
            rows.append(own.all)
        if not rows:
            return []
        if len(rows) == 1:
            found = list(rows[0])
        else:
            found = sorted({one.id: one for row in rows for one in row}.values(), key=_by_id)
        if not_to_endpoint is None:
            return found
        return [one for one in found if one.endpoint_id != not_to_endpoint]
