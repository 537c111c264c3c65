"""Commits that a failover of the database has lost: what may be missing, in words.

The number of a batch is an id, and an id has a time. So the last batch that a process knows to be
committed and the last one that the database still has say from when to when commits may be missing.
"""

from __future__ import annotations

from msgspec import Struct

from homing.model import id_time
from homing.policy.moments import rfc3339

LISTED_MAX = 50  # losses that pages and the API show

_MISSING = {
    "publish": (
        "events that it acknowledged {when} may be missing, with their deliveries. Publish them"
        " again with the same ids: events that exist are not repeated."
    ),
    "settle": (
        "outcomes that it wrote {when} may be missing. Deliveries that were finished then may be"
        " sent again."
    ),
    "catalog": (
        "changes of subscriptions, keys and notice targets {when} may be undone. Check the last"
        " changes."
    ),
    "leases": "changes of the owners of buckets {when} are undone. Nothing needs to be done.",
}


class CommitLoss(Struct, frozen=True):
    """What one process noticed once."""

    id: int
    noticed_at: int
    process: str
    kind: str  # publish, settle, catalog or leases
    from_at: int | None  # None: unknown
    upto_at: int
    confirmed_at: int | None = None  # by an operator


def span_of(*, seen: int, found: int | None, started_at: int) -> tuple[int | None, int]:
    """From when to when batches may be missing, by the numbers of two batches."""
    upto = id_time(seen)
    begun = None if found is None else id_time(found)
    if begun is None or not started_at <= begun <= upto:  # A batch of another process.
        begun = None
    return begun, upto


def missing_text(loss: CommitLoss) -> str:
    """What may be missing, and what to do."""
    if loss.from_at is None:
        when = f"before {rfc3339(loss.upto_at)}"
    else:
        when = f"between {rfc3339(loss.from_at)} and {rfc3339(loss.upto_at)}"
    return f"Process {loss.process or 'unnamed'}: {_MISSING[loss.kind].format(when=when)}"
