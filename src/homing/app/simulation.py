"""Simulations: the requests of the simulator page and their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from homing.app.access import MANAGERS, Caller, use_case
from homing.errors import NotFound

RUN_MAX_MS = 14 * 86_400_000
EVENTS_MAX = 10_000


class SimulationAsked(Struct, frozen=True):
    """One endpoint with one outage, under one policy."""

    policy: str
    run_for_ms: int
    from_ms: int
    to_ms: int
    does: str  # during the outage: a status as digits, "hangs" or "refuses"
    percent: int  # of requests that fail during the outage
    every_ms: int  # between two events
    seed: int

    @property
    def events(self) -> int:
        return -(-self.run_for_ms // self.every_ms)


class Lateness(Struct, frozen=True):
    """How many deliveries were late, and by how much."""

    count: int
    p50_ms: int | None
    p99_ms: int | None
    max_ms: int | None


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

    def __init__(self, simulate: Simulate | None) -> None:
        self._simulate = simulate

    @property
    def available(self) -> bool:
        return self._simulate is not None

    @use_case(MANAGERS)
    async def run(self, caller: Caller, asked: Sequence[SimulationAsked]) -> list[SimulationShown]:
        """A result for each request; raises NotFound, TooMany or Unavailable."""
        if self._simulate is None:
            raise NotFound("This process has no simulator.")
        return await self._simulate(asked, caller.tenant)
