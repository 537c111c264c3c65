"""What one seed draws: how large, which rules, which receivers, which faults and how often.

Swarm testing: no seed has everything. Each one leaves most kinds of trouble out and has much of
the others, so that combinations come up that an even mix would never reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from random import Random
from unittest.mock import patch

import msgspec

from homing.engine.options import EngineOptions
from homing.model import Signature
from homing.policy.fair import FairBy
from homing.policy.health import HealthRules
from homing.policy.outage import OutageRules
from homing.policy.payload_fields import PayloadFields
from homing.policy.presets import PRESETS
from homing.policy.retry import Anchor, OnGone, OnRetryAfter, Schedule
from simulation.health_model import (
    HOUR,
    MINUTE,
    Numbers,
    Timetable,
    once,
    standard_webhooks,
    workfront,
    workfront_chained,
)

SECOND = 1_000
PATTERNS = (("*",), ("order.*",), ("order.created", "user.made"), ("order.*", "homing.*"))
# Payload fields: of what publishers publish, and of notices. Most events have some of them.
PATHS = (
    "data.n",
    "data.text",
    "data.x",
    "data.n.n",
    "data.url",
    "data.state",
    "data.by",
    "data.numbers.failures",
)
PATHS_KEY = b"the key of the hashes of fields "
# The settings of the guard, by their fingerprints: whether private addresses are allowed.
GUARDS = {11: True, 22: False, 33: True, 44: False}
HUSH = "hush"  # the tenant whose URLs hang
HUSH_URL = "https://hush.example/"
HUSH_DEADLINE_MS = 30_000
BULK = "bulk"  # the tenant with bulk edits
BULK_URL = "https://bulk.example/"
BULK_DEADLINE_MS, BULK_LATENCY_MS = 5_000, 2_000


@dataclass(frozen=True)
class Rates:
    """How often the store and the process are in trouble, per store operation or per hour."""

    slow: float  # operations that take some milliseconds
    refused: float  # operations that fail before they do anything
    reply_lost: float  # operations that are done, and seem to have failed
    crash: float  # operations at which the process dies
    crashes_max: int
    outages_per_hour: float  # of the store, for up to some minutes
    kills_per_hour: float  # at any moment
    stops_per_hour: float  # orderly
    steps_per_hour: float  # of the wall clock
    clock_jumps: float  # of restarts, those with another time
    pauses_per_hour: float = 0  # stopped for a while, as by SIGSTOP
    cleanup_refused: float = 0  # steps of cleanup jobs that fail, so that people come in between


@dataclass(frozen=True)
class SlowLookUps:
    """The names of the first tenant resolve slowly or never."""

    threads: int  # look-ups at a time
    never: float  # of its look-ups, those that get no response


@dataclass(frozen=True)
class Egress:
    """Most requests go through a proxy that is away at times, and certificates of ours expire."""

    proxy_outages: int
    direct: float  # of the URLs, those that need no proxy
    certificates: float  # of the URLs, those whose client certificate expires and is renewed


Limits = tuple[tuple[str, int], ...]  # by module and name


@dataclass(frozen=True)
class Mix:
    """All that is drawn before a run."""

    seed: int
    deliveries: int
    run_for_ms: int
    tenants: tuple[str, ...]
    urls_each: int
    subscriptions_each: int
    publishers: int
    bursts: bool
    bad: float  # how much of the time receivers are in trouble
    troubles: tuple[str, ...]  # of receivers
    latencies_ms: tuple[int, ...]  # of receivers
    actions_per_hour: float
    actions: tuple[str, ...]
    rates: Rates
    options: EngineOptions
    numbers: dict[str, Numbers]  # by tenant
    tables: dict[str, Timetable]
    policy: str
    tenant_policies: dict[str, str]
    downtimes_ms: tuple[int, ...]  # until a process that died is started again
    grace_ms: int  # that an orderly stop may take
    cuts: int  # sender outages
    cut_kinds: tuple[str, ...]
    hangs: int = 0  # times that one tenant's URLs all hang
    bulk_edits: int = 0  # times that one person publishes very much, where there are fair groups
    deaths: int = 0  # times at which all hosts of some tenants die, and those of others do not
    slow_names: SlowLookUps | None = None
    erasures_per_hour: float = 0
    oauth: float = 0.0  # the part of the subscriptions that fetch access tokens
    egress: Egress | None = None
    gone: float = 0  # the part of the bad replies that are a 410
    obeying: frozenset[str] = frozenset()  # policies that obey it
    ignoring: frozenset[str] = frozenset()  # policies that ignore a Retry-After
    challenged: float = 0  # the part of the subscriptions that need a proof
    readers: int = 0  # of subscriptions without a URL
    keys: int = 0  # that events have; 0: none has one
    unkeyed: float = 0.1  # where there are keys: the part of the events without one
    ordered: float = 0  # the part of the subscriptions that have an order by key
    latest: float = 0  # of these, the part that wants only the newest event of a key
    quiet_changes: float = 0  # after so many of its actions a person changes a quiet time, too
    limits: Limits = ()  # of the engine and the store, where they are not the usual ones
    clock_reboots: float | None = None  # of the downtimes with a set clock, those with a reboot
    guard_changes: int = 0  # times that the process is started with other settings of the guard
    machines: int = 1  # with several, processes share the buckets of the store by leases
    failovers_per_hour: float = 0  # of the store of a fleet, to a standby that has all commits
    published: float = 1.0  # the part of the deliveries that is planned for publishers
    meanwhile_max: int = 2  # publishes at the time of a person's action
    own_hosts: bool = False  # every URL has a host of its own
    deadlines_ms: tuple[int | None, ...] = (None, None, 1_000, 30_000)  # of subscriptions
    patterns: tuple[tuple[str, ...], ...] = PATTERNS  # of subscriptions
    signatures: tuple[Signature, ...] = (Signature.HMAC,)  # of subscriptions
    response_within_ms: int = 15 * MINUTE  # to people and publishers, by an engine that lives
    slack_ms: int = 5 * MINUTE  # for what is due to be done, once nothing stands in its way
    hears_within_ms: int = HOUR  # of a change that its engine was not told of

    def obeys(self, policy: str | None, tenant: str) -> bool:
        """Whether a 410 ends a subscription."""
        return self._named(policy, tenant) in self.obeying

    def ignores(self, policy: str | None, tenant: str) -> bool:
        """Whether a Retry-After moves no retry and holds no endpoint."""
        return self._named(policy, tenant) in self.ignoring

    @property
    def superseded_max(self) -> int:
        """How many deliveries of a key one step supersedes."""
        return dict(self.limits).get("homing.store.latest.SUPERSEDED_MAX", 1_000)

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Run with the limits of this mix."""
        with ExitStack() as limits:
            for path, limit in self.limits:
                module, name = path.rsplit(".", 1)
                limits.enter_context(patch.object(import_module(module), name, limit))
            yield

    def table_of(self, policy: str | None, tenant: str) -> Timetable:
        return self.tables[self._named(policy, tenant)]

    def _named(self, policy: str | None, tenant: str) -> str:
        """The policy of a subscription, else of its tenant, else of the installation."""
        return policy or self.tenant_policies.get(tenant) or self.policy


