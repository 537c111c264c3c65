"""Simulations: the requests of the simulator page and their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from homing.app.access import MANAGERS, Caller, use_case
from homing.engine.engine import Engine
from homing.errors import NotFound
from homing.languages.language import ENGLISH
from homing.languages.sentences import Sentence, say
from homing.model import State
from homing.policy.health import HealthRules
from homing.ports import ViewStore
from homing.ports.views import HOUR_MS

RUN_MAX_MS = 14 * 86_400_000
EVENTS_MAX = 10_000
DAY_HOURS = 24
_MINUTE_MS = 60_000


class SimulatedEndpoint(Struct, frozen=True):
    """An endpoint of this server as a simulation begins with it."""

    url: str
    policy: str  # of its newest subscription
    deadline_ms: int | None
    rules: HealthRules
    state: State
    attempts: int
    failures: int
    consecutive_failures: int
    first_attempt_age_ms: int | None
    last_success_age_ms: int | None
    hours: tuple[int, ...]  # deliveries finished in each of the last 24 hours, the oldest first

    @property
    def per_day(self) -> int:
        return sum(self.hours)


class SimulationAsked(Struct, frozen=True):
    """One endpoint with one outage, under one policy."""

    policy: str
    run_for_ms: int
    from_ms: int
    to_ms: int
    does: str  # during the outage: a status as digits, "hangs" or "refuses"
    percent: int  # of requests that fail during the outage
    every_ms: int  # between two events; 0: the traffic of ``endpoint``
    seed: int
    endpoint: SimulatedEndpoint | None = None
    language: str = ENGLISH.code  # of the texts in the drawing

    @property
    def events(self) -> int:
        """How many events are simulated, if all are."""
        if self.every_ms:
            return -(-self.run_for_ms // self.every_ms)
        return sum(count for _, _, count in self.hourly)

    @property
    def hourly(self) -> list[tuple[int, int, int]]:
        """Begin, end and number of events of each hour: the last 24 hours, again and again."""
        if self.endpoint is None or self.every_ms:
            return []
        return [
            (begin, min(begin + HOUR_MS, self.run_for_ms), count)
            for hour, begin in enumerate(range(0, self.run_for_ms, HOUR_MS))
            if (count := self.endpoint.hours[hour % DAY_HOURS])
        ]

    @property
    def one_of(self) -> int:
        """One event of this many is simulated; limits and counters are divided by this number."""
        return max(-(-self.events // EVENTS_MAX), 1) if not self.every_ms else 1


class Lateness(Struct, frozen=True):
    """How many deliveries were late, and by how much."""

    count: int
    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None
    last_at_ms: int | None = None  # when the last of them was delivered


class SimulationFigures(Struct, frozen=True):
    """The results of a simulation in numbers."""

    accepted: int
    delivered: int
    late: Lateness
    dropped: dict[str, int]  # by reason
    pending: int
    attempts: int
    failed: int
    probes: int
    disabled_ms: int
    frozen_ms: int
    peak_per_second_after_recovery: int


class StateChanged(Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """A change of the endpoint's state, with its rule and the numbers of the rule."""

    at_ms: int
    before: str
    after: str
    rule: str
    numbers: dict[str, int]


class SimulationShown(Struct, frozen=True):
    """The result of a simulation: a drawing, numbers, and all state changes."""

    svg: str
    figures: SimulationFigures
    changes: tuple[StateChanged, ...]


# Runs simulations for a caller of this tenant (None: all). Raises TooMany while the tenant runs
# another one or too many wait, and Unavailable if it fails or takes too long.
Simulate = Callable[[Sequence[SimulationAsked], str | None], Awaitable[list[SimulationShown]]]


