"""The conditions of a list of deliveries as values of statements: for lists and replay jobs."""

from __future__ import annotations

from homing.model import id_floor
from homing.policy.match import ALL
from homing.ports import DeliveryFilter, ReplayFilter, Selection

TOP_ID = (1 << 63) - 1  # above every id


def id_range(conditions: Selection) -> tuple[int, int]:
    """The ids of deliveries accepted since and until: the first one, and the first one after."""
    low = 0 if conditions.since is None else id_floor(conditions.since)
    high = TOP_ID if conditions.until is None else id_floor(conditions.until)
    return low, high


def type_terms(pattern: str | None) -> dict[str, str | None]:
    """A pattern of event types as values of statements: a type, and the prefix of longer ones.

    ``a.*`` is every type that begins with ``a.`` and goes on; ``a*`` is ``a`` as well.
    """
    if pattern is None or pattern == ALL:
        return {"type": None, "prefix": None}
    if not pattern.endswith("*"):
        return {"type": pattern, "prefix": None}
    begins = pattern[:-1]
    return {"type": pattern if pattern.endswith(".*") else begins, "prefix": begins}


def selection_values(conditions: Selection, *, now: int | None = None) -> dict[str, object]:
    """The values of ``sql/parts/selected.sql``; ``as_of`` needs ``now``."""
    listed = conditions.expires_before if isinstance(conditions, DeliveryFilter) else None
    return {
        "tenant": conditions.tenant,
        "status": conditions.status and conditions.status.value,
        "reason": conditions.reason and conditions.reason.value,
        "endpoint_id": conditions.endpoint_id,
        "subscription_id": conditions.subscription_id,
        "event_id": conditions.event_id,
        "event_key": conditions.event_key,
        "failure": conditions.failure,
        "code": conditions.code,
        "url": conditions.url.lower() if conditions.url else None,
        "expires_before": listed,
        "finished_since": conditions.finished_since,
        "as_of": conditions.as_of if isinstance(conditions, ReplayFilter) else None,
        "now": now,
        **type_terms(conditions.type),
    }