TROUBLES = (
    "500",
    "503",
    "404",
    "302",
    "429_retry_after",
    "503_retry_after",
    "retry_after_date",
    "retry_after_absurd",
    "500_retry_after",
    "hang",
    "drip",
    "refused",
    "unreachable",
    "connect_timeout",
    "reset",
    "reset_after_work",
    "closed",
    "tls",
    "dns",
    "bad_response",
    "response_too_large",
    "forbidden_address",
    "sender_dns",
    "sender_network",
    "sender_limits",
    "sender_tls",
    "sender_fault",
    "poisoned",
)
ACTIONS = (
    "enable",
    "freeze",
    "cancel",
    "cancel_in_flight",
    "replay",
    "replay_many",
    "change_url",
    "change_back",
    "delete",
    "recreate",
    "deactivate",
    "test_send",
)

ROTATIONS = ("rotate_secret", "rotate_keys", "change_signature")  # of some seeds

PAUSES = ("pause", "resume")  # of some seeds
BACKFILLS = ("backfill",)  # of some seeds

FLEET_ACTIONS = ("enable", "freeze", "cancel", "replay", "change_url", "delete", "recreate")
_VERIFY = (*("verify",) * 6, *("describe",) * 4, *("reactivate",) * 4)
FLEET_TIMES = 3  # as many deliveries: most of them are notices of what people do
_TIMES = {"enable": 4, "freeze": 3, "cancel": 2}  # as often as the others
_FLEET_ACTIONS = tuple(it for it in FLEET_ACTIONS for _ in range(_TIMES.get(it, 1)))

CUTS = (
    "unreachable",
    "refused",
    "dns",
    "silence",
    "broken",
    "sender_dns",
    "sender_network",
    "sender_limits",
)


