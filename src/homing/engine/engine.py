"""The engine as the rest of the program sees it: publish, subscribe, operate, and its pulse.

This module connects the parts: publish → dispatch → attempt → outage → settle, and probes,
maintenance and replays. Each part knows the next one only as a function that it is given here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog
from msgspec import Struct
from msgspec.structs import replace

from homing.engine.audit import AuditKeeper, AuditParts
from homing.engine.catalog import Catalog
from homing.engine.certificates import CertificateWatch
from homing.engine.commit_losses import CommitLosses
from homing.engine.core import Core
from homing.engine.decide import Report
from homing.engine.dispatch import Dispatcher
from homing.engine.erase import Eraser
from homing.engine.event_check import EventCheck
from homing.engine.event_types import EventTypes
from homing.engine.fan_out import FanOut
from homing.engine.fleet.membership import Fleet, FleetParts, FleetPulse
from homing.engine.fleet.ownership import BucketOwnership
from homing.engine.grace_period import GracePeriod
from homing.engine.latency import Latencies
from homing.engine.maintenance import Maintenance
from homing.engine.notice_sender import NoticeOptions, NoticeSender
from homing.engine.notice_targets import NoticeTargets
from homing.engine.notices import Notices, PeopleNotices
from homing.engine.operate import Operator
from homing.engine.options import EngineOptions
from homing.engine.outage.detection import OutageDetector, OutageView
from homing.engine.overdue import OverdueSearch
from homing.engine.probe import Prober
from homing.engine.publish import SILENT_MS, Publisher, PublishResult
from homing.engine.pull import PullWaiters
from homing.engine.queue import LANES, EndpointQueue
from homing.engine.recent import Seen
from homing.engine.replay import Replayer
from homing.engine.settle import Settler
from homing.engine.shared import Work
from homing.engine.tenant_moves import TenantMoves
from homing.engine.tracing import Tracing
from homing.engine.version_twins import VersionTwins
from homing.errors import UnknownPolicy
from homing.model import Attempt, Delivery, Endpoint, Ids, Lane, SigningKeys, Subscription, show_id
from homing.policy.admission import EventDraft, SubscriptionDraft
from homing.policy.backfill import PastStart
from homing.policy.bulk import Counted
from homing.policy.commit_loss import CommitLoss
from homing.policy.health import HealthRules
from homing.policy.pause import as_of
from homing.policy.payload_fields import PayloadFields
from homing.policy.presets import PRESETS
from homing.policy.retry import Schedule
from homing.policy.signature import PublicKey, TenantSigner
from homing.ports import (
    AdminStore,
    Clock,
    ClockState,
    FlowStore,
    Mailer,
    NoticeStore,
    Receipt,
    ReplayFilter,
    ReplayJob,
    Sender,
    ViewStore,
)
from homing.ports.pull import PullStore
from homing.ports.tracing import SpanExporter

log = structlog.get_logger("homing.engine")

START_PAGE = 1_000
DRAIN_MIN_MS = 1_000  # for publishes under way, even without a grace period
LEAVE_MS = 2_000  # to leave the fleet; otherwise the leases expire by themselves
PUBLISH_FAILED_MS = 10_000  # after a publish failed, the store counts as unavailable


class Pulse(Struct, frozen=True):
    """The state of the engine at this moment; counters count since the start of the process."""

    draining: bool
    store_ok: bool  # commits succeed
    slots: dict[str, int]  # per lane: fresh, retry
    in_flight: dict[str, int]  # per lane: fresh, retry, probe
    ready: dict[str, int]  # queued deliveries, per lane
    due_since: int | None  # of the delivery that has been due longest while its slot was free
    oldest_due: int | None  # of the delivery that has been due longest, with or without a slot
    unsettled: int  # outcomes waiting to be written
    endpoints: dict[str, int]  # endpoints in memory, per state
    published: int  # events
    accepted: int  # deliveries
    finished: dict[str, int]  # per status
    attempts: dict[tuple[str, str, str], int]  # per (lane, outcome, failure class or "")
    commits: dict[str, int]  # per kind: publish, settle
    memory_bytes: int  # event data queued
    latencies: dict[str, Latencies] = {}  # publish, attempt, and from accepted to delivered
    silent_since: int | None = None  # the start of a commit that has no reply for five seconds
    outage: OutageView = OutageView()  # while it is confirmed, only canaries are sent
    clock: ClockState = ClockState()
    commit_losses: tuple[CommitLoss, ...] = ()  # that no operator has confirmed, newest first
    checks: dict[str, int] = {}  # events checked against their types, per result
    catalog: int = 0  # the version of what people have set, which an erasure raises, too


class NoticeParts(Struct, frozen=True):
    """The parts that notices to people need."""

    store: NoticeStore
    mailer: Mailer | None = None  # None: no e-mail can be sent
    options: NoticeOptions = NoticeOptions()


class Engine:
    """All parts between the use cases and the outside world. Made by ``Engine.start``."""

    def __init__(
        self,
        core: Core,
        fleet: FleetParts | None = None,
        notices: NoticeParts | None = None,
        pull: PullStore | None = None,
    ) -> None:
        self._core, self._clock, self._options = core, core.clock, core.options
        self._dispatcher = dispatcher = Dispatcher(core)
        self._overdue = OverdueSearch(dispatcher)
        self._publisher = Publisher(core)
        self._settler = settler = Settler(core, dispatcher)
        self._outage = outage = OutageDetector(core, dispatcher)
        self._maintenance = maintenance = Maintenance(
            core, dispatcher, settler, paused=outage.quiet_since
        )
        self.certificates = CertificateWatch(core, publish=self._publisher.publish)
        maintenance.every_hour = self.certificates.every_hour
        settler.on_gone = maintenance.run_cleanup_jobs
        self._prober = Prober(core, dispatcher, settler, may_expire=maintenance.may_expire)
        self._replayer = Replayer(core, dispatcher)
        self._tenant_moves = TenantMoves(
            core,
            dispatcher,
            settler,
            maintenance,
            process=None if fleet is None else fleet.me.id,
        )
        self._operator = Operator(core, dispatcher, settler, maintenance)
        self._version_twins = VersionTwins(core, self._operator)
        self.erasures = Eraser(core)
        self.event_types = EventTypes(core)
        self.work = Work(core.options.cpu_ns)
        self.event_check = EventCheck(core, self.work)
        core.catalog.on_erased = self._forget_erased
        self.notice_targets: NoticeTargets  # where people get notices; set if the engine has any
        self.audit: AuditKeeper | None = None
        self._publish_failed_at: int | None = None
        self.pulls = PullWaiters(pull)
        self._publisher.on_pulled = self.pulls.wake
        self._publisher.on_accepted = dispatcher.accept
        self._publisher.on_ordered = dispatcher.ordered
        self._publisher.on_commit = self._committed
        self._publisher.on_unconfirmed = dispatcher.check_store
        settler.on_accepted, settler.accepting = dispatcher.accept, self._publisher.accepting
        dispatcher.on_completed = outage.completed
        outage.settle, outage.on_end = settler.add, self._outage_ended
        self._prober.may_send = lambda: not outage.active
        dispatcher.on_unsendable = settler.add
        dispatcher.on_time, dispatcher.on_probe_ended = self._on_time, self._prober.ended
        dispatcher.may_expire = maintenance.may_expire
        self._notice_sender: NoticeSender | None = None
        if notices is not None:
            self._use(notices)
        name = "" if fleet is None else fleet.me.name
        self.losses = losses = CommitLosses(core, process=name, started_at=core.clock.now())
        self._publisher.check_losses = losses.check
        if self._notice_sender is not None:
            losses.on_notice = self._notice_sender.outage_changed
        self._fleet: Fleet | None = None
        if fleet is not None:
            self._fleet = Fleet(core, dispatcher, settler, losses, fleet)
            self._publisher.on_behind = self._fleet.behind
            self._fleet.on_gained = self._fleet.on_tidy = self._tidy
            self._fleet.topics["replays"] = self._fleet.topics["erasures"] = self._tidy

    @classmethod
    async def start(
        cls,
        *,
        flow: FlowStore,
        admin: AdminStore,
        views: ViewStore,
        sender: Sender,
        clock: Clock,
        options: EngineOptions,
        fleet: FleetParts | None = None,
        notices: NoticeParts | None = None,
        exporter: SpanExporter | None = None,
        audit: AuditParts | None = None,
        pull: PullStore | None = None,
    ) -> Engine:
        """Start an engine that continues where the last process stopped."""
        node = options.node if fleet is None else fleet.me.node
        ids = Ids(node=node, after=await flow.last_id())
        catalog = Catalog(admin)
        catalog.schedules = options.schedules
        await _keep_policies(admin, options.schedules)
        if options.hash_keys is not None:
            catalog.on_hash_keys = options.hash_keys.replace
        ownership = BucketOwnership(fenced=fleet is not None)
        fan_out = FanOut(catalog=catalog, ids=ids, options=options)
        engine = cls(
            Core(
                flow=flow,
                admin=admin,
                views=views,
                sender=sender,
                clock=clock,
                options=options,
                ids=ids,
                catalog=catalog,
                fan_out=fan_out,
                notices=Notices(fan_out, clock.wall),
                people=PeopleNotices(catalog, ids),
                ownership=ownership,
                grace=GracePeriod(catalog, ownership),
                tracing=None
                if exporter is None
                else Tracing(exporter, clock, share=options.trace_share),
            ),
            fleet,
            notices,
            pull,
        )
        if audit is not None:
            engine.audit = AuditKeeper(audit, clock, engine._core.ownership)
        await engine._recover()
        if engine._notice_sender is not None:
            engine._notice_sender.start()
        if engine.audit is not None:
            engine.audit.start()
        return engine

    def _use(self, parts: NoticeParts) -> None:
        """Send notices to people."""
        core = self._core
        sender = NoticeSender(core, parts.store, parts.mailer, parts.options)
        self._notice_sender = sender
        self.notice_targets = NoticeTargets(core, parts.store, sender, self._settler)
        self._settler.on_people_notices = self._operator.on_people_notices = sender.wake
        self._outage.on_change = sender.outage_changed
        self.certificates.tell = sender.write

    async def _recover(self) -> None:
        await self._core.catalog.refresh()
        _check_policies(self.kept_policies(), self._core.options.schedules)
        await self.losses.read()
        if self._fleet is not None:
            self._maintenance.start()
            await self._fleet.start()
            return
        after, found = 0, 0
        while page := await self._core.flow.start_page(after, START_PAGE):
            for start in page:
                self._dispatcher.add_endpoint(start)
            after, found = page[-1].endpoint.id, found + len(page)
        self._maintenance.start()
        await self._replayer.go_on()
        self.erasures.take_up()
        log.info("started", endpoints_with_pending=found)

    def _tidy(self) -> None:
        """Run the cleanup, replay and erasure jobs of the buckets of this process."""
        self._maintenance.run_cleanup_jobs()
        self._replayer.take_up()
        self.erasures.take_up()

    def _forget_erased(self, tenant: str, everything: bool) -> None:
        """Forget what this process has in memory of a tenant whose data was erased."""
        catalog = self._core.catalog

        def may_be(attempt: Attempt) -> bool:
            subscription = catalog.get(attempt.subscription_id)
            return subscription is None or subscription.tenant == tenant

        used = {it.endpoint_id for it in catalog.of_tenant(tenant)} if everything else None
        self._dispatcher.forget_erased(tenant, used=used)
        self._settler.recent.forget(may_be)
        if catalog.ordered:  # Keys may wait for deliveries that were erased.
            self._maintenance.run_cleanup_jobs()

    def check_tenant(self, tenant: str) -> None:
        """Raises TenantMoved or TenantMoving for a tenant whose data is not here, or not yet."""
        move = self._core.catalog.moves.get(tenant)
        if move is not None and move.is_absent:
            raise move.refusal()

    @property
    def fleet(self) -> Fleet | None:
        """The fleet that this process belongs to; None without one."""
        return self._fleet

    async def stop(self, *, grace_ms: int) -> bool:
        """Stop accepting, finish attempts in flight, settle; True if every outcome is written.

        If the store does not reply, this takes the grace period and ``LEAVE_MS``.
        """
        self._dispatcher.stop()
        self._settler.hurry()
        self.pulls.stop()
        self._outage.stop()
        if self._notice_sender is not None:
            self._notice_sender.begin_stop()
        if self._fleet is not None:
            self._fleet.begin_to_leave()
        try:
            async with asyncio.timeout(max(grace_ms, DRAIN_MIN_MS) / 1000):
                await self._publisher.drain()
        except TimeoutError:
            log.warning("stopped while publishes waited for the store; their callers get no reply")
        self._replayer.stop()
        self._version_twins.stop()
        self.erasures.stop()
        self._tenant_moves.stop()
        try:
            async with asyncio.timeout(grace_ms / 1000):
                await self._dispatcher.capacity.drained()
                await self._settler.idle()
        except TimeoutError:
            log.warning(
                "stopped before all outcomes were settled; the next start attempts them again",
                **self.unfinished(),
            )
        self._maintenance.stop()
        if self.audit is not None:
            self.audit.stop()
        self._outage.stop()
        if self._notice_sender is not None:
            await self._notice_sender.stop()
        if self._fleet is not None:
            try:
                async with asyncio.timeout(LEAVE_MS / 1000):
                    await self._fleet.leave()
            except TimeoutError:
                log.warning(
                    "the store did not reply when this process left the fleet; "
                    "its leases will end by themselves"
                )
        await self._core.sender.close()
        log.info("stopped", still_in_flight=self._dispatcher.capacity.in_flight)
        return self._settler.idle_now

    def unfinished(self) -> dict[str, int]:
        """The numbers of attempts in flight and of outcomes that are not written."""
        unsettled = self._settler.unsettled + self._settler.being_written
        in_flight = max(self._dispatcher.capacity.in_flight - unsettled, 0)
        return {"attempts_in_flight": in_flight, "outcomes_not_settled": unsettled}

    def retention_of(self, tenant: str) -> int:
        """How long the events of a tenant are kept, in milliseconds."""
        return self._options.retention_of(tenant)

    def fleet_pulse(self) -> FleetPulse | None:
        """The state of this process in its fleet; None without a fleet."""
        if self._fleet is None:
            return None
        return replace(self._fleet.pulse(), late=self._settler.late)

    def wake(self) -> int | None:
        """Start due attempts after a test moved the clock; returns the time of the next timer."""
        self._dispatcher.pump()
        if self._notice_sender is not None:
            self._notice_sender.wake()
        return self._dispatcher.next_at

    def _finished(self) -> dict[str, int]:
        """Finished deliveries per status; publishes and starting attempts supersede, too."""
        finished = dict(self._settler.finished)
        superseded = self._publisher.superseded + self._dispatcher.superseded
        if superseded:
            finished["superseded"] = finished.get("superseded", 0) + superseded
        return finished

    def _outage_ended(self) -> None:
        self._dispatcher.pump()
        self._prober.go_on()

    def _committed(self, ok: bool) -> None:
        self._publish_failed_at = None if ok else self._clock.now()

    def _publishes(self, now: int) -> bool:
        """Whether the store accepts publishes; a failure counts for a while, or until a success."""
        failed_at = self._publish_failed_at
        return failed_at is None or now >= failed_at + PUBLISH_FAILED_MS

    def _silent_since(self, now: int) -> int | None:
        begun = [it for it in (self._publisher.since, self._settler.since) if it is not None]
        return min(begun) if begun and now - min(begun) >= SILENT_MS else None

    def _on_time(self, queue: EndpointQueue, now: int) -> None:
        """Do the timed work of an endpoint: report drops, drop expired deliveries, probe."""
        if queue.report_is_due(now):
            queue.begin_report()
            self._settler.add(Report(queue.endpoint.id, queue.endpoint.bucket))
        if queue.enabled or not queue.in_store:
            return
        if queue.expiry_is_due(now):
            self._maintenance.expire(queue)
        if queue.probe_is_due(now):
            self._prober.probe(queue)

    # --- commands ----------------------------------------------------------------------------

    async def publish(self, drafts: Sequence[EventDraft]) -> list[Receipt]:
        """Accept all events or none; when it returns, all of them are on disk.

        Raises EventConflict (its problems name the indexes), StoreUnavailable, ShuttingDown.
        """
        return await self._publisher.publish(drafts)

    def publish_then(
        self, drafts: Sequence[EventDraft], on_result: Callable[[PublishResult], None]
    ) -> None:
        """As ``publish``, without a task: ``on_result`` is called in a later turn of the loop."""
        self._publisher.publish_then(drafts, on_result)

    async def subscribe(
        self,
        draft: SubscriptionDraft,
        *,
        at_most: int = 0,
        condition: Callable[[], Awaitable[None]] | None = None,
    ) -> Subscription:
        """Create a subscription; raises TooMany if its tenant has ``at_most`` (0: no limit).

        ``condition`` raises if the tenant's other subscriptions forbid it. It is called again if
        one of them has changed before the commit, in any process.
        """
        new = self._operator.new_subscription(draft)
        return await self._operator.create(new, at_most=at_most, condition=condition)

    async def subscribe_from(
        self, draft: SubscriptionDraft, start: PastStart, *, at_most: int = 0
    ) -> tuple[Subscription, ReplayJob]:
        """Create a subscription with a job that delivers past events to it: both or none."""
        new = self._operator.new_subscription(draft)
        job = self._replayer.new_backfill(new, start)
        try:
            return await self._operator.create(new, backfill=job, at_most=at_most), job
        finally:  # A call that fails may have stored them.
            self._replayer.announce()

    async def change(
        self, subscription_id: int, draft_of: Callable[[Subscription], SubscriptionDraft]
    ) -> Subscription:
        """Replace the fields that people set; secrets stay if the draft has none.

        ``draft_of`` gets the stored subscription, and is called again if another change came first.
        """
        return await self._operator.change(subscription_id, draft_of)

    async def rotate(
        self, subscription_id: int, secret: str | None, *, overlap_ms: int
    ) -> Subscription:
        """Sign with this secret, or a new one; until the overlap ends the older ones sign, too."""
        return await self._operator.rotate(subscription_id, secret, overlap_ms=overlap_ms)

    async def rotate_signing_keys(self, tenant: str, *, overlap_ms: int) -> SigningKeys:
        """Sign with a new key of the tenant; until the overlap ends the older ones sign, too."""
        return await self._operator.rotate_signing_keys(tenant, overlap_ms=overlap_ms)

    async def change_version(self, subscription_id: int, version: str) -> Subscription:
        """Send another version from now on, and for five minutes the old version as well."""
        return await self._operator.change_version(subscription_id, version)

    async def unsubscribe(self, subscription_id: int) -> None:
        """Delete a subscription; no attempt starts afterwards; pending deliveries are cancelled."""
        await self._operator.unsubscribe(subscription_id)

    async def verify(self, subscription_id: int) -> Subscription:
        """Ask the receiver now to prove that it owns the URL."""
        return await self._operator.verify(subscription_id)

    async def pause(self, subscription_id: int) -> Subscription:
        """Let the deliveries of a subscription wait until it is resumed."""
        return await self._operator.pause(subscription_id)

    async def resume(self, subscription_id: int) -> Subscription:
        """End the pause of a subscription."""
        return await self._operator.resume(subscription_id)

    async def test_send(self, subscription_id: int) -> Attempt:
        """Make one signed attempt now, in every state; it is logged and affects nothing else."""
        return await self._operator.test_send(subscription_id)

    async def enable(self, endpoint_id: int, *, by: str) -> Endpoint:
        return await self._operator.enable(endpoint_id, by=by)

    async def freeze(self, endpoint_id: int, *, by: str) -> Endpoint:
        return await self._operator.freeze(endpoint_id, by=by)

    async def cancel(self, delivery_id: int) -> Delivery:
        return await self._operator.cancel(delivery_id)

    async def try_now(self, delivery: Delivery) -> Delivery:
        """Make the next attempt of a pending delivery, as it is stored, when a slot is free."""
        return await self._operator.try_now(delivery)

    async def replay(self, delivery_id: int) -> Delivery:
        return await self._replayer.replay(delivery_id)

    async def replay_groups(self, conditions: ReplayFilter) -> Counted:
        """The deliveries that a job would replay, by status, tenant and cause."""
        return await self._replayer.groups(conditions)

    async def count_replay(self, conditions: ReplayFilter) -> tuple[int, bool]:
        """How many deliveries a bulk replay would take, and whether the number is exact."""
        return await self._replayer.count(conditions)

    async def start_replay(self, conditions: ReplayFilter) -> ReplayJob:
        return await self._replayer.start(conditions)

    async def count_past(self, conditions: ReplayFilter) -> tuple[int, bool]:
        """How many past events a backfill would deliver, and whether the number is exact."""
        return await self._replayer.count_past(conditions)

    async def count_past_of(self, draft: SubscriptionDraft, start: PastStart) -> tuple[int, bool]:
        """How many past events a new subscription would get, and whether the number is exact."""
        new = self._operator.new_subscription(draft)
        return await self._replayer.count_past_of(new, self._replayer.new_backfill(new, start))

    async def start_backfill(self, conditions: ReplayFilter) -> ReplayJob:
        return await self._replayer.start_backfill(conditions)

    async def cancel_replay(self, job_id: int) -> ReplayJob:
        return await self._replayer.cancel(job_id)

    async def replay_job(self, job_id: int) -> ReplayJob:
        return await self._replayer.job(job_id)

    async def replay_waits_for(self, job: ReplayJob) -> str | None:
        """The tenant whose quota of pending deliveries a running job waits for, if it does."""
        return await self._replayer.waits_for(job)

    # --- reads -------------------------------------------------------------------------------

    def in_flight(self, delivery_id: int, endpoint_id: int) -> Lane | None:
        """The lane of this delivery's attempt in flight in this process; None if there is none."""
        queue = self._dispatcher.queues.get(endpoint_id)
        return None if queue is None else queue.in_flight.get(delivery_id)

    def recent(self, after: int | None, *, limit: int) -> Seen:
        """The latest attempts of this process, in the order they were settled."""
        return self._settler.recent.after(after, limit=limit)

    def public_keys(self, tenant: str) -> tuple[PublicKey, ...]:
        """The public keys with which requests of the tenant are verified now, newest first."""
        signer, now = self._core.catalog.signer_of(tenant), self._clock.now()
        keys = () if signer is None else signer.public_keys
        return tuple(it for it in keys if it.until is None or now < it.until)

    def signer_of(self, tenant: str) -> TenantSigner | None:
        """Signs with the Ed25519 keys of a tenant; None if it has none."""
        return self._core.catalog.signer_of(tenant)

    def tenant_of(self, subscription_id: int) -> str:
        """The tenant of a subscription; empty if it was deleted."""
        found = self._core.catalog.get(subscription_id)
        return "" if found is None else found.tenant

    def kept_policies(self) -> dict[str, set[int]]:
        """The policies that are not in the settings, with the subscriptions that use them."""
        return {name: used for name, used in self._core.catalog.kept_policies.items() if used}

    def schedule_of(self, subscription: Subscription | None, *, tenant: str) -> Schedule:
        return self._options.schedule_of(subscription, tenant=tenant)

    def window_of(self, policy: str) -> int:
        """The window of a policy of this installation."""
        return self._options.schedules[policy].window_ms

    @property
    def window_max_ms(self) -> int:
        """The longest window of all policies."""
        return self._options.window_max_ms

    def rules_of(self, tenant: str) -> HealthRules:
        return self._options.rules_of(tenant)

    def names_type(self, event_type: str, *, tenant: str | None, tenants_max: int) -> bool | None:
        """Whether a subscription names this type; None: not all tenants were searched."""
        return self._core.catalog.names_type(event_type, tenant=tenant, tenants_max=tenants_max)

    @property
    def payload_fields(self) -> PayloadFields:
        """The payload fields by which events can be found."""
        return self._options.payload_fields

    def is_rated(self, subscription: Subscription | None) -> bool:
        """Whether the deliveries of a subscription have a rate limit: its own, or that of hosts."""
        own = subscription.rate_per_second if subscription is not None else None
        return bool(own or self._options.host_rate_per_second)

    def as_of_now(self, delivery: Delivery) -> Delivery:
        """A pending row with its times moved by the pauses of its subscription."""
        subscription = self._core.catalog.get(delivery.subscription_id)
        pauses = None if subscription is None else subscription.pauses
        return delivery if pauses is None else as_of(delivery, pauses, self._clock.now())

    def outage(self) -> OutageView:
        return self._outage.view()

    def wall(self) -> int:
        """The wall clock, in Unix milliseconds."""
        return self._clock.wall()

    def pulse(self) -> Pulse:
        dispatcher, now = self._dispatcher, self._clock.now()
        capacity, totals = dispatcher.capacity, dispatcher.totals
        due_since = self._overdue.oldest(now=now)
        if due_since is not None:  # Deliveries that wait for the end of an outage are not stuck.
            due_since = max(due_since, self._outage.quiet_since(now))
        silent_since = self._silent_since(now)
        return Pulse(
            draining=dispatcher.draining,
            store_ok=self._settler.store_ok and self._publishes(now) and silent_since is None,
            silent_since=silent_since,
            slots={lane.value: capacity.slots[lane] for lane in LANES},
            in_flight={
                **{lane.value: capacity.slots_taken[lane] for lane in LANES},
                Lane.PROBE.value: totals.probes,
            },
            ready={
                Lane.FRESH.value: dispatcher.ready_count - totals.retries,
                Lane.RETRY.value: totals.retries,
            },
            due_since=due_since,
            oldest_due=self._overdue.due_at,
            unsettled=self._settler.unsettled,
            endpoints={state.value: count for state, count in totals.states.items()},
            published=self._publisher.published,
            accepted=self._publisher.accepted + self._replayer.accepted,
            finished=self._finished(),
            attempts=dict(self._settler.attempts),
            commits={"publish": self._publisher.commits, "settle": self._settler.commits},
            memory_bytes=capacity.memory.bytes,
            latencies={
                "publish": self._publisher.publish_latency.now(),
                "attempt": self._settler.attempt_latency.now(),
                "delivery": self._settler.delivery_latency.now(),
            },
            outage=self.outage(),
            clock=self._clock.state(),
            commit_losses=self.losses.unconfirmed,
            checks=dict(self.event_check.results),
            catalog=self._core.catalog.version,
        )


async def _keep_policies(admin: AdminStore, schedules: Mapping[str, Schedule]) -> None:
    """Store the operator's own policies, so that none is lost while a subscription uses it."""
    own = [it for name, it in schedules.items() if name not in PRESETS]
    if own:
        stored = await admin.policies()
        if changed := [it for it in own if stored.get(it.name) != it]:
            await admin.keep_policies(changed)


def _check_policies(kept: Mapping[str, set[int]], schedules: Mapping[str, Schedule]) -> None:
    """Raises UnknownPolicy if the numbers of a policy that is used are not known."""
    for name, used in kept.items():
        if name not in schedules:
            shown = ", ".join(show_id("sub", it) for it in sorted(used)[:5])
            more = f" and {len(used) - 5:,} more" if len(used) > 5 else ""
            raise UnknownPolicy(
                f"The policy {name} is not in the settings, and its numbers are not known, but "
                f"{shown}{more} use it: add the table [policies.{name}] to homing.toml."
            )
