"""Every setting with its default, range, unit and sentence, in one frozen group per concern.

A setting is given by its key: in ``homing.toml`` as it is, in the environment in capitals after
``HOMING_``. The key is the name of the field, unless the field says ``name=``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from homing.languages.sentences import say
from homing.model import NODES
from homing.policy.egress import NO_FILES, IdentityPaths, Proxy
from homing.policy.event_check_rules import Check, CheckRules, Unknown
from homing.policy.health import HealthRules
from homing.policy.networks import Network
from homing.policy.payload_fields import FIELDS_MAX
from homing.policy.people import RULE_FORM, PeopleOptions, read_rule
from homing.policy.presets import PRESETS, WORKFRONT
from homing.policy.quota import Quota
from homing.policy.reach import Reach
from homing.policy.retry import Schedule
from homing.policy.tables import DAY_MS
from homing.policy.url import host_of, parse_url
from homing.server.settings.reach import (
    ALLOW_PORTS,
    DENY_PORTS,
    WrongReach,
    read_host,
    read_network,
    read_ports,
    read_proxy,
    read_sources,
)

DATABASE_FILE = "homing.db"  # in the data directory
ADMIN_KEY_FILE = "admin.key"  # in the data directory
ENCRYPTION_KEY_FILE = "secret.key"  # in the data directory
MIB = 1024 * 1024
PROCESSES_MAX = 64  # A fleet has 128 node numbers, and a process that is started again needs two.
RETENTION_DAYS_MAX = 3_650

_POSTGRES = r"postgres(ql)?://"
_KEY = "[A-Za-z0-9+/_-]{43}=?"  # base64 of 32 bytes


def _text(sentence: str, allowed: str, *, form: str | None = None, secret: bool = False) -> Meta:
    """A text that is empty or matches ``form``; the value of a secret is never shown."""
    extra = {"allowed": allowed, "secret": secret}
    return Meta(description=sentence, pattern=form and rf"\A(\Z|{form})", extra=extra)


def _number(sentence: str, low: int, high: int, unit: str = "") -> Meta:
    return Meta(ge=low, le=high, description=sentence, extra={"unit": unit})


def _list(sentence: str, allowed: str) -> Meta:
    return Meta(description=sentence, extra={"allowed": f"a list of {allowed}"})


def _about(sentence: str) -> Meta:
    return Meta(description=sentence)


class ListenSettings(Struct, frozen=True, kw_only=True):
    """The address of the API, and the connections to it."""

    address: Annotated[
        str, _text("The address of the API; port 0 takes a free port.", "host:port")
    ] = field(default="127.0.0.1:8700", name="listen")
    hosts: Annotated[
        tuple[str, ...],
        _list(
            "Host names under which the dashboard may be opened, besides localhost and IP"
            " addresses.",
            "names",
        ),
    ] = ()
    connections_max: Annotated[
        int,
        _number(
            "Connections to the API at a time. Beyond that, or earlier if file descriptors are"
            " scarce, some are closed: those without a valid key first, and of the address with the"
            " most first the slowest, then idle ones with a key.",
            1,
            200_000,
            "connections",
        ),
    ] = 8_192
    connections_per_address_max: Annotated[
        int,
        _number(
            "Connections to the API from one address at a time; 0: no limit per address.",
            0,
            200_000,
            "connections",
        ),
    ] = 0

    drain_ms: Annotated[
        int,
        _number(
            "How long a stop goes on serving, before it closes the port: /readyz responds 503"
            " meanwhile, so that load balancers choose other processes, and every response closes"
            " its connection. grace_ms begins after that.",
            0,
            600_000,
            "ms",
        ),
    ] = 0

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def host_names(self) -> frozenset[str]:
        """The names in ``hosts``, and the host of the address."""
        names = (*self.hosts, self.host)
        return frozenset(name.strip().lower() for name in names if name.strip())


class DatabaseSettings(Struct, frozen=True, kw_only=True):
    """The database, how it is reached, and how long it keeps history."""

    data: Annotated[
        str,
        Meta(
            min_length=1,
            description="The directory of the SQLite database, the admin key and the encryption"
            " key.",
            extra={"allowed": "a path"},
        ),
    ] = "./homing-data"
    url: Annotated[
        str,
        _text(
            "The PostgreSQL database to use; empty: SQLite in the data directory.",
            "empty, or postgresql://…",
            form=_POSTGRES,
            secret=True,
        ),
    ] = field(default="", name="database_url")
    pooled: Annotated[
        bool, _about("Whether database_url goes through PgBouncer in transaction mode.")
    ] = False
    listen_url: Annotated[
        str,
        _text(
            "The same database without a pooler, for notifications from other processes; empty:"
            " database_url.",
            "empty, or postgresql://…",
            form=_POSTGRES,
            secret=True,
        ),
    ] = ""
    writer: Annotated[
        Literal["process", "thread", "inline"],
        _about(
            "Where commits run: in a process of their own, in the event loop (inline), or, with"
            " SQLite only, in a thread."
        ),
    ] = "process"
    retention_days: Annotated[
        int,
        _number(
            "How long events, attempts and finished deliveries are kept. All three reminders of a"
            " disabled or frozen URL need at least 4.",
            1,
            RETENTION_DAYS_MAX,
            "days",
        ),
    ] = 30
    audit_retention_days: Annotated[
        int, _number("How long entries of the audit log are kept.", 1, 36_500, "days")
    ] = 365

    @property
    def directory(self) -> Path:
        return Path(self.data)

    @property
    def file(self) -> Path:
        """The SQLite database."""
        return self.directory / DATABASE_FILE

    @property
    def retention_ms(self) -> int:
        return self.retention_days * DAY_MS

    @property
    def audit_retention_ms(self) -> int:
        return self.audit_retention_days * DAY_MS


class DeliverySettings(Struct, frozen=True, kw_only=True):
    """How deliveries are attempted: policies, health rules, slots and memory."""

    policy: Annotated[
        str,
        _text(
            "The retry policy where neither the subscription nor its tenant names one.",
            f"one of {', '.join(PRESETS)}, or a table [policies.NAME]",
        ),
    ] = WORKFRONT.name
    fresh_slots: Annotated[
        int, _number("First attempts in flight at a time.", 1, 65_536, "slots")
    ] = 512
    retry_slots: Annotated[int, _number("Retries in flight at a time.", 1, 65_536, "slots")] = 256
    endpoint_slots: Annotated[
        int,
        _number(
            "Attempts in flight at one endpoint, in each lane; not more than fresh_slots or"
            " retry_slots.",
            1,
            1_024,
            "slots",
        ),
    ] = 16
    host_rate_per_second: Annotated[
        float,
        _number(
            "Attempts and test sends per second at one host, over all tenants; 0: no limit.",
            0,
            100_000,
        ),
    ] = 0
    fair_by: Annotated[
        str,
        _text(
            "A path in the data of events, such as data.userId. The first attempts of an endpoint"
            " take turns by the value at this path, so that a bulk edit by one person does not"
            " delay the events of the others; their order then holds for each value. Empty: first"
            " attempts start in the order of acceptance.",
            "empty, or a path like data.userId",
        ),
    ] = ""
    outage_detection: Annotated[
        bool,
        _about(
            "Whether sending pauses when most healthy endpoints cannot be reached at once, as in an"
            " outage of this sender's network. false: their failures count at once, as any others."
        ),
    ] = True
    verification: Annotated[
        Literal["none", "challenge", "cloudevents"],
        _about(
            "How the receiver of every new URL proves that it owns the URL before it gets events."
            " A subscription may ask for more, never for less."
        ),
    ] = "none"
    memory_bytes_max: Annotated[
        int,
        _number(
            "Event data in memory: half for queues, half for deliveries that can start at once.",
            MIB,
            1024 * 1024 * MIB,
            "bytes",
        ),
    ] = 64 * MIB
    grace_ms: Annotated[
        int,
        _number(
            "How long a shutdown waits for attempts in flight; 5 s later the process ends anyway.",
            0,
            600_000,
            "ms",
        ),
    ] = 30_000
    policies: Mapping[str, Schedule] = MappingProxyType({})
    health: HealthRules = HealthRules()

    @property
    def schedules(self) -> dict[str, Schedule]:
        """Every policy that can be named: the presets and the operator's own."""
        return {**PRESETS, **self.policies}


