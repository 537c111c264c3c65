"""What is known of a fleet's run: who holds which bucket, what is stored, and who was told what.

A process knows of its own changes when it is told that they are written. Of another's it hears
through the air, or looks: once a second at what has changed. ``may_not_know`` says how long it may
act on what was true before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from homing.model import Event, Subscription
from simulation.findings import Findings
from simulation.health_model import DeliveryModel, EndpointModel, Numbers, Timetable

ENABLES, FREEZES = "ann", "bob"  # who does that
HEAR_MS = 5_000  # a change of another is heard of by then: looked for each second, with faults


@dataclass
class Duty(DeliveryModel):
    """A delivery as it is stored, and as the contract says it must be."""

    bucket: int = 0
    arrived: bool = False  # although it was cancelled


@dataclass
class Change:
    """Something was changed: by which life, when, and whether it was told so."""

    life: int
    at: int
    by_person: bool
    told: bool = False


@dataclass
class Place:
    """An endpoint."""

    model: EndpointModel
    bucket: int
    changed: Change  # the last change of its state


@dataclass
class Sub:
    """A subscription as it is stored."""

    now: Subscription
    changed: Change
    responded: bool = False  # by a process, for all

    @property
    def deleted(self) -> bool:
        return self.now.deleted_at is not None


@dataclass
class Sent:
    """An attempt on its way: by which life, in which bucket, under which epoch."""

    life: int
    bucket: int
    epoch: int
    at: int
    endpoint_id: int
    probe: bool
    finished_at: int | None = None
    code: int | None = None


@dataclass(kw_only=True)
class FleetBooks(Findings):
    """All that is known of a fleet's run."""

    numbers: Numbers
    table: Timetable
    owners: dict[int, tuple[int | None, int]] = field(default_factory=dict)  # by bucket: epoch
    expires: dict[int, int] = field(default_factory=dict)  # by member
    resumed: dict[int, int] = field(default_factory=dict)  # by life: when it last went on
    subs: dict[int, Sub] = field(default_factory=dict)
    catalogs: dict[int, dict[int, Subscription]] = field(default_factory=dict)  # by life: told
    places: dict[int, Place] = field(default_factory=dict)  # by endpoint
    urls: dict[str, int] = field(default_factory=dict)  # endpoints
    offered: dict[str, bytes] = field(default_factory=dict)  # data by key
    events: dict[int, Event] = field(default_factory=dict)
    duties: dict[int, Duty] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)  # of events: how many deliveries
    cancels: dict[int, Change] = field(default_factory=dict)  # by delivery
    sent: dict[tuple[int, int], Sent] = field(default_factory=dict)  # by delivery and number
    probes: dict[int, tuple[int, int]] = field(default_factory=dict)  # by endpoint: next, taker
    untold: set[int] = field(default_factory=set)  # endpoints whose take nobody heard of
    # To probe: by which life, told when, at which URL; as a stray it may go elsewhere, and not so.
    taken: dict[int, tuple[int, int, str]] = field(default_factory=dict)

    def owner_of(self, bucket: int) -> tuple[int | None, int]:
        return self.owners.get(bucket, (None, 0))

    def may_not_know(self, life: int, change: Change, *, at: int) -> bool:
        """Whether this life may still act as if it had not happened."""
        if change.life == life and change.told:
            return False
        if change.life != life and not change.by_person:
            return False  # It was settled by a holder before, and read with the bucket.
        return at < max(change.at, self.resumed.get(life, 0)) + HEAR_MS

    def finish(self, duty: Duty, status: str, reason: str | None) -> None:
        self.must(
            duty.status == "pending",
            "S7",
            lambda: f"{duty.id} is {duty.status}, and now {status}",
        )
        duty.status, duty.reason = status, reason
        self.counts[status] += 1

    def pending(self, wanted: Callable[[Duty], bool]) -> list[Duty]:
        return [it for it in self.duties.values() if it.status == "pending" and wanted(it)]