# The limits of the engine and the store that a backlog can exceed, and small ones.
SMALL = {
    "homing.store.latest.SUPERSEDED_MAX": (1, 2, 5),
    "homing.engine.latest.AT_ONCE_MAX": (1, 3),
    "homing.engine.latest.REMEMBERED_MAX": (1, 5),
    "homing.engine.load.LOAD_MAX": (1, 3),
    "homing.engine.load.ROWS_MAX": (16, 20),
    "homing.engine.load.NEW_MAX": (2, 20),
    "homing.engine.queue.LENGTH_MAX": (1, 10),
    "homing.engine.maintenance.PAGES_MAX": (1, 2),
    "homing.engine.maintenance.UNSURE_STEP": (1, 2),
    "homing.store.unpaused.PAGE": (1, 3),
    "homing.store.unpaused.PAGES_MAX": (2, 5),
    "homing.engine.replay.LOOK_PAGE": (1, 3),
    "homing.engine.replay.LOOK_MAX": (1, 5),
    "homing.store.replays.NEWER_MAX": (1, 3),
}


def _some(rng: Random, things: tuple[str, ...], *, least: int = 1) -> tuple[str, ...]:
    return tuple(rng.sample(things, rng.randint(least, len(things))))


def draw(seed: int, deliveries: int) -> Mix:
    """The mix of a seed; the same for ever."""
    return _with_limits(_drawn(seed, deliveries), Random(f"limits {seed}"))


def _with_limits(mix: Mix, rng: Random) -> Mix:
    """In half of the seeds with keys all limits are small: a key has more rows than them."""
    if not mix.keys or rng.random() < 0.5:
        return mix
    return replace(mix, limits=tuple([(it, rng.choice(choices)) for it, choices in SMALL.items()]))


def _drawn(seed: int, deliveries: int) -> Mix:
    mix = _draw(seed, deliveries)
    mix = replace(mix, readers=Random(f"readers {seed}").randint(2, 4)) if seed % 7 == 4 else mix
    if seed % 32 in {8, 23}:
        mix = _with_pauses(mix, Random(f"paused {seed}"))
    if seed % 32 in {8, 31}:
        mix = _with_backfills(mix, Random(f"past {seed}"))
    if seed % 8 == 3:
        mix = _with_keys(mix, Random(f"keys {seed}"))
    if seed % 64 == 11:
        mix = _with_pauses(mix, Random(f"paused {seed}"))
    if seed % 64 in {11, 43}:
        mix = _with_backfills(mix, Random(f"past {seed}"))
    if seed % 32 == 20:
        mix = _ignoring_retry_after(mix, Random(f"retry after {seed}"))
    if seed % 24 == 20:
        mix = _with_set_clocks(mix, Random(f"set clocks {seed}"))
    if seed % 60 == 34:
        mix = _without_detection(mix, Random(f"detection {seed}"))
    return _with_erasures(mix, Random(f"erasures {seed}")) if seed % 10 == 5 else mix


def _ignoring_retry_after(mix: Mix, rng: Random) -> Mix:
    """Some seeds have policies that ignore a Retry-After, beside others that obey it."""
    own = ("quick", "quick-chained")
    ignoring = frozenset(_some(rng, own))
    schedules = {
        it: msgspec.structs.replace(mix.options.schedules[it], retry_after=OnRetryAfter.IGNORE)
        for it in ignoring
    }
    tenant_policies = mix.tenant_policies | {it: rng.choice(own) for it in mix.tenants[:1]}
    return replace(
        mix,
        ignoring=ignoring,
        bad=max(mix.bad, 0.7),
        troubles=("429_retry_after", "503_retry_after", rng.choice(mix.troubles)),
        tenant_policies=tenant_policies,
        options=msgspec.structs.replace(
            mix.options,
            schedules=mix.options.schedules | schedules,
            tenant_policies=tenant_policies,
        ),
    )


def _with_set_clocks(mix: Mix, rng: Random) -> Mix:
    """Every 24th seed has a wall clock that is set while the process is down."""
    kills = rng.choice((4, 10)) * HOUR / mix.run_for_ms
    rates = replace(mix.rates, clock_jumps=0, kills_per_hour=max(mix.rates.kills_per_hour, kills))
    return replace(
        mix, rates=rates, bad=max(mix.bad, 0.5), clock_reboots=rng.choice((0, 0, 0.3, 1))
    )