class ReachSettings(Struct, frozen=True, kw_only=True):
    """Where deliveries may be sent; nothing that a tenant sends can widen it."""

    allow_networks: Annotated[
        tuple[str, ...],
        _list(
            "Private and special networks that deliveries may be sent to. Loopback and metadata"
            " addresses have settings of their own.",
            "networks like 10.0.0.0/8",
        ),
    ] = ()
    allow_hosts: Annotated[
        tuple[str, ...],
        _list(
            "Hosts that deliveries may be sent to at private addresses. Loopback and metadata"
            " addresses have settings of their own.",
            "names, or *.name for all its subdomains",
        ),
    ] = ()
    allow_loopback: Annotated[
        bool, _about("Whether deliveries may be sent to this machine's loopback addresses.")
    ] = False
    allow_metadata: Annotated[
        bool,
        _about("Whether deliveries may be sent to link-local and cloud metadata addresses."),
    ] = False
    allow_ports: Annotated[
        tuple[str, ...],
        _list(
            "Ports that deliveries may be sent to, except deny_ports.",
            "ports and ranges like 1024-65535",
        ),
    ] = ALLOW_PORTS
    deny_ports: Annotated[
        tuple[str, ...],
        _list(
            "Ports that deliveries are never sent to: databases, message brokers, remote control.",
            "ports and ranges",
        ),
    ] = DENY_PORTS
    ca_file: Annotated[
        str,
        _text(
            "A file of CA certificates to trust besides the system's; empty: only the system's.",
            "empty, or a path",
        ),
    ] = ""

    def rules(self) -> Reach:
        """What these settings allow; raises WrongReach."""
        return Reach(
            networks=tuple(read_network(text, "allow_networks") for text in self.allow_networks),
            hosts=tuple(map(read_host, self.allow_hosts)),
            loopback=self.allow_loopback,
            metadata=self.allow_metadata,
            ports=tuple(read_ports(text, "allow_ports") for text in self.allow_ports),
            denied_ports=tuple(read_ports(text, "deny_ports") for text in self.deny_ports),
        )


