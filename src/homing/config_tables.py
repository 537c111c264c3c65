"""The tables of ``homing.toml``: policies, health rules, and what tenants have of their own."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from homing.errors import BadSetting, Invalid
from homing.policy.health import HealthRules
from homing.policy.presets import PRESETS, check_schedule
from homing.policy.retry import Anchor, Schedule, exponential

DAY_MS = 86_400_000

_T = TypeVar("_T")
_POLICY_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_TENANT_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class TenantSettings(Struct, frozen=True):
    """What a tenant has of its own."""

    policy: str | None = None
    health: HealthRules | None = None


class PolicyTable(Struct, frozen=True, forbid_unknown_fields=True):
    """``[policies.NAME]``: either base and retries, or a list of delays."""

    base_ms: int | None = None
    retries: int | None = None
    delays_ms: tuple[int, ...] | None = None
    anchor: Anchor = Anchor.FIRST_FAILURE
    window_ms: int | None = None
    jitter: float = 0.0
    deadline_ms: int = 5_000


class _TenantTable(Struct, frozen=True, forbid_unknown_fields=True):
    policy: str | None = None
    health: dict[str, Any] | None = None


HEALTH_RANGES = {
    "rate_after_attempts": (1, 1_000_000),
    "failure_percent": (1, 100),
    "consecutive_disable": (1, 10_000_000),
    "consecutive_freeze": (1, 10_000_000),
    "freeze_after_ms": (1_000, 3_650 * DAY_MS),
    "consecutive_freeze_always": (1, 10_000_000),
    "probe_every_ms": (1_000, DAY_MS),
}


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
    if read.delays_ms is not None:
        if read.base_ms is not None or read.retries is not None:
            raise _wrong(where, source, "give either delays_ms, or base_ms and retries")
        delays = read.delays_ms
    elif read.base_ms is not None and read.retries is not None:
        if not (1 <= read.base_ms <= DAY_MS and 1 <= read.retries <= 40):
            raise _wrong(where, source, "base_ms must be 1 to 86400000 and retries 1 to 40")
        delays = exponential(read.base_ms, read.retries)
    else:
        raise _wrong(where, source, "give either delays_ms, or base_ms and retries")
    first = read.anchor is Anchor.FIRST_FAILURE
    longest = (max(delays, default=0)) if first else sum(delays)
    schedule = Schedule(
        name=name,
        delays_ms=delays,
        anchor=read.anchor,
        window_ms=longest if read.window_ms is None else read.window_ms,
        jitter=read.jitter,
        deadline_ms=read.deadline_ms,
    )
    try:
        check_schedule(schedule)
    except Invalid as error:
        raise _wrong(where, source, "; ".join(" ".join(one) for one in error.problems)) from None
    return schedule


def read_health(table: Any, base: HealthRules, where: str, source: str) -> HealthRules:
    """These rules with some numbers replaced; raises BadSetting."""
    values = _dict(table, where, source)
    for name, value in values.items():
        if name not in HEALTH_RANGES:
            raise _wrong(f"{where}.{name}", source, "is not the name of a setting")
        low, high = HEALTH_RANGES[name]
        if type(value) is not int or not low <= value <= high:
            raise BadSetting(f"{where}.{name} = {value!r} (from {source}) must be {low} to {high}.")
    return msgspec.structs.replace(base, **values)


def read_tenants(
    tables: Any, *, policies: Collection[str], health: HealthRules, source: str
) -> dict[str, TenantSettings]:
    """Each tenant with its policy and its health rules; raises BadSetting."""
    tenants: dict[str, TenantSettings] = {}
    for name, table in _dict(tables, "tenants", source).items():
        where = f"tenants.{name}"
        if not _TENANT_NAME.fullmatch(name):
            raise _wrong(where, source, "its name must be 1 to 64 of A-Z a-z 0-9 _ -")
        read = _convert(table, _TenantTable, where, source)
        if read.policy is not None and read.policy not in policies:
            known = ", ".join(policies)
            raise _wrong(f"{where}.policy = {read.policy!r}", source, f"must be one of {known}")
        rules = None
        if read.health is not None:
            rules = read_health(read.health, health, f"{where}.health", source)
        tenants[name] = TenantSettings(policy=read.policy, health=rules)
    return tenants


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
