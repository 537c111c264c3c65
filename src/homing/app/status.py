"""The status of this process, its database and its fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from homing.app.access import ADMINS, METRICS, READERS, Caller, use_case
from homing.app.options import AppOptions, SettingShown
from homing.engine.engine import Engine, Pulse
from homing.engine.fleet.membership import FleetPulse
from homing.engine.outage.detection import OutageView
from homing.engine.relay import RelayPulse
from homing.errors import HomingError, NotFound, ShuttingDown, StoreUnavailable, Unavailable
from homing.languages.sentences import say
from homing.policy.certificates import Warned, WatchedCertificate
from homing.policy.explain import span_text
from homing.ports import ClockState, FleetState, Ledger, ViewStore
from homing.ports.views import StoreFigures

__all__ = [
    "Condition",
    "FleetPulse",
    "OutageView",
    "Pulse",
    "RelayPulse",
    "Status",
    "StoreFigures",
    "SystemView",
]

STUCK_AFTER_MS = 60_000
PING_WITHIN_S = 5.0
FIGURES_EVERY_MS = 10_000
ENDPOINTS_COUNTED_MAX = 100_000
KEPT_SHOWN = 5  # subscriptions of each policy
CERTIFICATES_SHOWN = 20
LEDGER_PENDING_MAX = 10_000  # pending rows that are counted for the ledger


class Condition(Struct, frozen=True):
    """The condition of this process, as pages and health checks report it."""

    outage: OutageView
    clock: ClockState
    store_ok: bool = True
    draining: bool = False
    lost_commits: int = 0  # losses that no operator has confirmed
    holding: bool = False  # publishes are refused because of them
    policies: tuple[str, ...] = ()  # that are used and are not in the settings


class SystemView(Struct, frozen=True):
    """The process, its settings, its store and its fleet."""

    pulse: Pulse
    settings: tuple[SettingShown, ...]
    store_bytes: int
    ledgers: list[Ledger]
    started_at: int
    fleet: FleetState | None  # None if one process owns all buckets


class KeptPolicy(Struct, frozen=True):
    """A policy that is not in the settings any more, and keeps its last known numbers."""

    name: str
    count: int  # of the subscriptions that use it
    subscription_ids: list[int]  # the first of them


class CertificateWarning(Struct, frozen=True):
    """A client certificate that needs a person."""

    it: WatchedCertificate
    warned: Warned | None  # None: it cannot be used


def _without_file(one: CertificateWarning) -> CertificateWarning:
    problem = say("its file cannot be used: ask the operator") if one.it.problem else ""
    return CertificateWarning(replace(one.it, file="", problem=problem), one.warned)


class Status:
    """The status of this process; each process of a fleet has its own."""

    def __init__(self, engine: Engine, views: ViewStore, options: AppOptions) -> None:
        self._engine, self._views, self._now = engine, views, options.now
        self._settings, self._started_at = options.settings, options.now()
        self._is_draining = options.is_draining
        self._egress, self._wall = options.egress, engine.wall
        self._ping = _StorePing(views)
        self._figures = _Figures(views, options.now)

    @use_case(ADMINS)
    def pulse(self, _caller: Caller) -> Pulse:
        """All numbers of the engine at this moment."""
        return self._engine.pulse()

    @use_case(METRICS)
    async def metrics(self, _caller: Caller) -> tuple[Pulse, StoreFigures | None]:
        """The numbers of the engine and of the database; None: the database does not respond."""
        return self._engine.pulse(), await self._figures()

    @use_case(READERS)
    def condition(self, _caller: Caller) -> Condition:
        """Whether there is a sender outage, a stepped clock, a failed commit or a shutdown."""
        pulse = self._engine.pulse()
        draining = pulse.draining or self._is_draining()
        losses, holding = len(pulse.commit_losses), self._engine.losses.holding
        return Condition(pulse.outage, pulse.clock, pulse.store_ok, draining, losses, holding)

    @use_case(ADMINS)
    async def system(self, _caller: Caller) -> SystemView:
        """The values of the system page."""
        fleet = self._engine.fleet
        return SystemView(
            pulse=self._engine.pulse(),
            settings=self._settings,
            store_bytes=await self._views.store_bytes(),
            ledgers=await self._views.ledger(tenant=None, scan_limit=LEDGER_PENDING_MAX),
            started_at=self._started_at,
            fleet=None if fleet is None else fleet.state,
        )

    @use_case(READERS)
    def kept_policies(self, caller: Caller) -> list[KeptPolicy]:
        """The policies that are not in the settings but in use, with their subscriptions.

        A caller of one tenant gets its own subscriptions.
        """
        found = []
        for name, used in sorted(self._engine.kept_policies().items()):
            ids = sorted(it for it in used if caller.sees(self._engine.tenant_of(it)))
            if ids:
                found.append(KeptPolicy(name, len(ids), ids[:KEPT_SHOWN]))
        return found

    @use_case(READERS)
    def certificates(self, caller: Caller) -> list[CertificateWarning]:
        """Client certificates that cannot be used, or expire within 30 days, soonest first.

        A caller of one tenant gets those of the tenant.
        """
        wall = self._wall()
        found = [
            CertificateWarning(it, warned)
            for it in self._engine.certificates.watched()
            if caller.sees(it.tenant)
            and ((warned := it.warning(wall=wall)) is not None or it.problem)
        ]
        if caller.tenant is not None:  # Files are the operator's.
            found = [one if not one.it.file else _without_file(one) for one in found]
        found.sort(key=lambda one: 0 if one.it.facts is None else one.it.facts.expires_at)
        return found[:CERTIFICATES_SHOWN]

    # --- without a key -----------------------------------------------------------------------

    def egress(self) -> tuple[str, ...]:
        """The addresses that requests to receivers come from; raises NotFound if none are set."""
        if not self._egress:
            raise NotFound("The operator has not said which addresses requests come from.")
        return self._egress

    def health(self) -> Condition:
        """Raises Unavailable if a delivery has been due for a minute although a slot is free."""
        pulse, now = self._engine.pulse(), self._now()
        if pulse.due_since is not None and now - pulse.due_since >= STUCK_AFTER_MS:
            late = span_text(now - pulse.due_since)
            raise Unavailable(f"A delivery has been due for {late} although a slot is free.")
        return Condition(pulse.outage, pulse.clock)

    async def ready(self) -> Condition:
        """Raises ShuttingDown or StoreUnavailable while events cannot be accepted.

        A sender outage or a stepped clock is reported, but the process stays ready: events that
        are published meanwhile are stored, signed with the correct time and sent on schedule.
        Also, a clock is often stepped on all machines at once: no process would be ready.
        """
        pulse = self._engine.pulse()
        if pulse.draining or self._is_draining():
            raise ShuttingDown
        if pulse.silent_since is not None:
            since = span_text(self._now() - pulse.silent_since)
            raise StoreUnavailable(f"The database has not responded to a commit for {since}.")
        if not pulse.store_ok:
            raise StoreUnavailable("The last commit failed.")
        await self._ping()
        return Condition(pulse.outage, pulse.clock, policies=tuple(self._engine.kept_policies()))

    def fingerprint(self) -> int:
        """A number that changes when a page of the dashboard may have changed."""
        pulse = self._engine.pulse()
        return hash(
            (
                pulse.published,
                pulse.accepted,
                tuple(pulse.commits.values()),
                tuple(pulse.in_flight.values()),
                tuple(pulse.endpoints.values()),
                tuple(pulse.finished.values()),
                pulse.store_ok,
                pulse.draining,
                pulse.clock.steps,
                pulse.catalog,
            )
        )


class _Figures:
    """The figures of the database: at most one bounded query every FIGURES_EVERY_MS."""

    def __init__(self, views: ViewStore, now: Callable[[], int]) -> None:
        self._views, self._now = views, now
        self._asking: asyncio.Task[StoreFigures | None] | None = None
        self._asked_at = 0

    async def __call__(self) -> StoreFigures | None:
        now = self._now()
        if self._asking is None or not 0 <= now - self._asked_at < FIGURES_EVERY_MS:
            self._asked_at, self._asking = now, asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> StoreFigures | None:
        try:
            async with asyncio.timeout(PING_WITHIN_S):
                return await self._views.figures(limit=ENDPOINTS_COUNTED_MAX)
        except (TimeoutError, HomingError):
            return None


class _StorePing:
    """Checks whether the database responds: one query for all requests that wait for it.

    The readiness check needs no key. However many clients call it, it uses one connection to the
    database.
    """

    def __init__(self, views: ViewStore) -> None:
        self._views = views
        self._asking: asyncio.Task[HomingError | None] | None = None

    async def __call__(self) -> None:
        """Returns when the database has responded; raises StoreUnavailable."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        if (problem := await asyncio.shield(self._asking)) is not None:
            raise problem

    async def _ask(self) -> HomingError | None:
        try:
            async with asyncio.timeout(PING_WITHIN_S):
                await self._views.ping()
        except TimeoutError:
            return StoreUnavailable(f"The database did not respond within {PING_WITHIN_S:.0f} s.")
        except HomingError as error:
            return error
        return None
