"""The reference model of a run: what was stored, what was answered, what receivers saw.

It is kept beside the engines and never asks them anything. A single process is a fleet of one:
for every start of every process there is a ``Memory`` of all that its engine has been told, and
for every bucket its owner. A check that finds two facts that do not fit calls ``violated`` with
the name of the invariant (``findings``).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from homing.model import Event, SigningKeys, Subscription, show_id
from homing.sim.world import Hit
from simulation.causes_model import CausesModel
from simulation.findings import Findings
from simulation.health_model import Acceptance, DeliveryModel, EndpointModel
from simulation.mix import Mix
from simulation.order_model import OrderModel

if TYPE_CHECKING:
    from simulation.check_outages import OutageChecks
    from simulation.readers import Streams

EARLIER, LATER = "2025-06-14T12:00:00Z", "2025-06-14T13:00:00Z"  # times that publishers give
QUIET_MS = 3_600_000
WRITTEN_WITHIN_MS = 60_000  # from a decision to its commit
SETTLED_WITHIN_MS = 3_600_000  # a settle waits until the store is there again


@dataclass
class Change:
    """Something was changed: by which life of which process, and when."""

    life: int
    at: int
    by_person: bool
    told: bool = False  # the process knows that it was written
    answered: bool = False  # an erasure: all processes know of it


@dataclass
class Signing:
    """The signing keys of a tenant as they are stored."""

    now: SigningKeys
    changed: Change
    responded: bool = False  # a person was told of the last change: all processes act on it


@dataclass
class Sub:
    """A subscription as it is stored."""

    now: Subscription
    changed: Change
    responded: bool = False  # a person was told of the last change: all processes act on it
    answered: int = 0  # the version of the last change that a person was told of
    left: set[int] = field(default_factory=set)  # endpoints that it was at
    gone_upto: int = 0  # the position of the last delivery when a 410 set it inactive
    by_receiver: int = 0  # the version of the last change that a 410 made
    wants_since: int = 0  # when it was last changed in what it wants, or where it is
    waits_since: int = 0  # since when its deliveries with a key wait as they do
    pauses: list[tuple[int, int | None]] = field(default_factory=list)  # begin and end of each
    pauses_before: list[tuple[int, int | None]] = field(default_factory=list)  # until the change

    def paused_ms(self, since: int, until: int, *, before: bool = False) -> int:
        """For how long it was paused between two times, by the list as it is, or was before."""
        total = 0
        for begin, end in self.pauses_before if before else self.pauses:
            over = until if end is None else min(end, until)
            total += max(0, over - max(begin, since))
        return total

    @property
    def paused_since(self) -> int | None:
        """Since when it is paused."""
        if self.pauses and self.pauses[-1][1] is None:
            return self.pauses[-1][0]
        return None

    @property
    def gone(self) -> bool:
        """A 410 has set it inactive, and no person has changed that."""
        state = self.now.receiver
        return state is not None and state.gone_at is not None

    @property
    def unproved(self) -> bool:
        return is_unproved(self.now)

    @property
    def id(self) -> int:
        return self.now.id

    @property
    def tenant(self) -> str:
        return self.now.tenant

    @property
    def deleted(self) -> bool:
        return self.now.deleted_at is not None

    def matches(self, tenant: str, event_type: str, data: bytes) -> bool:
        return gets(self.now, tenant, event_type, data)


def is_unproved(it: Subscription) -> bool:
    """Its receiver must prove that it owns the URL, and has not."""
    if it.verification.value == "none":
        return False
    return it.receiver is None or it.receiver.verified_at is None


def gets(it: Subscription, tenant: str, event_type: str, data: bytes) -> bool:
    """Whether an event goes to a subscription that is like this."""
    if it.deleted_at is not None or not it.active or is_unproved(it) or tenant != it.tenant:
        return False
    if it.filters != "[]" and not has_number(data):
        return False
    return any(_fits(pattern, event_type) for pattern in it.types)


# The one filter there is here: the data is an object with a number n.
FILTERS = '[{"field":"data.n","op":"exists"}]'


def has_number(data: bytes) -> bool:
    return data.startswith(b"{") and b'"n":' in data


def _fits(pattern: str, event_type: str) -> bool:
    if pattern in {"*", event_type}:
        return True
    head, star, rest = pattern.partition("*")
    return star == "*" and not rest and head.endswith(".") and event_type.startswith(head)


@dataclass(frozen=True)
class Fact:
    """An event as its publisher offered it (or as Homing published it itself)."""

    tenant: str
    type: str
    data: bytes
    key: str | None
    time: str | None
    about: str | None = None  # its key

    @property
    def content(self) -> tuple[str, str | None, bytes, str | None]:
        """What makes an id mean the same."""
        return self.type, self.time, self.data, self.about

    def became(self, event: Event) -> bool:
        """Whether this is the event; an id or a time that was not given is the server's."""
        same = (self.tenant, self.type) == (event.tenant, event.type)
        key = (self.key or event.key) == event.key
        others = {EARLIER, LATER} if self.time is None else set[str]()
        same = same and (self.about or "") == event.order_key
        return same and key and event.time not in others and (self.time or event.time) == event.time

    @property
    def for_whom(self) -> tuple[str, str, bytes]:
        """What subscriptions are matched by."""
        return self.tenant, self.type, self.data


