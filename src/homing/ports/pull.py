"""Subscriptions without a URL: their events are read, in the order of acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from homing.model import Event
from homing.policy.audit import AuditDraft

READERS_MAX = 16  # of one subscription
PAGE_BYTES_MAX = 1024 * 1024  # of event data on one page, unless a single event has more


class PullEntry(Struct, frozen=True, gc=False):
    """An event at its position in a stream."""

    position: int
    event: Event


class PullReader(Struct, frozen=True):
    """How far a reader has acknowledged a stream."""

    name: str
    position: int
    created_at: int
    acked_at: int | None = None


class PullPage(Struct, frozen=True):
    """The next events of a stream."""

    entries: list[PullEntry]
    after: int  # the position that the page begins after
    upto: int  # the position to go on after; erased events may lie before it
    head: int  # the position of the newest entry


class PullStore(Protocol):
    """Reads streams; each method is one transaction."""

    async def page(
        self,
        subscription_id: int,
        *,
        tenant: str,
        reader: str,
        after: int | None,
        bound_id: int,
        limit: int,
    ) -> PullPage:
        """The events after a position; None: after the reader's, or from the oldest one on.

        Events with an id below ``bound_id`` are past retention. Raises BehindRetention if the
        position is followed by such events, Conflict if it lies beyond the newest entry.
        """

    async def heads(self, subscription_ids: Sequence[int]) -> dict[int, int]:
        """The position of the newest entry of each stream."""

    async def readers(self, subscription_id: int) -> tuple[list[PullReader], int]:
        """The readers by name, and the position of the newest entry."""

    async def begin_reader(self, subscription_id: int, name: str, *, now: int) -> PullReader:
        """A reader; a new one begins at the newest entry. Raises Conflict if there are too many."""

    async def ack(self, subscription_id: int, name: str, *, position: int, now: int) -> PullReader:
        """The reader, moved forward to this position; a new one is added.

        Raises Conflict if the position lies beyond the newest entry, or if there are too many.
        """

    async def remove_reader(
        self, subscription_id: int, name: str, *, audit: AuditDraft | None = None
    ) -> PullReader:
        """The removed reader; raises NotFound."""
