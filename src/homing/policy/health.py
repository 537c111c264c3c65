"""When an endpoint is disabled, frozen and enabled, and how many slots it has (slow start).

Two kinds of rules watch an endpoint. A **rate** (over 70 % of more than 100 attempts) finds an
endpoint that mostly fails; **failures in a row** find one that stopped working after a healthy
time, where a rate over all attempts would rise too slowly. A disabled endpoint recovers by
itself: it is probed every ten minutes, and the first success enables it. A frozen endpoint does
not: it has failed thousands of times over days, and only a person enables it. Rules are checked
after failures only, the freezing rules first, so that a hopeless endpoint is frozen even where
another rule would only disable it.

An outcome counts when it arrives, whatever the state of the endpoint is by then: attempts in flight
are never cancelled. A late success at a frozen endpoint is therefore counted and changes no state;
at a disabled endpoint it enables the endpoint, just as the success of a probe does.

``Ramp`` is slow start: an endpoint that was enabled again has one slot, and gains more by
successes.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from homing.model import Health, State

WARNED_RATE = 1  # bits of ``Health.warned``
WARNED_CONSECUTIVE = 2
WARNED_NO_SUCCESS = 4


class HealthRules(Struct, frozen=True):
    """The numbers of the rules, for the installation or for a tenant."""

    rate_after_attempts: int = 100
    failure_percent: int = 70
    consecutive_disable: int = 2_000
    consecutive_freeze: int = 2_000
    freeze_after_ms: int = 72 * 3_600_000
    consecutive_freeze_always: int = 50_000
    probe_every_ms: int = 600_000


# Adobe publishes two freeze rules. ``workfront`` is that of the page on retries, which is the newer
# one. ``workfront-faq`` is that of the FAQ: no success for seven days, and at least 2,000 failures
# in a row. The FAQ wants these failures within 72 hours; at one probe in ten minutes a disabled URL
# has 432 in that time and would never be frozen, so they count since the last success.
HEALTH_PRESETS: dict[str, HealthRules] = {
    "workfront": HealthRules(),
    "workfront-faq": HealthRules(consecutive_freeze=1_999, freeze_after_ms=7 * 24 * 3_600_000),
}


class Change(Struct, frozen=True):
    """A change of state, with its rule and the numbers that led to it."""

    before: State
    after: State
    rule: str
    numbers: dict[str, int]


class HalfWay(Struct, frozen=True):
    """A warning: half of a rule's limit has been reached."""

    rule: str
    numbers: dict[str, int]


class Verdict(Struct, frozen=True, gc=False):
    """An endpoint's health after an outcome or a command, with the change or warning it caused."""

    health: Health
    change: Change | None = None
    warning: HalfWay | None = None


def after_successes(health: Health, finished_at: Sequence[int]) -> Health:
    """Count successes that followed each other; the state stays as it is."""
    return replace(
        health,
        attempts=health.attempts + len(finished_at),
        consecutive_failures=0,
        first_attempt_at=_first(health, finished_at[0]),
        last_success_at=finished_at[-1],
        warned=health.warned & WARNED_RATE,
    )


def after_success(health: Health, *, now: int) -> Verdict:
    """Count a success; a disabled endpoint becomes enabled, a frozen one stays frozen."""
    counted = after_successes(health, (now,))
    if health.state is not State.DISABLED:
        return Verdict(counted)
    numbers = {"disabled_ms": now - health.since}
    return Verdict(
        replace(
            counted,
            state=State.ENABLED,
            since=now,
            enabled_since=now,
            attempts=0,
            failures=0,
            warned=0,
        ),
        Change(State.DISABLED, State.ENABLED, "success", numbers),
    )


def after_failure(health: Health, rules: HealthRules, *, now: int) -> Verdict:
    """Count a failure and check the rules: freeze first, then disable, then warn."""
    counted = replace(
        health,
        attempts=health.attempts + 1,
        failures=health.failures + 1,
        consecutive_failures=health.consecutive_failures + 1,
        first_attempt_at=_first(health, now),
    )
    if health.state is State.FROZEN:
        return Verdict(counted)
    change = _freezing(counted, rules, now=now)
    if change is None and health.state is State.ENABLED:
        change = _disabling(counted, rules)
    if change is not None:
        return Verdict(replace(counted, state=change.after, since=now), change)
    bit, warning = _half_way(counted, rules, now=now)
    if warning is None:
        return Verdict(counted)
    return Verdict(replace(counted, warned=counted.warned | bit), warning=warning)


def enable(health: Health, *, now: int) -> Verdict:
    """The verdict when a person enables an endpoint in any state: its counters start again.

    Enabling an enabled endpoint is no change of state: only the counters start again. Its
    ``enabled_since`` stays, so that no fresh delivery moves to the retry lane.
    """
    reset = replace(
        health,
        attempts=0,
        failures=0,
        consecutive_failures=0,
        manual_enable_at=now,
        warned=0,
    )
    if health.state is State.ENABLED:
        return Verdict(reset)
    return Verdict(
        replace(reset, state=State.ENABLED, since=now, enabled_since=now),
        Change(health.state, State.ENABLED, "enabled_by_person", _counts(health)),
    )


