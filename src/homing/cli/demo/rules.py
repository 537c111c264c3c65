"""The demo's own policy: the rules of production with its times and counts divided."""

from __future__ import annotations

from collections.abc import Iterator

from homing.cli.output import span
from homing.engine.options import EngineOptions
from homing.policy.health import HealthRules
from homing.policy.presets import WORKFRONT
from homing.policy.retry import Schedule

SPEED = 5_000
COUNTS = {100: 10, 2_000: 40, 50_000: 1_000}
DEADLINE_MS = 1_000  # a real one: the network is not divided by anything

_REAL = HealthRules()


def demo_rules(speed: int) -> HealthRules:
    """The health rules, with times ÷ speed."""
    return HealthRules(
        rate_after_attempts=COUNTS[_REAL.rate_after_attempts],
        failure_percent=_REAL.failure_percent,
        consecutive_disable=COUNTS[_REAL.consecutive_disable],
        consecutive_freeze=COUNTS[_REAL.consecutive_freeze],
        freeze_after_ms=_REAL.freeze_after_ms // speed,
        consecutive_freeze_always=COUNTS[_REAL.consecutive_freeze_always],
        probe_every_ms=_REAL.probe_every_ms // speed,
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
    """What holds, in the demo, in production."""
    rules, schedule = demo_rules(speed), demo_schedule(speed)
    last = len(schedule.delays_ms)
    yield (
        f"{last} retries after a failure, from … to",
        f"{schedule.delays_ms[0]} ms … {_seconds(schedule.delays_ms[-1])}",
        "85 s … 48 h 13 min",
    )
    yield (
        "disabled: failed of more than",
        f"> {rules.failure_percent} % of {rules.rate_after_attempts} attempts",
        f"> {_REAL.failure_percent} % of {_REAL.rate_after_attempts}",
    )
    yield (
        "disabled: failed in a row",
        f"{rules.consecutive_disable}",
        f"{_REAL.consecutive_disable:,}",
    )
    yield (
        "disabled means one probe every",
        span(rules.probe_every_ms),
        "10 min",
    )
    yield (
        "frozen: failed in a row, and none succeeded for",
        f"> {rules.consecutive_freeze}, {_seconds(rules.freeze_after_ms)}",
        f"> {_REAL.consecutive_freeze:,}, 72 h",
    )
    yield (
        "frozen: failed in a row",
        f"{rules.consecutive_freeze_always:,}",
        f"{_REAL.consecutive_freeze_always:,}",
    )


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.1f} s"


def production_time(ms: int, speed: int) -> str:
    """``2 d 10 h``: how long this moment of the demo is in production."""
    hours = ms * speed // 3_600_000
    days, hour = divmod(hours, 24)
    return f"{days} d {hour:02d} h" if days else f"{hour} h"