@dataclass(frozen=True)
class Known:
    """What an engine has been told of an endpoint."""

    state: str
    hold_until: int
    enabled_since: int
    guard_passed: int
    refused: bool  # by changed settings of the guard
    at: int  # when it was told
    before: int  # what it knew of ``guard_passed`` until then


@dataclass
class Flight:
    """An attempt that has started and is not settled yet, as far as its engine knows."""

    hit: Hit
    delivery_id: int
    endpoint_id: int
    bucket: int
    epoch: int
    probe: bool
    lane: str
    finished_at: int | None = None
    code: int | None = None
    failure: str | None = None
    asked: int | None = None  # the time that Retry-After asked for
    maybe_sender_error: bool = False  # so many failed then that it may be called a sender outage
    maybe_closed: bool = False  # there may have been a confirmed outage then
    surely_sender_error: bool = False  # it was a sender outage
    maybe_theirs: bool = False  # a sender error for so long that it may be the host's after all
    passed_guard: bool = False  # its address was dialled
    version: int = 0  # of its subscription, as its process knew it
    refusal_may_be: frozenset[str] = frozenset()  # outcomes, if the guard refused it

    @property
    def number(self) -> int:
        return self.hit.number

    @property
    def life(self) -> int:
        return self.hit.life

    @property
    def at(self) -> int:
        return self.hit.at

    @property
    def holds_slot(self) -> bool:
        """A success gives its slot back when it is answered, all else when it is settled."""
        return self.code is None or not 200 <= self.code <= 299


@dataclass
class Slots:
    """Slow start at one endpoint, as what-homing-promises.md#endpoint-health has it."""

    slots: int = 1
    streak: int = 0


