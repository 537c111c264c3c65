"""Why a delivery is where it is, and what happens next: one sentence for people.

The reasons are spread over the row of the delivery, its endpoint, its schedule and the health
rules. This module reads them together, so that the dashboard, the API and the command line give
the same explanation. The sentence of a pending delivery has three parts: the reason, the next step
with its time, and when the delivery ends at the latest. Times are values (``At``), which dashboard,
API and command line each show in their own way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from msgspec import Struct

from homing.model import (
    Cause,
    CauseKey,
    Delivery,
    Endpoint,
    Lane,
    Reason,
    State,
    Status,
    show_id,
)
from homing.policy import retry
from homing.policy.causes import title
from homing.policy.health import HealthRules
from homing.policy.reach import REFUSED_SINCE
from homing.policy.retry import Schedule
from homing.policy.sentences import At, Part, Sentence, join, say

_RATED = "its subscription or host has a limit of attempts per second"


class Facts(Struct, frozen=True):
    """Everything that the sentence about a delivery is made from."""

    status: Status
    reason: Reason | None
    finished_at: int | None
    arrived: bool
    delivery: Delivery
    endpoint: Endpoint | None
    in_flight: Lane | None
    schedule: Schedule
    rules: HealthRules
    rated: bool = False  # its subscription or its host has a limit of attempts per second
    cause: CauseKey | None = None  # of its last failed attempt
    waits_for: int | None = None  # the delivery of the same key that comes before it
    superseded_by: str = ""  # the id of the event that is sent instead
    causes: Sequence[Cause] = ()  # the open ones of its endpoint, the latest failure first
    paused_since: int | None = None  # its subscription is paused by its owner
    retention_ms: int = 0  # of its tenant


def explain(facts: Facts, *, now: int) -> Sentence:
    """Why this delivery is where it is, what happens next, when, and how it failed last."""
    return join((_status(facts, now), _last_failure(facts)))


def _last_failure(facts: Facts) -> Part:
    """The last failure of the delivery, or else of the endpoint that it waits for."""
    causes, own = facts.causes, facts.cause
    of_endpoint = next((it for it in causes if own is None or it.key == own), None)
    if of_endpoint is None:
        return "" if own is None else f" Its last failure: {title(own)}."
    in_all = sum(it.attempts for it in causes)
    begin = " Its last failure: " if own is not None else " The last failure of the endpoint: "
    return say("{}{}.", begin, explain_cause(of_endpoint, attempts_in_all=in_all))


def _status(facts: Facts, now: int) -> Sentence:
    match facts.status:
        case Status.PENDING:
            return _pending(facts, now)
        case Status.DELIVERED:
            return _delivered(facts)
        case Status.DROPPED:
            return _dropped(facts)
        case Status.CANCELLED:
            return _cancelled(facts)
        case Status.SUPERSEDED:
            return _superseded(facts)
        case _ as never:
            assert_never(never)


# --- finished -------------------------------------------------------------------------------


def _delivered(facts: Facts) -> Sentence:
    delivery = facts.delivery
    after = ""
    if facts.finished_at is not None:
        after = f", {span_text(facts.finished_at - delivery.accepted_at)} after it was accepted"
    which = "its first attempt" if delivery.attempts <= 1 else f"attempt {delivery.attempts:,}"
    return say("Delivered{}{}: {} succeeded.", _finish(facts), after, which)


def _dropped(facts: Facts) -> Sentence:
    begin = say("Dropped{} after {}: ", _finish(facts), _attempts(facts.delivery.attempts))
    replay = "; it can be replayed."
    match facts.reason:
        case Reason.EXHAUSTED:
            return say("{}the last attempt failed and no retry was left{}", begin, replay)
        case Reason.EXPIRED if _was_paused(facts):
            return say(
                "{}its subscription was paused until its event was past the retention{}",
                begin,
                replay,
            )
        case Reason.EXPIRED:
            return say(
                "{}{} until the delivery's window ended at {}{}",
                begin,
                "sending to the endpoint was not possible"
                if facts.delivery.sender_errors
                else "the endpoint was disabled or frozen",
                At(facts.delivery.expires_at),
                replay,
            )
        case Reason.BY_PERSON:
            return say("{}a person dropped it{}", begin, replay)
        case Reason.SUBSCRIPTION_DELETED:
            return say("{}its subscription was deleted.", begin)
        case Reason.GONE:
            return say("{}its receiver responded with 410{}", begin, replay)
        case None:
            return say("{}no reason is recorded{}", begin, replay)
        case _ as never:
            assert_never(never)


def _was_paused(facts: Facts) -> bool:
    """Whether a dropped delivery had not reached the end of its window: a pause held it."""
    return facts.finished_at is not None and facts.finished_at < facts.delivery.expires_at


def _cancelled(facts: Facts) -> Sentence:
    why = ""
    if facts.reason is Reason.SUBSCRIPTION_DELETED:
        why = ": its subscription was deleted"
    elif facts.reason is Reason.BY_PERSON:
        why = ": a person cancelled it"
    elif facts.reason is Reason.GONE:
        why = ": its receiver responded with 410, so its subscription was set inactive"
    if facts.arrived:
        why += "; an attempt that was in flight at that time did arrive"
    return say("Cancelled{} after {}{}.", _finish(facts), _attempts(facts.delivery.attempts), why)


def _superseded(facts: Facts) -> Sentence:
    by = f" by {facts.superseded_by}" if facts.superseded_by else ""
    return say(
        "Superseded{}{} after {}: a newer event of the same key was accepted, and its subscription "
        "wants only the latest.",
        _finish(facts),
        by,
        _attempts(facts.delivery.attempts),
    )


def _finish(facts: Facts) -> Part:
    return "" if facts.finished_at is None else say(" at {}", At(facts.finished_at))


# --- pending --------------------------------------------------------------------------------


def _pending(facts: Facts, now: int) -> Sentence:
    endpoint = facts.endpoint
    if facts.in_flight is not None:
        return _in_flight(facts, facts.in_flight, now)
    if facts.paused_since is not None:
        return _paused(facts, facts.paused_since, now)
    if facts.delivery.order_seq:
        return _blocked(facts, endpoint)
    if endpoint is None:
        return say("Waiting: its endpoint is unknown; {}.", _turn(facts.delivery, facts, now))
    match endpoint.health.state:
        case State.ENABLED:
            return _enabled(facts, endpoint, now)
        case State.DISABLED | State.FROZEN:
            return _held_back(facts, endpoint, now)
        case _ as never:
            assert_never(never)


def _paused(facts: Facts, since: int, now: int) -> Sentence:
    """Its subscription is paused; the state of the endpoint matters only after that."""
    delivery = facts.delivery
    left_ms = max(delivery.due_at - max(now, since), 0)
    wait = "at once" if not left_ms or delivery.is_first else f"{span_text(left_ms)} later"
    return say(
        "Waiting: its subscription has been paused since {}; nothing is attempted until a person "
        "resumes it, then {} is made {}; its window does not run meanwhile; dropped at {} if the "
        "pause lasts until then.",
        At(since),
        _name(delivery, facts),
        wait,
        At(delivery.accepted_at + facts.retention_ms),
    )


def _blocked(facts: Facts, endpoint: Endpoint | None) -> Sentence:
    """It waits for an earlier delivery of its key."""
    if facts.waits_for is None:
        before = "an attempt of an earlier delivery of the same key that was cancelled"
    else:
        before = f"{show_id('dlv', facts.waits_for)} of the same key"
    begin = say("Waiting: it waits for {} and is attempted when that is finished", before)
    if endpoint is None or endpoint.health.state is State.ENABLED:
        return say("{}; its window begins then.", begin)
    return say("{}; {}; {}", begin, _state(endpoint, facts.rules), _dropped_at(facts.delivery))


def _enabled(facts: Facts, endpoint: Endpoint, now: int) -> Sentence:
    delivery = facts.delivery
    enabled_since = endpoint.health.enabled_since
    if retry.held_past_window(delivery, enabled_since=enabled_since):
        return say(
            "Waiting: the endpoint was enabled at {}, after the window of this delivery had ended "
            "at {}; it will be dropped as expired shortly, without another attempt.",
            At(enabled_since),
            At(delivery.expires_at),
        )
    if endpoint.guard_refused_at:
        return say(
            "Waiting: {}, which uses no retry; {} is due at {}; {}",
            REFUSED_SINCE,
            _name(delivery, facts),
            At(max(delivery.due_at, endpoint.hold_until)),
            _dropped_at(delivery),
        )
    end = _end(facts, endpoint, now)
    if endpoint.hold_until > now and delivery.due_at <= endpoint.hold_until:
        return say(
            "Waiting: the endpoint asked for a pause until {} (Retry-After); then {} is made; {}.",
            At(endpoint.hold_until),
            _name(delivery, facts),
            end,
        )
    return say("Waiting: {}; {}; {}.", _cause(delivery, endpoint), _turn(delivery, facts, now), end)


def _held_back(facts: Facts, endpoint: Endpoint, now: int) -> Sentence:
    delivery = facts.delivery
    begin = say("Waiting: {}", _state(endpoint, facts.rules))
    if delivery.expires_at <= now:
        return say(
            "{}; its window ended at {}, so it will be dropped as expired shortly.",
            begin,
            At(delivery.expires_at),
        )
    name = _name(delivery, facts)
    if delivery.due_at > now:
        then = say("{} of this delivery is due at {}", name, At(delivery.due_at))
    else:
        then = say("{} of this delivery is made at once", name)
    if endpoint.health.state is State.FROZEN:
        step = say("nothing is attempted until a person enables it, then {}", then)
    else:
        step = say("{}; once enabled, {}", _next_probe(endpoint, now), then)
    return say("{}; {}; {}", begin, step, _dropped_at(delivery))


def _in_flight(facts: Facts, lane: Lane, now: int) -> Sentence:
    if lane is Lane.PROBE:
        return _probing(facts, now)
    delivery, endpoint = facts.delivery, facts.endpoint
    enabled_since = endpoint.health.enabled_since if endpoint else 0
    again = retry.after_failure(delivery, facts.schedule, now=now, enabled_since=enabled_since)
    begin = say(
        "In flight: attempt {} ({}) is being made now and has {} from its start to get a response",
        f"{delivery.attempts + 1:,}",
        _name(delivery, facts),
        span_text(facts.schedule.deadline_ms),
    )
    if facts.paused_since is not None:
        paused = At(facts.paused_since)
        begin = say("{}; meanwhile its subscription was paused, at {}", begin, paused)
    elif endpoint is not None and endpoint.health.state is not State.ENABLED:
        begin = say("{}; meanwhile {}", begin, _state(endpoint, facts.rules))
    if again is None:
        return say("{}; if it fails, no retry is left and the delivery is dropped.", begin)
    name = f"retry {again.retry} of {len(facts.schedule.delays_ms)}"
    due = say("{} is due at {}", name, At(again.due_at))
    return say("{}; if it fails, {}{}.", begin, due, _or_later(facts.schedule))


def _probing(facts: Facts, now: int) -> Sentence:
    """The attempt in flight is a probe; the endpoint may have changed since the probe was sent."""
    delivery, endpoint = facts.delivery, facts.endpoint
    begin = f"In flight: attempt {delivery.attempts + 1:,} is a probe"
    end = _dropped_at(delivery)
    if endpoint is None:
        return say("{}, which uses no retry; {}", begin, end)
    state = _state(endpoint, facts.rules)
    match endpoint.health.state:
        case State.DISABLED:
            next_probe = _next_probe(endpoint, now)
            return say(
                "{}, because {}; a success enables the endpoint; after a failure, {}; {}",
                begin,
                state,
                next_probe,
                end,
            )
        case State.FROZEN:
            step: Part = "if it succeeds, it is delivered and the endpoint stays frozen"
        case State.ENABLED:
            step = say("if it fails, {}", _turn(delivery, facts, now))
        case _ as never:
            assert_never(never)
    return say("{}; meanwhile {}; {}; {}", begin, state, step, end)


def _cause(delivery: Delivery, endpoint: Endpoint) -> Part:
    """Why a delivery to an enabled endpoint is still pending."""
    if delivery.sender_errors:
        return "its last attempt was a sender-side failure, which uses no retry"
    if delivery.attempts:
        return f"{_attempts(delivery.attempts)} so far, without success"
    accepted = At(delivery.accepted_at)
    if delivery.replay and delivery.root_id == delivery.id:
        return say("it was made at {} for a past event and not yet attempted", accepted)
    if delivery.replay:
        return say("it is a replay made at {} and not yet attempted", accepted)
    if delivery.due_at > delivery.ready_at:
        return f"it waits for its turn: {_RATED}"
    if delivery.unblocked_at:
        return say("it was unblocked at {} and not yet attempted", At(delivery.ready_at))
    if delivery.accepted_at < endpoint.health.enabled_since:
        return say(
            "it was accepted at {} and waited until its endpoint was enabled at {}",
            accepted,
            At(endpoint.health.enabled_since),
        )
    return say("it was accepted at {} and not yet attempted", accepted)


def _turn(delivery: Delivery, facts: Facts, now: int) -> Sentence:
    """The next step of a delivery that nothing holds back."""
    due, name = At(delivery.due_at), _name(delivery, facts)
    if delivery.due_at > now:
        return say("{} is due at {}", name, due)
    when = f"in its turn: {_RATED}" if facts.rated else "as soon as a slot is free"
    return say("{} has been due since {} and is made {}", name, due, when)


def _end(facts: Facts, endpoint: Endpoint, now: int) -> Sentence:
    """What happens to the delivery if no attempt succeeds."""
    delivery, schedule = facts.delivery, facts.schedule
    fails_at = max(delivery.due_at, endpoint.hold_until, now)
    enabled_since = endpoint.health.enabled_since
    row = retry.after_failure(delivery, schedule, now=fails_at, enabled_since=enabled_since)
    if row is None:
        return say("if that attempt fails, the delivery is dropped, because no retry is left")
    n, at = retry.remaining(row, schedule)[-1]
    return say("the last retry, number {}, would be at {}{}", str(n), At(at), _or_later(schedule))


def _or_later(schedule: Schedule) -> str:
    """Jitter is drawn when an attempt fails; until then only the earliest time is known."""
    return " or somewhat later (jitter)" if schedule.jitter else ""


def _dropped_at(delivery: Delivery) -> Sentence:
    return say("dropped at {} unless delivered.", At(delivery.expires_at))


def _name(delivery: Delivery, facts: Facts) -> str:
    """What the next attempt is called."""
    if delivery.retry:
        return f"retry {delivery.retry} of {len(facts.schedule.delays_ms)}"
    return "the next attempt" if delivery.attempts else "the first attempt"


def _next_probe(endpoint: Endpoint, now: int) -> Part:
    at = endpoint.next_probe_at
    if at is None or at <= now:
        return "the next probe is due now"
    return say("the next probe is due at {}", At(at))


# --- endpoints ------------------------------------------------------------------------------


def _state(endpoint: Endpoint, rules: HealthRules) -> Sentence:
    """``the endpoint has been disabled since 14:02 after 2,000 failures in a row``."""
    health = endpoint.health
    row = health.consecutive_failures
    match endpoint.rule:
        case "failure_rate":
            by = (
                f" because more than {rules.failure_percent} % of its attempts failed "
                f"({health.failures:,} of {health.attempts:,} by now)"
            )
        case "consecutive_failures":
            by = f" after {rules.consecutive_disable:,} failures in a row"
            by += f" ({row:,} by now)" if row > rules.consecutive_disable else ""
        case "no_success":
            by = (
                f" after {row:,} failures in a row and no success for more than "
                f"{span_text(rules.freeze_after_ms)}"
            )
        case "hopeless":
            by = f" after {max(row, rules.consecutive_freeze_always):,} failures in a row"
        case "frozen_by_person" | "enabled_by_person":
            by = " by a person"
        case "success":
            by = " after a success"
        case "":
            by = ""
        case other:
            by = f" ({other})"
    return say("the endpoint has been {} since {}{}", health.state.value, At(health.since), by)


def explain_endpoint(
    endpoint: Endpoint, rules: HealthRules, *, now: int, causes: Sequence[Cause] = ()
) -> Sentence:
    """How long an endpoint has been in its state, by which rule, what happens next, and why
    its last attempt failed.

    ``causes`` are its open causes, the latest failure first.
    """
    state = _explain_state(endpoint, rules, now)
    if not causes:
        return state
    in_all = sum(it.attempts for it in causes)
    return say("{} Last failure: {}.", state, explain_cause(causes[0], attempts_in_all=in_all))


def explain_cause(cause: Cause, *, attempts_in_all: int) -> Sentence:
    """``503 Service Unavailable, 14 of 20 failed attempts since 11:25``."""
    return say(
        "{}, {} of {} failed {} since {}",
        title(cause.key),
        f"{cause.attempts:,}",
        f"{attempts_in_all:,}",
        "attempt" if attempts_in_all == 1 else "attempts",
        At(cause.first_seen),
    )


def _explain_state(endpoint: Endpoint, rules: HealthRules, now: int) -> Sentence:
    begin = _capitalized(_state(endpoint, rules))
    match endpoint.health.state:
        case State.ENABLED:
            if endpoint.guard_refused_at:
                refused_at = At(endpoint.guard_refused_at)
                return say("{}; {}: it was last refused at {}.", begin, REFUSED_SINCE, refused_at)
            if endpoint.hold_until > now:
                hold = At(endpoint.hold_until)
                return say("{}; it asked for a pause until {} (Retry-After).", begin, hold)
            return say("{}.", begin)
        case State.DISABLED:
            return say("{}; {}, and a success enables it.", begin, _next_probe(endpoint, now))
        case State.FROZEN:
            return say("{}; nothing is attempted until a person enables it.", begin)
        case _ as never:
            assert_never(never)


def _capitalized(sentence: Sentence) -> Sentence:
    first, *others = sentence.parts
    return join((first[0].upper() + first[1:] if isinstance(first, str) else first, *others))


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