class EgressSettings(Struct, frozen=True, kw_only=True):
    """How requests to receivers leave: certificate, proxy, source address."""

    certificate_file: Annotated[
        str,
        _text(
            "A file with the client certificate in PEM that requests present (mTLS) where neither"
            " the subscription nor its tenant has one; a renewed file is read without a restart.",
            "empty, or a path",
        ),
    ] = field(default="", name="client_certificate_file")
    key_file: Annotated[
        str,
        _text("The file with its private key in PEM, not encrypted.", "empty, or a path"),
    ] = field(default="", name="client_key_file")
    proxy_url: Annotated[
        str,
        _text(
            "The HTTP proxy through which all requests to receivers go, in tunnels made with"
            " CONNECT; empty: none.",
            "empty, or http://host:port or http://user:password@host:port",
            secret=True,
        ),
    ] = field(default="", name="egress_proxy")
    direct_hosts: Annotated[
        tuple[str, ...],
        _list(
            "Hosts that requests are sent to without the proxy.",
            "names, or *.name for all its subdomains",
        ),
    ] = field(default=(), name="egress_direct_hosts")
    proxy_resolves: Annotated[
        bool,
        _about(
            "Whether the proxy looks up the names of receivers because this machine cannot. Then"
            " only the proxy can refuse names that lead to private addresses."
        ),
    ] = field(default=False, name="egress_proxy_resolves")
    source_addresses: Annotated[
        tuple[str, ...],
        _list(
            "The addresses of this machine that requests are sent from; none: the system chooses.",
            "at most one IPv4 and one IPv6 address",
        ),
    ] = field(default=(), name="egress_source_addresses")
    addresses: Annotated[
        tuple[str, ...],
        _list(
            "The public addresses that requests come from, as receivers see them. GET /v1/egress"
            " shows them to everybody, so that receivers can allow them.",
            "networks like 203.0.113.7/32",
        ),
    ] = field(default=(), name="egress_addresses")

    def proxy(self) -> Proxy | None:
        """Raises WrongReach."""
        return read_proxy(self.proxy_url, self.direct_hosts, resolves=self.proxy_resolves)

    def sources(self) -> dict[int, str]:
        """The source address of each family; raises WrongReach."""
        return read_sources(self.source_addresses)

    def published(self) -> tuple[str, ...]:
        """The networks of ``addresses``; raises WrongReach."""
        return tuple(str(read_network(one, "egress_addresses")) for one in self.addresses)

    @property
    def identity(self) -> IdentityPaths:
        return IdentityPaths(self.certificate_file, self.key_file)


