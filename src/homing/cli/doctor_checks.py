"""The checks of ``homing doctor``: this machine, the PostgreSQL fleet, the outbox, the server."""

from __future__ import annotations

import asyncio
import re
import resource
import shutil
import stat
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import islice
from pathlib import Path

from msgspec import Struct

from homing.cli.errors import Usage
from homing.cli.output import byte_size, clock_ms, counted, plain, span
from homing.cli.remote import Target, find_server, local_url
from homing.errors import HomingError, StoreUnavailable
from homing.model import id_time
from homing.net.identity_files import read_identity
from homing.policy.certificates import date_text, warning_days, why_unusable
from homing.policy.encryption_keys import key_id, read_keys
from homing.ports import OutboxStats
from homing.server.settings import ADMIN_KEY_FILE, DATABASE_FILE, ENCRYPTION_KEY_FILE, Settings
from homing.store.connect import HostState
from homing.store.inspect import (
    FleetFacts,
    StoreFacts,
    holder,
    inspect_fleet,
    inspect_postgres,
    inspect_sqlite,
)
from homing.store.outbox import open_outbox
from homing_client import Homing, HomingClientError, NotAuthorized, ServerStatus

GB = 1_000_000_000
DISK_FREE_MIN = GB // 4
DISK_FREE_GOOD = 2 * GB
WAL_BYTES_MAX = GB // 4
EARLIEST_MS = 1_735_689_600_000  # 2025-01-01: before the first version of Homing
CLOCK_SKEW_MAX_MS = 1_000
SPARE_DESCRIPTORS = 128
DEAD_ROWS_MIN = 10_000  # fewer dead rows cost nothing
OLD_TRANSACTION_MS = 10 * 60_000  # such a transaction holds vacuum back
DAY_MS = 86_400_000
OUTBOX_LATE_MS = 60_000
SERVER_TIMEOUT_S = 5.0
COUNT_MAX = 100
LATE_S = 5.0
SOON = "6h"


