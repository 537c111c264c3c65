"""Why a delivery is where it is, and what happens next: one sentence for people.

The reasons are spread over the row of the delivery, its endpoint, its schedule and the health
rules. This module reads them together, so that the dashboard, the API and the command line give
the same explanation. The sentence of a pending delivery has three parts: the reason, the next step
with its time, and when the delivery ends at the latest. Each part is a whole clause, so that it can
be translated. Times are values (``At``), which dashboard, API and command line each show in their
own way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from msgspec import Struct

from homing.languages.sentences import At, Capital, Sentence, Span, many, say, span_sentence
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
from homing.policy.outcome import wants_hold
from homing.policy.reach import REFUSED_SINCE
from homing.policy.retry import Schedule


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
    quiet_ms: int | None = None  # how long its subscription waits for newer events of a key
    cause: CauseKey | None = None  # of its last failed attempt
    waits_for: int | None = None  # the delivery of the same key that comes before it
    superseded_by: str = ""  # the id of the event that is sent instead
    causes: Sequence[Cause] = ()  # the open ones of its endpoint, the latest failure first
    paused_since: int | None = None  # its subscription is paused by its owner
    retention_ms: int = 0  # of its tenant


def explain(facts: Facts, *, now: int) -> Sentence:
    """Why this delivery is where it is, what happens next, when, and how it failed last."""
    sentence, failure = _status(facts, now), _last_failure(facts)
    if failure is not None:
        sentence = say("{first} {second}", first=sentence, second=failure)
    if _ignores_retry_after(facts):
        policy = facts.schedule.name
        ignored = say("Its policy {policy} ignores Retry-After.", policy=policy)
        sentence = say("{first} {second}", first=sentence, second=ignored)
    return sentence


def _ignores_retry_after(facts: Facts) -> bool:
    """Whether the last response may have asked for a later retry, in vain."""
    ignores = facts.schedule.retry_after is retry.OnRetryAfter.IGNORE
    failed_with = None if facts.cause is None else facts.cause.code
    return ignores and facts.status is Status.PENDING and wants_hold(failed_with)


def _last_failure(facts: Facts) -> Sentence | None:
    """The last failure of the delivery, or else of the endpoint that it waits for."""
    causes, own = facts.causes, facts.cause
    of_endpoint = next((it for it in causes if own is None or it.key == own), None)
    if of_endpoint is None:
        return None if own is None else say("Its last failure: {failure}.", failure=title(own))
    in_all = sum(it.attempts for it in causes)
    failure = explain_cause(of_endpoint, attempts_in_all=in_all)
    if own is not None:
        return say("Its last failure: {failure}.", failure=failure)
    return say("The last failure of the endpoint: {failure}.", failure=failure)


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
    if facts.finished_at is None:
        delivered = say("Delivered")
    else:
        took = Span(facts.finished_at - delivery.accepted_at)
        delivered = say(
            "Delivered at {at}, {took} after it was accepted", at=At(facts.finished_at), took=took
        )
    if delivery.attempts <= 1:
        return say("{delivered}: its first attempt succeeded.", delivered=delivered)
    return say(
        "{delivered}: attempt {number} succeeded.", delivered=delivered, number=delivery.attempts
    )


def _dropped(facts: Facts) -> Sentence:
    attempts, end = _attempts(facts.delivery.attempts), At(facts.delivery.expires_at)
    if facts.finished_at is None:
        dropped = say("Dropped after {attempts}", attempts=attempts)
    else:
        dropped = say(
            "Dropped at {at} after {attempts}", at=At(facts.finished_at), attempts=attempts
        )
    match facts.reason:
        case Reason.EXHAUSTED:
            return say(
                "{dropped}: the last attempt failed and no retry was left; it can be replayed.",
                dropped=dropped,
            )
        case Reason.EXPIRED if _was_paused(facts):
            return say(
                "{dropped}: its subscription was paused until its event was past the retention; "
                "it can be replayed.",
                dropped=dropped,
            )
        case Reason.EXPIRED if facts.delivery.sender_errors:
            return say(
                "{dropped}: sending to the endpoint was not possible until the delivery's window "
                "ended at {end}; it can be replayed.",
                dropped=dropped,
                end=end,
            )
        case Reason.EXPIRED:
            return say(
                "{dropped}: the endpoint was disabled or frozen until the delivery's window ended "
                "at {end}; it can be replayed.",
                dropped=dropped,
                end=end,
            )
        case Reason.BY_PERSON:
            return say("{dropped}: a person dropped it; it can be replayed.", dropped=dropped)
        case Reason.SUBSCRIPTION_DELETED:
            return say("{dropped}: its subscription was deleted.", dropped=dropped)
        case Reason.GONE:
            return say(
                "{dropped}: its receiver responded with 410; it can be replayed.", dropped=dropped
            )
        case None:
            return say("{dropped}: no reason is recorded; it can be replayed.", dropped=dropped)
        case _ as never:
            assert_never(never)


def _was_paused(facts: Facts) -> bool:
    """Whether a dropped delivery had not reached the end of its window: a pause held it."""
    return facts.finished_at is not None and facts.finished_at < facts.delivery.expires_at


def _cancelled(facts: Facts) -> Sentence:
    attempts = _attempts(facts.delivery.attempts)
    if facts.finished_at is None:
        cancelled = say("Cancelled after {attempts}", attempts=attempts)
    else:
        cancelled = say(
            "Cancelled at {at} after {attempts}", at=At(facts.finished_at), attempts=attempts
        )
    if facts.reason is Reason.SUBSCRIPTION_DELETED:
        cancelled = say("{cancelled}: its subscription was deleted", cancelled=cancelled)
    elif facts.reason is Reason.BY_PERSON:
        cancelled = say("{cancelled}: a person cancelled it", cancelled=cancelled)
    elif facts.reason is Reason.GONE:
        cancelled = say(
            "{cancelled}: its receiver responded with 410, so its subscription was set inactive",
            cancelled=cancelled,
        )
    if facts.arrived:
        return say(
            "{cancelled}; an attempt that was in flight at that time did arrive.",
            cancelled=cancelled,
        )
    return say("{clause}.", clause=cancelled)


def _superseded(facts: Facts) -> Sentence:
    attempts, event = _attempts(facts.delivery.attempts), facts.superseded_by
    at = None if facts.finished_at is None else At(facts.finished_at)
    match at, event:
        case None, "":
            superseded = say("Superseded after {attempts}", attempts=attempts)
        case None, _:
            superseded = say(
                "Superseded by {event} after {attempts}", event=event, attempts=attempts
            )
        case At(), "":
            superseded = say("Superseded at {at} after {attempts}", at=at, attempts=attempts)
        case At(), _:
            superseded = say(
                "Superseded at {at} by {event} after {attempts}",
                at=at,
                event=event,
                attempts=attempts,
            )
    return say(
        "{superseded}: a newer event of the same key was accepted, and its subscription wants only "
        "the latest.",
        superseded=superseded,
    )


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
        turn = _turn(facts.delivery, facts, now)
        return say("Waiting: its endpoint is unknown; {next_step}.", next_step=turn)
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
    attempt, end = _name(delivery, facts), At(delivery.accepted_at + facts.retention_ms)
    if not left_ms or delivery.is_first:
        return say(
            "Waiting: its subscription has been paused since {since}; nothing is attempted until a "
            "person resumes it, then {attempt} is made at once; its window does not run meanwhile; "
            "dropped at {end} if the pause lasts until then.",
            since=At(since),
            attempt=attempt,
            end=end,
        )
    return say(
        "Waiting: its subscription has been paused since {since}; nothing is attempted until a "
        "person resumes it, then {attempt} is made {wait} later; its window does not run "
        "meanwhile; dropped at {end} if the pause lasts until then.",
        since=At(since),
        attempt=attempt,
        wait=Span(left_ms),
        end=end,
    )


def _blocked(facts: Facts, endpoint: Endpoint | None) -> Sentence:
    """It waits for an earlier delivery of its key."""
    if facts.waits_for is None:
        waiting = say(
            "Waiting: it waits for an attempt of an earlier delivery of the same key that was "
            "cancelled and is attempted when that is finished"
        )
    else:
        waiting = say(
            "Waiting: it waits for {delivery} of the same key and is attempted when that is "
            "finished",
            delivery=show_id("dlv", facts.waits_for),
        )
    if endpoint is None or endpoint.health.state is State.ENABLED:
        return say("{waiting}; its window begins then.", waiting=waiting)
    return say(
        "{waiting}; {state}; {end}.",
        waiting=waiting,
        state=_state(endpoint, facts.rules),
        end=_dropped_at(facts.delivery),
    )


def _enabled(facts: Facts, endpoint: Endpoint, now: int) -> Sentence:
    delivery = facts.delivery
    enabled_since = endpoint.health.enabled_since
    if retry.held_past_window(delivery, enabled_since=enabled_since):
        return say(
            "Waiting: the endpoint was enabled at {at}, after the window of this delivery had "
            "ended at {end}; it will be dropped as expired shortly, without another attempt.",
            at=At(enabled_since),
            end=At(delivery.expires_at),
        )
    if endpoint.guard_refused_at:
        return say(
            "Waiting: {reason}, which uses no retry; {attempt} is due at {due}; {end}.",
            reason=REFUSED_SINCE,
            attempt=_name(delivery, facts),
            due=At(max(delivery.due_at, endpoint.hold_until)),
            end=_dropped_at(delivery),
        )
    end = _end(facts, endpoint, now)
    if endpoint.hold_until > now and delivery.due_at <= endpoint.hold_until:
        return say(
            "Waiting: the endpoint asked for a pause until {until} (Retry-After); then {attempt} "
            "is made; {end}.",
            until=At(endpoint.hold_until),
            attempt=_name(delivery, facts),
            end=end,
        )
    return say(
        "Waiting: {reason}; {next_step}; {end}.",
        reason=_cause(facts, delivery, endpoint, now),
        next_step=_turn(delivery, facts, now),
        end=end,
    )


def _held_back(facts: Facts, endpoint: Endpoint, now: int) -> Sentence:
    delivery, state = facts.delivery, _state(endpoint, facts.rules)
    if delivery.expires_at <= now:
        return say(
            "Waiting: {state}; its window ended at {end}, so it will be dropped as expired "
            "shortly.",
            state=state,
            end=At(delivery.expires_at),
        )
    attempt, due = _name(delivery, facts), At(delivery.due_at)
    is_frozen = endpoint.health.state is State.FROZEN
    if is_frozen and due.ms > now:
        step = say(
            "nothing is attempted until a person enables it, then {attempt} of this delivery is "
            "due at {due}",
            attempt=attempt,
            due=due,
        )
    elif is_frozen:
        step = say(
            "nothing is attempted until a person enables it, then {attempt} of this delivery is "
            "made at once",
            attempt=attempt,
        )
    elif due.ms > now:
        step = say(
            "{next_probe}; once enabled, {attempt} of this delivery is due at {due}",
            next_probe=_next_probe(endpoint, now),
            attempt=attempt,
            due=due,
        )
    else:
        step = say(
            "{next_probe}; once enabled, {attempt} of this delivery is made at once",
            next_probe=_next_probe(endpoint, now),
            attempt=attempt,
        )
    return say(
        "Waiting: {reason}; {next_step}; {end}.",
        reason=state,
        next_step=step,
        end=_dropped_at(delivery),
    )


def _in_flight(facts: Facts, lane: Lane, now: int) -> Sentence:
    if lane is Lane.PROBE:
        return _probing(facts, now)
    delivery, endpoint, schedule = facts.delivery, facts.endpoint, facts.schedule
    enabled_since = endpoint.health.enabled_since if endpoint else 0
    again = retry.after_failure(delivery, schedule, now=now, enabled_since=enabled_since)
    begin = say(
        "In flight: attempt {number} ({attempt}) is being made now and has {deadline} from its "
        "start to get a response",
        number=delivery.attempts + 1,
        attempt=_name(delivery, facts),
        deadline=Span(schedule.deadline_ms),
    )
    if facts.paused_since is not None:
        begin = say(
            "{in_flight}; meanwhile its subscription was paused, at {at}",
            in_flight=begin,
            at=At(facts.paused_since),
        )
    elif endpoint is not None and endpoint.health.state is not State.ENABLED:
        state = _state(endpoint, facts.rules)
        begin = say("{in_flight}; meanwhile {state}", in_flight=begin, state=state)
    if again is None:
        return say(
            "{in_flight}; if it fails, no retry is left and the delivery is dropped.",
            in_flight=begin,
        )
    attempt, due = _retry(again.retry, schedule), At(again.due_at)
    if schedule.jitter:  # It is drawn when an attempt fails; this is the earliest time.
        return say(
            "{in_flight}; if it fails, {attempt} is due at {due} or somewhat later (jitter).",
            in_flight=begin,
            attempt=attempt,
            due=due,
        )
    return say(
        "{in_flight}; if it fails, {attempt} is due at {due}.",
        in_flight=begin,
        attempt=attempt,
        due=due,
    )


def _probing(facts: Facts, now: int) -> Sentence:
    """The attempt in flight is a probe; the endpoint may have changed since the probe was sent."""
    delivery, endpoint = facts.delivery, facts.endpoint
    number, end = delivery.attempts + 1, _dropped_at(delivery)
    if endpoint is None:
        return say(
            "In flight: attempt {number} is a probe, which uses no retry; {end}.",
            number=number,
            end=end,
        )
    state, probe_at = _state(endpoint, facts.rules), _probe_at(endpoint, now)
    match endpoint.health.state:
        case State.DISABLED if probe_at is not None:
            return say(
                "In flight: attempt {number} is a probe, because {state}; a success enables the "
                "endpoint; after a failure, the next probe is due at {due}; {end}.",
                number=number,
                state=state,
                due=probe_at,
                end=end,
            )
        case State.DISABLED:
            return say(
                "In flight: attempt {number} is a probe, because {state}; a success enables the "
                "endpoint; after a failure, the next probe is due now; {end}.",
                number=number,
                state=state,
                end=end,
            )
        case State.FROZEN:
            return say(
                "In flight: attempt {number} is a probe; meanwhile {state}; if it succeeds, it is "
                "delivered and the endpoint stays frozen; {end}.",
                number=number,
                state=state,
                end=end,
            )
        case State.ENABLED:
            return say(
                "In flight: attempt {number} is a probe; meanwhile {state}; if it fails, "
                "{next_step}; {end}.",
                number=number,
                state=state,
                next_step=_turn(delivery, facts, now),
                end=end,
            )
        case _ as never:
            assert_never(never)


def _cause(facts: Facts, delivery: Delivery, endpoint: Endpoint, now: int) -> Sentence:
    """Why a delivery to an enabled endpoint is still pending."""
    if delivery.sender_errors:
        return say("its last attempt was a sender-side failure, which uses no retry")
    if delivery.attempts:
        return many(
            "{count} attempt so far, without success",
            "{count} attempts so far, without success",
            delivery.attempts,
        )
    accepted = At(delivery.accepted_at)
    if delivery.replay and delivery.root_id == delivery.id:
        return say("it was made at {at} for a past event and not yet attempted", at=accepted)
    if delivery.replay:
        return say("it is a replay made at {at} and not yet attempted", at=accepted)
    if facts.quiet_ms and delivery.order_key and delivery.due_at > now:
        return say(
            "it waits until {quiet} have passed without a newer event of its key",
            quiet=Span(facts.quiet_ms),
        )
    if delivery.due_at > delivery.ready_at and (facts.rated or not facts.quiet_ms):
        return say(
            "it waits for its turn: its subscription or host has a limit of attempts per second"
        )
    if delivery.unblocked_at:
        return say("it was unblocked at {at} and not yet attempted", at=At(delivery.ready_at))
    if delivery.accepted_at < endpoint.health.enabled_since:
        return say(
            "it was accepted at {at} and waited until its endpoint was enabled at {enabled}",
            at=accepted,
            enabled=At(endpoint.health.enabled_since),
        )
    return say("it was accepted at {at} and not yet attempted", at=accepted)


def _turn(delivery: Delivery, facts: Facts, now: int) -> Sentence:
    """The next step of a delivery that nothing holds back."""
    attempt, due = _name(delivery, facts), At(delivery.due_at)
    if delivery.due_at > now:
        return say("{attempt} is due at {due}", attempt=attempt, due=due)
    if facts.rated:
        return say(
            "{attempt} has been due since {due} and is made in its turn: its subscription or host "
            "has a limit of attempts per second",
            attempt=attempt,
            due=due,
        )
    return say(
        "{attempt} has been due since {due} and is made as soon as a slot is free",
        attempt=attempt,
        due=due,
    )


def _end(facts: Facts, endpoint: Endpoint, now: int) -> Sentence:
    """What happens to the delivery if no attempt succeeds."""
    delivery, schedule = facts.delivery, facts.schedule
    fails_at = max(delivery.due_at, endpoint.hold_until, now)
    enabled_since = endpoint.health.enabled_since
    row = retry.after_failure(delivery, schedule, now=fails_at, enabled_since=enabled_since)
    if row is None:
        return say("if that attempt fails, the delivery is dropped, because no retry is left")
    number, at = retry.remaining(row, schedule)[-1]
    if schedule.jitter:  # It is drawn when an attempt fails; this is the earliest time.
        return say(
            "the last retry, number {number}, would be at {at} or somewhat later (jitter)",
            number=number,
            at=At(at),
        )
    return say("the last retry, number {number}, would be at {at}", number=number, at=At(at))


def _dropped_at(delivery: Delivery) -> Sentence:
    return say("dropped at {at} unless delivered", at=At(delivery.expires_at))


def _name(delivery: Delivery, facts: Facts) -> Sentence:
    """What the next attempt is called."""
    if delivery.retry:
        return _retry(delivery.retry, facts.schedule)
    return say("the next attempt") if delivery.attempts else say("the first attempt")


def _retry(number: int, schedule: Schedule) -> Sentence:
    return say("retry {number} of {retries}", number=number, retries=len(schedule.delays_ms))


def _probe_at(endpoint: Endpoint, now: int) -> At | None:
    """When a disabled endpoint is probed next; None: now."""
    at = endpoint.next_probe_at
    return None if at is None or at <= now else At(at)


def _next_probe(endpoint: Endpoint, now: int) -> Sentence:
    due = _probe_at(endpoint, now)
    if due is None:
        return say("the next probe is due now")
    return say("the next probe is due at {due}", due=due)


def _attempts(count: int) -> Sentence:
    if count == 0:
        return say("no attempt")
    return many("{count} attempt", "{count} attempts", count)


# --- endpoints ------------------------------------------------------------------------------


def _state(endpoint: Endpoint, rules: HealthRules) -> Sentence:
    """``the endpoint has been disabled since 14:02 after 2,000 failures in a row``."""
    health = endpoint.health
    since, failures = At(health.since), health.consecutive_failures
    match health.state, endpoint.rule:
        case State.DISABLED, "failure_rate":
            return say(
                "the endpoint has been disabled since {since} because more than {limit} % of its "
                "attempts failed ({failures} of {attempts} by now)",
                since=since,
                limit=rules.failure_percent,
                failures=health.failures,
                attempts=health.attempts,
            )
        case State.DISABLED, "consecutive_failures":
            return _disabled_after(rules.consecutive_disable, failures=failures, since=since)
        case State.FROZEN, "no_success":
            return say(
                "the endpoint has been frozen since {since} after {failures} failures in a row and "
                "no success for more than {limit}",
                since=since,
                failures=failures,
                limit=Span(rules.freeze_after_ms),
            )
        case State.FROZEN, "hopeless":
            return say(
                "the endpoint has been frozen since {since} after {failures} failures in a row",
                since=since,
                failures=max(failures, rules.consecutive_freeze_always),
            )
        case State.FROZEN, "frozen_by_person":
            return say("the endpoint has been frozen since {since} by a person", since=since)
        case State.ENABLED, "enabled_by_person":
            return say("the endpoint has been enabled since {since} by a person", since=since)
        case State.ENABLED, "success":
            return say("the endpoint has been enabled since {since} after a success", since=since)
        case state, "":
            return _state_since(state, since)
        case state, other:
            return say("{state} ({rule})", state=_state_since(state, since), rule=other)


def _disabled_after(limit: int, *, failures: int, since: At) -> Sentence:
    """Disabled after ``limit`` failures in a row; by now there are ``failures``."""
    if failures <= limit:
        return say(
            "the endpoint has been disabled since {since} after {limit} failures in a row",
            since=since,
            limit=limit,
        )
    return say(
        "the endpoint has been disabled since {since} after {limit} failures in a row "
        "({failures} by now)",
        since=since,
        limit=limit,
        failures=failures,
    )


def _state_since(state: State, since: At) -> Sentence:
    match state:
        case State.ENABLED:
            return say("the endpoint has been enabled since {since}", since=since)
        case State.DISABLED:
            return say("the endpoint has been disabled since {since}", since=since)
        case State.FROZEN:
            return say("the endpoint has been frozen since {since}", since=since)
        case _ as never:
            assert_never(never)


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
    failure = explain_cause(causes[0], attempts_in_all=in_all)
    return say("{state} Last failure: {failure}.", state=state, failure=failure)


def explain_cause(cause: Cause, *, attempts_in_all: int) -> Sentence:
    """``503 Service Unavailable, 14 of 20 failed attempts since 11:25``."""
    return many(
        "{failure}, {attempts} of {count} failed attempt since {since}",
        "{failure}, {attempts} of {count} failed attempts since {since}",
        attempts_in_all,
        failure=title(cause.key),
        attempts=cause.attempts,
        since=At(cause.first_seen),
    )


def _explain_state(endpoint: Endpoint, rules: HealthRules, now: int) -> Sentence:
    state, probe_at = Capital(_state(endpoint, rules)), _probe_at(endpoint, now)
    match endpoint.health.state:
        case State.ENABLED if endpoint.guard_refused_at:
            return say(
                "{state}; {reason}: it was last refused at {at}.",
                state=state,
                reason=REFUSED_SINCE,
                at=At(endpoint.guard_refused_at),
            )
        case State.ENABLED if endpoint.hold_until > now:
            return say(
                "{state}; it asked for a pause until {until} (Retry-After).",
                state=state,
                until=At(endpoint.hold_until),
            )
        case State.ENABLED:
            return say("{clause}.", clause=state)
        case State.DISABLED if probe_at is not None:
            return say(
                "{state}; the next probe is due at {due}, and a success enables it.",
                state=state,
                due=probe_at,
            )
        case State.DISABLED:
            return say("{state}; the next probe is due now, and a success enables it.", state=state)
        case State.FROZEN:
            return say("{state}; nothing is attempted until a person enables it.", state=state)
        case _ as never:
            assert_never(never)


# --- changes of state -----------------------------------------------------------------------

_CHANGED = {
    (State.ENABLED, State.DISABLED): say("Disabled (was enabled)"),
    (State.ENABLED, State.FROZEN): say("Frozen (was enabled)"),
    (State.DISABLED, State.FROZEN): say("Frozen (was disabled)"),
    (State.DISABLED, State.ENABLED): say("Enabled (was disabled)"),
    (State.FROZEN, State.ENABLED): say("Enabled (was frozen)"),
}


def explain_change(
    before: State, after: State, rule: str, numbers: Mapping[str, int], by: str = ""
) -> Sentence:
    """A sentence for a change of an endpoint's state."""
    change = _CHANGED.get((before, after), f"{after.value.capitalize()} (was {before.value})")
    match rule, numbers:
        case (
            "failure_rate",
            {"failures": failures, "attempts": attempts, "limit_percent": limit},
        ):
            return say(
                "{change}: {failures} of {attempts} attempts failed, which is more than {limit} %.",
                change=change,
                failures=failures,
                attempts=attempts,
                limit=limit,
            )
        case (
            "consecutive_failures" | "hopeless",
            {"consecutive_failures": failures, "limit": limit},
        ):
            return say(
                "{change}: {failures} attempts in a row failed; the limit is {limit}.",
                change=change,
                failures=failures,
                limit=limit,
            )
        case (
            "no_success",
            {
                "consecutive_failures": failures,
                "without_success_ms": without_success_ms,
                "limit": limit,
                "limit_ms": limit_ms,
            },
        ):
            return say(
                "{change}: {failures} attempts in a row failed and nothing succeeded for {time}; "
                "the limits are {limit} and {time_limit}.",
                change=change,
                failures=failures,
                time=Span(without_success_ms),
                limit=limit,
                time_limit=Span(limit_ms),
            )
        case "success", {"disabled_ms": disabled_ms}:
            return say(
                "{change}: an attempt succeeded after {time}.",
                change=change,
                time=Span(disabled_ms),
            )
        case "success", _:
            return say("{change}: an attempt succeeded.", change=change)
        case "enabled_by_person" | "frozen_by_person" | "person", _:
            return _by_person(change, after, by or say("a person"))
        case _ if by:
            reason = rule or say("no rule is recorded")
            return say("{change}: {reason}, by {by}.", change=change, reason=reason, by=by)
        case _:
            reason = rule or say("no rule is recorded")
            return say("{change}: {reason}.", change=change, reason=reason)


def _by_person(change: str, after: State, by: str) -> Sentence:
    match after:
        case State.ENABLED:
            return say("{change}: enabled by {by}.", change=change, by=by)
        case State.DISABLED:
            return say("{change}: disabled by {by}.", change=change, by=by)
        case State.FROZEN:
            return say("{change}: frozen by {by}.", change=change, by=by)
        case _ as never:
            assert_never(never)


def span_text(ms: int) -> str:
    """``640 ms``, ``5 s``, ``4 min 14 s``, ``72 h``, ``48 h 13 min``."""
    return str(span_sentence(ms))