class SecuritySettings(Struct, frozen=True, kw_only=True):
    """The keys of this installation."""

    admin_key: Annotated[
        str,
        _text(
            "The admin key of the API; empty: the key in the data directory, created at the first"
            " start.",
            "empty, or 16 to 256 visible ASCII characters",
            form=r"[!-~]{16,256}\Z",
            secret=True,
        ),
    ] = ""
    secret_key: Annotated[
        str,
        _text(
            "The key that encrypts tokens, secrets and header values in the database. If there are"
            " several, the first encrypts and all decrypt. Empty: the file secret.key in the data"
            " directory, created at the first start.",
            "empty, or base64 of 32 bytes; several separated by commas",
            form=rf"{_KEY}([, ]+{_KEY})*\Z",
            secret=True,
        ),
    ] = ""


class PeopleSettings(Struct, frozen=True, kw_only=True):
    """People whom an authenticating proxy in front of the dashboard names."""

    user_header: Annotated[
        str,
        _text(
            "The header in which an authenticating proxy names the person who uses the dashboard,"
            " like X-Forwarded-User or Remote-User; empty: people sign in with keys.",
            "empty, or the name of a header",
            form=r"[A-Za-z0-9-]{1,64}\Z",
        ),
    ] = field(default="", name="proxy_user_header")
    groups_header: Annotated[
        str,
        _text(
            "The header with the groups of the person, separated by commas, like"
            " X-Forwarded-Groups or Remote-Groups.",
            "empty, or the name of a header",
            form=r"[A-Za-z0-9-]{1,64}\Z",
        ),
    ] = field(default="", name="proxy_groups_header")
    networks: Annotated[
        tuple[str, ...],
        _list(
            "The addresses of the proxy: these headers count only on connections from them.",
            "networks like 10.0.0.7/32",
        ),
    ] = field(default=(), name="proxy_networks")
    rules: Annotated[
        tuple[str, ...],
        _list(
            "What the people may do: the first rule that fits decides, and a person whom none fits"
            " is refused. * stands for any characters.",
            RULE_FORM,
        ),
    ] = field(default=(), name="people")

    def options(self) -> PeopleOptions:
        """Raises WrongReach."""
        rules = tuple(map(read_rule, self.rules))
        if None in rules:
            wrong = self.rules[rules.index(None)]
            raise WrongReach("people", f"{RULE_FORM}; an admin has no tenant (not {wrong!r})")
        networks = tuple(read_network(text, "proxy_networks") for text in self.networks)
        if self.user_header and not networks:
            raise WrongReach("proxy_networks", "the addresses of the proxy")
        if self.user_header.lower() in RESERVED_HEADERS:
            raise WrongReach("proxy_user_header", "a header that only the proxy sets")
        return PeopleOptions(
            self.user_header,
            self.groups_header,
            networks,
            tuple(it for it in rules if it is not None),
        )


RESERVED_HEADERS = frozenset({"authorization", "cookie", "host", "origin", "referer", "user-agent"})


class TenantSettings(Struct, frozen=True):
    """The settings that one tenant overrides; None: the default for all tenants applies."""

    policy: str | None = None
    health: HealthRules | None = None
    quota: Quota | None = None
    retention_days: int | None = None
    identity: IdentityPaths = NO_FILES
    fair_by: str | None = None
    event_check: str | None = None
    unknown_event_types: str | None = None