class CheckStatus(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"  # it could not be checked


class Check(Struct, frozen=True):
    """What was checked, what was found, and what to do about it."""

    name: str
    status: CheckStatus
    sentence: str
    advice: str = ""


OK, WARNING, ERROR, UNKNOWN = CheckStatus


# --- this machine ---------------------------------------------------------------------------


def check_settings(sources: Mapping[str, str]) -> Check:
    if not sources:
        return Check("settings", OK, "All settings have their defaults.")
    noun = "setting is" if len(sources) == 1 else "settings are"
    return Check("settings", OK, f"{len(sources)} {noun} set and in range; the rest are defaults.")


def check_machine(settings: Settings) -> list[Check]:
    """Data directory, encryption key, disk, store, clock and open files."""
    data = settings.database.directory
    facts, store = _store(settings, data)
    return [
        *_data(settings, data),
        _encryption_key(settings, data),
        _disk(data),
        store,
        *_durability(facts),
        _clock(facts),
        _open_files(settings),
        *_certificate_files(settings),
    ]


def _data(settings: Settings, data: Path) -> Iterator[Check]:
    if not data.is_dir():
        yield Check(
            "data",
            UNKNOWN,
            f"There is no data directory {data}.",
            "`homing serve` creates it; if it is elsewhere, name it with --data or HOMING_DATA.",
        )
        return
    mode = stat.S_IMODE(data.stat().st_mode)
    if mode & 0o077:
        yield Check(
            "data",
            WARNING,
            f"Other users can read {data} (mode {mode:04o}), which holds events and secrets.",
            f"chmod 700 {data}",
        )
    else:
        yield Check("data", OK, f"{data} exists, and only its owner can read it.")
    if settings.security.admin_key:
        yield Check("key", OK, "The admin key is set.")
    elif (data / ADMIN_KEY_FILE).is_file():
        yield Check("key", OK, f"The admin key is in {data / ADMIN_KEY_FILE}.")
    else:
        yield Check("key", WARNING, "There is no admin key yet.", "`homing serve` makes one.")


def _encryption_key(settings: Settings, data: Path) -> Check:
    name = "encryption"
    if settings.security.secret_key:
        return Check(name, OK, "The encryption key is set.")
    path = data / ENCRYPTION_KEY_FILE
    if not path.is_file():
        if (data / DATABASE_FILE).exists():
            advice = (
                "Restore it from its backup: without it the server cannot read its secrets and "
                "does not start. A database that has never had a key gets one at the next start."
            )
            sentence = f"There is a database, but no encryption key {path}."
            return Check(name, WARNING, sentence, advice)
        sentence = f"There is no encryption key {path} yet."
        return Check(name, UNKNOWN, sentence, "`homing serve` makes it.")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        sentence = f"Other users can read {path} (mode {mode:04o}), which decrypts every secret."
        return Check(name, ERROR, sentence, f"chmod 600 {path}")
    keys = read_keys(path.read_text(encoding="ascii", errors="replace"))
    if keys is None:
        return Check(name, ERROR, f"{path} is damaged.", "Restore it from its backup.")
    ids = ", ".join(key_id(key) for key in keys)
    sentence = f"Secrets are encrypted with {path} ({ids}); back it up apart from the database."
    return Check(name, OK, sentence)


def _disk(data: Path) -> Check:
    place = data.absolute()
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    free = f"{byte_size(usage.free)} of {byte_size(usage.total)} are free"
    if usage.free < DISK_FREE_MIN:
        advice = "Free some space now: on a full disk nothing is accepted or delivered."
        return Check("disk", ERROR, f"Only {free} at {place}.", advice)
    if usage.free < DISK_FREE_GOOD:
        advice = "Watch it; the setting retention_days decides how long history is kept."
        return Check("disk", WARNING, f"{free} at {place}.", advice)
    return Check("disk", OK, f"{free} at {place}.")


def _store(settings: Settings, data: Path) -> tuple[StoreFacts | None, Check]:
    database = data / DATABASE_FILE
    try:
        if settings.database.url:
            facts = asyncio.run(inspect_postgres(settings.database.url))
        elif not database.exists():
            sentence = f"There is no database {database} yet."
            return None, Check("store", UNKNOWN, sentence, "`homing serve` creates it.")
        else:
            facts = inspect_sqlite(database)
    except StoreUnavailable as error:
        advice = "" if settings.database.url else "Is it a database, and may this user read it?"
        return None, Check("store", ERROR, f"The store cannot be read: {error.detail}", advice)
    if facts.moved_to:
        sentence = f"This installation was moved to {facts.moved_to}: no server starts here."
        return facts, Check("store", ERROR, sentence, "Use the settings of the new place.")
    used = byte_size(facts.size_bytes + facts.log_bytes)
    sentence = f"{facts.version} responds; {used} are in use"
    if not settings.database.url:
        process = holder(database)
        sentence += f", locked by process {process}" if process else ", no server has it open"
    if facts.log_bytes > WAL_BYTES_MAX:
        advice = "A reader (a shell, a copy) has been open for a long time: close it."
        sentence += f"; its write-ahead log has grown to {byte_size(facts.log_bytes)}"
        return facts, Check("store", WARNING, f"{sentence}.", advice)
    return facts, Check("store", OK, f"{sentence}.")


_RISKS = {
    "fsync": "a power failure can destroy the whole database",
    "full_page_writes": "a power failure can destroy parts of the database",
    "synchronous_commit": "a power failure can lose commits that were confirmed; Homing's own"
    " sessions turn it on, but the default is off for all others",
}


def _durability(facts: StoreFacts | None) -> Iterator[Check]:
    """Whether a commit on PostgreSQL survives a power failure and a failover."""
    if facts is None or not facts.durability:
        return
    off = [name for name in _RISKS if facts.durability.get(name) == "off"]
    for name in off:
        yield Check(
            "durability",
            ERROR,
            f"PostgreSQL runs with {name} = off: {_RISKS[name]}.",
            f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();",
        )
    if facts.async_standbys:
        listed = ", ".join(facts.async_standbys)
        yield Check(
            "standby",
            WARNING,
            f"A standby follows asynchronously ({listed}): a failover to it can lose events that "
            "were accepted, and send deliveries twice.",
            "List it in synchronous_standby_names, or accept the risk.",
        )
    if facts.hidden_standbys:
        yield Check(
            "standby",
            UNKNOWN,
            "The primary has a standby, and this user may not see whether commits wait for it.",
            "Let the user of database_url see it: GRANT pg_monitor TO that user.",
        )
    yield from _hosts(facts.hosts)
    if not off:
        yield Check("durability", OK, "PostgreSQL writes every commit to its disk.")


def _hosts(hosts: tuple[HostState, ...]) -> Iterator[Check]:
    """Whether exactly one host of the address takes writes, and another one can take its place."""
    if not hosts:
        return
    primaries = sorted((it for it in hosts if it.timeline), key=lambda it: it.timeline)
    if len(primaries) > 1:
        listed = ", ".join(f"{it.server} (timeline {it.timeline})" for it in primaries)
        older = ", ".join(it.server for it in primaries[:-1])
        yield Check(
            "hosts",
            ERROR,
            f"More than one server takes writes: {listed}. The last one was promoted last.",
            f"Stop {older} at once, and make it a standby with pg_rewind or a new base backup.",
        )
    for host in hosts:
        if host.trouble:
            advice = "Until it is back, no standby can take the place of the primary there."
            yield Check("hosts", WARNING, host.trouble, advice)
    if len(primaries) == 1 and not any(it.trouble for it in hosts):
        standbys = ", ".join(it.server for it in hosts if it.is_standby)
        sentence = f"{primaries[0].server} is the primary, {standbys} can take its place."
        yield Check("hosts", OK, sentence)


def _clock(facts: StoreFacts | None) -> Check:
    now = clock_ms()
    if now < EARLIEST_MS:
        return Check("clock", ERROR, "The clock is years behind.", "Set it; use NTP.")
    if facts is None:
        return Check("clock", OK, "The clock is plausible.")
    ahead = id_time(facts.last_id) - now
    if ahead > CLOCK_SKEW_MAX_MS:
        return Check(
            "clock",
            ERROR,
            f"The clock is {span(ahead)} behind the newest event in the store.",
            "It was set back, or was ahead before: correct it; use NTP.",
        )
    if facts.clock_ms is not None and abs(facts.clock_ms - now) > CLOCK_SKEW_MAX_MS:
        skew = span(abs(facts.clock_ms - now))
        return Check(
            "clock",
            WARNING,
            f"The clocks of this machine and of the database differ by {skew}.",
            "Let both follow the same NTP server.",
        )
    return Check("clock", OK, "The clock is plausible and not behind the store.")


def _open_files(settings: Settings) -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.delivery.fresh_slots + settings.delivery.retry_slots + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        return Check(
            "files",
            ERROR,
            f"This user may open {soft:,} files, but the slots may need {needed:,}.",
            f"Raise the limit (ulimit -n {needed * 2}), or lower fresh_slots and retry_slots.",
        )
    return Check("files", OK, f"{needed:,} open files may be needed, and the limit allows them.")


def _certificate_files(settings: Settings) -> Iterator[Check]:
    """The client certificates of the installation and of tenants, in the files of the settings."""
    for tenant, paths in (("", settings.egress.identity), *settings.tenants.identities.items()):
        identity = read_identity(paths)
        if identity is None:
            continue
        whose = f"of the tenant {tenant}" if tenant else "of this installation"
        why = why_unusable(identity, wall=clock_ms())
        if why:
            advice = "Deliveries that need it wait: replace the files; no restart is needed."
            yield Check("tls", ERROR, f"The TLS files {whose} cannot be used: {why}.", advice)
        elif identity.certificate:
            until = date_text(identity.valid_until)
            soon = warning_days(identity.valid_until, wall=clock_ms()) is not None
            sentence = f"The client certificate {whose} is valid until {until}."
            advice = "Replace the files; no restart is needed." if soon else ""
            yield Check("tls", WARNING if soon else OK, sentence, advice)
        else:
            yield Check("tls", OK, f"The CA certificates {whose} can be read.")


# --- PostgreSQL and the processes on it -----------------------------------------------------


def check_fleet(settings: Settings) -> list[Check]:
    """Leases, vacuum, old transactions, partitions and clock; nothing without PostgreSQL."""
    if not settings.database.url:
        return []
    try:
        facts = asyncio.run(inspect_fleet(settings.database.url))
    except StoreUnavailable as error:
        return [Check("fleet", UNKNOWN, f"The fleet cannot be checked: {error.detail}")]
    return [
        _leases(facts),
        _vacuum(facts),
        _transactions(facts),
        _partitions(facts),
        _clock_skew(facts),
    ]


def _leases(facts: FleetFacts) -> Check:
    alive = [it for it in facts.processes if it.alive]
    orphaned = facts.free + sum(it.buckets for it in facts.processes if not it.alive)
    listed = ", ".join(f"{it.name} ({it.role}) {it.buckets}" for it in alive)
    if not alive:
        return Check("fleet", UNKNOWN, "No process is running.", "`homing serve` starts one.")
    if all(it.role == "api" for it in alive):
        advice = "Start one with --role deliver or both: nothing is sent."
        return Check("fleet", ERROR, f"No process delivers; running: {listed}.", advice)
    if orphaned:
        sentence = f"{orphaned} of 256 buckets have no owner; {listed}."
        return Check("fleet", WARNING, sentence, "They are taken over in seconds: check again.")
    return Check("fleet", OK, f"Buckets: {listed}.")


def _vacuum(facts: FleetFacts) -> Check:
    ratios = {
        name: dead / (live + dead) if dead else 0.0 for name, (live, dead) in facts.dead.items()
    }
    listed = ", ".join(f"{name} {100 * ratio:.0f} %" for name, ratio in sorted(ratios.items()))
    if any(dead > DEAD_ROWS_MIN and dead > live for live, dead in facts.dead.values()):
        advice = "Vacuum does not keep up: is autovacuum on, does an old transaction hold it back?"
        return Check("vacuum", WARNING, f"Dead rows: {listed}.", advice)
    return Check("vacuum", OK, f"Dead rows: {listed}.")


def _transactions(facts: FleetFacts) -> Check:
    if facts.oldest_ms > OLD_TRANSACTION_MS:
        return Check(
            "snapshot",
            WARNING,
            f"A transaction of {facts.oldest_name or 'an unnamed application'} has been open for"
            f" {span(facts.oldest_ms)}: vacuum cannot remove rows that were deleted since.",
            "End it; pg_stat_activity lists it.",
        )
    return Check("snapshot", OK, "No old transaction holds vacuum back.")


def _partitions(facts: FleetFacts) -> Check:
    ahead = facts.last_day - facts.now_ms // DAY_MS
    if facts.last_day < 0 or ahead < 0:
        advice = "A delivering process creates them every hour: is one running?"
        return Check("days", WARNING, "Today has no partition.", advice)
    return Check("days", OK, f"Partitions exist for {counted(ahead, 'day')} ahead.")


def _clock_skew(facts: FleetFacts) -> Check:
    skew = abs(facts.now_ms - clock_ms())
    sentence = f"The clocks of this machine and of the database differ by {skew} ms."
    return Check("skew", OK, sentence)


# --- the outbox of an application -----------------------------------------------------------


def check_outbox(settings: Settings) -> list[Check]:
    """Whether a relay publishes its rows, and whether rows were refused; nothing without one."""
    if not settings.outbox.url:
        return []
    try:
        stats = asyncio.run(_outbox_stats(settings.outbox.url))
    except HomingError as error:
        advice = "Is the address right, is the database up, was `homing outbox install` run?"
        return [Check("outbox", ERROR, f"The outbox cannot be read: {error}", advice)]
    return [_outbox(stats)]


async def _outbox_stats(address: str) -> OutboxStats:
    store = open_outbox(address)
    try:
        return await store.stats()
    finally:
        await store.close()


def _outbox(stats: OutboxStats) -> Check:
    waiting = f"{counted(stats.waiting, 'row')} waiting, the oldest for {span(stats.oldest_ms)}"
    if stats.refused:
        sentence = (
            f"{counted(stats.refused, 'row')} refused permanently; {stats.waiting:,} waiting."
        )
        advice = "`homing outbox status` shows why; repair it, then run `homing outbox retry`."
        return Check("outbox", WARNING, sentence, advice)
    if stats.oldest_ms > OUTBOX_LATE_MS:
        advice = "Is a server with outbox_url, or `homing relay`, running?"
        return Check("outbox", WARNING, f"{waiting}: no relay publishes them.", advice)
    if not stats.has_keys:
        sentence = "The table is of an older version: it has no column for the keys of events."
        advice = "Run `homing outbox install` again: it adds the column and keeps all rows."
        return Check("outbox", WARNING, sentence, advice)
    return Check("outbox", OK, f"{waiting}." if stats.waiting else "No rows are waiting.")


# --- a running server -----------------------------------------------------------------------


def check_server(settings: Settings, *, server: str | None, key: str | None) -> list[Check]:
    """Whether it responds and delivers, and what is waiting; a missing one may be no error."""
    try:
        target = _target(settings, server, key)
        client = Homing(target.url, target.key, timeout=SERVER_TIMEOUT_S)
    except Usage as error:
        return [Check("server", UNKNOWN, error.detail)]
    except ValueError as error:
        return [Check("server", ERROR, f"--server {server}: {error}.")]
    with client:
        try:
            return list(_server(client, target.url))
        except HomingClientError as error:
            return [_no_server(settings, target.url, error, named=server is not None)]


def _target(settings: Settings, server: str | None, key: str | None) -> Target:
    if server is None and key is None and settings.security.admin_key:
        return Target(local_url(settings), settings.security.admin_key)
    return find_server(server, key, settings)


def _no_server(settings: Settings, url: str, error: HomingClientError, *, named: bool) -> Check:
    process = None if settings.database.url else holder(settings.database.file)
    if process is not None and not named:
        return Check(
            "server",
            ERROR,
            f"Process {process} has the database open, but no server responds at {url}.",
            "It may listen elsewhere (give --server), be starting or stopping, or hang.",
        )
    if named:
        return Check("server", ERROR, f"No server responds at {url}.", str(error))
    return Check("server", UNKNOWN, f"No server responds at {url}.", "`homing serve` starts one.")


def _server(client: Homing, url: str) -> Iterator[Check]:
    if client.ready():
        yield Check("server", OK, f"{url} responds and accepts requests.")
    else:
        advice = "It is stopping, or its store cannot commit: see its log."
        yield Check("server", ERROR, f"{url} responds, but is not ready.", advice)
    if client.healthy():
        yield Check("engine", OK, "Due deliveries are being sent.")
    else:
        advice = "See its log; a restart loses nothing."
        yield Check("engine", ERROR, "Due deliveries are not being sent.", advice)
    try:
        status = client.status()
        yield _outage(status)
        yield from _lost_commits(status)
        yield _refused(status)
        yield _kept_policies(status)
        yield _certificates(status)
        ledger = client.ledger()
        yield from _ledger([one.tenant for one in ledger if not one.balanced])
        yield _backlog(client, sum(one.pending for one in ledger))
        yield _endpoints(client, "disabled", "probed until they recover")
        yield _endpoints(client, "frozen", "until a person enables them")
        yield _expiring(client)
    except NotAuthorized:
        yield Check(
            "access",
            ERROR,
            "The server does not accept the key that was found here.",
            "Is it another server? Give its key with --key or HOMING_ADMIN_KEY.",
        )


def _outage(status: ServerStatus) -> Check:
    outage = status.outage
    if outage.state == "confirmed":
        return Check(
            "outage",
            ERROR,
            f"Sender outage since {outage.since}: {outage.why}.",
            "Check this machine's network and name servers. Sending resumes by itself; nothing is "
            "lost.",
        )
    if outage.state == "suspected":
        sentence = f"Possible sender outage since {outage.since}: {outage.why}."
        return Check("outage", WARNING, sentence)
    if outage.state == "off":
        return Check("outage", OK, "Sender-outage detection is off: failures count as they come.")
    return Check("outage", OK, "No sender outage: requests leave this machine.")


def _lost_commits(status: ServerStatus) -> Iterator[Check]:
    if status.lost_commits:
        yield Check(
            "commits",
            ERROR,
            f"A failover of the database has lost commits. {plain(status.lost_commits[0].missing)}",
            "`homing lost-commits list` shows all of them; `homing lost-commits confirm` ends it.",
        )


def _refused(status: ServerStatus) -> Check:
    refused = status.refused_endpoints
    if not refused:
        return Check("addresses", OK, "The settings refuse no URL that they allowed before.")
    first = plain(refused[0].url)
    others = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
    return Check(
        "addresses",
        ERROR,
        f"The settings were changed and refuse {first}{others}; the deliveries wait.",
        "Compare allow_loopback, allow_networks, allow_hosts, allow_metadata, allow_ports and "
        "deny_ports with those before the last start.",
    )


def _kept_policies(status: ServerStatus) -> Check:
    if not status.kept_policies:
        return Check("policies", OK, "The settings have every policy that a subscription uses.")
    it = status.kept_policies[0]
    others = len(status.kept_policies) - 1
    more = f"; so is {counted(others, 'other policy')}" if others else ""
    used = f"{counted(it.count, 'subscription')} ({plain(it.subscriptions[0])} first)"
    return Check(
        "policies",
        WARNING,
        f"The policy {plain(it.name)} is not in the settings, but used by {used}{more}.",
        f"Its last known numbers apply. Put [policies.{plain(it.name)}] back into homing.toml, or "
        "give these subscriptions another policy.",
    )


def _certificates(status: ServerStatus) -> Check:
    found = status.certificates
    if not found:
        return Check("certs", OK, "No client certificate expires within 30 days.")
    bad = [one for one in found if one.problem]
    first = (bad or list(found))[0]
    of = first.subscription or first.file or ""
    whose = f"{plain(first.subject or '')} ({plain(of)})".strip()
    others = f", and {counted(len(found) - 1, 'other')} need attention" if len(found) > 1 else ""
    advice = "Give the subscription, or the file, a new certificate and its key."
    if bad:
        sentence = f"The client certificate {whose} cannot be used: {plain(first.problem)}{others}."
        return Check("certs", ERROR, sentence, advice)
    sentence = f"The client certificate {whose} expires at {first.expires_at}{others}."
    return Check("certs", WARNING, sentence, advice)


def _ledger(unbalanced: list[str]) -> Iterator[Check]:
    if unbalanced:
        yield Check(
            "ledger",
            ERROR,
            f"Accepted is not delivered + pending + dropped + cancelled for {unbalanced[0]}.",
            "Please report it with this output and the log: it must never happen.",
        )
    else:
        yield Check("ledger", OK, "Every accepted delivery is accounted for.")


def _backlog(client: Homing, pending: int) -> Check:
    late = _metric(client.metrics(), "homing_late_seconds")
    sentence = f"{counted(pending, 'delivery')} pending"
    if late >= LATE_S:
        advice = "The load exceeds what this machine can do: check its CPU and disk."
        return Check("backlog", WARNING, f"{sentence}; sending is {late:.0f} s late.", advice)
    return Check("backlog", OK, f"{sentence}; none is late.")


def _endpoints(client: Homing, state: str, meaning: str) -> Check:
    found = list(islice(client.endpoints(state=state), COUNT_MAX + 1))  # type: ignore[arg-type]
    if not found:
        return Check(state, OK, f"No URL is {state}.")
    many = f"{COUNT_MAX}+" if len(found) > COUNT_MAX else str(len(found))
    sentence = f"{many} {'URL is' if many == '1' else 'URLs are'} {state} ({meaning})"
    return Check(state, WARNING, f"{sentence}.", f"homing endpoints --state {state}")


def _expiring(client: Homing) -> Check:
    soon = client.deliveries(status="pending", expiring_within=SOON)
    found = sum(1 for _ in islice(soon, COUNT_MAX + 1))
    if not found:
        return Check("expiry", OK, "No delivery expires within 6 hours.")
    sentence = "1 pending delivery expires within 6 hours."
    if found > 1:
        many = f"{COUNT_MAX}+" if found > COUNT_MAX else str(found)
        sentence = f"{many} pending deliveries expire within 6 hours."
    return Check("expiry", WARNING, sentence, f"homing deliveries --expiring-within {SOON}")


def _metric(text: str, name: str) -> float:
    found = re.search(rf"^{name} ([0-9.eE+-]+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0