@dataclass
class Memory:
    """What the engine of one life has been told; it is gone when the process dies."""

    machine: int
    life: int
    started_at: int
    outage_checks: OutageChecks
    hears_within_ms: int
    guard: int = 0  # the settings of the guard with which it was started
    member_id: int = 0  # of the fleet
    resumed_at: int = 0  # it was stopped until then, as by SIGSTOP
    stepped_at: int = 0  # its wall clock was set
    stopping: bool = False  # in good order
    paused_until: int = 0  # the end of a sender outage
    maybe_paused_at: int = 0  # there may have been a confirmed outage at this time
    known: dict[int, Known] = field(default_factory=dict)  # endpoints
    catalog: dict[int, Subscription] = field(default_factory=dict)
    matched: dict[int, dict[int, Subscription]] = field(default_factory=dict)  # by publish: catalog
    signing: dict[str, SigningKeys] = field(default_factory=dict)  # by tenant
    slots: dict[int, Slots] = field(default_factory=dict)  # by endpoint
    flights: dict[int, Flight] = field(default_factory=dict)  # by delivery id
    taken: dict[int, tuple[int, int]] = field(default_factory=dict)  # to probe: endpoint, when told
    untold: dict[int, tuple[int | None, int]] = field(default_factory=dict)  # before a take
    on_their_way: set[int] = field(default_factory=set)  # stored, and it was not told yet

    @property
    def quiet_until(self) -> int:
        """Nothing expires before this time."""
        return max(self.started_at, self.stepped_at, self.paused_until) + QUIET_MS

    @property
    def maybe_quiet_until(self) -> int:
        """Nothing need expire before this time."""
        return max(self.quiet_until, self.maybe_paused_at + QUIET_MS)

    def may_not_know(self, change: Change, *, at: int) -> bool:
        """Whether its engine may still act as if this change had not been made."""
        if change.answered or change.at < self.started_at:
            return False
        if change.told if change.life == self.life else not change.by_person:
            return False  # Another's change that was settled is read with the bucket.
        return at < max(change.at, self.resumed_at) + self.hears_within_ms