def freeze(health: Health, *, now: int) -> Verdict:
    """The verdict when a person freezes an endpoint; a frozen endpoint does not change."""
    if health.state is State.FROZEN:
        return Verdict(health)
    return Verdict(
        replace(health, state=State.FROZEN, since=now),
        Change(health.state, State.FROZEN, "frozen_by_person", _counts(health)),
    )


def _first(health: Health, now: int) -> int:
    return now if health.first_attempt_at is None else health.first_attempt_at


def _counts(health: Health) -> dict[str, int]:
    return {
        "attempts": health.attempts,
        "failures": health.failures,
        "consecutive_failures": health.consecutive_failures,
    }


def _without_success_ms(health: Health, now: int) -> int:
    marks = (health.last_success_at, health.first_attempt_at, health.manual_enable_at)
    return now - max(mark for mark in marks if mark is not None)


def _freezing(health: Health, rules: HealthRules, *, now: int) -> Change | None:
    row = health.consecutive_failures
    if row >= rules.consecutive_freeze_always:
        numbers = {"consecutive_failures": row, "limit": rules.consecutive_freeze_always}
        return Change(health.state, State.FROZEN, "hopeless", numbers)
    if row > rules.consecutive_freeze:
        alone_ms = _without_success_ms(health, now)
        if alone_ms > rules.freeze_after_ms:
            numbers = _no_success_numbers(row, alone_ms, rules)
            return Change(health.state, State.FROZEN, "no_success", numbers)
    return None


def _disabling(health: Health, rules: HealthRules) -> Change | None:
    if _rate_over(health, rules, parts=1):
        numbers = _rate_numbers(health, rules)
        return Change(State.ENABLED, State.DISABLED, "failure_rate", numbers)
    row = health.consecutive_failures
    if row >= rules.consecutive_disable:
        numbers = {"consecutive_failures": row, "limit": rules.consecutive_disable}
        return Change(State.ENABLED, State.DISABLED, "consecutive_failures", numbers)
    return None


def _half_way(health: Health, rules: HealthRules, *, now: int) -> tuple[int, HalfWay | None]:
    """The first warning that is due and not yet given; one per failure.

    Rules that disable give no warning while the endpoint is disabled.
    """
    row = health.consecutive_failures
    if health.state is State.ENABLED:
        if not health.warned & WARNED_RATE and _rate_over(health, rules, parts=2):
            return WARNED_RATE, HalfWay("failure_rate", _rate_numbers(health, rules))
        if not health.warned & WARNED_CONSECUTIVE and 2 * row >= rules.consecutive_disable:
            numbers = {"consecutive_failures": row, "limit": rules.consecutive_disable}
            return WARNED_CONSECUTIVE, HalfWay("consecutive_failures", numbers)
    if not health.warned & WARNED_NO_SUCCESS and row > rules.consecutive_freeze // 2:
        alone_ms = _without_success_ms(health, now)
        if 2 * alone_ms > rules.freeze_after_ms:
            numbers = _no_success_numbers(row, alone_ms, rules)
            return WARNED_NO_SUCCESS, HalfWay("no_success", numbers)
    return 0, None


def _rate_over(health: Health, rules: HealthRules, *, parts: int) -> bool:
    """Whether the failure rate is over the limit (``parts`` = 1) or over half of it (2)."""
    return (
        health.attempts > rules.rate_after_attempts
        and parts * 100 * health.failures > rules.failure_percent * health.attempts
    )


def _rate_numbers(health: Health, rules: HealthRules) -> dict[str, int]:
    return {
        "attempts": health.attempts,
        "failures": health.failures,
        "limit_percent": rules.failure_percent,
    }


def _no_success_numbers(row: int, alone_ms: int, rules: HealthRules) -> dict[str, int]:
    return {
        "consecutive_failures": row,
        "limit": rules.consecutive_freeze,
        "without_success_ms": alone_ms,
        "limit_ms": rules.freeze_after_ms,
    }


class Ramp(Struct, frozen=True):
    """Slow start: how many slots an endpoint has in a lane, and its successes in a row."""

    slots: int = 1
    streak: int = 0


_ONE_SLOT = Ramp()


def ramp_up(ramp: Ramp, *, limit: int) -> Ramp:
    """After a success: as many successes in a row as there are slots double the slots."""
    if ramp.slots >= limit:
        return ramp if ramp.slots == limit else Ramp(limit)
    if ramp.streak + 1 < ramp.slots:
        return Ramp(ramp.slots, ramp.streak + 1)
    return Ramp(min(ramp.slots * 2, limit))


def ramp_reset() -> Ramp:
    """After a timeout or connect failure, and whenever the endpoint is enabled: one slot."""
    return _ONE_SLOT


def ramp_break(ramp: Ramp) -> Ramp:
    """After any other failure: the successes in a row end, the slots stay."""
    return Ramp(ramp.slots) if ramp.streak else ramp
