"""The books of a run: what people and publishers were told, what was stored, what receivers saw.

They are kept beside the engine and never ask it anything. Whoever finds that two of them do not
fit says so by ``violated``, with the name of the invariant (``findings``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from homing.model import Event, Subscription, show_id
from simulation.findings import Findings
from simulation.health_model import DeliveryModel, EndpointModel
from simulation.mix import Mix

EARLIER, LATER = "2025-06-14T12:00:00Z", "2025-06-14T13:00:00Z"  # times that publishers give
QUIET_MS = 3_600_000
WRITTEN_WITHIN_MS = 60_000  # from a decision to its commit
SETTLED_WITHIN_MS = 3_600_000  # a settle waits until the store is there again


@dataclass
class Sub:
    """A subscription as the store has it, and as the engine has been told."""

    id: int
    tenant: str
    now: Subscription
    told: Subscription
    deleted: bool = False
    deleted_told: bool = False
    left: set[int] = field(default_factory=set)  # endpoints that it was at

    def matches(self, tenant: str, event_type: str, data: bytes) -> bool:
        if self.deleted or not self.now.active or tenant != self.tenant:
            return False
        if self.now.filters != "[]" and not has_number(data):
            return False
        return any(_fits(pattern, event_type) for pattern in self.now.types)


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

    @property
    def content(self) -> tuple[str, str | None, bytes]:
        """What makes an id mean the same."""
        return self.type, self.time, self.data

    def became(self, event: Event) -> bool:
        """Whether this is the event; an id or a time that was not given is the server's."""
        same = (self.tenant, self.type) == (event.tenant, event.type)
        key = (self.key or event.key) == event.key
        others = {EARLIER, LATER} if self.time is None else set[str]()
        return same and key and event.time not in others and (self.time or event.time) == event.time

    @property
    def for_whom(self) -> tuple[str, str, bytes]:
        """What subscriptions are matched by."""
        return self.tenant, self.type, self.data


@dataclass(frozen=True)
class Known:
    """What the engine has been told of an endpoint."""

    state: str
    hold_until: int
    enabled_since: int


@dataclass
class Flight:
    """An attempt that has started and is not settled yet, as far as the engine knows."""

    delivery_id: int
    number: int
    endpoint_id: int
    life: int
    at: int
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

    @property
    def holds_slot(self) -> bool:
        """A success gives its slot back when it is answered, all else when it is settled."""
        return self.code is None or not 200 <= self.code <= 299


@dataclass
class Slots:
    """Slow start at one endpoint, as the contract has it."""

    slots: int = 1
    streak: int = 0


@dataclass(kw_only=True)
class Books(Findings):
    """All that is known of a run."""

    mix: Mix
    wall_ahead: Callable[[], int] = lambda: 0  # of the wall clock, against the engine's
    life: int = 0
    life_at: int = 0
    stepped_at: int = 0
    clock_jumped: bool = False  # between two lives
    stopping: bool = False  # in good order
    paused_until: int = 0  # the end of a sender outage
    maybe_paused_at: int = 0  # there may have been a confirmed outage at this time
    subs: dict[int, Sub] = field(default_factory=dict)
    endpoints: dict[int, EndpointModel] = field(default_factory=dict)
    endpoint_ids: dict[tuple[str, str], int] = field(default_factory=dict)
    known: dict[int, Known] = field(default_factory=dict)
    slots: dict[int, Slots] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)  # endpoints that deliveries have left
    offered: dict[bytes, list[Fact]] = field(default_factory=dict)  # by their data
    asked: dict[int, Fact] = field(default_factory=dict)  # by event id: as it was offered
    facts: dict[int, Fact] = field(default_factory=dict)  # by event id, once stored
    keys: dict[tuple[str, str], int] = field(default_factory=dict)  # event id
    fan_out: dict[int, int] = field(default_factory=dict)  # deliveries made, by event id
    deliveries: dict[int, DeliveryModel] = field(default_factory=dict)
    waiting: dict[int, dict[int, DeliveryModel]] = field(default_factory=dict)  # by endpoint
    flights: dict[int, Flight] = field(default_factory=dict)  # by delivery id
    taken: dict[int, int] = field(default_factory=dict)  # deliveries taken to probe: endpoint id
    untold: dict[int, tuple[int | None, int]] = field(default_factory=dict)  # before a take
    on_their_way: set[int] = field(default_factory=set)  # stored, and nobody was told yet
    cancels_told: set[int] = field(default_factory=set)
    arrived: dict[int, int] = field(default_factory=dict)  # 2xx responses that reached us
    drops: Counter[int] = field(default_factory=Counter)  # by endpoint
    drops_undone: Counter[int] = field(default_factory=Counter)  # cancelled just before
    drops_reported: Counter[int] = field(default_factory=Counter)
    drop_notice_at: dict[int, int] = field(default_factory=dict)

    def on_time(self, at: int, what: str, *, slack_ms: int = WRITTEN_WITHIN_MS) -> None:
        """A time that the engine wrote is that of its clock, a moment ago."""
        self.must(
            at <= self.clock() <= at + slack_ms,
            "times",
            lambda: f"{what} at {at}, and the clock shows {self.clock()}",
        )

    def endpoint(self, endpoint_id: int, *, tenant: str, url: str, at: int) -> EndpointModel:
        """The endpoint with this id; a new one is enabled."""
        model = self.endpoints.get(endpoint_id)
        if model is None:
            numbers = self.mix.numbers[tenant]
            model = EndpointModel(endpoint_id, tenant, url, numbers, enabled_since=at)
            self.endpoints[endpoint_id] = model
            self.endpoint_ids[tenant, url] = endpoint_id
            self.learn(endpoint_id)
        return model

    def learn(self, endpoint_id: int) -> None:
        """The engine knows this endpoint as it is now."""
        model = self.endpoints[endpoint_id]
        self.known[endpoint_id] = Known(model.state, model.hold_until, model.enabled_since)

    def add(self, delivery: DeliveryModel) -> None:
        self.deliveries[delivery.id] = delivery
        self.waiting.setdefault(delivery.endpoint_id, {})[delivery.id] = delivery
        self.counts["deliveries"] += 1

    def finish(self, delivery: DeliveryModel, status: str, reason: str | None) -> None:
        self.must(
            delivery.status == "pending",
            "S7",
            lambda: f"{name(delivery.id)} is {delivery.status}, and now {status}",
        )
        delivery.status, delivery.reason = status, reason
        self.waiting.get(delivery.endpoint_id, {}).pop(delivery.id, None)

    def begin_life(self, number: int) -> None:
        """Memory is gone: what the engine knows is what is stored."""
        self.life, self.life_at = number, self.clock()
        self.stopping = False
        self.paused_until = self.maybe_paused_at = 0
        self.stepped_at = self.life_at  # A new clock has seen no step.
        self.flights.clear()
        self.taken.clear()
        self.untold.clear()
        self.on_their_way.clear()
        self.slots.clear()
        for endpoint_id in self.endpoints:
            self.learn(endpoint_id)
        for sub in self.subs.values():
            sub.told, sub.deleted_told = sub.now, sub.deleted
        self.cancels_told.update(
            it.id for it in self.deliveries.values() if it.status == "cancelled"
        )

    @property
    def quiet_until(self) -> int:
        """Nothing expires before this time."""
        return max(self.life_at, self.stepped_at, self.paused_until) + QUIET_MS

    @property
    def maybe_quiet_until(self) -> int:
        """Nothing need expire before this time."""
        return max(self.quiet_until, self.maybe_paused_at + QUIET_MS)


def name(delivery_id: int) -> str:
    return show_id("dlv", delivery_id)