def _without_detection(mix: Mix, rng: Random) -> Mix:
    """Some of the seeds with sender outages do not detect them."""
    if not mix.cuts:
        return mix
    outage = msgspec.structs.replace(mix.options.outage, detects=False)
    return replace(
        mix,
        cuts=rng.randint(2, 4),
        cut_kinds=(*mix.cut_kinds, "refused"),
        options=msgspec.structs.replace(mix.options, outage=outage),
    )


def _with_pauses(mix: Mix, rng: Random) -> Mix:
    """Every sixteenth seed has owners who pause and resume; several share each URL."""
    per_hour = rng.choice((60, 150)) * HOUR / mix.run_for_ms
    times = 6 if mix.machines == 1 else 3
    return replace(
        mix,
        urls_each=min(mix.urls_each, rng.choice((1, 2))),
        subscriptions_each=max(mix.subscriptions_each, 4),
        bad=max(mix.bad, 0.5),
        actions=(*mix.actions, *PAUSES * times),
        actions_per_hour=max(mix.actions_per_hour, per_hour),
    )


def _with_backfills(mix: Mix, rng: Random) -> Mix:
    """Every sixteenth seed has subscriptions that come and go, and get what they have missed."""
    per_hour = rng.choice((60, 150)) * HOUR / mix.run_for_ms
    more = (*("backfill",) * 8, *("recreate",) * 4, *("delete",) * 3, *("deactivate",) * 4)
    return replace(
        mix,
        actions=(*mix.actions, *more),
        actions_per_hour=max(mix.actions_per_hour, per_hour),
    )


def _with_keys(mix: Mix, rng: Random) -> Mix:
    """Some seeds have events with keys, and subscriptions with an order by them."""
    actions = (*mix.actions, "change_order") if rng.random() < 0.5 else mix.actions
    keys, ordered = rng.choice((1, 2, 5, 20)), rng.choice((0.5, 0.8, 1.0))
    latest = rng.choice((0.0, 0.5, 1.0))
    mix = replace(mix, keys=keys, ordered=ordered, latest=latest, actions=actions)
    if latest:
        mix = replace(mix, quiet_changes=Random(f"quiet of {mix.seed}").choice((0, 0.3, 1)))
    if mix.cuts and latest == 1.0:  # What waits in an outage are newest events, and nothing else.
        return replace(mix, ordered=1.0, unkeyed=0)
    return mix


def _with_erasures(mix: Mix, rng: Random) -> Mix:
    """Some seeds have people who erase; a few dozen times in a run."""
    return replace(mix, erasures_per_hour=rng.choice((10, 40, 150)) * HOUR / mix.run_for_ms)


def _draw(seed: int, deliveries: int) -> Mix:
    rng = Random(f"homing {seed}")
    tenants = ("acme", "bolt", "coil")[: rng.choice((1, 2, 2, 3))]
    run_for_ms = rng.choice((1, 3, 8, 30, 60, 110)) * HOUR
    tables = _tables(rng)
    names = sorted(tables)
    numbers = {tenant: _numbers(rng) for tenant in tenants}
    policy = rng.choice(("workfront", "workfront", rng.choice(names)))
    tenant_policies = {it: rng.choice(names) for it in tenants if rng.random() < 0.3}
    mix = Mix(
        seed=seed,
        deliveries=deliveries,
        run_for_ms=run_for_ms,
        tenants=tenants,
        urls_each=rng.randint(1, 4 if deliveries < 500 else 10),
        subscriptions_each=rng.randint(1, 5),
        publishers=rng.randint(1, 4),
        bursts=rng.random() < 0.4,
        bad=rng.choice((0.1, 0.3, 0.5, 0.7, 0.95)),
        troubles=_some(rng, TROUBLES),
        latencies_ms=(0, 40, 900, 4_999) if rng.random() < 0.3 else (0, 3, 40),
        actions_per_hour=min(rng.choice((0, 4, 20, 60)), 400 * HOUR / run_for_ms),
        actions=_some(rng, ACTIONS, least=3),
        rates=_rates(rng, run_for_ms),
        options=_options(rng, tables, numbers, policy, tenant_policies, few=deliveries < 500),
        numbers=numbers,
        tables=tables,
        policy=policy,
        tenant_policies=tenant_policies,
        downtimes_ms=(20, 5_000, 5_000, 10 * MINUTE, int(0.2 * run_for_ms)),
        grace_ms=30_000,
        cuts=0,
        cut_kinds=(),
    )
    mix = _with_fields(mix, Random(f"fields {seed}"), most=4)
    if seed % 4 == 2:
        mix = _with_signatures(mix)
    if seed % 11 == 3 and seed > 11:
        mix = _accepting_failure(mix)
    return _with_feature(seed, mix) or _with_trouble(seed, mix)