class Simulations:
    """Runs simulations, if this process has a simulator."""

    def __init__(
        self,
        simulate: Simulate | None,
        engine: Engine,
        views: ViewStore,
        now: Callable[[], int],
    ) -> None:
        self._simulate, self._engine, self._views, self._now = simulate, engine, views, now

    @property
    def available(self) -> bool:
        return self._simulate is not None

    @use_case(MANAGERS)
    async def run(self, caller: Caller, asked: Sequence[SimulationAsked]) -> list[SimulationShown]:
        """A result for each request; raises NotFound, TooMany or Unavailable."""
        if self._simulate is None:
            raise NotFound(say("This process has no simulator."))
        return await self._simulate(asked, caller.tenant)

    def run_for_ms(self, policies: Sequence[str], run_for_ms: int, *, to_ms: int) -> int:
        """How long to simulate: an outage that outlasts the run extends it by the longest window.

        So all deliveries of the outage are finished at the end.
        """
        if to_ms < run_for_ms:
            return run_for_ms
        window_ms = max(self._engine.window_of(it) for it in policies)
        return min(-(-(to_ms + window_ms) // HOUR_MS) * HOUR_MS, RUN_MAX_MS)

    @use_case(MANAGERS)
    async def endpoint(self, caller: Caller, endpoint_id: int) -> SimulatedEndpoint:
        """The traffic, policy, rules and counters of an endpoint; raises NotFound."""
        endpoint = await self._views.endpoint(endpoint_id)
        if endpoint is None or not caller.sees(endpoint.tenant):
            raise NotFound(say("There is no such endpoint."))
        newest = next(iter(await self._views.subscriptions_to(endpoint_id, limit=1)), None)
        health, now = endpoint.health, self._now()
        return SimulatedEndpoint(
            url=endpoint.url,
            policy=self._engine.schedule_of(newest, tenant=endpoint.tenant).name,
            deadline_ms=None if newest is None else newest.deadline_ms,
            rules=self._engine.rules_of(endpoint.tenant),
            state=health.state,
            attempts=health.attempts,
            failures=health.failures,
            consecutive_failures=health.consecutive_failures,
            first_attempt_age_ms=_age(health.first_attempt_at, now),
            last_success_age_ms=_age(health.last_success_at, now),
            hours=await self._hours(endpoint_id, now),
        )

    async def _hours(self, endpoint_id: int, now: int) -> tuple[int, ...]:
        """How many deliveries were finished in each of the last 24 hours."""
        since = now - DAY_HOURS * HOUR_MS
        hours = [0] * DAY_HOURS
        for it in await self._views.rollups(
            endpoint_id=endpoint_id, tenant=None, since=since, until=now + 1
        ):
            hours[min(max(it.at - since, 0) // HOUR_MS, DAY_HOURS - 1)] += it.delivered + it.dropped
        return tuple(hours)


def _age(at: int | None, now: int) -> int | None:
    """In whole minutes, so that the same question a moment later has the same result."""
    return None if at is None else max(now - at, 0) // _MINUTE_MS * _MINUTE_MS


def verdict(
    asked: SimulationAsked, figures: SimulationFigures, span: Callable[[int], str]
) -> Sentence:
    """The result in one sentence; ``span`` shows a duration."""
    lost, late = sum(figures.dropped.values()), figures.late
    said = say("Nothing is lost")
    if lost:
        said = say("{lost} of {accepted} deliveries are lost", lost=lost, accepted=figures.accepted)
    parts: list[Sentence] = []
    if figures.pending:
        parts.append(say("{pending} still wait when the simulation ends", pending=figures.pending))
    if late.last_at_ms is None:
        parts.append(say("no delivery is late"))
    elif late.last_at_ms > asked.to_ms:
        after = span(late.last_at_ms - asked.to_ms)
        parts.append(say("the last late one arrives {span} after recovery", span=after))
    else:
        parts.append(say("the last late one arrives before recovery"))
    if figures.frozen_ms:
        parts.append(
            say(
                "the endpoint is frozen for {span}: a person must enable it",
                span=span(figures.frozen_ms),
            )
        )
    if figures.disabled_ms:
        parts.append(say("the endpoint is disabled for {span}", span=span(figures.disabled_ms)))
    if not figures.frozen_ms and not figures.disabled_ms:
        parts.append(say("the endpoint stays enabled"))
    for part in parts:
        said = say("{first}; {second}", first=said, second=part)
    return say("{sentence}.", sentence=said)
