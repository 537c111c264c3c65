"""Why a delivery is where it is, and what happens next: one sentence for people.

Whoever looks at a delivery has one question, and the answer is spread over its row, its endpoint,
its schedule and the health rules. Here they are read together, once, so that the dashboard, the
API and the command line say the same. A pending delivery's sentence has three parts: the cause,
the next step with its time, and when it ends at the latest.

Times are UTC: with the date where it is not today's, with seconds within two minutes of now.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import assert_never

from msgspec import Struct

from homing.model import Delivery, Endpoint, Lane, Reason, State, Status
from homing.policy import retry
from homing.policy.health import HealthRules
from homing.policy.retry import Schedule

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_WITHIN_MS = 120_000
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Facts(Struct, frozen=True):
    """All that a sentence about a delivery is made from."""

    status: Status
    reason: Reason | None
    finished_at: int | None
    arrived: bool
    delivery: Delivery
    endpoint: Endpoint | None
    in_flight: Lane | None
    schedule: Schedule
    rules: HealthRules
    rated: bool = False  # its subscription, or its host, takes only so many attempts a second


def explain(facts: Facts, *, now: int) -> str:
    """Why this delivery is where it is, and what happens next, when."""
    match facts.status:
        case Status.PENDING:
            return _pending(facts, now)
        case Status.DELIVERED:
            return _delivered(facts, now)
        case Status.DROPPED:
            return _dropped(facts, now)
        case Status.CANCELLED:
            return _cancelled(facts, now)
        case _ as never:
            assert_never(never)


# --- finished -------------------------------------------------------------------------------


def _delivered(facts: Facts, now: int) -> str:
    delivery = facts.delivery
    when = _finish(facts, now)
    if facts.finished_at is not None:
        when += f", {span_text(facts.finished_at - delivery.accepted_at)} after it was accepted"
    if delivery.attempts <= 1:
        return f"Delivered{when}: its first attempt succeeded."
    return f"Delivered{when}: attempt {delivery.attempts:,} succeeded."


def _dropped(facts: Facts, now: int) -> str:
    begin = f"Dropped{_finish(facts, now)} after {_attempts(facts.delivery.attempts)}: "
    end = "; it can be replayed."
    match facts.reason:
        case Reason.EXHAUSTED:
            return f"{begin}the last one failed and no retry lay ahead{end}"
        case Reason.EXPIRED:
            window = _at(facts.delivery.expires_at, now)
            return (
                f"{begin}its endpoint was disabled or frozen until its window ended at "
                f"{window}{end}"
            )
        case Reason.BY_PERSON:
            return f"{begin}a person dropped it{end}"
        case Reason.SUBSCRIPTION_DELETED:
            return f"{begin}its subscription was deleted."
        case None:
            return f"{begin}no reason is recorded{end}"
        case _ as never:
            assert_never(never)


def _cancelled(facts: Facts, now: int) -> str:
    begin = f"Cancelled{_finish(facts, now)} after {_attempts(facts.delivery.attempts)}"
    if facts.reason is Reason.SUBSCRIPTION_DELETED:
        begin += ": its subscription was deleted"
    elif facts.reason is Reason.BY_PERSON:
        begin += ": a person cancelled it"
    if facts.arrived:
        begin += "; an attempt that was in flight at that time did arrive"
    return begin + "."


def _finish(facts: Facts, now: int) -> str:
    return "" if facts.finished_at is None else f" at {_at(facts.finished_at, now)}"


# --- pending --------------------------------------------------------------------------------


def _pending(facts: Facts, now: int) -> str:
    endpoint = facts.endpoint
    if facts.in_flight is not None:
        return _flying(facts, facts.in_flight, now)
    if endpoint is None:
        return f"Waiting: its endpoint is not known here; {_turn(facts.delivery, facts, now)}."
    match endpoint.health.state:
        case State.ENABLED:
            return _enabled(facts, endpoint, now)
        case State.DISABLED | State.FROZEN:
            return _held_back(facts, endpoint, now)
        case _ as never:
            assert_never(never)


def _enabled(facts: Facts, endpoint: Endpoint, now: int) -> str:
    delivery = facts.delivery
    enabled_since = endpoint.health.enabled_since
    if retry.held_past_window(delivery, enabled_since=enabled_since):
        return (
            f"Waiting: the endpoint was held back until {_at(enabled_since, now)} and the window "
            f"of this delivery had ended at {_at(delivery.expires_at, now)}; it is dropped as "
            "expired shortly, without a further attempt."
        )
    turn = _turn(delivery, facts, now)
    end = _end(facts, endpoint, now)
    if endpoint.hold_until > now and delivery.due_at <= endpoint.hold_until:
        hold = _at(endpoint.hold_until, now)
        return (
            f"Waiting: the endpoint asked for a pause until {hold} (Retry-After); then "
            f"{_name(delivery, facts)} is made; {end}."
        )
    return f"Waiting: {_cause(delivery, endpoint, now)}; {turn}; {end}."


def _held_back(facts: Facts, endpoint: Endpoint, now: int) -> str:
    delivery = facts.delivery
    begin = f"Waiting: {_state(endpoint, facts.rules, now)}"
    if delivery.expires_at <= now:
        ended = _at(delivery.expires_at, now)
        return f"{begin}; its window ended at {ended}, so it is dropped as expired shortly."
    if delivery.due_at > now:
        then = f"{_name(delivery, facts)} of this delivery is due {_at(delivery.due_at, now)}"
    else:
        then = f"{_name(delivery, facts)} of this delivery goes at once"
    if endpoint.health.state is State.FROZEN:
        step = f"nothing is attempted until a person enables it, then {then}"
    else:
        step = f"{_next_probe(endpoint, now)}; once enabled, {then}"
    return f"{begin}; {step}; dropped at {_at(delivery.expires_at, now)} unless delivered."


def _flying(facts: Facts, lane: Lane, now: int) -> str:
    if lane is Lane.PROBE:
        return _probing(facts, now)
    delivery, endpoint = facts.delivery, facts.endpoint
    enabled_since = endpoint.health.enabled_since if endpoint else 0
    again = retry.after_failure(delivery, facts.schedule, now=now, enabled_since=enabled_since)
    begin = (
        f"In flight: attempt {delivery.attempts + 1:,} ({_name(delivery, facts)}) is being made "
        f"now and has {span_text(facts.schedule.deadline_ms)} from its start to get a response"
    )
    if endpoint is not None and endpoint.health.state is not State.ENABLED:
        begin += f"; meanwhile {_state(endpoint, facts.rules, now)}"
    if again is None:
        return f"{begin}; if it fails, no retry lies ahead and it is dropped then."
    n, most = again.retry, len(facts.schedule.delays_ms)
    return f"{begin}; if it fails, retry {n} of {most} is due {_at(again.due_at, now)}."


def _probing(facts: Facts, now: int) -> str:
    """Its attempt in flight is a probe; the endpoint may have changed since it was sent."""
    delivery, endpoint = facts.delivery, facts.endpoint
    begin = f"In flight: attempt {delivery.attempts + 1:,} is a probe"
    end = f"dropped at {_at(delivery.expires_at, now)} unless delivered."
    if endpoint is None:
        return f"{begin}, which spends no retry; {end}"
    state = _state(endpoint, facts.rules, now)
    match endpoint.health.state:
        case State.DISABLED:
            next_probe = _next_probe(endpoint, now)
            return (
                f"{begin}, as {state}; a success enables it, after a failure: {next_probe}; {end}"
            )
        case State.FROZEN:
            step = "a success delivers it and the endpoint stays frozen"
        case State.ENABLED:
            step = f"if it fails, {_turn(delivery, facts, now)}"
        case _ as never:
            assert_never(never)
    return f"{begin}; meanwhile {state}; {step}; {end}"


def _cause(delivery: Delivery, endpoint: Endpoint, now: int) -> str:
    """Why a delivery to an enabled endpoint is still pending."""
    if delivery.sender_errors:
        return "its last attempt was a sender-side failure, which uses no retry"
    if delivery.attempts:
        return f"not delivered by {_attempts(delivery.attempts)} so far"
    accepted = _at(delivery.accepted_at, now)
    if delivery.replay:
        return f"it is a replay made at {accepted} and not yet attempted"
    if delivery.due_at > delivery.accepted_at:
        return "it waits its turn: its subscription or host takes only so many attempts a second"
    if delivery.accepted_at < endpoint.health.enabled_since:
        enabled = _at(endpoint.health.enabled_since, now)
        return (
            f"it was accepted at {accepted} and held back until its endpoint was enabled {enabled}"
        )
    return f"it was accepted at {accepted} and not yet attempted"


def _turn(delivery: Delivery, facts: Facts, now: int) -> str:
    """The next step of a delivery that nothing holds back."""
    due = _at(delivery.due_at, now)
    if delivery.due_at > now:
        return f"{_name(delivery, facts)} is due {due}"
    begin = f"{_name(delivery, facts)} has been due since {due} and goes"
    if facts.rated:
        return f"{begin} in its turn: its subscription or host takes only so many attempts a second"
    return f"{begin} as soon as a slot is free"


def _end(facts: Facts, endpoint: Endpoint, now: int) -> str:
    """How it ends if nothing succeeds."""
    delivery, schedule = facts.delivery, facts.schedule
    fails_at = max(delivery.due_at, endpoint.hold_until, now)
    enabled_since = endpoint.health.enabled_since
    row = retry.after_failure(delivery, schedule, now=fails_at, enabled_since=enabled_since)
    if row is None:
        return "it is the last one: the delivery is dropped if it fails"
    n, at = retry.remaining(row, schedule)[-1]
    return f"the last retry, {n}, would be at {_at(at, now)}"


def _name(delivery: Delivery, facts: Facts) -> str:
    """What the next attempt is called."""
    if delivery.retry:
        return f"retry {delivery.retry} of {len(facts.schedule.delays_ms)}"
    return "the next attempt" if delivery.attempts else "the first attempt"


def _next_probe(endpoint: Endpoint, now: int) -> str:
    at = endpoint.next_probe_at
    if at is None or at <= now:
        return "the next probe is due now"
    return f"next probe {_at(at, now)}"


# --- endpoints ------------------------------------------------------------------------------


def _state(endpoint: Endpoint, rules: HealthRules, now: int) -> str:
    """``the endpoint has been disabled since 14:02 by 2,000 failures in a row``."""
    health = endpoint.health
    row = health.consecutive_failures
    match endpoint.rule:
        case "failure_rate":
            by = (
                f" because more than {rules.failure_percent} % of its attempts failed "
                f"({health.failures:,} of {health.attempts:,} by now)"
            )
        case "consecutive_failures":
            by = f" by {rules.consecutive_disable:,} failures in a row"
            by += f" ({row:,} by now)" if row > rules.consecutive_disable else ""
        case "no_success":
            by = (
                f" by {row:,} failures in a row and no success for more than "
                f"{span_text(rules.freeze_after_ms)}"
            )
        case "hopeless":
            by = f" by {max(row, rules.consecutive_freeze_always):,} failures in a row"
        case "frozen_by_person" | "enabled_by_person":
            by = " by a person"
        case "success":
            by = " by a success"
        case "":
            by = ""
        case other:
            by = f" ({other})"
    return f"the endpoint has been {health.state.value} since {_at(health.since, now)}{by}"


def explain_endpoint(endpoint: Endpoint, rules: HealthRules, *, now: int) -> str:
    """Since when an endpoint is in its state, by which rule, and what happens next."""
    since = _state(endpoint, rules, now)
    begin = since[0].upper() + since[1:]
    match endpoint.health.state:
        case State.ENABLED:
            if endpoint.hold_until > now:
                hold = _at(endpoint.hold_until, now)
                return f"{begin}; it asked for a pause until {hold} (Retry-After)."
            return f"{begin}."
        case State.DISABLED:
            return f"{begin}; {_next_probe(endpoint, now)}, and a success enables it."
        case State.FROZEN:
            return f"{begin}; nothing is attempted until a person enables it."
        case _ as never:
            assert_never(never)


def explain_change(
    before: State, after: State, rule: str, numbers: Mapping[str, int], by: str = ""
) -> str:
    """A sentence for a change of an endpoint's state."""
    begin = f"{after.value.capitalize()} (was {before.value}): "
    match rule:
        case "failure_rate":
            return (
                f"{begin}{_number(numbers, 'failures')} of {_number(numbers, 'attempts')} attempts "
                f"failed, which is more than {_number(numbers, 'limit_percent')} %."
            )
        case "consecutive_failures" | "hopeless":
            return (
                f"{begin}{_number(numbers, 'consecutive_failures')} attempts in a row failed; the "
                f"limit is {_number(numbers, 'limit')}."
            )
        case "no_success":
            return (
                f"{begin}{_number(numbers, 'consecutive_failures')} attempts in a row failed and "
                f"nothing succeeded for {span_text(numbers.get('without_success_ms', 0))}; the "
                f"limits are {_number(numbers, 'limit')} and "
                f"{span_text(numbers.get('limit_ms', 0))}."
            )
        case "success":
            spent = numbers.get("disabled_ms")
            after_all = "" if spent is None else f" after {span_text(spent)}"
            return f"{begin}an attempt succeeded{after_all}."
        case "enabled_by_person" | "frozen_by_person" | "person":
            verb = "enabled" if after is State.ENABLED else after.value
            return f"{begin}{verb} by {by or 'a person'}."
        case other:
            return f"{begin}{other or 'no rule is recorded'}{f', by {by}' if by else ''}."


