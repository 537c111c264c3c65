"""What the core asks of the world: stores, a sender, a clock.

Three store ports share one database. ``FlowStore`` is the hot path (publish, due, settle),
``AdminStore`` is what people change, ``ViewStore`` is what people see. Each method is one
transaction. A store that cannot commit raises ``StoreUnavailable``; nothing of the call is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from homing.model import (
    Attempt,
    Delivery,
    Endpoint,
    Event,
    Failure,
    Finished,
    Phases,
    Reason,
    State,
    Status,
    Subscription,
    Target,
    Transition,
    Work,
)

# --- time -----------------------------------------------------------------------------------


class Clock(Protocol):
    """Time that never jumps."""

    def now(self) -> int:
        """Unix milliseconds UTC."""

    def stepped_at(self) -> int | None:
        """When the wall clock was last seen to differ from ours by more than a minute."""


# --- sending --------------------------------------------------------------------------------


class Request(Struct, frozen=True, gc=False):
    """One POST. The sender adds the request line, host and content-length."""

    pool_key: int  # connections are shared within one endpoint only
    target: Target
    header_block: bytes  # "name: value\r\n" lines
    body: bytes
    deadline_ms: int  # for all of it: DNS, connect, TLS, answer


class Answer(Struct, frozen=True, gc=False):
    """What came back: a status code, or a failure; never an exception."""

    code: int | None
    failure: Failure | None
    detail: str  # one line for people about the failure, "" otherwise
    address: str | None  # dialled
    phases: Phases
    headers: bytes = b""  # raw header lines of the answer, at most 16 KiB
    excerpt: bytes = b""  # first bytes of the body, at most 1 KiB
    retry_after: str | None = None  # the header's value, unread


class Sender(Protocol):
    """Makes attempts. ``done`` is called exactly once, later, on the event loop."""

    def send(self, request: Request, done: Callable[[Answer], None]) -> None: ...

    async def close(self) -> None:
        """Drop idle connections; requests in flight are the engine's to wait for."""


# --- the hot path ---------------------------------------------------------------------------


class NewEvent(Struct, frozen=True, gc=False):
    """An event to be written with all its deliveries."""

    event: Event
    content_hash: bytes  # of type, given time and data: the same id again is equal or a conflict
    deliveries: tuple[Delivery, ...]


class Receipt(Struct, frozen=True, gc=False):
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


class DueAnswer(Struct, frozen=True, gc=False):
    """Rows in the order they should go; more rows than due may be there: see ``next_due``.

    ``fresh``: never attempted, accepted at or after ``enabled_since``, by acceptance.
    ``retry``: due by now, by due time. ``next_due``: the earliest due time after those, or None.
    ``more_fresh``: there are further fresh rows.
    """

    endpoint_id: int
    fresh: tuple[Work, ...]
    retry: tuple[Work, ...]
    more_fresh: bool
    next_due: int | None


