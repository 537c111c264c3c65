"""Reads the settings at the start; a wrong one stops the start.

Settings come from ``homing.toml``, then the environment (``HOMING_`` and the key in capitals), then
flags: the later wins. A setting that is unknown or out of range is an error that names its source,
never a silent default; only the variables of Kubernetes services are ignored. Only this package
reads the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_origin

import msgspec
from msgspec import Struct

from homing.errors import BadSetting, Invalid
from homing.model import NODES
from homing.policy.fair import fair_problem
from homing.policy.health import HealthRules
from homing.policy.payload_fields import path_problem
from homing.policy.url import parse_url
from homing.server.settings.groups import NoticeSettings, Settings
from homing.server.settings.kubernetes import is_injected
from homing.server.settings.reach import WrongReach
from homing.server.settings.tables import (
    TABLES,
    read_health,
    read_policies,
    read_tenants,
    read_toml,
)

ENV_PREFIX = "HOMING_"
ENV_CONFIG = "HOMING_CONFIG"
ENV_SERVER = "HOMING_SERVER"  # the server that other commands call; no setting of a server
DEFAULT_FILE = "homing.toml"

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


# --- the table of settings ------------------------------------------------------------------


class Setting(Struct, frozen=True):
    """One setting as the reference page and error messages show it."""

    name: str  # its key
    group: str
    field: str
    type: Any
    default: Any
    allowed: str
    sentence: str
    is_secret: bool

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def value(self, settings: Settings) -> Any:
        return getattr(getattr(settings, self.group), self.field)

    def shown(self, settings: Settings) -> str:
        """Its value as text; a secret is masked."""
        value = self.value(settings)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, tuple):
            return ", ".join(value)
        return "****" if self.is_secret and value else str(value)


def settings_table() -> tuple[Setting, ...]:
    """Every setting that a file, the environment or a flag may give."""
    return tuple(_TABLE.values())


def _setting(group: str, field: msgspec.structs.FieldInfo) -> Setting:
    (meta,) = field.type.__metadata__
    extra = meta.extra or {}
    kind = field.type.__origin__
    choices = kind.__args__ if get_origin(kind) is Literal else ()
    if choices:
        allowed = " or ".join(choices) if len(choices) == 2 else f"one of {', '.join(choices)}"
    elif kind is bool:
        allowed = "true or false"
    elif meta.ge is not None:
        allowed = f"{meta.ge} to {meta.le} {extra['unit']}".rstrip()
    else:
        allowed = extra["allowed"]
    return Setting(
        name=field.encode_name,
        group=group,
        field=field.name,
        type=field.type,
        default=field.default,
        allowed=allowed,
        sentence=meta.description,
        is_secret=extra.get("secret", False),
    )


_TABLE = {
    field.encode_name: _setting(group.name, field)
    for group in msgspec.structs.fields(Settings)
    for field in msgspec.structs.fields(group.type)
    if field.encode_name not in TABLES
}


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
    """The settings, and the source of each that is not its default; raises BadSetting."""
    env = dict(os.environ if environ is None else environ)
    path, is_named = _config_path(config, env)
    table = read_toml(path, is_named=is_named)
    given: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value in table.items():
        if name not in TABLES:
            _take(given, sources, name, value, source=str(path), strict=True)
    for variable, text in sorted(env.items()):
        if not variable.startswith(ENV_PREFIX) or variable in {ENV_CONFIG, ENV_SERVER}:
            continue
        if is_injected(variable, text):
            continue
        name = variable.removeprefix(ENV_PREFIX).lower()
        if name not in _TABLE or variable != _TABLE[name].env:
            advice = _did_you_mean(name, in_environment=True)
            raise BadSetting(
                f"{variable} (from the environment) is not the name of a setting.{advice}"
            )
        _take(given, sources, name, text, source=variable, strict=False)
    for name, value in (flags or {}).items():
        if value is not None:
            _take(given, sources, name, value, source=_TABLE[name].flag, strict=False)
    settings = Settings.of(**given, **_tables(given, table, str(path)))
    _check(settings, sources)
    sources.update({name: str(path) for name in TABLES if name in table})
    return settings, sources


def ignored_variables(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The variables that Kubernetes has set for services whose names begin with "homing"."""
    env = os.environ if environ is None else environ
    return tuple(sorted(name for name, text in env.items() if is_injected(name, text)))


_OTHER_NAMES = {  # that people know from other programs
    **dict.fromkeys(("port", "host", "bind", "address", "listen_address"), "listen"),
    **dict.fromkeys(("dsn", "db", "postgres_url", "postgresql_url"), "database_url"),
}


def _did_you_mean(name: str, *, in_environment: bool) -> str:
    """A sentence with the most similar known name; empty if none is similar."""
    others = ("config", "server") if in_environment else TABLES
    wanted = name.lower().replace("-", "_")
    close = [_OTHER_NAMES[wanted]] if wanted in _OTHER_NAMES else []
    close = close or get_close_matches(wanted, (*_TABLE, *others), n=1, cutoff=0.7)
    if not close:
        return ""
    return f" Did you mean {ENV_PREFIX + close[0].upper() if in_environment else close[0]}?"