def _with_feature(seed: int, mix: Mix) -> Mix | None:
    """The mix of a seed that tries one feature; None for all others."""
    if seed % 16 == 13:
        return _with_receivers_word(mix, Random(f"receivers {seed}"))
    if seed % 48 == 18:
        run_for_ms = min(mix.run_for_ms, 70 * HOUR)
        return replace(mix, run_for_ms=run_for_ms, oauth=Random(f"oauth {seed}").choice((0.5, 1.0)))
    if seed % 25 == 24:
        return _with_egress(mix, Random(f"egress {seed}"))
    if seed % 24 in {12, 21}:
        return _with_guard_changes(mix, Random(f"guard {seed}"))
    if seed % 48 == 42:
        return _with_bulk_edits(mix, Random(f"bulk {seed}"))
    return None


def _with_trouble(seed: int, mix: Mix) -> Mix:
    """The mix of a seed with a kind of trouble of its own, or as it is."""
    if seed % 3 == 1 and seed > 1:
        return _with_cuts(mix, Random(f"cuts {seed}"))
    if seed % 6 == 5:
        return _with_hanging(mix, Random(f"hanging {seed}"))
    if seed % 9 == 8 and seed > 9 and len(mix.tenants) > 1:
        return _with_slow_names(mix, Random(f"slow names {seed}"))
    return mix


def _accepting_failure(mix: Mix) -> Mix:
    """Every eleventh seed has a tenant whose deliveries are not retried."""
    policies = mix.tenant_policies | {mix.tenants[0]: "once"}
    return replace(
        mix,
        options=msgspec.structs.replace(mix.options, tenant_policies=policies),
        tables=mix.tables | {"once": once()},
        tenant_policies=policies,
    )


def _with_fields(mix: Mix, rng: Random, *, most: int) -> Mix:
    """Three of four seeds have payload fields."""
    paths = tuple(rng.sample(PATHS, rng.randint(1, most))) if rng.random() < 0.75 else ()
    fields = PayloadFields(paths, (PATHS_KEY,))
    return replace(mix, options=msgspec.structs.replace(mix.options, payload_fields=fields))


def _with_signatures(mix: Mix) -> Mix:
    """Every kind of signature, and people who rotate secrets and signing keys."""
    return replace(
        mix,
        signatures=(Signature.HMAC, Signature.ED25519, Signature.BOTH),
        actions=(*mix.actions, *ROTATIONS),
    )


def draw_fleet(seed: int, deliveries: int) -> Mix:
    """The mix of a seed of a fleet: a few minutes, in which a process is in trouble all the time.

    Attempts are slow, so that many are in flight when a bucket changes hands.
    """
    return _with_limits(_drawn_fleet(seed, deliveries), Random(f"limits of fleet {seed}"))


