"""Reads the tables of ``homing.toml``: policies, health rules, and settings of single tenants."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from homing.errors import BadSetting, Invalid
from homing.policy.egress import IdentityPaths
from homing.policy.fair import fair_problem
from homing.policy.health import HealthRules
from homing.policy.presets import PRESETS
from homing.policy.quota import Quota
from homing.policy.retry import Schedule
from homing.policy.tables import HEALTH_RANGES, PolicyTable, rules_from, schedule_from
from homing.server.settings.groups import Count, RetentionDays, TenantSettings

TABLES = ("policies", "health", "tenants")  # keys of the file only

_T = TypeVar("_T")
_POLICY_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_TENANT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class _TenantTable(Struct, frozen=True, forbid_unknown_fields=True):
    policy: str | None = None
    health: dict[str, Any] | None = None
    publish_per_second: Count | None = None
    pending_max: Count | None = None
    subscriptions_max: Count | None = None
    changes_per_minute: Count | None = None
    retention_days: RetentionDays | None = None
    client_certificate_file: str = ""
    client_key_file: str = ""
    ca_file: str = ""
    fair_by: str | None = None
    event_check: Literal["off", "warn", "refuse"] | None = None
    unknown_event_types: Literal["allow", "refuse"] | None = None


def read_toml(path: Path, *, is_named: bool) -> dict[str, Any]:
    """The contents of the file; none if it does not exist and was not named."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if is_named:
            raise BadSetting(f"The file {path} is not there.") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"The file {path} cannot be read: {error}.") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"The file {path} is not TOML: {error}.") from None


def read_policies(tables: Any, source: str) -> dict[str, Schedule]:
    """The operator's own policies; raises BadSetting."""
    return {
        name: _policy(name, table, source)
        for name, table in _dict(tables, "policies", source).items()
    }


def _policy(name: str, table: Any, source: str) -> Schedule:
    where = f"policies.{name}"
    if not _POLICY_NAME.fullmatch(name):
        raise _wrong(where, source, "its name must be 1 to 64 of a-z 0-9 -")
    if name in PRESETS:
        raise _wrong(where, source, "a preset has this name already")
    read = _convert(table, PolicyTable, where, source)
    try:
        return schedule_from(name, read)
    except Invalid as error:
        reason = "; ".join(" ".join(one).strip() for one in error.problems)
        raise _wrong(where, source, reason) from None


def read_health(table: Any, base: HealthRules, where: str, source: str) -> HealthRules:
    """The rules of ``base`` with the numbers of the table; raises BadSetting."""
    values = _dict(table, where, source)
    try:
        return rules_from(values, base)
    except Invalid as error:
        field, reason = error.problems[0]
        if field not in HEALTH_RANGES:
            raise _wrong(f"{where}.{field}", source, reason) from None
        value = values[field]
        raise BadSetting(f"{where}.{field} = {value!r} (from {source}) {reason}.") from None


def read_tenants(
    tables: Any,
    *,
    policies: Collection[str],
    health: HealthRules,
    quota: Quota,
    source: str,
) -> dict[str, TenantSettings]:
    """The settings of each tenant in the table; raises BadSetting."""
    tenants: dict[str, TenantSettings] = {}
    for name, table in _dict(tables, "tenants", source).items():
        where = f"tenants.{name}"
        if not _TENANT_NAME.fullmatch(name):
            raise _wrong(where, source, "its name must be 1 to 64 of A-Z a-z 0-9 _ -")
        read = _convert(table, _TenantTable, where, source)
        if read.policy is not None and read.policy not in policies:
            known = ", ".join(policies)
            raise _wrong(f"{where}.policy = {read.policy!r}", source, f"must be one of {known}")
        if (reason := fair_problem(read.fair_by or "")) is not None:
            raise _wrong(f"{where}.fair_by = {read.fair_by!r}", source, f"must be {reason}")
        rules = None
        if read.health is not None:
            rules = read_health(read.health, health, f"{where}.health", source)
        tenants[name] = TenantSettings(
            policy=read.policy,
            health=rules,
            quota=_own_quota(read, quota),
            retention_days=read.retention_days,
            identity=_files(read, where, source),
            fair_by=read.fair_by,
            event_check=read.event_check,
            unknown_event_types=read.unknown_event_types,
        )
    return tenants


def _files(read: _TenantTable, where: str, source: str) -> IdentityPaths:
    """The files of a tenant's client certificate and authorities; raises BadSetting."""
    if bool(read.client_certificate_file) != bool(read.client_key_file):
        missing = "client_key_file" if read.client_certificate_file else "client_certificate_file"
        raise _wrong(f"{where}.{missing}", source, "a certificate and its key belong together")
    for name in ("client_certificate_file", "client_key_file", "ca_file"):
        path = getattr(read, name)
        if path and not Path(path).is_file():
            raise _wrong(f"{where}.{name} = {path!r}", source, "must be a file that is there")
    return IdentityPaths(read.client_certificate_file, read.client_key_file, read.ca_file)


def _own_quota(read: _TenantTable, base: Quota) -> Quota | None:
    """The general quota with the numbers of the table; None if it has none."""
    own = {name: getattr(read, name) for name in Quota.__struct_fields__}
    own = {name: value for name, value in own.items() if value is not None}
    return msgspec.structs.replace(base, **own) if own else None


def _dict(value: Any, where: str, source: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(where, source, "must be a table")
    return value


def _convert(table: Any, kind: type[_T], where: str, source: str) -> _T:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise _wrong(where, source, str(error)) from None


def _wrong(where: str, source: str, reason: str) -> BadSetting:
    return BadSetting(f"{where} (from {source}): {reason}.")
