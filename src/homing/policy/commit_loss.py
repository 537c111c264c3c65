"""Commits that a failover of the database has lost: what may be missing, in words.

The number of a batch is an id, and an id has a time. So the last batch that a process knows to be
committed and the last one that the database still has say from when to when commits may be missing.
"""

from __future__ import annotations

from msgspec import Struct

from homing.languages.sentences import At, Sentence, say
from homing.model import id_time

LISTED_MAX = 50  # losses that pages and the API show


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


def missing_text(loss: CommitLoss) -> Sentence:
    """What may be missing, and what to do."""
    return say(
        "Process {process}: {missing}",
        process=loss.process or say("unnamed"),
        missing=_missing_before(loss) if loss.from_at is None else _missing(loss, loss.from_at),
    )


def _missing(loss: CommitLoss, from_at: int) -> Sentence:
    since, until = At(from_at), At(loss.upto_at)
    match loss.kind:
        case "publish":
            return say(
                "events that it acknowledged between {since} and {until} may be missing, with their"
                " deliveries. Publish them again with the same ids: events that exist are not"
                " repeated.",
                since=since,
                until=until,
            )
        case "settle":
            return say(
                "outcomes that it wrote between {since} and {until} may be missing. Deliveries that"
                " were finished then may be sent again.",
                since=since,
                until=until,
            )
        case "catalog":
            return say(
                "changes of subscriptions, keys and notice targets between {since} and {until} may"
                " be undone. Check the last changes.",
                since=since,
                until=until,
            )
        case _:  # leases
            return say(
                "changes of the owners of buckets between {since} and {until} are undone. Nothing"
                " needs to be done.",
                since=since,
                until=until,
            )


def _missing_before(loss: CommitLoss) -> Sentence:
    until = At(loss.upto_at)
    match loss.kind:
        case "publish":
            return say(
                "events that it acknowledged before {until} may be missing, with their deliveries."
                " Publish them again with the same ids: events that exist are not repeated.",
                until=until,
            )
        case "settle":
            return say(
                "outcomes that it wrote before {until} may be missing. Deliveries that were"
                " finished then may be sent again.",
                until=until,
            )
        case "catalog":
            return say(
                "changes of subscriptions, keys and notice targets before {until} may be undone."
                " Check the last changes.",
                until=until,
            )
        case _:  # leases
            return say(
                "changes of the owners of buckets before {until} are undone. Nothing needs to be"
                " done.",
                until=until,
            )