def _drawn_fleet(seed: int, deliveries: int) -> Mix:
    rng = Random(f"fleet {seed}")
    delays = tuple(rng.choice((2, 5, 20)) * SECOND for _ in range(8))
    deadline_ms = rng.choice((2, 5, 12)) * SECOND
    table = Timetable(delays, from_first=False, window_ms=HOUR, deadline_ms=deadline_ms)
    numbers = Numbers(
        rate_over_attempts=200, row_disables=rng.choice((3, 6)), probe_every_ms=MINUTE
    )
    # An attempt soon after a change would tell a process what it has not heard of.
    quiet = rng.choice((True, True, False))

    def rate(*choices: float) -> float:
        return rng.choice((0.0, *choices))

    mix = Mix(
        seed=seed,
        deliveries=FLEET_TIMES * deliveries,
        run_for_ms=rng.choice((4, 8)) * MINUTE,
        tenants=("acme",),
        urls_each=10,
        subscriptions_each=8,
        publishers=2,
        bursts=False,
        bad=rng.choice((0.0, 0.3, 0.7)),
        troubles=("500", "503"),
        latencies_ms=(0, 5, 400, 1_900, 1_900, 1_900),
        actions_per_hour=450,
        actions=_FLEET_ACTIONS,
        rates=Rates(
            slow=rng.choice((0.05, 0.3, 0.6)),
            refused=rate(0.005, 0.02),
            reply_lost=rate(0.005, 0.02),
            crash=rate(0.0005, 0.002),
            crashes_max=3,
            outages_per_hour=0,
            kills_per_hour=22,
            stops_per_hour=22,
            steps_per_hour=0,
            clock_jumps=0,
            pauses_per_hour=45,
        ),
        options=EngineOptions(
            schedules={"quick": _schedule("quick", table)},
            policy="quick",
            tenant_health={"acme": _health(numbers)},
            queues_max=rng.choice((2, 20_000)),
            ready_max=rng.choice((2, 20_000)),
        ),
        numbers={"acme": numbers},
        tables={"quick": table},
        policy="quick",
        tenant_policies={},
        downtimes_ms=(20, 3_000, 3_000, 25_000),
        grace_ms=8_000,
        cuts=0,
        cut_kinds=(),
        machines=rng.choice((2, 3)),
        published=0.2 if quiet else 1.0,
        meanwhile_max=0 if quiet else 2,
        own_hosts=True,
        deadlines_ms=(None,),
        patterns=(("*",), ("order", "order.*", "user.*")),
        response_within_ms=3 * MINUTE,
        slack_ms=2 * MINUTE,
        hears_within_ms=5 * SECOND,  # It looks each second, with faults.
    )
    if seed % 48 == 42:  # As of a single process, without bulk edits.
        fair = msgspec.structs.replace(mix.options, fair_by=FairBy("data.n"))
        mix = replace(mix, options=fair)
    mix = _with_fields(mix, Random(f"fields of fleet {seed}"), most=4)
    if seed % 4 == 1:
        mix = _with_erasures(mix, Random(f"erasures of fleet {seed}"))
    mix = _with_signatures(mix) if seed % 3 == 0 else mix
    mix = replace(mix, readers=3) if seed % 4 in {1, 3} else mix
    if seed % 32 in {8, 31}:
        mix = _with_backfills(mix, Random(f"past of fleet {seed}"))
    if seed % 32 in {8, 23}:
        return _with_pauses(mix, Random(f"paused fleet {seed}"))
    if seed % 8 == 3:
        mix = _with_keys(mix, Random(f"keys of fleet {seed}"))
        # Requests of a former owner may take longer than its lease.
        mix = replace(mix, deadlines_ms=(None, 30 * SECOND))
    if seed % 16 == 12:
        mix = replace(mix, failovers_per_hour=60)
    if seed % 16 == 13:
        return _with_late_410s(_obeying(mix, Random(f"receivers of fleet {seed}")))
    return mix


def _with_late_410s(mix: Mix) -> Mix:
    """A 410 often comes to a process that is stopped, and its subscription is activated again."""
    return replace(
        mix,
        actions=(*mix.actions, *("activate",) * 10),
        actions_per_hour=900,
        rates=replace(mix.rates, pauses_per_hour=90),
    )


def _with_guard_changes(mix: Mix, rng: Random) -> Mix:
    """Every twelfth seed has other settings of the guard after a start, and names that move.

    Windows are short enough to end while changed settings refuse an address. In half of these
    seeds nothing else ends the process, so that more than its first hour passes.
    """
    run_for_ms = rng.choice((6, 8, 10)) * HOUR
    rates = _rates(rng, run_for_ms)
    if rng.random() < 0.5:
        rates = replace(rates, crash=0, kills_per_hour=0, stops_per_hour=0, steps_per_hour=0)
    policies = {it: name for it, name in mix.tenant_policies.items() if name == "once"}
    options = msgspec.structs.replace(
        mix.options,
        guard=rng.choice(sorted(GUARDS)),
        policy="quick",
        tenant_policies=policies,
        endpoint_slots=min(mix.options.endpoint_slots, 2),
    )
    mix = replace(
        mix,
        run_for_ms=run_for_ms,
        urls_each=min(mix.urls_each, 3),
        actions_per_hour=min(mix.actions_per_hour, 20),
        rates=rates,
        options=options,
        policy="quick",
        tenant_policies=policies,
        downtimes_ms=(20, 5_000, 5_000, MINUTE),
        guard_changes=rng.choice((2, 3, 3, 6)),
    )
    return _with_fields(mix, rng, most=len(PATHS))