_COUNT_MAX = 1_000_000_000
RetentionDays = Annotated[int, Meta(ge=1, le=RETENTION_DAYS_MAX)]
Count = Annotated[int, Meta(ge=0, le=_COUNT_MAX)]


class TenantsSettings(Struct, frozen=True, kw_only=True):
    """The default quota of a tenant, and the settings that some tenants override."""

    publish_per_second: Annotated[
        int,
        _number(
            "Events per second that a tenant may publish; 0: no limit.",
            0,
            _COUNT_MAX,
            "events",
        ),
    ] = 0
    pending_max: Annotated[
        int,
        _number(
            "Pending deliveries that a tenant may have; 0: no limit.", 0, _COUNT_MAX, "deliveries"
        ),
    ] = 0
    subscriptions_max: Annotated[
        int,
        _number(
            "Subscriptions that a tenant may have; 0: no limit.", 0, _COUNT_MAX, "subscriptions"
        ),
    ] = 0
    changes_per_minute: Annotated[
        int,
        _number(
            "Changing calls that the keys and people of a tenant may make in a minute;"
            " 0: no limit. Each call leaves entries in the audit log.",
            0,
            _COUNT_MAX,
            "changes",
        ),
    ] = 600
    event_check: Annotated[
        Literal["off", "warn", "refuse"],
        _about(
            "What happens to an event whose data does not match the schema of its event type, where"
            " the type does not say: nothing is checked, it is accepted with a warning, or it is"
            " refused."
        ),
    ] = "warn"
    unknown_event_types: Annotated[
        Literal["allow", "refuse"],
        _about("What happens to an event of a type that its tenant has not described."),
    ] = "allow"
    own: Mapping[str, TenantSettings] = field(default=MappingProxyType({}), name="tenants")

    @property
    def quota(self) -> Quota:
        """The quota of a tenant that has none of its own."""
        return Quota(
            self.publish_per_second,
            self.pending_max,
            self.subscriptions_max,
            self.changes_per_minute,
        )

    @property
    def quotas(self) -> dict[str, Quota]:
        return {name: own.quota for name, own in self.own.items() if own.quota is not None}

    @property
    def policies(self) -> dict[str, str]:
        return {name: own.policy for name, own in self.own.items() if own.policy is not None}

    @property
    def retention_ms(self) -> dict[str, int]:
        own = {name: it.retention_days for name, it in self.own.items()}
        return {name: days * DAY_MS for name, days in own.items() if days is not None}

    @property
    def identities(self) -> dict[str, IdentityPaths]:
        return {name: own.identity for name, own in self.own.items() if own.identity}

    @property
    def checks(self) -> CheckRules:
        """How the events of a tenant without settings of its own are checked."""
        return CheckRules(Check(self.event_check), Unknown(self.unknown_event_types))

    @property
    def own_checks(self) -> dict[str, CheckRules]:
        return {
            name: CheckRules(
                Check(own.event_check or self.event_check),
                Unknown(own.unknown_event_types or self.unknown_event_types),
            )
            for name, own in self.own.items()
            if own.event_check is not None or own.unknown_event_types is not None
        }

    @property
    def fair_by(self) -> dict[str, str]:
        return {name: own.fair_by for name, own in self.own.items() if own.fair_by is not None}

    @property
    def health(self) -> dict[str, HealthRules]:
        return {name: own.health for name, own in self.own.items() if own.health is not None}


