"""Settings: every one with its default, unit, range and one sentence; wrong ones stop the start.

They come from ``homing.toml``, then the environment (``HOMING_`` and the name in capitals), then
flags: the later wins. What is unknown or out of range is an error that says where it came from,
never a silent default. This is the only module that reads the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_origin

import msgspec
from msgspec import Meta, Struct

from homing.errors import BadSetting
from homing.policy.health import HealthRules
from homing.policy.presets import PRESETS, WORKFRONT
from homing.policy.retry import Schedule
from homing.policy.tables import DAY_MS
from homing.server.settings.guard import GuardSettings
from homing.server.settings.reach import WrongReach, read_list
from homing.server.settings.tables import (
    TenantSettings,
    read_health,
    read_policies,
    read_tenants,
    read_toml,
)

ENV_PREFIX = "HOMING_"
ENV_CONFIG = "HOMING_CONFIG"
ENV_SERVER = "HOMING_SERVER"  # which server the other commands speak to: no setting of this one
DEFAULT_FILE = "homing.toml"
DATABASE_FILE = "homing.db"  # in the data directory
MIB = 1024 * 1024

_HIDDEN = frozenset(("admin_key", "database_url", "listen_url", "outbox_url", "secret_key"))
_FORMS = {  # of what is not empty
    "database_url": re.compile(r"postgres(ql)?://"),
    "listen_url": re.compile(r"postgres(ql)?://"),
    "outbox_url": re.compile(r"postgres(ql)?://|sqlite:."),
    "admin_key": re.compile(r"[!-~]{16,256}\Z"),
    "secret_key": re.compile(r"[A-Za-z0-9+/_-]{43}=?([, ]+[A-Za-z0-9+/_-]{43}=?)*\Z"),
}
_LISTEN = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")

Slots = Annotated[int, Meta(ge=1, le=65_536, extra={"unit": "slots"})]


def _about(sentence: str, **extra: str) -> Meta:
    return Meta(description=sentence, extra=extra or None)


class Settings(GuardSettings, frozen=True, kw_only=True):
    """All that an operator may set."""

    listen: Annotated[
        str,
        _about("Where the API listens; port 0 takes a free one.", allowed="host:port"),
    ] = "127.0.0.1:8700"
    data: Annotated[
        str, _about("The directory of the database and the admin key.", allowed="a path")
    ] = "./homing-data"
    database_url: Annotated[
        str,
        _about(
            "The PostgreSQL database to use; empty: SQLite in the data directory.",
            allowed="empty, or postgresql://…",
        ),
    ] = ""
    outbox_url: Annotated[
        str,
        _about(
            "The application's database whose outbox is relayed; empty: none.",
            allowed="empty, or postgresql://… or sqlite:PATH",
        ),
    ] = ""
    outbox_poll_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="How often the outbox is looked at without being told of something new.",
            extra={"unit": "ms"},
        ),
    ] = 1_000
    admin_key: Annotated[
        str,
        _about(
            "The key of the API; empty: the one in the data directory, made at the first start.",
            allowed="empty, or 16 to 256 visible ASCII characters",
        ),
    ] = ""
    hosts: Annotated[
        tuple[str, ...],
        _about(
            "Names that the dashboard answers to besides localhost and addresses.",
            allowed="a list of names",
        ),
    ] = ()
    policy: Annotated[
        str,
        _about(
            "The retry policy of whoever names none.",
            allowed=f"one of {', '.join(PRESETS)}, or a table [policies.NAME]",
        ),
    ] = WORKFRONT.name
    ca_file: Annotated[
        str,
        _about(
            "A file of CA certificates to trust when sending; empty: the system's.",
            allowed="empty, or a path",
        ),
    ] = ""
    fresh_slots: Annotated[Slots, _about("First attempts in flight at a time.")] = 512
    retry_slots: Annotated[Slots, _about("Retries in flight at a time.")] = 256
    endpoint_slots: Annotated[
        int,
        Meta(
            ge=1,
            le=1_024,
            description="Attempts in flight at one endpoint, per lane; not more than a lane has.",
            extra={"unit": "slots"},
        ),
    ] = 16
    memory_bytes_max: Annotated[
        int,
        Meta(
            ge=MIB,
            le=1024 * 1024 * MIB,
            description="Event data in memory: half for queues, half for what can start at once.",
            extra={"unit": "bytes"},
        ),
    ] = 64 * MIB
    grace_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=600_000,
            description="How long a stop waits for attempts in flight; 5 s later it ends anyway.",
            extra={"unit": "ms"},
        ),
    ] = 30_000
    host_rate_per_second: Annotated[
        float,
        Meta(ge=0, le=100_000, description="Attempts at one host, over all tenants; 0: no limit."),
    ] = 0
    retention_days: Annotated[
        int,
        Meta(
            ge=1,
            le=3_650,
            description="How long events, attempts and finished deliveries are kept.",
            extra={"unit": "days"},
        ),
    ] = 30
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _about("The least level that is logged.")
    ] = "info"
    log_format: Annotated[
        Literal["console", "json"], _about("How log lines are written to standard error.")
    ] = "console"

    policies: Mapping[str, Schedule] = MappingProxyType({})
    health: HealthRules = HealthRules()
    tenants: Mapping[str, TenantSettings] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"Settings(listen={self.listen!r}, data={self.data!r})"

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    @property
    def host_names(self) -> frozenset[str]:
        """The names in ``hosts``, and the one that is listened on."""
        names = (*self.hosts, self.host)
        return frozenset(name.strip().lower() for name in names if name.strip())

    @property
    def retention_ms(self) -> int:
        return self.retention_days * DAY_MS

    @property
    def schedules(self) -> dict[str, Schedule]:
        """Every policy that can be named: the presets and the operator's own."""
        return {**PRESETS, **self.policies}

    @property
    def tenant_policies(self) -> dict[str, str]:
        return {name: one.policy for name, one in self.tenants.items() if one.policy is not None}

    @property
    def tenant_health(self) -> dict[str, HealthRules]:
        return {name: one.health for name, one in self.tenants.items() if one.health is not None}


