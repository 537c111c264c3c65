"""Policies and health rules as tables of ``homing.toml`` or of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from homing.errors import FieldProblem, Invalid
from homing.policy.health import HEALTH_PRESETS, HealthRules
from homing.policy.presets import ONCE, check_schedule
from homing.policy.retry import Anchor, OnGone, OnRetryAfter, Schedule, exponential

DAY_MS = 86_400_000

PRESET = "preset"  # in a table of health rules: the rules that its numbers change
HEALTH_RANGES = {
    "rate_after_attempts": (1, 1_000_000),
    "failure_percent": (1, 100),
    "consecutive_disable": (1, 10_000_000),
    "consecutive_freeze": (1, 10_000_000),
    "freeze_after_ms": (1_000, 3_650 * DAY_MS),
    "consecutive_freeze_always": (1, 10_000_000),
    "probe_every_ms": (1_000, DAY_MS),
}


class PolicyTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A policy as written: either base and retries, or a list of delays."""

    base_ms: int | None = None
    retries: int | None = None
    delays_ms: tuple[int, ...] | None = None
    anchor: Anchor = Anchor.FIRST_FAILURE
    window_ms: int | None = None
    jitter: float = 0.0
    deadline_ms: int = 5_000
    on_gone: OnGone = OnGone.RETRY
    retry_after: OnRetryAfter = OnRetryAfter.OBEY


def schedule_from(name: str, table: PolicyTable) -> Schedule:
    """The schedule of a table; without ``window_ms`` its window ends with the last retry.

    If it has no retries either, its window is that of ``once``. Raises Invalid; a problem without
    a field is about the whole table.
    """
    delays = _delays(table)
    first = table.anchor is Anchor.FIRST_FAILURE
    longest = (max(delays) if first else sum(delays)) if delays else ONCE.window_ms
    schedule = Schedule(
        name=name,
        delays_ms=delays,
        anchor=table.anchor,
        window_ms=longest if table.window_ms is None else table.window_ms,
        jitter=table.jitter,
        deadline_ms=table.deadline_ms,
        on_gone=table.on_gone,
        retry_after=table.retry_after,
    )
    check_schedule(schedule)
    return schedule


def _delays(table: PolicyTable) -> tuple[int, ...]:
    based = table.base_ms is not None or table.retries is not None
    if table.delays_ms is not None and not based:
        return table.delays_ms
    if table.delays_ms is None and table.base_ms is None and table.retries == 0:
        return ()
    if table.delays_ms is not None or table.base_ms is None or table.retries is None:
        reason = "give either delays_ms, or base_ms and retries"
        raise Invalid(problems=(FieldProblem("", reason),))
    problems = []
    if not 1 <= table.base_ms <= DAY_MS:
        problems.append(FieldProblem("base_ms", f"must be 1 to {DAY_MS}"))
    if not 0 <= table.retries <= 40:
        problems.append(FieldProblem("retries", "must be 0 to 40"))
    if problems:
        raise Invalid(problems=tuple(problems))
    return exponential(table.base_ms, table.retries)


def rules_from(values: Mapping[str, Any], base: HealthRules) -> HealthRules:
    """The rules of ``base`` with these numbers; raises Invalid, with all problems at once.

    A preset takes the place of ``base``.
    """
    problems = []
    values = dict(values)
    if (preset := values.pop(PRESET, None)) is not None:
        if not isinstance(preset, str) or preset not in HEALTH_PRESETS:
            problems.append(FieldProblem(PRESET, f"must be one of {', '.join(HEALTH_PRESETS)}"))
        else:
            base = HEALTH_PRESETS[preset]
    for name, value in values.items():
        if name not in HEALTH_RANGES:
            problems.append(FieldProblem(name, "is not the name of a setting"))
            continue
        low, high = HEALTH_RANGES[name]
        if type(value) is not int or not low <= value <= high:
            problems.append(FieldProblem(name, f"must be {low} to {high}"))
    if problems:
        raise Invalid(problems=tuple(problems))
    return msgspec.structs.replace(base, **values)
