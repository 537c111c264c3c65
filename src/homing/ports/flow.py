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
from homing.policy.causes import Failures
from homing.policy.erasure import ErasedId
from homing.policy.notices import Notice


class Retention(Struct, frozen=True):
    """What is older than these times is past retention."""

    usual: int
    of_tenants: dict[str, int] = {}  # those with a time of their own

    def of(self, tenant: str | None) -> int:
        return self.usual if tenant is None else self.of_tenants.get(tenant, self.usual)

    @property
    def latest(self) -> int:
        return max((self.usual, *self.of_tenants.values()))


class ErasedPlace(Struct, frozen=True):
    """The last row that was looked at: first of the ids of erased events, then of erasures."""

    accepted_at: int = 0
    hash: bytes = b""
    erasure_id: int | None = None  # None: an id


class Latest(Struct, frozen=True, gc=False, array_like=True):
    """A delivery of a subscription that wants only the newest event of a key."""

    delivery_id: int
    quiet_ms: int = 0  # the first attempt of a key waits until no newer event came for so long …
    max_wait_ms: int = 0  # … at most so long in all


class NewEvent(Struct, frozen=True, gc=False, array_like=True):
    """An event to be written with all its deliveries."""

    event: Event
    given_time: str  # by its publisher, empty if none was
    deliveries: tuple[Delivery, ...]
    fields: tuple[bytes, ...] | None = None  # hashes of payload fields; None: there are none
    erased: tuple[ErasedId, ...] = ()  # hashes of its id, where ids of erased events are remembered
    pulled: tuple[int, ...] = ()  # matching subscriptions without a URL
    ordered: tuple[int, ...] = ()  # the ids of deliveries whose subscriptions have an order
    latest: tuple[Latest, ...] = ()  # of these, those that supersede older ones of their key

    def content_hash(self) -> bytes:
        """Tells a repeated id with equal content from a conflict; computed off the event loop."""
        event = self.event
        return content_hash(event.type, self.given_time, event.data, event.context, event.order_key)


class Receipt(Struct, frozen=True, gc=False, array_like=True):
    """The result of publishing one event; ``new`` is False if it was stored already."""

    key: str
    deliveries: int
    new: bool
    blocked: tuple[int, ...] = ()  # the ids of its deliveries that wait for others of their key
    superseded: int = 0  # older deliveries of its key that it has superseded
    warning: str = ""  # why its data does not match its event type; set by the check


class Refusal(Struct, frozen=True):
    """The indexes of a request's events that conflict with stored ones; nothing was written."""

    conflicts: tuple[int, ...]


class Published(Struct, frozen=True, array_like=True):
    """What became of the requests of one commit, and its number in the order of acceptance."""

    results: list[list[Receipt] | Refusal]
    position: int = 0  # 0: no event was written


class EndpointStart(Struct, frozen=True, array_like=True):
    """An endpoint at the start of a process: when it has the next delivery to attempt."""

    endpoint: Endpoint
    first: bool  # it has deliveries that were never attempted
    next_due: int | None  # the earliest due time among the others
    oldest_id: int | None  # of all pending deliveries; None: there are none


Source = tuple[int, int]  # rows that are read in one order: a part of an endpoint, and a lane
Place = tuple[int, int]  # of a row in its source: its turn (a position or due time), its id


class DueAsk(Struct, frozen=True, gc=False):
    """Asks for the next few deliveries of one endpoint, by lane."""

    endpoint_id: int
    enabled_since: int  # as the asking queue knows it
    fresh: int  # rows wanted of the fresh lane, including those in memory
    retry: int  # rows wanted of the retry lane, including those in memory
    bucket: int  # of the endpoint
    after_part: int = 0  # fair groups take turns: the rows begin with the group after this one
    paused: frozenset[int] = frozenset()  # subscriptions whose rows are left out
    seen: Mapping[Source, Place] = {}  # with ``paused``: rows up to here are left out, too


