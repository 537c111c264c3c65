"""The hot path: publish, due, settle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from homing.model import (
    Attempt,
    Delivery,
    Endpoint,
    Event,
    Finished,
    Transition,
    Work,
    content_hash,
)


class NewEvent(Struct, frozen=True, gc=False, array_like=True):
    """An event to be written with all its deliveries."""

    event: Event
    given_time: str  # by its publisher, empty if none was
    deliveries: tuple[Delivery, ...]

    def content_hash(self) -> bytes:
        """The same id again is equal or a conflict. The store asks, off the event loop."""
        return content_hash(self.event.type, self.given_time, self.event.data)


class Receipt(Struct, frozen=True, gc=False, array_like=True):
    """What the publisher is told of one event; ``new`` is False when it was already there."""

    key: str
    deliveries: int
    new: bool


class Refusal(Struct, frozen=True):
    """The request's events that conflict with kept ones, by index; nothing of it was written."""

    conflicts: tuple[int, ...]


class EndpointStart(Struct, frozen=True):
    """An endpoint as found at start: when it next has something to do, if nothing holds it."""

    endpoint: Endpoint
    first: bool  # has deliveries never attempted
    next_due: int | None  # the earliest due time among the others
    oldest_id: int | None  # of all pending; None: nothing pending


class DueAsk(Struct, frozen=True, gc=False):
    """A question for one endpoint: the next few of each lane."""

    endpoint_id: int
    enabled_since: int  # first attempts accepted before it belong to the retry lane
    fresh: int  # rows wanted of the fresh lane, known ones included
    retry: int  # rows wanted of the retry lane, known ones included
    bucket: int  # of the endpoint


class DueAnswer(Struct, frozen=True, gc=False):
    """Rows in the order they should go; more rows than due may be there: see ``next_due``.

    ``fresh``: never attempted, accepted at or after ``enabled_since``, by acceptance.
    ``retry``: due by now, by due time; first attempts that waited their turn are among them.
    ``next_due``: the earliest due time after those, or None.
    ``more_fresh``: there are further fresh rows.
    """

    endpoint_id: int
    fresh: tuple[Work, ...]
    retry: tuple[Work, ...]
    more_fresh: bool
    next_due: int | None


class SettleBatch(Struct, frozen=True, array_like=True):
    """All that a batch of outcomes changes, decided and ready to write in one transaction.

    ``finished`` rows leave pending for history. ``waiting`` rows replace their pending row.
    A row that is no longer pending (cancelled meanwhile) is left as it is; if its attempt arrived
    it is marked so. ``endpoints`` replace their row if its generation is still the given one,
    otherwise StaleEndpoints is raised and nothing is written; so it is with ``fences``, and
    LostLeases.
    """

    number: int  # of this batch: a commit whose reply was lost is recognised by it
    fences: tuple[tuple[int, int], ...] = ()  # buckets with the epochs of our leases, in a fleet
    finished: tuple[Finished, ...] = ()
    waiting: tuple[Delivery, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    transitions: tuple[Transition, ...] = ()
    notices: tuple[NewEvent, ...] = ()


class FlowStore(Protocol):
    """Publish, due, settle: everything batched, each call one transaction."""

    async def last_id(self) -> int:
        """The highest id in use, 0 if none: new ids begin after it."""

    async def publish(
        self, requests: Sequence[Sequence[NewEvent]], *, catalog_version: int, number: int
    ) -> list[list[Receipt] | Refusal]:
        """Write each request whole or refuse it whole, all in one commit.

        Calls are done, and answered, in the order they were made. Raises StaleCatalog if
        subscriptions have changed since ``catalog_version``.
        """

    async def start_page(self, after_id: int, limit: int) -> list[EndpointStart]:
        """Endpoints with an id above ``after_id`` that have anything pending, in order of id."""

    async def bucket_page(
        self, after: Mapping[int, int], *, limit: int
    ) -> tuple[list[EndpointStart], dict[int, int]]:
        """Of each bucket the endpoints after this id that have anything pending.

        It looks at ``limit`` endpoints of each; the second value tells where to go on, and leaves
        out the buckets that are at their end.
        """

    async def endpoints(self, endpoint_ids: Sequence[int]) -> list[EndpointStart]:
        """These endpoints as they are now, pending or not; unknown ids are left out."""

    async def due(self, asks: Sequence[DueAsk], *, now: int) -> list[DueAnswer]:
        """The next rows of many endpoints in one statement, one answer per ask in order."""

    async def take_probe(
        self,
        endpoint: Endpoint,
        *,
        next_probe_at: int,
        now: int,
        skip_expired: bool,
        epoch: int = 0,
    ) -> Work | None:
        """Choose the delivery to probe with and commit ``next_probe_at`` before it is sent.

        The oldest delivery never attempted; else the next one after ``probe_after_id``, round and
        round. With ``skip_expired``, rows whose window has ended are passed over. None when there
        is none (nothing is written then). Raises StaleEndpoints on another generation,
        LostLeases on another epoch of its bucket (0: no lease is needed).
        """

    async def expired(
        self, endpoint_id: int, *, bucket: int, now: int, after_id: int, limit: int
    ) -> tuple[list[Delivery], int | None, int | None]:
        """Pending rows of one endpoint whose window has ended, by id, looking at ``limit`` rows.

        The second value is the id to go on after, or None when all were looked at; the third is
        the earliest end of a window among the other rows looked at.
        """

    async def settle(self, batch: SettleBatch) -> frozenset[int]:
        """Write a batch; the ids that were no longer pending come back."""

    async def remove_history(self, *, before: int, limit: int, epoch: int = 0) -> int:
        """Remove up to ``limit`` rows of history, attempts and events past retention; how many.

        ``before`` is a time: what finished earlier goes. An event that a pending delivery still
        needs stays. LostLeases on another ``epoch`` of bucket 0, whose holder does this for all.
        """

    async def fold_rollups(self, *, now: int, before: int, limit: int) -> int:
        """Add counts of old minutes to their hours, remove hours before ``before``; how many."""
