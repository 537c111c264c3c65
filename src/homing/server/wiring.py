"""Settings → running parts: the only module that knows all of them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial

import msgspec
import structlog
from msgspec import Struct
from prometheus_client.core import Metric

from homing.app.app import App
from homing.app.audit import AuditLog
from homing.app.options import AppOptions, SettingShown
from homing.app.pull import PullParts
from homing.engine.audit import AuditParts
from homing.engine.engine import Engine, NoticeParts
from homing.engine.fleet.membership import FleetParts
from homing.engine.keys import LIFE_MS, ApiKeys
from homing.engine.notice_sender import NoticeOptions
from homing.engine.options import EngineOptions
from homing.engine.portal import Portal
from homing.engine.relay import Relay
from homing.engine.timekeeper import Timekeeper, others_run
from homing.model import Verification
from homing.net.clock import SystemClock, thread_cpu_ns
from homing.net.dial import OwnReceiver
from homing.net.identity_files import read_identity
from homing.net.mail import SmtpMailer, SmtpOptions
from homing.net.resolver import Address
from homing.net.sender import HttpSender, SenderOptions
from homing.policy.certificates import WatchedCertificate, certificate_facts
from homing.policy.erasure import ErasedIds
from homing.policy.fair import FairBy
from homing.policy.outage import OutageRules
from homing.policy.payload_fields import PayloadFields
from homing.policy.pull import Cursors
from homing.ports import Clock
from homing.server.database import Stores, left_unless_started, open_stores
from homing.server.http_server import HttpConfig
from homing.server.metrics_exchange import MetricsExchange, replying
from homing.server.open_files import fit_slots, share_descriptors
from homing.server.outbox_relay import make_relay, relaying
from homing.server.settings import ADMIN_KEY_FILE, Settings, settings_table
from homing.server.shutdown import Shutdown
from homing.server.siblings import Siblings
from homing.server.simulator import Simulator
from homing.server.telemetry import Telemetry, dropped_metric, exporting, make_telemetry
from homing.web.asgi import asgi_app, identity_headers
from homing.web.connections import ConnectionLimit
from homing.web.fast_publish import FastPublishProtocol
from homing.web.fleet_metrics import fleet_metrics
from homing.web.metrics import More, process_metrics
from homing.web.options import WebOptions
from homing.web.relay_metrics import relay_metrics
from homing.web.write_coalescing import CoalescingProtocol

_log = structlog.get_logger("homing")

KEYS_CLOSE_S = 2.0
MARK_S = 2.0  # to store the last time


class Running(Struct, frozen=True):
    """A started engine, its use cases and stores, and the configuration of its HTTP server."""

    engine: Engine
    app: App
    stores: Stores
    clock: Clock
    config: HttpConfig
    end_streams: Callable[[], None]  # ends the streaming responses that would delay a stop


def _key_file(settings: Settings) -> str:
    path = settings.database.directory / ADMIN_KEY_FILE
    return str(path.absolute()) if path.is_file() else ""


@contextlib.asynccontextmanager
async def running(
    settings: Settings,
    *,
    admin_key: str,
    options: EngineOptions | None = None,
    clock: Clock | None = None,
    in_memory: bool = False,
    sources: Mapping[str, str] | None = None,
    descriptors_max: int | None = None,
    shutdown: Shutdown | None = None,
    siblings: Siblings | None = None,
    own: Address | None = None,
) -> AsyncIterator[Running]:
    """Start all parts; at the end settle what is in flight and close them.

    ``own`` is where this server listens: with it, tenants have a built-in receiver.
    """
    stores = await open_stores(settings, in_memory=in_memory)
    try:
        reach, fleet = settings.reach.rules(), stores.fleet
        options = with_fields(options or engine_options(settings), settings, stores)
        shares = share_descriptors(descriptors_max, settings.listen.connections_max, options)
        authorities = settings.reach.ca_file or None
        sending = SenderOptions(
            reach=reach,
            ca_file=authorities,
            identity=settings.egress.identity,
            tenant_identities=settings.tenants.identities,
            proxy=settings.egress.proxy(),
            sources=settings.egress.sources(),
            sockets_max=shares.sockets,
            own=None if own is None else OwnReceiver(own, stores.hash_keys),
        )
        _warn_of_certificates(settings)
        if clock is None:
            clock, fleet = await _system_clock(fleet, shutdown)
        else:  # A clock that a test moves does not tell how long a connection was idle: keep none.
            sending = msgspec.structs.replace(sending, idle_connections_max=0)
        telemetry = make_telemetry(settings, stores.fleet)
        auditor = stores.auditor
        assert auditor is not None
        auditor.now = clock.now
        async with left_unless_started(fleet):
            keeper = await _start_timekeeper(stores, clock, fleet)
            engine = await Engine.start(
                flow=stores.flow,
                admin=stores.admin,
                views=stores.views,
                sender=HttpSender(sending),
                clock=clock,
                options=msgspec.structs.replace(
                    fit_slots(options, shares), guard=reach.fingerprint()
                ),
                fleet=fleet,
                notices=_notice_parts(settings, stores),
                exporter=telemetry,
                audit=AuditParts(stores.audit, auditor.key, settings.database.audit_retention_ms),
                pull=stores.pull_views,
            )
        app_options = AppOptions(
            admin_key=admin_key,
            hash_keys=stores.hash_keys,
            now=clock.now,
            policies=frozenset(settings.delivery.schedules),
            refuses=reach.refuses,
            egress=settings.egress.published(),
            metrics_networks=settings.telemetry.networks(),
            people=settings.people.options(),
            quota=settings.tenants.quota,
            tenant_quotas=settings.tenants.quotas,
            settings=_shown(settings, sources or {}),
            mail_problem=settings.notices.mail_problem,
            verification=Verification(settings.delivery.verification),
            origin=settings.notices.origin,
            public_url=settings.notices.public_url.rstrip("/"),
            is_draining=bool if shutdown is None else lambda: shutdown.is_draining,
            has_receiver=own is not None,
            key_file="" if settings.security.admin_key else _key_file(settings),
            simulate=Simulator(options.schedules, settings.delivery.health),
        )
        api_keys = _api_keys(settings, stores, clock)
        audit = AuditLog(stores.audit, stores.audit_views, auditor.key, auditor.take_id)
        pull = PullParts(stores.pull, stores.pull_views, Cursors(stores.hash_keys))
        portal = _portal(stores, api_keys, clock)
        app = App(engine, stores.views, api_keys, app_options, audit, pull, portal)
        relay = make_relay(settings, app.publishing, clock, random.random)
        more_metrics = _metrics_of(engine, relay, telemetry)
        exchange = _metrics_exchange(siblings, engine, clock, more_metrics)
        web = WebOptions(
            hosts=settings.listen.host_names | settings.notices.public_hosts,
            more_metrics=more_metrics,
            other_processes=exchange,
            api=settings.fleet.serves_api,
        )
        try:
            async with (
                relaying(relay, settings.delivery.grace_ms),
                _keeping_time(keeper),
                replying(exchange),
                exporting(telemetry, _metrics_now(engine, clock, more_metrics)),
            ):
                config = _http_config(asgi_app(app, web), settings, shares.connections)

                def leave() -> None:
                    web.leaving.set()
                    engine.pulls.stop()

                yield Running(engine, app, stores, clock, config, leave)
        finally:
            await _stop(
                engine, app, api_keys, shutdown or Shutdown(grace_ms=settings.delivery.grace_ms)
            )
    finally:
        await stores.close()


def engine_options(settings: Settings) -> EngineOptions:
    delivery = settings.delivery
    return EngineOptions(
        node=settings.fleet.nodes[0],
        cpu_ns=thread_cpu_ns,
        fresh_slots=delivery.fresh_slots,
        retry_slots=delivery.retry_slots,
        endpoint_slots=delivery.endpoint_slots,
        ready_bytes_max=delivery.memory_bytes_max,
        retention_ms=settings.database.retention_ms,
        tenant_retention_ms=settings.tenants.retention_ms,
        schedules=delivery.schedules,
        policy=delivery.policy,
        tenant_policies=settings.tenants.policies,
        trace_share=settings.telemetry.otel_trace_share,
        hold_after_lost_commits=settings.fleet.on_lost_commits == "hold",
        health=delivery.health,
        tenant_health=settings.tenants.health,
        outage=OutageRules(detects=delivery.outage_detection),
        host_rate_per_second=delivery.host_rate_per_second,
        certificates=partial(certificates_in_files, settings),
        fair_by=FairBy(delivery.fair_by),
        tenant_fair_by={name: FairBy(path) for name, path in settings.tenants.fair_by.items()},
        origin=settings.notices.origin,
        checks=settings.tenants.checks,
        tenant_checks=settings.tenants.own_checks,
        quota=settings.tenants.quota,
        tenant_quotas=settings.tenants.quotas,
    )


def certificates_in_files(settings: Settings) -> list[WatchedCertificate]:
    """The client certificates of the installation and of tenants, as their files are now."""
    found = []
    for tenant, paths in (("", settings.egress.identity), *settings.tenants.identities.items()):
        if not paths.certificate:
            continue
        identity = read_identity(paths)
        assert identity is not None
        problem, facts = identity.problem, None
        if not problem:
            facts = certificate_facts(identity.certificate)
        found.append(WatchedCertificate(tenant, facts, problem, file=paths.certificate))
    return found


def _warn_of_certificates(settings: Settings) -> None:
    for it in certificates_in_files(settings):
        if it.problem:
            _log.error(
                "a client certificate cannot be used; deliveries that need it wait",
                tenant=it.tenant,
                file=it.file,
                problem=str(it.problem),
            )


def _notice_parts(settings: Settings, stores: Stores) -> NoticeParts:
    it = settings.notices
    mailer = None
    if it.smtp_host:
        mailer = SmtpMailer(
            SmtpOptions(
                host=it.smtp_host,
                port=it.smtp_port,
                security=it.smtp_security,
                user=it.smtp_user,
                password=it.smtp_password,
                sender=it.smtp_from,
                ca_file=it.smtp_ca_file or None,
            )
        )
    options = NoticeOptions(
        public_url=it.public_url.rstrip("/"),
        mail_domain=it.smtp_from.rpartition("@")[2] or "homing.invalid",
        process=stores.fleet.me.name if stores.fleet is not None else "",
    )
    return NoticeParts(stores.notices, mailer, options)


def with_fields(options: EngineOptions, settings: Settings, stores: Stores) -> EngineOptions:
    """The options with the payload fields of the settings, hashed with the keys of the store."""
    keys = stores.hash_keys
    options = msgspec.structs.replace(options, erased_ids=ErasedIds(keys), hash_keys=keys)
    if not settings.search.fields:
        return options
    fields = PayloadFields(settings.search.fields, keys)
    return msgspec.structs.replace(options, payload_fields=fields)


# --- time -----------------------------------------------------------------------------------


async def _system_clock(
    fleet: FleetParts | None, shutdown: Shutdown | None
) -> tuple[Clock, FleetParts | None]:
    """This process's clock; in a fleet all clocks follow the database's."""
    clock = SystemClock()
    if fleet is not None:
        clock.begin_with(await fleet.store.time())
        stop = _terminate if shutdown is None else shutdown.request
        fleet = msgspec.structs.replace(fleet, on_clock=clock.follow_database, on_expelled=stop)
    return clock, fleet


def _terminate() -> None:
    """Stop the program that this server runs in; its supervisor starts it again."""
    signal.raise_signal(signal.SIGTERM)


async def _start_timekeeper(stores: Stores, clock: Clock, fleet: FleetParts | None) -> Timekeeper:
    """Make stored times fit the clock, or the clock fit the processes that already run."""
    keeper = Timekeeper(clock, stores.clock)

    async def others() -> bool:
        return fleet is not None and await others_run(fleet.store, fleet.me, fleet.lease_ms)

    ahead = await keeper.begin(others=others)
    if ahead and isinstance(clock, SystemClock):
        clock.go_on_at(clock.now() + ahead)
    return keeper


@contextlib.asynccontextmanager
async def _keeping_time(keeper: Timekeeper) -> AsyncIterator[None]:
    task = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MARK_S):
                await keeper.mark()


# --- the web --------------------------------------------------------------------------------


def _shown(settings: Settings, sources: Mapping[str, str]) -> tuple[SettingShown, ...]:
    return tuple(
        SettingShown(
            one.name, one.shown(settings), sources.get(one.name, "its default"), one.sentence
        )
        for one in settings_table()
    )


def _metrics_of(engine: Engine, relay: Relay | None, telemetry: Telemetry | None) -> More:
    def more(now: int) -> Iterator[Metric]:
        if (fleet := engine.fleet_pulse()) is not None:
            yield from fleet_metrics(fleet)
        if relay is not None:
            yield from relay_metrics(relay.pulse(), now=now)
        if telemetry is not None:
            yield dropped_metric(telemetry.dropped)

    return more


def _metrics_exchange(
    siblings: Siblings | None, engine: Engine, clock: Clock, more: More
) -> MetricsExchange | None:
    if siblings is None:
        return None
    return MetricsExchange(siblings, _metrics_now(engine, clock, more))


def _metrics_now(engine: Engine, clock: Clock, more: More) -> Callable[[], list[Metric]]:
    return lambda: process_metrics(engine.pulse(), now=clock.now(), more=more)


def _api_keys(settings: Settings, stores: Stores, clock: Clock) -> ApiKeys:
    node = settings.fleet.nodes[0] if stores.fleet is None else stores.fleet.me.node
    life_ms = LIFE_MS if settings.database.url else None  # Other processes may share the database.
    return ApiKeys(stores.keys, clock, node=node, life_ms=life_ms)


def _portal(stores: Stores, api_keys: ApiKeys, clock: Clock) -> Portal:
    node = stores.fleet.me.node if stores.fleet is not None else 0
    return Portal(stores.portal, api_keys, clock, secrets.token_bytes, node=node)


def _http_config(app: object, settings: Settings, connections_max: int) -> HttpConfig:
    per_address_max = settings.listen.connections_per_address_max
    return HttpConfig(
        app,
        ConnectionLimit(connections_max, per_address_max=per_address_max),
        protocol=FastPublishProtocol if settings.fleet.serves_api else CoalescingProtocol,
        once=identity_headers(settings.people.options()),
        grace_ms=settings.delivery.grace_ms,
    )


async def _stop(engine: Engine, app: App, api_keys: ApiKeys, shutdown: Shutdown) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KEYS_CLOSE_S):
            await api_keys.close()
            await app.audit.counted.close()
    shutdown.all_settled = await engine.stop(grace_ms=shutdown.grace_ms())