class DueRows(Struct, frozen=True, gc=False, array_like=True):
    """Rows in the order in which they should be attempted.

    ``fresh``: never attempted, accepted since the endpoint was enabled, by acceptance; where there
    are fair groups, one of each group in turn, and within a group by acceptance.
    ``retry``: due by now, by due time; includes first attempts that waited for their turn.
    ``next_due``: the earliest due time after those, or None.
    ``more_fresh``: there are further fresh rows.
    """

    endpoint_id: int
    fresh: tuple[Work, ...]
    retry: tuple[Work, ...]
    more_fresh: bool
    next_due: int | None
    seen: Mapping[Source, Place] = {}  # with ``paused``: where the next request continues


class ProbeTaken(Struct, frozen=True, gc=False):
    """The delivery for a probe among those of subscriptions that are not paused."""

    work: Work | None
    seen: Mapping[Source, Place]  # where the next search continues
    more: bool  # not all rows were searched


class SettleBatch(Struct, frozen=True, array_like=True):
    """All changes of a batch of outcomes, decided and ready to be written in one transaction.

    ``finished`` rows leave pending for history. ``waiting`` rows replace their pending row.
    A row that is no longer pending (it was cancelled meanwhile) stays as it is; if its attempt
    arrived, it is marked as arrived. ``endpoints`` replace their row if its generation is still the
    given one; otherwise StaleEndpoints is raised and nothing is written. The same holds for
    ``fences`` and LostLeases.
    """

    number: int  # of this batch: a commit whose reply was lost is recognised by it
    fences: tuple[tuple[int, int], ...] = ()  # buckets with the epochs of our leases, in a fleet
    finished: tuple[Finished, ...] = ()
    waiting: tuple[Delivery, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    transitions: tuple[Transition, ...] = ()
    notices: tuple[NewEvent, ...] = ()
    for_people: tuple[Notice, ...] = ()  # notices of which every target gets a record
    failures: tuple[Failures, ...] = ()  # failed attempts by endpoint and cause
    recovered: tuple[tuple[int, int], ...] = ()  # failing endpoints with their first success
    guarded: tuple[int, ...] = ()  # of ``endpoints``, those whose columns of the guard changed
    latest: tuple[int, ...] = ()  # of ``waiting``, those that a newer event of their key supersedes
    fence: int = 0  # as of a publish: its notices were matched, too


class SettleResult(Struct, frozen=True, array_like=True):
    """What a settle wrote besides the batch."""

    gone: frozenset[int] = frozenset()  # the ids that were no longer pending
    unblocked: tuple[Delivery, ...] = ()  # deliveries that waited for finished ones of their key
    superseded: frozenset[int] = frozenset()  # ids of ``latest`` that are finished by a newer one
    known: bool = True  # False: the batch was written before, and its result was lost


class FlowStore(Protocol):
    """Publish, due, settle: everything batched, each call one transaction."""

    async def last_id(self) -> int:
        """The highest id in use, 0 if none: new ids begin after it."""

    async def raise_positions(self) -> None:
        """Give no number of the order of acceptance again that a lost commit may have had."""

    async def publish(
        self, requests: Sequence[Sequence[NewEvent]], *, number: int, fence: int = 0
    ) -> Published:
        """Write each request whole or refuse it whole, all in one commit.

        Calls are done, and return, in the order in which they were made. Raises Fenced if changes
        no longer wait for the process with this ``fence`` (``FleetStore.act``).
        """

    async def check_marks(self) -> None:
        """Raises DatabaseBehind if the store no longer has batches that were committed here."""

    async def start_page(self, after_id: int, limit: int) -> list[EndpointStart]:
        """Endpoints with an id above ``after_id`` that have pending deliveries, in order of id."""

    async def bucket_page(
        self, after: Mapping[int, int], *, limit: int
    ) -> tuple[list[EndpointStart], dict[int, int]]:
        """The endpoints of each bucket after this id that have pending deliveries.

        It reads ``limit`` endpoints of each bucket; the second value is where to continue, without
        the buckets that are finished.
        """

    async def endpoints(self, endpoint_ids: Sequence[int]) -> list[EndpointStart]:
        """These endpoints as they are now, pending or not; unknown ids are left out."""

    async def due(self, asks: Sequence[DueAsk], *, now: int) -> list[DueRows]:
        """The next rows of many endpoints in one statement, one result per ask, in order."""

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

        That is the oldest delivery that was never attempted; else the next one after
        ``probe_after_id``, in rotation. With ``skip_expired``, rows whose window has ended are
        skipped. None if there is none; nothing is written then. Raises StaleEndpoints on another
        generation, LostLeases on another epoch of its bucket (0: no lease is needed).
        """

    async def take_unpaused_probe(
        self,
        endpoint: Endpoint,
        *,
        next_probe_at: int,
        now: int,
        skip_expired: bool,
        paused: frozenset[int],
        seen: Mapping[Source, Place],
        epoch: int = 0,
    ) -> ProbeTaken:
        """As ``take_probe``, without the rows of paused subscriptions, in bounded steps.

        ``seen`` is where an earlier step stopped.
        """

    async def older(
        self, endpoint_id: int, *, bucket: int, after_id: int, before_id: int, limit: int
    ) -> list[Delivery]:
        """The next pending rows of an endpoint with ids between these two, in order of id."""

    async def expired(
        self, endpoint_id: int, *, bucket: int, now: int, after_id: int, limit: int
    ) -> tuple[list[Delivery], int | None, int | None]:
        """Pending rows of an endpoint whose window has ended, by id, among the next ``limit`` rows.

        The second value is the id to continue after, None if all rows were read; the third is the
        earliest end of a window among the other rows that were read.
        """

    async def settle(self, batch: SettleBatch) -> SettleResult:
        """Write a batch; finished deliveries unblock the next ones of their keys."""

    async def newest(
        self,
        deliveries: Sequence[Delivery],
        *,
        now: int,
        fences: Sequence[tuple[int, int]] = (),
        wait: bool = True,
    ) -> dict[int, Work | int]:
        """The newest deliveries of the keys of these deliveries, which are about to be attempted.

        Each by the id of the older one that it supersedes; without a newer event there is none. A
        time instead: nothing may be attempted yet, because the key waits for quiet (unless
        ``wait`` is False) or because more must be superseded first; ask again then.
        Raises LostLeases on another epoch.
        """

    async def remove_history(self, *, before: int, limit: int, epoch: int = 0) -> int:
        """Remove up to ``limit`` rows of history, attempts and events; returns how many.

        Rows that finished before the time ``before`` are removed, but no event that a pending
        delivery needs. LostLeases on another ``epoch`` of bucket 0, whose owner does this for all.
        """

    async def next_tenant(self, after: str) -> str | None:
        """The next tenant with events, in the order of names, after this one."""

    async def remove_history_of(
        self, tenant: str, *, before: int, after_key: str, limit: int, epoch: int = 0
    ) -> tuple[int, str | None]:
        """Remove a tenant's events whose deliveries finished before ``before``, with their rows.

        It reads ``limit`` events after a key. Returns how many it removed, and the key to continue
        after, None at the end. LostLeases on another ``epoch`` of bucket 0.
        """

    async def forget_erased(
        self, keep: Retention, *, after: ErasedPlace, limit: int, epoch: int = 0
    ) -> tuple[int, ErasedPlace | None]:
        """Remove the ids of erased events, and erasures, that are past their tenant's retention.

        It reads ``limit`` rows after a place. Returns how many it removed, and the place to
        continue after, None at the end. LostLeases on another ``epoch`` of bucket 0.
        """

    async def expire_blocked(
        self, keep: Retention, *, after_id: int, now: int, limit: int, epoch: int = 0
    ) -> tuple[int, int | None]:
        """Drop blocked deliveries that were accepted before their tenant's retention began.

        It reads ``limit`` rows after an id. Returns how many it dropped, and the id to continue
        after, None at the end. LostLeases on another ``epoch`` of bucket 0.
        """

    async def fold_rollups(self, *, now: int, before: int, limit: int) -> int:
        """Add old minutes to their hours and remove hours before ``before``; returns how many."""