def _with_egress(mix: Mix, rng: Random) -> Mix:
    """Every twenty-fifth seed sends through a proxy, with client certificates, for three hours.

    Half of the URLs need no proxy, so that something gets through while it is away. There are too
    few URLs for the verdict of an outage, and in most of these seeds nothing ends the process,
    which would forget for how long a host has failed.
    """
    run_for_ms = 3 * HOUR
    rates = _rates(rng, run_for_ms)
    if rng.random() < 0.7:
        rates = replace(rates, crash=0, kills_per_hour=0, stops_per_hour=0, steps_per_hour=0)
    return replace(
        mix,
        run_for_ms=run_for_ms,
        urls_each=3,
        subscriptions_each=max(mix.subscriptions_each, 4),
        bursts=False,
        bad=0.1,
        actions_per_hour=min(mix.actions_per_hour, 4),
        rates=rates,
        own_hosts=True,
        egress=Egress(
            proxy_outages=rng.randint(1, 2), direct=0.5, certificates=rng.choice((0.2, 0.4))
        ),
    )


def _with_receivers_word(mix: Mix, rng: Random) -> Mix:
    """Every sixteenth seed has policies that obey a 410, and URLs that must prove themselves."""
    mix = _obeying(mix, rng)
    return replace(
        mix,
        actions=(*mix.actions, "deactivate", "deactivate", "replay", "change_url", *_VERIFY),
        actions_per_hour=max(mix.actions_per_hour, min(20, 400 * HOUR / mix.run_for_ms)),
        subscriptions_each=max(mix.subscriptions_each, 3),
        latencies_ms=(0, 40, 900, 4_999),
        challenged=rng.choice((0.4, 0.8)),
        rates=replace(mix.rates, cleanup_refused=0.6),
    )


def _obeying(mix: Mix, rng: Random) -> Mix:
    own = [it for it in mix.tables if it.startswith("quick")]
    schedules = mix.options.schedules | {
        it: msgspec.structs.replace(mix.options.schedules[it], on_gone=OnGone.DEACTIVATE)
        for it in own
    }
    return replace(
        mix,
        bad=max(mix.bad, 0.5),
        gone=rng.choice((0.3, 0.6, 0.9)),
        obeying=frozenset(own),
        policy="quick",
        tenant_policies={},
        options=msgspec.structs.replace(
            mix.options,
            schedules=schedules,
            policy="quick",
            tenant_policies={},
            step_rows=rng.choice((1, 2, 10) if mix.deliveries < 500 else (10, 20, 50)),
        ),
    )


def _with_hanging(mix: Mix, rng: Random) -> Mix:
    """Every sixth seed has one more tenant, whose URLs hang, and lanes that it could fill."""
    options = msgspec.structs.replace(
        mix.options,
        fresh_slots=rng.choice((8, 12, 16)),
        retry_slots=rng.choice((4, 8, 12)),
        queues_max=20_000,
        tenant_health=mix.options.tenant_health | {HUSH: _health(Numbers())},
    )
    return replace(
        mix,
        hangs=rng.randint(1, 3),
        options=options,
        numbers=mix.numbers | {HUSH: Numbers()},
    )


def _with_bulk_edits(mix: Mix, rng: Random) -> Mix:
    """Every 24th seed has fair groups: one for each event, and for each person of one tenant."""
    options = msgspec.structs.replace(
        mix.options,
        fair_by=FairBy("data.n"),
        tenant_fair_by={BULK: FairBy("data.who")},
        endpoint_slots=min(mix.options.fresh_slots, mix.options.retry_slots, rng.choice((2, 4))),
        ready_max=rng.choice((20, 20_000, 20_000)),
        ready_bytes_max=64 * 1024 * 1024,
        tenant_health=mix.options.tenant_health | {BULK: _health(Numbers())},
    )
    return replace(
        mix,
        bulk_edits=rng.randint(1, 3),
        options=options,
        numbers=mix.numbers | {BULK: Numbers()},
    )


def _with_slow_names(mix: Mix, rng: Random) -> Mix:
    """Every eighteenth seed has a tenant that could take all look-ups, and few of them."""
    names = SlowLookUps(threads=rng.choice((3, 3, 4)), never=rng.choice((0.5, 0.9, 1)))
    return replace(
        mix,
        urls_each=max(mix.urls_each, 6),
        subscriptions_each=max(mix.subscriptions_each, 5),
        bursts=True,
        slow_names=names,
    )


def _with_cuts(mix: Mix, rng: Random) -> Mix:
    """Every third seed has sender outages, and rules that few endpoints can fulfil."""
    endpoints = rng.randint(2, 4)
    outage = OutageRules(endpoints_min=endpoints, hosts_min=rng.randint(2, endpoints))
    return replace(
        mix,
        cuts=rng.randint(1, 3),
        own_hosts=True,
        cut_kinds=_some(rng, CUTS),
        deaths=Random(f"deaths {mix.seed}").randint(1, 2) if len(mix.tenants) > 1 else 0,
        urls_each=max(mix.urls_each, 6),
        subscriptions_each=max(mix.subscriptions_each, 4),
        options=msgspec.structs.replace(mix.options, outage=outage, queues_max=20_000),
    )


