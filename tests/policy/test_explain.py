"""Every pending delivery says in a sentence why it waits, and what happens next, when."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from homing.model import CauseKey, Delivery, Endpoint, Lane, State
from homing.policy.explain import explain
from homing.policy.presets import WORKFRONT
from homing.policy.retry import OnRetryAfter
from policy.build import HOUR, MINUTE, NOW, SECOND
from policy.samples import (
    BACK,
    DISABLED,
    ENABLED,
    FROZEN,
    HELD,
    LAST,
    NEVER,
    OVERDUE,
    PAST,
    REPLAY,
    RETRYING,
    SENDER_ERROR,
    WINDOW,
    facts,
    read,
    since,
)

DISABLED_BY = "the endpoint has been disabled since 13:52 after 2,000 failures in a row"
FROZEN_BY = (
    "the endpoint has been frozen since 13:52 after 2,010 failures in a row and no success for "
    "more than 72 h"
)
PROBED = f"Waiting: {DISABLED_BY}; the next probe is due at 14:02; once enabled, "
UNTIL_ENABLED = f"Waiting: {FROZEN_BY}; nothing is attempted until a person enables it, then "
DROPPED = "; dropped at 14 Nov 13:43 unless delivered."

PENDING: list[Any] = [
    pytest.param(
        NEVER,
        ENABLED,
        None,
        "Waiting: it was accepted at 13:30 and not yet attempted; the first attempt has been "
        "due since 13:30 and is made as soon as a slot is free; the last retry, number 11, "
        "would be at 14 Nov 14:13.",
        id="enabled, never attempted",
    ),
    pytest.param(
        NEVER,
        BACK,
        None,
        "Waiting: it was accepted at 13:30 and waited until its endpoint was enabled at 13:59; "
        "the first attempt has been due since 13:30 and is made as soon as a slot is free; the "
        "last retry, number 11, would be at 14 Nov 13:43.",
        id="enabled, never attempted, held back first",
    ),
    pytest.param(
        RETRYING,
        ENABLED,
        None,
        "Waiting: 5 attempts so far, without success; retry 5 of 11 is due at 14:13; the last "
        "retry, number 11, would be at 14 Nov 13:43.",
        id="enabled, retrying",
    ),
    pytest.param(
        LAST,
        ENABLED,
        None,
        "Waiting: 12 attempts so far, without success; retry 11 of 11 is due at 14 Nov 13:43; "
        "if that attempt fails, the delivery is dropped, because no retry is left.",
        id="enabled, waiting for its last retry",
    ),
    pytest.param(
        RETRYING,
        HELD,
        None,
        "Waiting: the endpoint asked for a pause until 14:20 (Retry-After); then retry 5 of 11 "
        "is made; the last retry, number 11, would be at 14 Nov 13:43.",
        id="enabled, Retry-After hold",
    ),
    pytest.param(
        replace(RETRYING, due_at=NOW + HOUR),
        HELD,
        None,
        "Waiting: 5 attempts so far, without success; retry 5 of 11 is due at 15:00; the last "
        "retry, number 11, would be at 14 Nov 13:43.",
        id="enabled, due after the Retry-After hold",
    ),
    pytest.param(
        OVERDUE,
        ENABLED,
        None,
        "Waiting: 4 attempts so far, without success; retry 4 of 11 has been due since 13:51 "
        "and is made as soon as a slot is free; the last retry, number 11, would be at 14 Nov "
        "13:43.",
        id="enabled, overdue",
    ),
    pytest.param(
        SENDER_ERROR,
        ENABLED,
        None,
        "Waiting: its last attempt was a sender-side failure, which uses no retry; the next "
        "attempt is due at 14:00; the last retry, number 11, would be at 14 Nov 14:13.",
        id="enabled, sender-side failure",
    ),
    pytest.param(
        REPLAY,
        ENABLED,
        None,
        "Waiting: it is a replay made at 13:30 and not yet attempted; the first attempt has "
        "been due since 13:30 and is made as soon as a slot is free; the last retry, number "
        "11, would be at 14 Nov 14:13.",
        id="enabled, replay",
    ),
    pytest.param(
        PAST,
        ENABLED,
        None,
        "Waiting: it was made at 13:30 for a past event and not yet attempted; the first "
        "attempt has been due since 13:30 and is made as soon as a slot is free; the last "
        "retry, number 11, would be at 14 Nov 14:13.",
        id="enabled, from the past",
    ),
    pytest.param(
        replace(NEVER, expires_at=NOW - HOUR),
        BACK,
        None,
        "Waiting: the endpoint was enabled at 13:59, after the window of this delivery had "
        "ended at 13:00; it will be dropped as expired shortly, without another attempt.",
        id="enabled, its window ended while it was held back",
    ),
    pytest.param(
        OVERDUE,
        ENABLED,
        Lane.RETRY,
        "In flight: attempt 5 (retry 4 of 11) is being made now and has 5 s from its start to "
        "get a response; if it fails, retry 5 of 11 is due at 14:13.",
        id="enabled, in flight",
    ),
    pytest.param(
        replace(LAST, due_at=NOW - SECOND, t0=NOW - SECOND - WINDOW),
        ENABLED,
        Lane.RETRY,
        "In flight: attempt 13 (retry 11 of 11) is being made now and has 5 s from its start to "
        "get a response; if it fails, no retry is left and the delivery is dropped.",
        id="enabled, the last retry in flight",
    ),
    pytest.param(
        NEVER,
        DISABLED,
        None,
        f"{PROBED}the first attempt of this delivery is made at once{DROPPED}",
        id="disabled, never attempted",
    ),
    pytest.param(
        RETRYING,
        DISABLED,
        None,
        f"{PROBED}retry 5 of 11 of this delivery is due at 14:13{DROPPED}",
        id="disabled, retrying",
    ),
    pytest.param(
        RETRYING,
        replace(DISABLED, hold_until=NOW + 20 * MINUTE),
        None,
        f"{PROBED}retry 5 of 11 of this delivery is due at 14:13{DROPPED}",
        id="disabled, Retry-After hold: being disabled is the cause",
    ),
    pytest.param(
        OVERDUE,
        DISABLED,
        None,
        f"{PROBED}retry 4 of 11 of this delivery is made at once{DROPPED}",
        id="disabled, overdue",
    ),
    pytest.param(
        REPLAY,
        DISABLED,
        None,
        f"{PROBED}the first attempt of this delivery is made at once{DROPPED}",
        id="disabled, replay",
    ),
    pytest.param(
        NEVER,
        replace(DISABLED, next_probe_at=NOW - 1),
        None,
        f"Waiting: {DISABLED_BY}; the next probe is due now; once enabled, the first attempt of "
        f"this delivery is made at once{DROPPED}",
        id="disabled, a probe is due",
    ),
    pytest.param(
        RETRYING,
        replace(DISABLED, next_probe_at=NOW + 10 * MINUTE),
        Lane.PROBE,
        f"In flight: attempt 6 is a probe, because {DISABLED_BY}; a success enables the "
        f"endpoint; after a failure, the next probe is due at 14:10{DROPPED}",
        id="disabled, probe in flight",
    ),
    pytest.param(
        OVERDUE,
        DISABLED,
        Lane.RETRY,
        "In flight: attempt 5 (retry 4 of 11) is being made now and has 5 s from its start to "
        f"get a response; meanwhile {DISABLED_BY}; if it fails, retry 5 of 11 is due at 14:13.",
        id="disabled while its attempt is in flight",
    ),
    pytest.param(
        replace(RETRYING, expires_at=NOW - MINUTE),
        DISABLED,
        None,
        f"Waiting: {DISABLED_BY}; its window ended at 13:59, so it will be dropped as expired "
        "shortly.",
        id="disabled, its window has ended",
    ),
    pytest.param(
        NEVER,
        FROZEN,
        None,
        f"{UNTIL_ENABLED}the first attempt of this delivery is made at once{DROPPED}",
        id="frozen, never attempted",
    ),
    pytest.param(
        RETRYING,
        FROZEN,
        None,
        f"{UNTIL_ENABLED}retry 5 of 11 of this delivery is due at 14:13{DROPPED}",
        id="frozen, retrying",
    ),
    pytest.param(
        RETRYING,
        replace(FROZEN, hold_until=NOW + 20 * MINUTE),
        None,
        f"{UNTIL_ENABLED}retry 5 of 11 of this delivery is due at 14:13{DROPPED}",
        id="frozen, Retry-After hold: being frozen is the cause",
    ),
    pytest.param(
        OVERDUE,
        FROZEN,
        None,
        f"{UNTIL_ENABLED}retry 4 of 11 of this delivery is made at once{DROPPED}",
        id="frozen, overdue",
    ),
    pytest.param(
        REPLAY,
        FROZEN,
        None,
        f"{UNTIL_ENABLED}the first attempt of this delivery is made at once{DROPPED}",
        id="frozen, replay",
    ),
    pytest.param(
        RETRYING,
        FROZEN,
        Lane.PROBE,
        f"In flight: attempt 6 is a probe; meanwhile {FROZEN_BY}; if it succeeds, it is "
        f"delivered and the endpoint stays frozen{DROPPED}",
        id="frozen while its probe is in flight",
    ),
    pytest.param(
        RETRYING,
        replace(BACK, rule="enabled_by_person"),
        Lane.PROBE,
        "In flight: attempt 6 is a probe; meanwhile the endpoint has been enabled since 13:59 "
        f"by a person; if it fails, retry 5 of 11 is due at 14:13{DROPPED}",
        id="enabled while its probe is in flight",
    ),
    pytest.param(
        RETRYING,
        None,
        None,
        "Waiting: its endpoint is unknown; retry 5 of 11 is due at 14:13.",
        id="no endpoint known",
    ),
]


@pytest.mark.parametrize(("delivery", "endpoint", "in_flight", "sentence"), PENDING)
def test_a_pending_delivery_names_cause_next_step_and_time(
    delivery: Delivery, endpoint: Endpoint | None, in_flight: Lane | None, sentence: str
) -> None:
    given_facts = facts(delivery=delivery, endpoint=endpoint, in_flight=in_flight)
    assert read(explain(given_facts, now=NOW)) == sentence


@pytest.mark.parametrize(
    ("endpoint", "cause"),
    [
        pytest.param(
            since(State.DISABLED, rule="failure_rate", attempts=103, failures=75),
            "disabled since 13:52 because more than 70 % of its attempts failed "
            "(75 of 103 by now);",
            id="by the rate",
        ),
        pytest.param(
            since(State.DISABLED, rule="consecutive_failures", consecutive_failures=2_004),
            "disabled since 13:52 after 2,000 failures in a row (2,004 by now);",
            id="by failures in a row, and more since",
        ),
        pytest.param(
            since(State.FROZEN, rule="hopeless", consecutive_failures=50_000),
            "frozen since 13:52 after 50,000 failures in a row;",
            id="hopeless",
        ),
        pytest.param(
            since(State.FROZEN, rule="frozen_by_person"),
            "frozen since 13:52 by a person;",
            id="by a person",
        ),
        pytest.param(since(State.FROZEN, rule=""), "frozen since 13:52;", id="no rule known"),
        pytest.param(since(State.FROZEN, rule="moon"), "since 13:52 (moon);", id="another rule"),
    ],
)
def test_the_cause_of_an_endpoints_state_is_named(endpoint: Endpoint, cause: str) -> None:
    assert cause in read(explain(facts(delivery=NEVER, endpoint=endpoint), now=NOW))


def test_waiting_for_quiet_is_no_rate_limit() -> None:
    quiet = replace(NEVER, order_key="order-1", due_at=NOW + 5_000, accepted_at=NOW)
    said = read(explain(facts(delivery=quiet, quiet_ms=5_000), now=NOW))
    assert "it waits until 5 s have passed without a newer event of its key" in said
    assert "attempts per second" not in said
    assert "attempts per second" in read(explain(facts(delivery=quiet, rated=True), now=NOW))
    due = read(explain(facts(delivery=quiet, quiet_ms=5_000), now=NOW + 6_000))
    assert "newer event" not in due
    assert "attempts per second" not in due


def test_with_jitter_the_time_of_a_later_retry_is_the_earliest_one() -> None:
    schedule = replace(WORKFRONT, jitter=0.1)
    waiting = read(explain(facts(schedule=schedule), now=NOW))
    assert waiting.endswith(" or somewhat later (jitter).")
    in_flight = read(explain(facts(schedule=schedule, in_flight=Lane.FRESH), now=NOW))
    assert in_flight.endswith(" or somewhat later (jitter).")
    assert "jitter" not in read(explain(facts(), now=NOW))


@pytest.mark.parametrize(("code", "told"), [(503, True), (429, True), (500, False)])
def test_an_ignored_retry_after_is_told_where_a_receiver_may_have_sent_one(
    code: int, told: bool
) -> None:
    strict = replace(WORKFRONT, name="strict", retry_after=OnRetryAfter.IGNORE)
    cause = CauseKey("http_status", "", code)
    found = read(explain(facts(schedule=strict, cause=cause), now=NOW))
    assert found.endswith(" Its policy strict ignores Retry-After.") == told
    assert "Retry-After" not in read(explain(facts(cause=cause), now=NOW))


def test_the_sentences_about_a_paused_delivery() -> None:
    paused = replace(
        facts(delivery=NEVER, endpoint=ENABLED), paused_since=NOW - HOUR, retention_ms=720 * HOUR
    )
    assert read(explain(paused, now=NOW)) == (
        "Waiting: its subscription has been paused since 13:00; nothing is attempted until a "
        "person resumes it, then the first attempt is made at once; its window does not run "
        "meanwhile; dropped at 12 Dec 13:30 if the pause lasts until then."
    )
    later = replace(
        facts(delivery=RETRYING, endpoint=ENABLED), paused_since=NOW - HOUR, retention_ms=720 * HOUR
    )
    assert "is made" in read(explain(later, now=NOW))
    flying = replace(paused, in_flight=Lane.FRESH)
    assert "meanwhile its subscription was paused, at 13:00" in read(explain(flying, now=NOW))