# --- the table of settings ------------------------------------------------------------------

TABLES = ("policies", "health", "tenants")


class Setting(Struct, frozen=True):
    """One setting as the reference shows it and as errors speak of it."""

    name: str
    type: Any
    default: Any
    unit: str
    allowed: str
    sentence: str

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def settings_table() -> tuple[Setting, ...]:
    """Every setting that a file, the environment or a flag may give."""
    return tuple(
        _setting(field)
        for field in msgspec.structs.fields(Settings)
        if field.encode_name not in TABLES
    )


def _setting(field: msgspec.structs.FieldInfo) -> Setting:
    sentence, unit, allowed = "", "", ""
    low: Any = None
    high: Any = None
    for meta in getattr(field.type, "__metadata__", ()):
        extra = meta.extra or {}
        sentence = meta.description or sentence
        unit = extra.get("unit", unit)
        allowed = extra.get("allowed", allowed)
        low, high = meta.ge if meta.ge is not None else low, meta.le or high
    bare = getattr(field.type, "__origin__", field.type)
    choices = bare.__args__ if get_origin(bare) is Literal else ()
    if choices:
        allowed = " or ".join(choices) if len(choices) == 2 else f"one of {', '.join(choices)}"
    elif bare is bool:
        allowed = "true or false"
    elif low is not None:
        allowed = f"{low} to {high}" + (f" {unit}" if unit else "")
    return Setting(field.name, field.type, field.default, unit, allowed, sentence)


def shown_value(settings: Settings, name: str) -> str:
    """A setting's value as text; what is secret is masked."""
    value = getattr(settings, name)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(value)
    return "****" if name in _HIDDEN and value else str(value)


_TABLE = {setting.name: setting for setting in settings_table()}


def environ_of_children() -> dict[str, str]:
    """Without our settings: a child is told what it needs, and secrets stand in fewer places."""
    return {name: it for name, it in os.environ.items() if not name.startswith(ENV_PREFIX)}


