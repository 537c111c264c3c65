"""When a delivery is attempted again, and when it no longer is.

A schedule gives every retry a number *n* and a time. There are two ways to count that time:

- from the **first failure** (t₀): retry n is due at t₀ + offset(n). The whole timetable is known
  from the first failure on. A delivery that could not be sent for a while (its endpoint was
  disabled, or the server was down) continues with the next time that lies in the future; missed
  times are skipped. So "about 48 hours" means 48 hours, whatever happened in between.
- from the **previous failure**: retry n is due some delay after the attempt before it failed. Here
  n counts the retries made, and a wait delays all later retries.

Both end with a window counted from t₀, after which no retry is due. A probe of a disabled endpoint
and a sender-side failure are attempts too, but they use no retry.

Jitter only adds time: to retry n, up to ``jitter`` times the wait since retry n − 1. While waits do
not become shorter, a retry with jitter still comes before the next one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from homing.languages.sentences import say
from homing.model import Delivery, Endpoint, Health, Lane, State

SENDER_ERROR_FIRST_MS = 5_000
SENDER_ERROR_MAX_MS = 60_000
RETRY_AFTER_MAX_MS = 3_600_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
# The three forms of RFC 9110, section 5.6.7; the last two are obsolete but must be accepted.
_HTTP_DATES = tuple(
    re.compile(form, re.ASCII)
    for form in (
        rf"{_DAY}, (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_TIME} GMT",
        rf"{_LONG_DAY}, (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_TIME} GMT",
        rf"{_DAY} {_MONTH} (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})",
    )
)


class Anchor(StrEnum):
    """The moment from which the delays of a schedule are counted."""

    FIRST_FAILURE = "first_failure"
    PREVIOUS_FAILURE = "previous_failure"


class OnGone(StrEnum):
    """What the response 410 means: a failure like any other, or the end of the subscription."""

    RETRY = "retry"
    DEACTIVATE = "deactivate"


class OnRetryAfter(StrEnum):
    """Whether ``Retry-After`` moves the retry and holds the endpoint, or changes nothing."""

    OBEY = "obey"
    IGNORE = "ignore"


class Schedule(Struct, frozen=True):
    """The times of a delivery's retries, as data.

    ``delays_ms[n - 1]`` belongs to retry n: with ``FIRST_FAILURE`` its offset from t₀, with
    ``PREVIOUS_FAILURE`` its delay after the failure before it.
    """

    name: str
    delays_ms: tuple[int, ...]
    anchor: Anchor
    window_ms: int
    jitter: float = 0.0
    deadline_ms: int = 5000
    on_gone: OnGone = OnGone.RETRY
    retry_after: OnRetryAfter = OnRetryAfter.OBEY


class _Step(Struct, frozen=True, gc=False):
    """A future retry, before jitter and window."""

    n: int
    due_at: int
    delay_ms: int  # since the retry before it; jitter is a fraction of this


def exponential(base_ms: int, retries: int) -> tuple[int, ...]:
    """``((2 ** n) - 1) * base_ms`` for n = 1 … retries."""
    return tuple(((1 << n) - 1) * base_ms for n in range(1, retries + 1))


def window_end(accepted_at_or_t0: int, schedule: Schedule) -> int:
    """The last moment at which an attempt may be due, counted from t₀ (or from acceptance)."""
    return accepted_at_or_t0 + schedule.window_ms


def after_failure(
    delivery: Delivery,
    schedule: Schedule,
    *,
    now: int,
    enabled_since: int,
    random: float = 0.0,
    retry_after_at: int | None = None,
) -> Delivery | None:
    """The row with its next retry; None if no retry is left: it is dropped as exhausted."""
    t0 = delivery.t0
    if t0 is None:  # If it was held back, count from its acceptance.
        t0 = _begin(delivery) if delivery.ready_at < enabled_since else now
    step = _ahead(schedule, t0=t0, retry=delivery.retry, now=now)
    if step is None:
        return None
    end = window_end(t0, schedule)
    due_at = min(step.due_at + int(random * schedule.jitter * step.delay_ms), end)
    if due_at <= now:
        return None
    if retry_after_at is not None:
        due_at = min(max(due_at, retry_after_at), end)
    return replace(
        delivery,
        attempts=delivery.attempts + 1,
        sender_errors=0,
        t0=t0,
        retry=step.n,
        due_at=due_at,
        expires_at=end,
    )


def after_probe_failure(delivery: Delivery, schedule: Schedule, *, now: int) -> Delivery:
    """The row after a failed probe, which uses no retry.

    If the probe was the first attempt, the timetable begins at acceptance. If no retry of it lies
    in the future, the due time stays, so the delivery is overdue when the endpoint is enabled. A
    due time that a sender-side failure moved past the window is set back to the window's end.
    """
    attempts = delivery.attempts + 1
    if delivery.t0 is not None:
        due_at = min(delivery.due_at, delivery.expires_at)
        return replace(delivery, attempts=attempts, sender_errors=0, due_at=due_at)
    t0 = _begin(delivery)
    end = window_end(t0, schedule)
    step = _ahead(schedule, t0=t0, retry=delivery.retry, now=now)
    due_at = min(delivery.due_at, end)
    tried = replace(
        delivery, attempts=attempts, sender_errors=0, t0=t0, due_at=due_at, expires_at=end
    )
    if step is None or min(step.due_at, end) <= now:
        return tried
    return replace(tried, retry=step.n, due_at=min(step.due_at, end))


def after_sender_error(delivery: Delivery, *, now: int, probe: bool = False) -> Delivery:
    """The row after a sender-side failure: due again in 5 s, doubling to 60 s; uses no retry.

    After a probe the due time stays, because a probe may come before it.
    """
    if probe:
        return replace(delivery, attempts=delivery.attempts + 1)
    wait_ms = min(SENDER_ERROR_FIRST_MS << min(delivery.sender_errors, 8), SENDER_ERROR_MAX_MS)
    return replace(
        delivery,
        attempts=delivery.attempts + 1,
        sender_errors=delivery.sender_errors + 1,
        due_at=now + wait_ms,
    )


def _begin(delivery: Delivery) -> int:
    """When it was accepted or unblocked, without the time for which it was paused since."""
    return delivery.ready_at + delivery.paused_ms


def held_past_window(delivery: Delivery, *, enabled_since: int) -> bool:
    """Whether the window of the delivery had already ended when its endpoint was enabled."""
    return delivery.expires_at <= enabled_since


def remaining(delivery: Delivery, schedule: Schedule) -> tuple[tuple[int, int], ...]:
    """(n, due time) of the future retries, beginning with the one that it waits for.

    These are the times if every attempt is made when it is due and fails at once. For a delivery
    that has no t₀ yet, the first failure is assumed at ``due_at``, which for a fresh delivery is
    its acceptance.
    """
    ahead: list[tuple[int, int]] = []
    n, at = delivery.retry, delivery.due_at
    t0 = delivery.t0
    if t0 is None:
        t0 = at
    elif n == 0:
        return ()
    else:
        ahead.append((n, at))
    end = window_end(t0, schedule)
    while step := _ahead(schedule, t0=t0, retry=n, now=at):
        due_at = min(step.due_at, end)
        if due_at <= at:
            break
        n, at = step.n, due_at
        ahead.append((n, at))
    return tuple(ahead)


def ahead(
    delivery: Delivery, schedule: Schedule, health: Health | None, *, is_paused: bool
) -> tuple[tuple[int, int], ...]:
    """The retries that will be made.

    Empty while its endpoint is disabled or frozen or its subscription is paused, and for a
    delivery that will be dropped without another attempt.
    """
    if is_paused or health is None or health.state is not State.ENABLED:
        return ()
    if held_past_window(delivery, enabled_since=health.enabled_since):
        return ()
    return remaining(delivery, schedule)


def why_not_now(
    delivery: Delivery, endpoint: Endpoint | None, *, in_flight: Lane | None, is_paused: bool
) -> str:
    """Why a person cannot have a pending delivery tried now; "" if it can be."""
    if in_flight is not None:
        return say("An attempt of this delivery is being made now: wait for its outcome.")
    if is_paused:
        return say("Its subscription is paused: resume it, or send a test event.")
    if delivery.order_seq:
        return say(
            "It waits for an earlier delivery of the same key, which must be finished first."
        )
    if endpoint is None:
        return say("The endpoint of this delivery is unknown.")
    health = endpoint.health
    if health.state is State.DISABLED:
        return say("The endpoint is disabled: enable it, or send a test event.")
    if health.state is State.FROZEN:
        return say("The endpoint is frozen: enable it, or send a test event.")
    if held_past_window(delivery, enabled_since=health.enabled_since):
        return say("Its window has ended, so it will be dropped: replay it then.")
    return ""


def retry_after_at(value: str, *, now: int, wall: int) -> int | None:
    """The time that a ``Retry-After`` header asks for, at most 1 h ahead.

    A date is on the wall clock: the wait is its distance from ``wall``, the sender's wall clock.
    None if the value cannot be read or is not in the future.
    """
    text = value.strip(" \t")
    at: int | None
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0")
        at = now + (RETRY_AFTER_MAX_MS if len(digits) > 9 else int(digits or "0") * 1000)
    else:
        date = _http_date(text, now=wall)
        at = None if date is None else now + (date - wall)
    if at is None or at <= now:
        return None
    return min(at, now + RETRY_AFTER_MAX_MS)


def _ahead(schedule: Schedule, *, t0: int, retry: int, now: int) -> _Step | None:
    """The next retry after a failure at ``now``, strictly later."""
    delays = schedule.delays_ms
    match schedule.anchor:
        case Anchor.FIRST_FAILURE:
            index = bisect_right(delays, now - t0)
            if index == len(delays):
                return None
            before = delays[index - 1] if index else 0
            return _Step(index + 1, t0 + delays[index], delays[index] - before)
        case Anchor.PREVIOUS_FAILURE:
            if retry >= len(delays):
                return None
            return _Step(retry + 1, now + delays[retry], delays[retry])
        case _ as never:
            assert_never(never)


def _http_date(text: str, *, now: int) -> int | None:
    for form in _HTTP_DATES:
        if found := form.fullmatch(text):
            break
    else:
        return None
    year = int(found["year"])
    if len(found["year"]) == 2:  # RFC 9110: more than 50 years ahead means the past century.
        this_year = (_EPOCH + timedelta(milliseconds=now)).year
        year += this_year // 100 * 100
        if year > this_year + 50:
            year -= 100
    try:
        at = datetime(
            year,
            _MONTHS.index(found["month"]) + 1,
            int(found["day"]),
            int(found["hour"]),
            int(found["minute"]),
            min(int(found["second"]), 59),  # 60 is a leap second
            tzinfo=UTC,
        )
    except ValueError:
        return None
    return (at - _EPOCH) // timedelta(milliseconds=1)