class FleetSettings(Struct, frozen=True, kw_only=True):
    """The role of this process when several processes share a PostgreSQL database."""

    role: Annotated[
        Literal["both", "api", "deliver"],
        _about(
            "What this process does. On PostgreSQL any number of processes share the work. A"
            " process that only delivers serves health checks and metrics, but no API."
        ),
    ] = "both"
    processes: Annotated[
        Annotated[int, Meta(ge=1, le=PROCESSES_MAX)] | Literal["auto"],
        Meta(
            description="How many processes serve and deliver, on one port; auto: one per core that"
            " this program may use. Each of them has the other settings for itself. Above 1 only on"
            " PostgreSQL.",
            extra={"allowed": f"auto, or 1 to {PROCESSES_MAX} processes"},
        ),
    ] = 1
    lease_ms: Annotated[
        int,
        _number(
            "How long a process of a fleet may be silent before others take over its work.",
            1_500,
            120_000,
            "ms",
        ),
    ] = 10_000
    node_numbers: Annotated[
        str,
        _text(
            "The numbers from which processes take theirs; a number is part of every id that a"
            " process makes. The first 64 make ids fastest. Installations between which tenants"
            " move need different ones.",
            f"first-last, like 0-31, from 0 to {NODES - 1}",
            form=r"\d{1,4}-\d{1,4}\Z",
        ),
    ] = f"0-{NODES - 1}"
    on_lost_commits: Annotated[
        Literal["continue", "hold"],
        _about(
            "After a failover to a standby of the database that had not all commits: continue"
            " reports it and goes on; hold also refuses events with 503 until an operator confirms"
            " it, with `homing lost-commits confirm` or on the page System."
        ),
    ] = "continue"

    @property
    def nodes(self) -> range:
        """The node numbers; empty if they are not possible."""
        first, _, last = (self.node_numbers or f"0-{NODES - 1}").partition("-")
        return range(int(first), int(last) + 1) if int(last) < NODES else range(0)

    @property
    def serves_api(self) -> bool:
        return self.role != "deliver"

    @property
    def delivers(self) -> bool:
        return self.role != "api"


class OutboxSettings(Struct, frozen=True, kw_only=True):
    """The outbox of an application, relayed by this server."""

    url: Annotated[
        str,
        _text(
            "The application's database whose outbox is relayed; empty: none.",
            "empty, or postgresql://… or sqlite:PATH",
            form=rf"({_POSTGRES}|sqlite:.)",
            secret=True,
        ),
    ] = field(default="", name="outbox_url")
    poll_ms: Annotated[
        int,
        _number(
            "How often the outbox is read when no notification of new rows arrives.",
            10,
            60_000,
            "ms",
        ),
    ] = field(default=1_000, name="outbox_poll_ms")


class NoticeSettings(Struct, frozen=True, kw_only=True):
    """Notices to people: links in them, and the SMTP server for e-mail."""

    public_url: Annotated[
        str,
        _text(
            "The URL under which people open the dashboard and the customer portal, for links.",
            "empty, or a URL like https://homing.example.com",
            form=r"https?://[^\s/?#]+(/[^\s?#]*)?\Z",
        ),
    ] = ""
    smtp_host: Annotated[
        str,
        _text("The SMTP server that sends e-mail; empty: no e-mail is sent.", "empty, or a name"),
    ] = ""
    smtp_port: Annotated[int, _number("The port of the SMTP server.", 1, 65_535)] = 587
    smtp_security: Annotated[
        Literal["starttls", "tls", "none"],
        _about(
            "How the connection to the SMTP server is encrypted: with STARTTLS, with TLS from the"
            " start (port 465), or not at all."
        ),
    ] = "starttls"
    smtp_user: Annotated[
        str, _text("The user name for the SMTP server; empty: none is needed.", "a name")
    ] = ""
    smtp_password: Annotated[
        str, _text("The password for the SMTP server.", "a password", secret=True)
    ] = ""
    smtp_from: Annotated[
        str,
        _text(
            "The address that e-mail comes from.",
            "empty, or an e-mail address",
            form=r"[^\s@<>]+@[^\s@<>]+\Z",
        ),
    ] = ""
    smtp_ca_file: Annotated[
        str,
        _text(
            "A file of CA certificates to trust for the SMTP server; empty: the system's.",
            "empty, or a path",
        ),
    ] = ""

    @property
    def public_hosts(self) -> frozenset[str]:
        """The host of the public URL: the dashboard may be opened under it."""
        return (
            frozenset((host_of(parse_url(self.public_url)[0]),)) if self.public_url else frozenset()
        )

    @property
    def origin(self) -> str:
        """The name of this sender in the handshake of CloudEvents; empty without a public URL."""
        return parse_url(self.public_url)[1].host if self.public_url else ""

    @property
    def mail_problem(self) -> str:
        """Why a target cannot be an e-mail address; empty: it can."""
        missing = [
            name for name in ("smtp_host", "smtp_from", "public_url") if not getattr(self, name)
        ]
        if not missing:
            return ""
        return say(
            "must not be email: this installation sends none ({settings} not set)",
            settings=", ".join(missing),
        )