class SettleBatch(Struct, frozen=True):
    """All that a batch of outcomes changes, decided and ready to write in one transaction.

    ``finished`` rows leave pending for history. ``waiting`` rows replace their pending row.
    A row that is no longer pending (cancelled meanwhile) is left as it is; if its attempt arrived
    it is marked so. ``endpoints`` replace their row if its generation is still the given one,
    otherwise StaleEndpoints is raised and nothing is written.
    """

    number: int  # of this batch: a commit whose reply was lost is recognised by it
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

        Raises StaleCatalog if subscriptions have changed since ``catalog_version``.
        """

    async def start_page(self, after_id: int, limit: int) -> list[EndpointStart]:
        """Endpoints with an id above ``after_id`` that have anything pending, in order of id."""

    async def endpoints(self, endpoint_ids: Sequence[int]) -> list[EndpointStart]:
        """These endpoints as they are now, pending or not; unknown ids are left out."""

    async def due(self, asks: Sequence[DueAsk], *, now: int) -> list[DueAnswer]:
        """The next rows of many endpoints in one statement, one answer per ask in order."""

    async def take_probe(
        self, endpoint: Endpoint, *, next_probe_at: int, now: int, skip_expired: bool
    ) -> Work | None:
        """Choose the delivery to probe with and commit ``next_probe_at`` before it is sent.

        The oldest delivery never attempted; else the next one after ``probe_after_id``, round and
        round. With ``skip_expired``, rows whose window has ended are passed over. None when there
        is none (nothing is written then). Raises StaleEndpoints on another generation.
        """

    async def expired(
        self, endpoint_id: int, *, now: int, after_id: int, limit: int
    ) -> tuple[list[Delivery], int | None]:
        """Pending rows of one endpoint whose window has ended, by id, looking at ``limit`` rows.

        The second value is the id to go on after, or None when all were looked at.
        """

    async def settle(self, batch: SettleBatch) -> frozenset[int]:
        """Write a batch; the ids that were no longer pending come back."""

    async def remove_history(self, *, before: int, limit: int) -> int:
        """Remove up to ``limit`` rows of history, attempts and events past retention; how many.

        ``before`` is a time: what finished earlier goes. An event that a pending delivery still
        needs stays.
        """


# --- what people change ---------------------------------------------------------------------


class Chore(Struct, frozen=True):
    """Bulk work that a change leaves behind, done in bounded steps and kept until done."""

    id: int
    kind: str  # "move": pending of a subscription follow its URL; "cancel": it was deleted
    subscription_id: int
    endpoint_id: int  # where the pending rows are
    after_id: int  # done up to here


class ChoreStep(Struct, frozen=True):
    """What one step did."""

    touched: int
    done: bool


class ReplayFilter(Struct, frozen=True):
    """Which finished deliveries a bulk replay takes."""

    tenant: str | None = None
    status: Status | None = None
    reason: Reason | None = None
    endpoint_id: int | None = None
    subscription_id: int | None = None
    type: str | None = None
    since: int | None = None
    until: int | None = None


class ReplayJob(Struct, frozen=True):
    """A stored bulk replay: walks history once in order of id, never the same delivery twice."""

    id: int
    filter: ReplayFilter
    created_at: int
    state: str  # "running", "done", "cancelled"
    upto_id: int  # the newest delivery id that it may take
    after_id: int  # walked up to here
    looked_at: int = 0
    replayed: int = 0
    skipped: int = 0  # subscription gone, or data past retention


class AdminStore(Protocol):
    """What people change. Every change of a subscription raises the catalog's version."""

    async def catalog_version(self) -> int: ...

    async def subscriptions_since(self, version: int) -> list[Subscription]:
        """Subscriptions changed after this version, deleted ones included."""

    async def create_subscription(
        self, subscription: Subscription, *, endpoint: Endpoint
    ) -> Subscription:
        """``endpoint`` is used if that tenant and URL have none yet; else the existing one is."""

    async def change_subscription(
        self, subscription: Subscription, *, endpoint: Endpoint, chore_id: int
    ) -> Subscription:
        """Replace it. If its endpoint changes, a "move" chore is left. NotFound if deleted."""

    async def delete_subscription(
        self, subscription_id: int, *, now: int, chore_id: int
    ) -> Subscription:
        """Mark it deleted and leave a "cancel" chore. NotFound if it is not there."""

    async def chores(self) -> list[Chore]: ...

    async def do_chore(
        self,
        chore: Chore,
        *,
        target: Endpoint | None,
        except_ids: frozenset[int],
        now: int,
        limit: int,
    ) -> ChoreStep:
        """One bounded step: move to ``target``, or cancel; rows in ``except_ids`` are left.

        The step's progress is kept; the chore is removed when it is done.
        """

    async def set_endpoint(
        self, endpoint: Endpoint, *, transition: Transition | None, notices: Sequence[NewEvent]
    ) -> Endpoint:
        """Replace its row at the given generation and raise the generation; else StaleEndpoints."""

    async def cancel_delivery(self, delivery_id: int, *, now: int) -> Delivery:
        """AlreadyFinished, or NotFound, where that is so."""

    async def replay(self, delivery_id: int, *, new: Delivery) -> Delivery:
        """Write ``new`` (its event, root and subscription are taken from the old one).

        NotFound, StillPending, SubscriptionGone or Gone where that is so.
        """

    async def save_replay_job(self, job: ReplayJob) -> None: ...

    async def replay_job(self, job_id: int) -> ReplayJob | None: ...

    async def running_replay_jobs(self) -> list[ReplayJob]: ...

    async def cancel_replay_job(self, job_id: int) -> ReplayJob | None:
        """None if there is no such job; a finished one stays as it is."""

    async def count_replay(self, job: ReplayJob, *, limit: int) -> tuple[int, bool]:
        """How many deliveries it would take, looking at ``limit`` rows; False: there are more."""

    async def candidates(self, job: ReplayJob, *, limit: int) -> tuple[list[Finished], int, bool]:
        """The next finished deliveries it takes, the id looked up to, and whether that is all."""

    async def replay_step(self, job: ReplayJob, *, new: Sequence[Delivery]) -> bool:
        """Write the new deliveries and the job's progress in one commit.

        False, and nothing is written, if the job was cancelled meanwhile.
        """

    async def log_test(self, attempt: Attempt) -> None:
        """Log a test send."""