# --- loading --------------------------------------------------------------------------------


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings from file, environment and flags; raises BadSetting."""
    return settings_and_sources(flags, config=config, environ=environ)[0]


def settings_and_sources(
    flags: Mapping[str, Any] | None = None,
    *,
    config: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Settings, dict[str, str]]:
    """The settings, and where each that is not its default came from; raises BadSetting."""
    env = dict(os.environ if environ is None else environ)
    path, told = _config_path(config, env)
    table = read_toml(path, told=told)
    given: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value in table.items():
        if name not in TABLES:
            _take(given, sources, name, value, source=str(path), strict=True)
    for variable, text in sorted(env.items()):
        if not variable.startswith(ENV_PREFIX) or variable in {ENV_CONFIG, ENV_SERVER}:
            continue
        name = variable.removeprefix(ENV_PREFIX).lower()
        if name not in _TABLE or variable != _TABLE[name].env:
            raise BadSetting(f"{variable} (from the environment) is not the name of a setting.")
        _take(given, sources, name, text, source=variable, strict=False)
    for name, value in (flags or {}).items():
        if value is not None:
            _take(given, sources, name, value, source=_TABLE[name].flag, strict=False)
    settings = Settings(
        **given,
        policies=read_policies(table.get("policies", {}), str(path)),
        health=read_health(table.get("health", {}), HealthRules(), "health", str(path)),
    )
    tenants = read_tenants(
        table.get("tenants", {}),
        policies=settings.schedules,
        health=settings.health,
        quota=settings.quota,
        source=str(path),
    )
    settings = msgspec.structs.replace(settings, tenants=tenants)
    _check(settings, sources)
    sources.update({name: str(path) for name in TABLES if name in table})
    return settings, sources


def _config_path(config: str | None, env: Mapping[str, str]) -> tuple[Path, bool]:
    """The file, and whether it was asked for by name (then it must be there)."""
    named = config if config is not None else env.get(ENV_CONFIG)
    return (Path(named), True) if named else (Path(DEFAULT_FILE), False)


def _take(
    given: dict[str, Any],
    sources: dict[str, str],
    name: str,
    value: Any,
    *,
    source: str,
    strict: bool,
) -> None:
    setting = _TABLE.get(name)
    if setting is None:
        raise BadSetting(f"{name} (from {source}) is not the name of a setting.")
    if not strict and isinstance(value, str):
        value = read_list(value) if isinstance(setting.default, tuple) else value.strip()
    try:
        given[name] = msgspec.convert(value, setting.type, strict=strict)
    except msgspec.ValidationError:
        raise _bad(name, value, source) from None
    sources[name] = source


def _bad(name: str, value: Any, source: str, allowed: str = "") -> BadSetting:
    shown = "****" if name in _HIDDEN else repr(value)
    rule = allowed or _TABLE[name].allowed
    return BadSetting(f"{name} = {shown} (from {source}) must be {rule}.")


def _check_texts(settings: Settings, bad: Callable[..., BadSetting]) -> None:
    if not settings.data:
        raise bad("data")
    for name, form in _FORMS.items():
        if (text := getattr(settings, name)) and not form.match(text):
            raise bad(name)
    if settings.role != "both" and not settings.database_url:
        raise bad("role", "both: SQLite serves one process; set database_url")


def _check(settings: Settings, sources: Mapping[str, str]) -> None:
    """What types cannot say: forms of text, and limits that know each other."""

    def bad(name: str, allowed: str = "") -> BadSetting:
        source = sources.get(name, "its default")
        return _bad(name, getattr(settings, name), source, allowed)

    found = _LISTEN.fullmatch(settings.listen)
    if found is None or int(found["port"]) > 65_535:
        raise bad("listen")
    _check_texts(settings, bad)
    if settings.policy not in settings.schedules:
        raise bad("policy", f"one of {', '.join(settings.schedules)}")
    most = min(settings.fresh_slots, settings.retry_slots)
    if settings.endpoint_slots > most:
        raise bad("endpoint_slots", f"1 to {most} slots: not more than a lane has")
    try:
        settings.reach()
    except WrongReach as error:
        raise bad(error.setting, error.allowed) from None
    if settings.ca_file and not Path(settings.ca_file).is_file():
        raise bad("ca_file", "a file that is there")