# --- words ----------------------------------------------------------------------------------


def _at(ms: int, now: int) -> str:
    """A time of day, with as much around it as its distance from now asks for."""
    moment, today = _EPOCH + timedelta(milliseconds=ms), _EPOCH + timedelta(milliseconds=now)
    close = abs(ms - now) < _SECONDS_WITHIN_MS
    text = f"{moment:%H:%M:%S}" if close else f"{moment:%H:%M}"
    if moment.date() == today.date():
        return text
    year = "" if moment.year == today.year else f" {moment.year}"
    return f"{moment.day} {_MONTHS[moment.month - 1]}{year} {text}"


def span_text(ms: int) -> str:
    """``640 ms``, ``5 s``, ``4 min 14 s``, ``72 h``, ``48 h 13 min``."""
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    seconds = ms // 1000
    if seconds < 60:
        return f"{seconds} s"
    minutes, second = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {second} s" if second else f"{minutes} min"
    hours, minute = divmod(minutes, 60)
    return f"{hours:,} h {minute} min" if minute else f"{hours:,} h"


def _attempts(count: int) -> str:
    if count == 0:
        return "no attempt"
    return "1 attempt" if count == 1 else f"{count:,} attempts"


def _number(numbers: Mapping[str, int], name: str) -> str:
    return f"{numbers[name]:,}" if name in numbers else "an unknown number of"