def _rates(rng: Random, run_for_ms: int) -> Rates:
    def rate(*choices: float) -> float:
        return rng.choice((0.0, *choices))

    per_hour = HOUR / run_for_ms
    return Rates(
        slow=rate(0.05, 0.3, 0.9),
        refused=rate(0.01, 0.05),
        reply_lost=rate(0.01, 0.05),
        crash=rate(0.002, 0.01),
        crashes_max=rng.randint(1, 8),
        outages_per_hour=rate(2.0, 6.0) * per_hour,
        kills_per_hour=rate(2.0, 8.0) * per_hour,
        stops_per_hour=rate(2.0) * per_hour,
        steps_per_hour=rate(3.0) * per_hour,
        clock_jumps=rate(0.3),
    )


def _numbers(rng: Random) -> Numbers:
    if rng.random() < 0.15:
        return Numbers()
    disables = rng.randint(2, 20)
    freezes = rng.randint(1, disables + 10)
    return Numbers(
        rate_over_attempts=rng.randint(4, 30),
        percent=rng.choice((50, 70, 70, 90)),
        row_disables=disables,
        row_freezes_over=freezes,
        alone_freezes_over_ms=rng.choice((20 * MINUTE, HOUR, 3 * HOUR, 72 * HOUR)),
        row_freezes_always=freezes + rng.randint(1, 40),
        probe_every_ms=10 * MINUTE,
    )


def _tables(rng: Random) -> dict[str, Timetable]:
    base = rng.choice((2, 10, 60)) * SECOND
    retries = rng.randint(2, 6)
    offsets = tuple((2**n - 1) * base for n in range(1, retries + 1))
    delays = tuple(rng.randint(1, 600) * SECOND for _ in range(retries))
    return {
        "workfront": workfront(),
        "workfront-chained": workfront_chained(),
        "standard-webhooks": standard_webhooks(),
        "quick": Timetable(
            offsets,
            from_first=True,
            window_ms=offsets[-1] + rng.choice((0, HOUR)),
            jitter=rng.choice((0.0, 0.5)),
            deadline_ms=rng.choice((1, 5, 30)) * SECOND,
        ),
        "quick-chained": Timetable(
            delays, from_first=False, window_ms=rng.choice((sum(delays) // 2, 2 * HOUR))
        ),
    }


def _options(
    rng: Random,
    tables: dict[str, Timetable],
    numbers: dict[str, Numbers],
    policy: str,
    tenant_policies: dict[str, str],
    *,
    few: bool,
) -> EngineOptions:
    small = rng.random() < 0.5
    return EngineOptions(
        fresh_slots=rng.randint(1, 8) if small else 512,
        retry_slots=rng.randint(1, 6) if small else 256,
        probe_searches_max=rng.choice((1, 2, 64)),
        endpoint_slots=rng.choice((1, 2, 16)),
        ready_max=rng.choice((2, 20, 20_000)),
        ready_bytes_max=rng.choice((2_000, 64 * 1024 * 1024)),
        queues_max=rng.choice((2, 20_000, 20_000)),
        publish_events_max=rng.choice((1, 5, 2_000)),
        step_rows=rng.choice((10, 50, 500) if few else (100, 200, 500)),
        schedules=PRESETS | {it: _schedule(it, tables[it]) for it in ("quick", "quick-chained")},
        policy=policy,
        tenant_policies=tenant_policies,
        tenant_health={tenant: _health(it) for tenant, it in numbers.items()},
    )


def _schedule(name: str, table: Timetable) -> Schedule:
    return Schedule(
        name=name,
        delays_ms=table.times,
        anchor=Anchor.FIRST_FAILURE if table.from_first else Anchor.PREVIOUS_FAILURE,
        window_ms=table.window_ms,
        jitter=table.jitter,
        deadline_ms=table.deadline_ms,
    )


def _health(numbers: Numbers) -> HealthRules:
    return HealthRules(
        rate_after_attempts=numbers.rate_over_attempts,
        failure_percent=numbers.percent,
        consecutive_disable=numbers.row_disables,
        consecutive_freeze=numbers.row_freezes_over,
        freeze_after_ms=numbers.alone_freezes_over_ms,
        consecutive_freeze_always=numbers.row_freezes_always,
        probe_every_ms=numbers.probe_every_ms,
    )
