"""The demo's policy: the rules of production with smaller times and counts."""

from __future__ import annotations

from collections.abc import Iterator

from homing.cli.output import span
from homing.engine.options import EngineOptions
from homing.policy.health import HealthRules
from homing.policy.presets import WORKFRONT
from homing.policy.retry import Schedule

SPEED = 5_000
COUNTS = {100: 10, 2_000: 40, 50_000: 1_000}
DEADLINE_MS = 1_000  # not divided: the network is as fast as ever

_PRODUCTION = HealthRules()


def demo_rules(speed: int) -> HealthRules:
    """The health rules, with times ÷ speed."""
    return HealthRules(
        rate_after_attempts=COUNTS[_PRODUCTION.rate_after_attempts],
        failure_percent=_PRODUCTION.failure_percent,
        consecutive_disable=COUNTS[_PRODUCTION.consecutive_disable],
        consecutive_freeze=COUNTS[_PRODUCTION.consecutive_freeze],
        freeze_after_ms=_PRODUCTION.freeze_after_ms // speed,
        consecutive_freeze_always=COUNTS[_PRODUCTION.consecutive_freeze_always],
        probe_every_ms=_PRODUCTION.probe_every_ms // speed,
    )


def demo_schedule(speed: int) -> Schedule:
    """Retry n is due ((2ⁿ) − 1) × 84.8 s ÷ speed after the first failure."""
    delays = tuple(delay // speed for delay in WORKFRONT.delays_ms)
    return Schedule(
        name="demo",
        delays_ms=delays,
        anchor=WORKFRONT.anchor,
        window_ms=delays[-1],
        deadline_ms=DEADLINE_MS,
    )


def demo_options(speed: int) -> EngineOptions:
    schedule = demo_schedule(speed)
    return EngineOptions(
        quiet_ms=0,
        schedules={schedule.name: schedule},
        policy=schedule.name,
        health=demo_rules(speed),
    )


def policy_lines(speed: int) -> Iterator[tuple[str, str, str]]:
    """Each rule: its name, its value in the demo, its value in production."""
    rules, schedule = demo_rules(speed), demo_schedule(speed)
    last = len(schedule.delays_ms)
    yield (
        f"{last} retries after a failure, first … last",
        f"{schedule.delays_ms[0]} ms … {_seconds(schedule.delays_ms[-1])}",
        "85 s … 48 h 13 min",
    )
    yield (
        "disabled if this share of attempts failed",
        f"> {rules.failure_percent} % of {rules.rate_after_attempts} attempts",
        f"> {_PRODUCTION.failure_percent} % of {_PRODUCTION.rate_after_attempts}",
    )
    yield (
        "disabled after failures in a row",
        f"{rules.consecutive_disable}",
        f"{_PRODUCTION.consecutive_disable:,}",
    )
    yield (
        "while disabled, one probe every",
        span(rules.probe_every_ms),
        "10 min",
    )
    yield (
        "frozen after failures in a row without success for",
        f"> {rules.consecutive_freeze}, {_seconds(rules.freeze_after_ms)}",
        f"> {_PRODUCTION.consecutive_freeze:,}, 72 h",
    )
    yield (
        "frozen after failures in a row, always",
        f"{rules.consecutive_freeze_always:,}",
        f"{_PRODUCTION.consecutive_freeze_always:,}",
    )


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"


def production_time(ms: int, speed: int) -> str:
    """``2 d 10 h``: the time in production that corresponds to this time in the demo."""
    hours = ms * speed // 3_600_000
    days, hour = divmod(hours, 24)
    return f"{days} d {hour:02d} h" if days else f"{hour} h"