def _config_path(config: str | None, env: Mapping[str, str]) -> tuple[Path, bool]:
    """The file, and whether it was asked for by name: then it must exist."""
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
        advice = _did_you_mean(name, in_environment=False)
        raise BadSetting(f"{name} (from {source}) is not the name of a setting.{advice}")
    if not strict and isinstance(value, str):
        value = _split(value) if isinstance(setting.default, tuple) else value.strip()
        if name == "processes" and value.isdecimal():
            value = int(value)  # msgspec reads no number from text where a word is allowed, too.
    try:
        given[name] = msgspec.convert(value, setting.type, strict=strict)
    except msgspec.ValidationError:
        raise _bad(setting, value, source) from None
    sources[name] = source


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _tables(given: dict[str, Any], table: dict[str, Any], source: str) -> dict[str, Any]:
    """The tables of the file; those of tenants build on all that is set for every tenant."""
    policies = read_policies(table.get("policies", {}), source)
    health = read_health(table.get("health", {}), HealthRules(), "health", source)
    general = Settings.of(**given, policies=policies)
    tenants = read_tenants(
        table.get("tenants", {}),
        policies=general.delivery.schedules,
        health=health,
        quota=general.tenants.quota,
        source=source,
    )
    return {"policies": policies, "health": health, "tenants": tenants}


def _bad(setting: Setting, value: Any, source: str, allowed: str = "") -> BadSetting:
    shown = "****" if setting.is_secret else repr(value)
    return BadSetting(
        f"{setting.name} = {shown} (from {source}) must be {allowed or setting.allowed}."
    )


def _check(settings: Settings, sources: Mapping[str, str]) -> None:
    """The rules that a type cannot state, and those between settings; raises BadSetting."""

    def bad(name: str, allowed: str = "") -> BadSetting:
        setting = _TABLE[name]
        return _bad(setting, setting.value(settings), sources.get(name, "its default"), allowed)

    found = _ADDRESS.fullmatch(settings.listen.address)
    if found is None or int(found["port"]) > 65_535:
        raise bad("listen")
    if settings.fleet.role != "both" and not settings.database.url:
        raise bad("role", "both: SQLite serves one process; set database_url")
    if settings.fleet.processes not in {1, "auto"} and not settings.database.url:
        raise bad("processes", "1 or auto: SQLite serves one process; set database_url for more")
    delivery = settings.delivery
    if delivery.policy not in delivery.schedules:
        raise bad("policy", f"one of {', '.join(delivery.schedules)}")
    lane_slots = min(delivery.fresh_slots, delivery.retry_slots)
    if delivery.endpoint_slots > lane_slots:
        raise bad("endpoint_slots", f"1 to {lane_slots} slots: not more than a lane has")
    _check_paths(settings, bad)
    try:
        settings.reach.rules()
        settings.telemetry.networks()
        settings.people.options()
        settings.egress.proxy()
        settings.egress.sources()
        settings.egress.published()
    except WrongReach as error:
        raise bad(error.setting, error.allowed) from None
    if not settings.fleet.nodes:
        raise bad("node_numbers", f"first-last, like 0-31, from 0 to {NODES - 1}")
    if settings.reach.ca_file and not Path(settings.reach.ca_file).is_file():
        raise bad("ca_file", "a file that is there")
    _check_certificate(settings, bad)
    _check_notices(settings.notices, bad)
    _check_origin(settings, bad)


def _check_origin(settings: Settings, bad: Callable[[str, str], BadSetting]) -> None:
    if settings.delivery.verification == "cloudevents" and not settings.notices.public_url:
        raise bad("public_url", "a URL where verification is cloudevents")


def _check_certificate(settings: Settings, bad: Callable[[str, str], BadSetting]) -> None:
    egress = settings.egress
    if bool(egress.certificate_file) != bool(egress.key_file):
        missing = "client_key_file" if egress.certificate_file else "client_certificate_file"
        raise bad(missing, "a path: a client certificate and its key belong together")
    for name in ("client_certificate_file", "client_key_file"):
        path = _TABLE[name].value(settings)
        if path and not Path(path).is_file():
            raise bad(name, "a file that is there")


def _check_paths(settings: Settings, bad: Callable[[str, str], BadSetting]) -> None:
    if (reason := path_problem(settings.search.fields)) is not None:
        raise bad("search_fields", reason)
    if (reason := fair_problem(settings.delivery.fair_by)) is not None:
        raise bad("fair_by", reason)


def _check_notices(notices: NoticeSettings, bad: Callable[[str, str], BadSetting]) -> None:
    if notices.public_url:
        try:
            parse_url(notices.public_url)
        except Invalid as error:
            raise bad("public_url", f"a URL: it {error.problems[0].reason}") from None
    if notices.smtp_ca_file and not Path(notices.smtp_ca_file).is_file():
        raise bad("smtp_ca_file", "a file that is there")
    if notices.smtp_host and not notices.smtp_from:
        raise bad("smtp_from", "an e-mail address where smtp_host is set")
    if notices.smtp_user and notices.smtp_security == "none":
        raise bad("smtp_security", "starttls or tls where smtp_user is set: the password is secret")


def environ_of_children() -> dict[str, str]:
    """The environment without our settings: a child process gets what it needs as arguments,
    and secrets are in fewer places.
    """
    return {name: it for name, it in os.environ.items() if not name.startswith(ENV_PREFIX)}