# --- what people see ------------------------------------------------------------------------


class DeliveryRow(Struct, frozen=True):
    """A delivery as a list shows it, pending or finished."""

    delivery: Delivery
    status: Status
    reason: Reason | None
    finished_at: int | None
    arrived: bool
    event_key: str
    event_type: str
    url: str


class EventRow(Struct, frozen=True):
    """An event with the number of its first deliveries."""

    event: Event
    deliveries: int


class DeliveryFilter(Struct, frozen=True):
    """Conditions of a list; None means any."""

    tenant: str | None = None
    status: Status | None = None
    endpoint_id: int | None = None
    subscription_id: int | None = None
    event_id: int | None = None
    type: str | None = None
    since: int | None = None
    expires_before: int | None = None


class Ledger(Struct, frozen=True):
    """accepted = delivered + pending + dropped + cancelled, per tenant, always.

    ``pending`` is counted row by row up to a bound; beyond it ``counted`` is False and it is the
    difference of the others.
    """

    tenant: str
    accepted: int
    delivered: int
    pending: int
    dropped: int
    cancelled: int
    counted: bool


class ViewStore(Protocol):
    """Reads for people. Lists are newest first, by id; ``before_id`` is the cursor.

    A page looks at a bounded number of rows: it may hold fewer rows than asked for (even none) and
    still have a next cursor. The second value of a page is the next ``before_id``, None at the end.
    """

    async def events(
        self, *, tenant: str | None, event_type: str | None, before_id: int | None, limit: int
    ) -> tuple[list[EventRow], int | None]: ...

    async def event(self, key: str, *, tenant: str) -> EventRow | None: ...

    async def event_deliveries(self, event_id: int, *, limit: int) -> list[DeliveryRow]:
        """The deliveries of one event, replays included, oldest first."""

    async def subscriptions(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Subscription], int | None]:
        """Without the deleted ones."""

    async def subscription(self, subscription_id: int) -> Subscription | None:
        """Also a deleted one."""

    async def endpoints(
        self, *, tenant: str | None, state: State | None, before_id: int | None, limit: int
    ) -> tuple[list[Endpoint], int | None]: ...

    async def endpoint(self, endpoint_id: int) -> Endpoint | None: ...

    async def waiting(self, endpoint_id: int, *, limit: int) -> int:
        """How many deliveries are pending, counted up to ``limit``."""

    async def transitions(
        self, endpoint_id: int, *, before_id: int | None, limit: int
    ) -> tuple[list[Transition], int | None]: ...

    async def deliveries(
        self, conditions: DeliveryFilter, *, before_id: int | None, limit: int
    ) -> tuple[list[DeliveryRow], int | None]:
        """Pending and finished in one statement: a row that moves is neither missed nor doubled."""

    async def delivery(self, delivery_id: int) -> DeliveryRow | None: ...

    async def attempts(self, delivery_id: int) -> list[Attempt]: ...

    async def ledger(self, *, tenant: str | None) -> list[Ledger]: ...

    async def ping(self) -> None:
        """Raises StoreUnavailable when the store does not answer."""