@dataclass(kw_only=True)
class Reference(Findings):
    """All that is known of a run."""

    mix: Mix
    clock_jumped: bool = False  # between two lives
    memories: dict[int, Memory] = field(default_factory=dict)  # by machine: of its last life
    lives: dict[int, Memory] = field(default_factory=dict)  # by life
    owners: dict[int, tuple[int | None, int]] = field(default_factory=dict)  # by bucket: epoch
    expires: dict[int, int] = field(default_factory=dict)  # by member of the fleet
    subs: dict[int, Sub] = field(default_factory=dict)
    signing: dict[str, Signing] = field(default_factory=dict)  # by tenant
    endpoints: dict[int, EndpointModel] = field(default_factory=dict)
    endpoint_ids: dict[tuple[str, str], int] = field(default_factory=dict)
    buckets: dict[int, int] = field(default_factory=dict)  # by endpoint
    changed: dict[int, Change] = field(default_factory=dict)  # the last change of its state
    unsure: set[int] = field(default_factory=set)  # endpoints that deliveries have left
    offered: dict[bytes, list[Fact]] = field(default_factory=dict)  # by their data
    asked: dict[int, Fact] = field(default_factory=dict)  # by event id: as it was offered
    facts: dict[int, Fact] = field(default_factory=dict)  # by event id, once stored
    keys: dict[tuple[str, str], int] = field(default_factory=dict)  # event id
    fan_out: dict[int, int] = field(default_factory=dict)  # deliveries made, by event id
    deliveries: dict[int, DeliveryModel] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)  # of events, in the order of their commits
    acceptance: Acceptance = field(default_factory=Acceptance)
    waiting: dict[int, dict[int, DeliveryModel]] = field(default_factory=dict)  # by endpoint
    crowds: dict[int, int] = field(default_factory=dict)  # by endpoint: the most that waited
    sent: dict[tuple[int, int], Flight] = field(default_factory=dict)  # by delivery and number
    cancels: dict[int, Change] = field(default_factory=dict)  # by delivery id
    erased: set[int] = field(default_factory=set)  # deliveries
    erased_events: dict[int, Change] = field(default_factory=dict)
    erasures: dict[int, Counter[str]] = field(default_factory=dict)  # what each has erased
    drops: Counter[int] = field(default_factory=Counter)  # by endpoint
    drops_undone: Counter[int] = field(default_factory=Counter)  # cancelled just before
    drops_reported: Counter[int] = field(default_factory=Counter)
    drop_notice_at: dict[int, int] = field(default_factory=dict)
    causes: CausesModel = field(default_factory=CausesModel)
    order: OrderModel = field(default_factory=OrderModel)
    echoed: set[str] = field(default_factory=set)  # URLs that have returned a challenge
    gone_replies: set[tuple[int, str, int]] = field(default_factory=set)  # requests that get a 410
    streams: Streams = field(init=False)  # of subscriptions without a URL

    @property
    def alone(self) -> bool:
        """One process, which needs no leases."""
        return self.mix.machines == 1

    @property
    def first(self) -> Memory:
        """Of the first process; in a fleet of one there is no other."""
        return self.memories[1]

    @property
    def flights(self) -> dict[int, Flight]:
        """All attempts in flight, by delivery id."""
        if self.alone:
            return self.first.flights
        return {
            number: flight
            for memory in self.memories.values()
            for number, flight in memory.flights.items()
            if self.is_current(flight)
        }

    def gets_410(self, flight: Flight) -> bool:
        """Whether its response is on its way, and is a 410."""
        return flight.finished_at is None and request_of(flight.hit) in self.gone_replies

    def owner_of(self, bucket: int) -> tuple[int | None, int]:
        """The member that owns a bucket, and since which epoch; alone, every life is an epoch."""
        if self.alone:
            return self.first.member_id, self.first.life
        return self.owners.get(bucket, (None, 0))

    def is_current(self, flight: Flight) -> bool:
        """Whether its bucket has the same owner as when it started."""
        return self.owner_of(flight.bucket)[1] == flight.epoch

    def on_time(self, at: int, what: str, *, slack_ms: int = WRITTEN_WITHIN_MS) -> None:
        """A time that the engine wrote is that of its clock, a moment ago."""
        self.must(
            at <= self.clock() <= at + slack_ms,
            "times",
            lambda: f"{what} at {at}, and the clock shows {self.clock()}",
        )

    def endpoint(
        self,
        endpoint_id: int,
        *,
        tenant: str,
        url: str,
        bucket: int,
        changed: Change,
        at: int,
        guard_passed: int,
    ) -> None:
        """The endpoint with this id; a new one is enabled."""
        if endpoint_id in self.endpoints:
            return
        numbers = self.mix.numbers[tenant]
        model = EndpointModel(endpoint_id, tenant, url, numbers, at, self.acceptance)
        model.guard_passed = guard_passed
        self.endpoints[endpoint_id] = model
        self.endpoint_ids[tenant, url] = endpoint_id
        self.buckets[endpoint_id], self.changed[endpoint_id] = bucket, changed
        for memory in self.memories.values():
            self.learn(memory, endpoint_id)

    def due_of(self, delivery: DeliveryModel, now: int) -> int:
        """The latest time at which it is due; after a pause it has until its end, at least."""
        sub = self.subs[delivery.subscription_id]
        if not sub.pauses:
            return delivery.due_latest
        if sub.paused_since is not None or not sub.responded:
            return now  # It waits.
        by = sub.paused_ms(delivery.ready, now) - delivery.paused
        return max(delivery.due_latest + by, sub.pauses[-1][1] or 0)

    def is_used(self, endpoint_id: int) -> bool:
        """Whether a subscription has this endpoint."""
        return any(
            it.now.endpoint_id == endpoint_id and not it.deleted for it in self.subs.values()
        )

    def learn(self, memory: Memory, endpoint_id: int) -> None:
        """An engine knows this endpoint as it is now."""
        model, now = self.endpoints[endpoint_id], self.clock()
        known = memory.known.get(endpoint_id)
        before = model.guard_passed if known is None else known.guard_passed
        if known is not None and known.at == now:
            before = known.before
        memory.known[endpoint_id] = Known(
            model.state,
            model.hold_until,
            model.enabled_since,
            model.guard_passed,
            model.refused_at != 0,
            now,
            before,
        )

    def guard_passed(self, memory: Memory, endpoint_id: int) -> set[int]:
        """The settings under which an endpoint last passed, as far as its engine may know.

        What it was told in this very moment it may not have read yet.
        """
        known = memory.known[endpoint_id]
        seen = {self.endpoints[endpoint_id].guard_passed, known.guard_passed}
        return seen | {known.before} if known.at == self.clock() else seen

    def add(self, delivery: DeliveryModel) -> None:
        self.acceptance.last += 1
        delivery.position = delivery.turn = self.acceptance.last
        self.deliveries[delivery.id] = delivery
        self.waiting.setdefault(delivery.endpoint_id, {})[delivery.id] = delivery
        self._crowd(delivery.endpoint_id)
        self.counts["deliveries"] += 1

    def of_event(self, event_id: int) -> list[DeliveryModel]:
        """All deliveries of an event, in the order of their ids."""
        found = [it for it in self.deliveries.values() if it.event_id == event_id]
        return sorted(found, key=lambda it: it.id)

    def newer(self, event_id: int, sub: Sub) -> list[int]:
        """The later events of its key that the subscription wants."""
        about = self.facts[event_id].about
        return [
            it
            for it, fact in self.facts.items()
            if self.places[it] > self.places[event_id]
            if about is not None and fact.about == about
            if sub.matches(*fact.for_whom) and it not in self.erased_events
        ]

    def is_outdated(self, event_id: int, sub: Sub) -> bool:
        """Whether the subscription has a delivery of a newer event of its key."""
        fact = self.facts[event_id]
        about = fact.tenant, fact.about
        newer = {
            it
            for it, other in self.facts.items()
            if self.places[it] > self.places[event_id]
            if fact.about is not None and (other.tenant, other.about) == about
            if it not in self.erased_events
        }
        return any(
            it.event_id in newer and it.subscription_id == sub.id
            for it in self.deliveries.values()
            if it.id not in self.erased
        )

    def move(self, delivery: DeliveryModel, endpoint_id: int) -> None:
        """It waits at another endpoint from now on."""
        if endpoint_id != delivery.endpoint_id:
            self.waiting.get(delivery.endpoint_id, {}).pop(delivery.id, None)
            delivery.endpoint_id = endpoint_id
            self.waiting.setdefault(endpoint_id, {})[delivery.id] = delivery
            self._crowd(endpoint_id)
        delivery.bucket = self.buckets[endpoint_id]

    def _crowd(self, endpoint_id: int) -> None:
        count = len(self.waiting[endpoint_id])
        self.crowds[endpoint_id] = max(self.crowds.get(endpoint_id, 0), count)

    def finish(
        self,
        delivery: DeliveryModel,
        status: str,
        reason: str | None,
        *,
        maybe_in_flight: bool = True,
    ) -> None:
        self.must(
            delivery.status == "pending",
            "S7",
            lambda: f"{name(delivery.id)} is {delivery.status}, and now {status}",
        )
        delivery.status, delivery.reason = status, reason
        self.waiting.get(delivery.endpoint_id, {}).pop(delivery.id, None)
        if delivery.key:
            self.order.finished(delivery, maybe_in_flight=maybe_in_flight)

    def begin_life(
        self, machine: int, life: int, outage_checks: OutageChecks, *, guard: int
    ) -> None:
        """A process starts without any memory: its engine knows what is stored."""
        now = self.clock()
        memory = Memory(machine, life, now, outage_checks, self.mix.hears_within_ms, guard)
        memory.stepped_at = now  # A new clock has seen no step.
        self.memories[machine] = self.lives[life] = memory
        outage_checks.begin_life(memory)
        for endpoint_id in self.endpoints:
            self.learn(memory, endpoint_id)


def request_of(hit: Hit) -> tuple[int, str, int]:
    """What names a request: the life of its process, its delivery, its number."""
    return hit.life, hit.delivery, hit.number


def value_at(data: bytes, path: str) -> str | int | None:
    """The value of a payload field: a text, a whole number, true or false."""
    value = json.loads(data)
    for part in path.split(".")[1:]:
        value = value.get(part) if isinstance(value, dict) else None
    return value if value != "" and isinstance(value, str | int) else None


def name(delivery_id: int) -> str:
    return show_id("dlv", delivery_id)