class SearchSettings(Struct, frozen=True, kw_only=True):
    """What people can search by."""

    fields: Annotated[
        tuple[str, ...],
        _list(
            "Payload fields by which events can be found, besides their ids: a search for"
            " data.invoice.id:4711 finds the events in whose data it has this value. They are"
            " indexed when an event is published; none: no data is read for them.",
            f"at most {FIELDS_MAX} paths like data.invoice.id",
        ),
    ] = field(default=(), name="search_fields")


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """What is logged, and what is sent to a collector of OpenTelemetry."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _about("The lowest level that is logged.")
    ] = "info"
    log_format: Annotated[
        Literal["console", "json"], _about("How log lines are written to standard error.")
    ] = "console"
    metrics_networks: Annotated[
        tuple[str, ...],
        _list(
            "Networks whose clients may read /metrics without a key, by the address of their"
            " connection. Behind a proxy every client has the address of the proxy: do not list it,"
            " or let the proxy refuse /metrics.",
            "networks like 10.0.0.0/8",
        ),
    ] = ()

    otel_endpoint: Annotated[
        str,
        _text(
            "The collector of OpenTelemetry that gets spans, metrics and log lines by OTLP over"
            " HTTP, like http://127.0.0.1:4318; empty: none. Needs pip install 'homing[otel]'.",
            "empty, or http://… or https://…",
            form=r"https?://[^/?#\s]+[^?#\s]*\Z",
        ),
    ] = ""
    otel_headers: Annotated[
        str,
        _text(
            "Headers for the collector, like authorization=Bearer%20abc, separated by commas.",
            "name=value,name=value",
            form=r"[!-+\--~]+=[^\r\n]*\Z",
            secret=True,
        ),
    ] = ""
    otel_signals: Annotated[
        tuple[Literal["traces", "metrics", "logs"], ...],
        _list("What the collector gets.", "traces, metrics and logs"),
    ] = ("traces", "metrics", "logs")
    otel_trace_share: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The share of the events without a traceparent that are traced. The"
            " publisher of an event with one decides itself.",
            extra={"unit": ""},
        ),
    ] = 0.01

    def networks(self) -> tuple[Network, ...]:
        """The networks of ``metrics_networks``; raises WrongReach."""
        return tuple(read_network(text, "metrics_networks") for text in self.metrics_networks)


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that an operator may set."""

    listen: ListenSettings = ListenSettings()
    database: DatabaseSettings = DatabaseSettings()
    delivery: DeliverySettings = DeliverySettings()
    reach: ReachSettings = ReachSettings()
    egress: EgressSettings = EgressSettings()
    security: SecuritySettings = SecuritySettings()
    people: PeopleSettings = PeopleSettings()
    tenants: TenantsSettings = TenantsSettings()
    fleet: FleetSettings = FleetSettings()
    outbox: OutboxSettings = OutboxSettings()
    notices: NoticeSettings = NoticeSettings()
    search: SearchSettings = SearchSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    @classmethod
    def of(cls, **values: Any) -> Settings:
        """The settings with these values by key; a value is not checked against its range."""
        groups: dict[str, dict[str, Any]] = {}
        for key, value in values.items():
            group, name = PLACES[key]
            groups.setdefault(group, {})[name] = value
        kinds = {group.name: group.type for group in msgspec.structs.fields(cls)}
        return cls(**{group: kinds[group](**values) for group, values in groups.items()})

    def __repr__(self) -> str:
        return f"Settings(listen={self.listen.address!r}, data={self.database.data!r})"


PLACES: Mapping[str, tuple[str, str]] = MappingProxyType(  # key → group and field
    {
        one.encode_name: (group.name, one.name)
        for group in msgspec.structs.fields(Settings)
        for one in msgspec.structs.fields(group.type)
    }
)
