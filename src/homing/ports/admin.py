"""Changes by people: subscriptions, endpoints, deliveries, replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from homing.model import (
    NOT_BOUND,
    Attempt,
    Delivery,
    Endpoint,
    Event,
    Finished,
    SigningKeys,
    Subscription,
    Transition,
)
from homing.policy.bulk import Counted
from homing.policy.commit_loss import CommitLoss
from homing.policy.erasure import ErasedId
from homing.policy.event_types import EventType, TypePlace, TypeSummary
from homing.policy.notices import Notice
from homing.policy.retry import Schedule
from homing.ports.erasures import Erasable, Erasure, TenantChanges
from homing.ports.flow import NewEvent
from homing.ports.views import Selection


class CleanupJob(Struct, frozen=True):
    """Bulk work that a change leaves behind, done in bounded steps and kept until done."""

    id: int
    kind: str  # "move": pending rows follow its URL; "cancel": it was deleted; "gone": a 410;
    # "unblock": it has no order any more
    subscription_id: int
    endpoint_id: int  # where the pending rows are
    after_id: int  # done up to here
    bucket: int = 0  # where the pending rows are; its owner runs the job


class KeyRelease(Struct, frozen=True):
    """A delivery that was cancelled or erased: its key waits until it is not in flight."""

    delivery_id: int
    bucket: int
    endpoint_id: int
    subscription_id: int
    order_key: str


class CleanupStep(Struct, frozen=True):
    """What one step did."""

    touched: int
    done: bool


class ReplayFilter(Selection, frozen=True):
    """The finished deliveries that a bulk replay takes: those that a list showed at ``as_of``."""

    as_of: int | None = None  # deliveries that had finished by then; None: all that are finished
    backfill: bool = False  # it takes events of which its subscription has no delivery
    per_second: int = 0  # deliveries that a backfill makes


TOP_POSITION = 1 << 62  # above every position in the order of acceptance
EventPlace = tuple[int, int]  # in the order of acceptance: the position of its commit, its id
FIRST_PLACE: EventPlace = (0, 0)  # before every event
LAST_PLACE: EventPlace = (TOP_POSITION, 0)  # after every event


class ReplayJob(Struct, frozen=True):
    """A stored bulk replay: it reads history once in order of id, no delivery twice.

    A backfill reads events in the order of acceptance.
    """

    id: int
    filter: ReplayFilter
    created_at: int
    state: str  # "running", "done", "cancelled"
    upto_id: int  # the newest delivery id that it may take
    after_id: int  # done up to this id
    scanned: int = 0
    replayed: int = 0
    skipped: int = 0  # subscription gone, or data past retention
    after_position: int = 0  # of the event ``after_id``
    upto_position: int = TOP_POSITION  # of the last event that it may deliver
    made_at: int = 0  # when its last deliveries were due


class PastEvent(Struct, frozen=True):
    """An event that a backfill looks at."""

    id: int
    type: str
    size: int  # of its data
    order_key: str = ""
    position: int = 0  # in the order of acceptance, before its id
    had: bool = False  # the subscription has a delivery of it

    @property
    def place(self) -> EventPlace:
        return self.position, self.id


CATALOG_GAP = 1 << 20  # A larger step of the catalog's version: changes may have been lost.


class CatalogNotes(Struct, frozen=True):
    """Whether people get notices; tenants with changed event types, the version, and how many."""

    has_notice_targets: bool = False
    event_types: tuple[tuple[str, int, int], ...] = ()  # that changed after a version
    # The version at which the last large step of the version began; None: there was none.
    base: int | None = None


class AdminStore(Protocol):
    """Changes by people. Every change of a subscription raises the version of the catalog."""

    async def catalog_version(self) -> int: ...

    async def catalog_notes(self, version: int) -> CatalogNotes:
        """What changes with the version of the catalog besides subscriptions and signing keys."""

    async def policies(self) -> dict[str, Schedule]:
        """The policies of the settings as they were last known, also those that were removed."""

    async def keep_policies(self, policies: Sequence[Schedule]) -> None:
        """Remember policies of the settings."""

    async def subscriptions_since(
        self, version: int, *, after_id: int = NOT_BOUND, limit: int = NOT_BOUND
    ) -> list[Subscription]:
        """Subscriptions changed after this version and id, in that order, deleted ones included."""

    async def create_subscription(
        self,
        subscription: Subscription,
        *,
        endpoint: Endpoint | None,
        backfill: ReplayJob | None = None,
        at_most: int = 0,
        seen: int | None = None,
    ) -> Subscription:
        """Create it; ``endpoint`` is stored only if that tenant and URL have none yet.

        ``backfill`` is stored with it. Raises
        TooMany if the tenant has ``at_most`` subscriptions (0: no limit), and StaleCatalog if one
        of them has changed since the version ``seen`` of the catalog.
        """

    async def change_subscription(
        self, subscription: Subscription, *, endpoint: Endpoint | None, cleanup_job_id: int
    ) -> Subscription:
        """Replace it. If its endpoint changes, a "move" cleanup job is left.

        NotFound if it is deleted; StaleCatalog if its version has changed.
        """

    async def change_pair(
        self,
        subscription: Subscription,
        twin: Subscription,
        *,
        endpoint: Endpoint,
        cleanup_job_ids: tuple[int, int],
    ) -> Subscription:
        """Change a subscription and the twin that sends its old version, in one transaction.

        A twin of version 0 is created. StaleCatalog if the version of one of them has changed.
        """

    async def delete_pair(
        self,
        subscription: Subscription,
        twin: Subscription | None,
        *,
        now: int,
        cleanup_job_ids: tuple[int, int],
    ) -> Subscription:
        """Delete a subscription and its twin, if it has one, in one transaction.

        NotFound if it is deleted; StaleCatalog if the version of one of them has changed.
        """

    async def delete_subscription(
        self, subscription_id: int, *, now: int, cleanup_job_id: int
    ) -> Subscription:
        """Mark it deleted and leave a "cancel" cleanup job. NotFound if it is not there."""

    async def signing_keys_since(self, version: int) -> list[SigningKeys]:
        """The signing keys of tenants that changed after this version."""

    async def set_signing_keys(self, keys: SigningKeys) -> SigningKeys:
        """Replace the signing keys of a tenant, and raise the version of the catalog.

        StaleCatalog if they are not of the version that was read (0: there are none); Conflict
        while the tenant is being erased.
        """

    async def create_event_type(self, new: EventType) -> EventType:
        """Store a type, and raise the version of the catalog.

        Conflict if the tenant has this type, has too many of them, or is being erased.
        """

    async def change_event_type(self, new: EventType) -> EventType:
        """Replace a type, and raise the version of the catalog.

        NotFound if it is deleted, StaleCatalog if it is not of the version that was read, Conflict
        if the texts of the tenant's types are too large.
        """

    async def delete_event_type(self, tenant: str, name: str) -> int:
        """Delete a type; returns the version of the catalog. NotFound if it is not there."""

    async def event_type(self, tenant: str, name: str) -> EventType | None: ...

    async def event_types(
        self, *, tenant: str | None, after: TypePlace | None, limit: int
    ) -> tuple[list[TypeSummary], TypePlace | None]:
        """A page by tenant and name, and the place to continue after."""

    async def event_types_whole(self, tenant: str) -> list[EventType]:
        """All types of a tenant with their texts, by name."""

    async def subscription_gone(
        self,
        subscription: Subscription,
        *,
        cleanup_job_id: int,
        notices: Sequence[NewEvent],
        for_people: Sequence[Notice],
        bucket: int,
        epoch: int = 0,
    ) -> Subscription:
        """Set it inactive because of a 410, and leave a "gone" cleanup job.

        NotFound if it is deleted, StaleCatalog if its version has changed, LostLeases on another
        epoch of its endpoint's ``bucket`` (0: no lease is needed). Until ``bound_gone`` all of its
        deliveries are over.
        """

    async def bound_gone(self, subscription_id: int) -> Subscription:
        """Let the deliveries that are accepted by now be cancelled after a 410, and no later ones.

        NotFound if the subscription is deleted.
        """

    async def cleanup_jobs(self) -> list[CleanupJob]: ...

    async def run_cleanup_job(
        self,
        cleanup_job: CleanupJob,
        *,
        target: Endpoint | None,
        except_ids: frozenset[int],
        now: int,
        limit: int,
        epoch: int = 0,
    ) -> CleanupStep:
        """One bounded step: move to ``target``, or cancel; rows in ``except_ids`` are left.

        The step's progress is kept; the job is removed when it is done. LostLeases on another epoch
        of the job's bucket (0: no lease is needed).
        """

    async def add_commit_loss(self, loss: CommitLoss) -> None:
        """Record that commits are lost; a repeated call changes nothing."""

    async def commit_losses(self) -> list[CommitLoss]:
        """The losses that no operator has confirmed, newest first."""

    async def confirm_commit_losses(self, *, now: int) -> list[CommitLoss]:
        """Confirm all losses; returns those that were not confirmed before."""

    async def tenant_move_ready(self, move_id: str, process: int) -> None:
        """Record that a process acts on a move, and that nothing of the tenant runs there."""

    async def set_endpoint(
        self,
        endpoint: Endpoint,
        *,
        seen: Endpoint,
        transition: Transition | None,
        notices: Sequence[NewEvent],
        for_people: Sequence[Notice] = (),
    ) -> Endpoint:
        """Replace its row and raise its generation, if the row is still as it was ``seen``.

        Otherwise StaleEndpoints: another process has changed it.
        """

    async def key_releases(self, *, limit: int) -> list[KeyRelease]:
        """Cancelled or erased deliveries whose keys are not released yet."""

    async def release_keys(
        self,
        releases: Sequence[KeyRelease],
        *,
        now: int,
        fences: Sequence[tuple[int, int]] = (),
    ) -> list[Delivery]:
        """Unblock the next deliveries of these keys; return them. LostLeases on another epoch."""

    async def cancel_delivery(self, delivery_id: int, *, now: int) -> Delivery:
        """Cancel it; raises AlreadyFinished or NotFound."""

    async def try_delivery_now(self, delivery_id: int, *, due_at: int) -> Delivery:
        """Make it due then, unless it is due earlier; raises AlreadyFinished or NotFound."""

    async def replay(self, delivery_id: int, *, new: Delivery) -> Delivery:
        """Write ``new`` (its event, root and subscription are taken from the old one).

        Raises NotFound, StillPending, SubscriptionGone or Gone.
        """

    async def save_replay_job(self, job: ReplayJob) -> None: ...

    async def save_backfill(self, job: ReplayJob) -> ReplayJob:
        """Store a backfill; Conflict if another one of the same subscription is running."""

    async def bound_backfill(self, job_id: int) -> ReplayJob | None:
        """Let a backfill take the events that are stored now, and no later ones.

        None if the job does not exist any more.
        """

    async def past_events(
        self, job: ReplayJob, *, limit: int
    ) -> tuple[list[PastEvent], int, EventPlace, bool]:
        """Of the next ``limit`` events: those of the tenant without a delivery to the subscription.

        Also how many were read, the last one that was read, and whether that is all.
        """

    async def newer_of_key(
        self,
        tenant: str,
        key: str,
        *,
        subscription_id: int,
        after: EventPlace,
        before: EventPlace,
        limit: int,
    ) -> list[PastEvent]:
        """The newest events of a key between two places, the newest first."""

    async def events_whole(self, event_ids: Sequence[int]) -> list[Event]:
        """These events with their data, without those that no longer exist."""

    async def replay_job(self, job_id: int) -> ReplayJob | None: ...

    async def running_replay_jobs(self) -> list[ReplayJob]: ...

    async def cancel_replay_job(self, job_id: int) -> ReplayJob | None:
        """Cancel a job; None if there is none. A finished job stays as it is."""

    async def count_replay(self, job: ReplayJob, *, now: int, limit: int) -> tuple[int, bool]:
        """How many deliveries it would take among ``limit`` rows; False: there are more rows."""

    async def replay_groups(self, job: ReplayJob, *, now: int, limit: int) -> Counted:
        """The deliveries that it would take among ``limit`` rows, by status, tenant and cause."""

    async def candidates(
        self, job: ReplayJob, *, now: int, limit: int
    ) -> tuple[list[Finished], int, bool]:
        """The next deliveries that it takes, the last id that was read, and whether that is all."""

    async def replay_step(
        self,
        job: ReplayJob,
        *,
        after: ReplayJob,
        new: Sequence[Delivery],
        seen: Mapping[str, EventPlace],
    ) -> bool:
        """Write the new deliveries and the job's progress in one commit.

        ``job`` is the job before this step, ``after`` the job with it. False, and nothing is
        written, if the stored job is not running or differs from ``job``: a step counts once.

        A backfill with the order ``latest`` says by key up to which place it has ``seen`` that an
        event is the newest. What came since is left to the commit, but False if that is too much.
        """

    async def log_test(self, attempt: Attempt) -> None:
        """Log a test send."""

    async def tenant_changes(self, version: int) -> TenantChanges:
        """The erasures that a process with this version does not know yet, and all moves."""

    async def begin_erasure(
        self, new: Erasure, *, key: str | None, earlier: Sequence[bytes]
    ) -> Erasure:
        """Store an erasure, or return the one that has erased, or is erasing, the same.

        It covers what was accepted before its commit. One of a tenant that is running covers what
        was accepted meanwhile, too, and no object of the tenant can be made until it is finished.

        ``earlier`` are the hashes of the event's id ``key``. From its commit on no publish takes
        the id of an erased event for a new one, and all of a tenant that is erased is hidden.
        Raises NotFound if there is no such event, or TooMany.
        """

    async def bound_erasure(self, erasure_id: int) -> Erasure:
        """Let an erasure be about what is accepted by now, and nothing later. NotFound."""

    async def erasure(self, erasure_id: int) -> Erasure | None: ...

    async def erasures(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Erasure], int | None]:
        """A page, newest first, and the next ``before_id``."""

    async def running_erasures(self, *, limit: int) -> list[Erasure]:
        """The oldest erasures that are not finished."""

    async def erasable(
        self, erasure: Erasure, *, after_key: str, limit: int
    ) -> tuple[list[Erasable], str | None]:
        """The next events that it erases; the second value is None, or the key to continue after.

        The events of a tenant are walked by their keys; others are found again until they are
        erased.
        """

    async def erase_events(
        self, erasure_id: int, events: Sequence[tuple[Erasable, ErasedId]], *, limit: int
    ) -> bool:
        """Erase these events in one transaction; pending deliveries count as cancelled.

        False if one of them has more deliveries than ``limit``: then some of it is left.
        """

    async def hide_erased(self, erasure_id: int, *, more: bool) -> int:
        """Raise the version of the catalog, with which all processes forget what was erased."""

    async def erase_rest_of_tenant(self, erasure: Erasure, *, limit: int) -> CleanupStep:
        """Remove some rows of a tenant besides its events; ``done`` if all are gone."""

    async def finish_erasure(self, erasure: Erasure, *, now: int) -> bool:
        """False if it was asked for again meanwhile: then more is to be removed.

        If it is of a whole tenant, processes forget its endpoints with a new version.
        """

    async def empty_log(self) -> bool:
        """Empty the write-ahead log of SQLite, which has old versions of pages.

        False if it cannot be emptied now. On PostgreSQL a database has no such file of its own.
        """
