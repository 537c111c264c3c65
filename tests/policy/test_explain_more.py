"""Finished deliveries, times and changes of state are sentences too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.languages.sentences import At, English
from homing.model import Delivery, Endpoint, Lane, Reason, State, Status
from homing.policy.explain import explain, explain_change, explain_endpoint
from homing.policy.health import HealthRules
from homing.policy.presets import ONCE
from policy.build import DAY, HOUR, MINUTE, NOW
from policy.samples import (
    BACK,
    DISABLED,
    ENABLED,
    FROZEN,
    HELD,
    LAST,
    NEVER,
    OVERDUE,
    REPLAY,
    RETRYING,
    SENDER_ERROR,
    facts,
    read,
)

FINISHED: list[Any] = [
    pytest.param(
        {"status": Status.DELIVERED, "delivery": replace(NEVER, attempts=1)},
        "Delivered at 13:40, 10 min after it was accepted: its first attempt succeeded.",
        id="delivered at once",
    ),
    pytest.param(
        {"status": Status.DELIVERED, "delivery": replace(RETRYING, attempts=6)},
        "Delivered at 13:40, 10 min after it was accepted: attempt 6 succeeded.",
        id="delivered by a retry",
    ),
    pytest.param(
        {
            "status": Status.DROPPED,
            "reason": Reason.EXHAUSTED,
            "delivery": replace(LAST, attempts=12),
        },
        "Dropped at 13:40 after 12 attempts: the last attempt failed and no retry was left; "
        "it can be replayed.",
        id="exhausted",
    ),
    pytest.param(
        {
            "status": Status.DROPPED,
            "reason": Reason.EXPIRED,
            "delivery": replace(RETRYING, attempts=1, expires_at=NOW - 21 * MINUTE),
        },
        "Dropped at 13:40 after 1 attempt: the endpoint was disabled or frozen until the "
        "delivery's window ended at 13:39; it can be replayed.",
        id="expired",
    ),
    pytest.param(
        {"status": Status.CANCELLED, "reason": Reason.BY_PERSON, "delivery": RETRYING},
        "Cancelled at 13:40 after 5 attempts: a person cancelled it.",
        id="cancelled by a person",
    ),
    pytest.param(
        {"status": Status.CANCELLED, "reason": Reason.SUBSCRIPTION_DELETED, "delivery": NEVER},
        "Cancelled at 13:40 after no attempt: its subscription was deleted.",
        id="its subscription was deleted",
    ),
    pytest.param(
        {
            "status": Status.CANCELLED,
            "reason": Reason.BY_PERSON,
            "delivery": RETRYING,
            "arrived": True,
        },
        "Cancelled at 13:40 after 5 attempts: a person cancelled it; an attempt that was in "
        "flight at that time did arrive.",
        id="cancelled, and it arrived",
    ),
]


@pytest.mark.parametrize(("given_facts", "sentence"), FINISHED)
@pytest.mark.parametrize("endpoint", [ENABLED, DISABLED, FROZEN, None])
def test_a_finished_delivery_says_when_after_how_many_attempts_and_why(
    given_facts: dict[str, Any], sentence: str, endpoint: Endpoint | None
) -> None:
    finished = facts(finished_at=NOW - 20 * MINUTE, endpoint=endpoint, **given_facts)
    assert read(explain(finished, now=NOW)) == sentence


def test_what_changed_settings_refuse_is_not_the_receivers_fault() -> None:
    refused = replace(ENABLED, guard_refused_at=NOW - MINUTE, hold_until=NOW + 20 * MINUTE)
    why = "the settings of this installation were changed and no longer allow this target"
    assert read(explain(facts(delivery=RETRYING, endpoint=refused), now=NOW)) == (
        f"Waiting: {why}, which uses no retry; retry 5 of 11 is due at 14:20; dropped at "
        "14 Nov 13:43 unless delivered."
    )
    assert read(explain_endpoint(refused, HealthRules(), now=NOW)) == (
        f"The endpoint has been enabled since 2 Nov 14:00; {why}: it was last refused at 13:59."
    )
    dropped = facts(
        status=Status.DROPPED,
        reason=Reason.EXPIRED,
        delivery=replace(SENDER_ERROR, expires_at=NOW),
        finished_at=NOW,
        endpoint=refused,
    )
    assert (
        "sending to the endpoint was not possible until the delivery's window ended at 14:00"
        in read(explain(dropped, now=NOW))
    )


def test_without_retries_a_delivery_says_that_none_follows() -> None:
    waiting = facts(delivery=NEVER, schedule=ONCE)
    assert read(explain(waiting, now=NOW)).endswith(
        "; if that attempt fails, the delivery is dropped, because no retry is left."
    )
    flying = facts(delivery=NEVER, schedule=ONCE, in_flight=Lane.FRESH)
    assert read(explain(flying, now=NOW)).endswith(
        "; if it fails, no retry is left and the delivery is dropped."
    )


def test_the_times_of_a_sentence_are_values() -> None:
    sentence = explain(facts(delivery=RETRYING, endpoint=DISABLED), now=NOW)
    times = [it.ms for it in sentence.pieces(English()) if isinstance(it, At)]
    assert times == [
        DISABLED.health.since,
        DISABLED.next_probe_at,
        RETRYING.due_at,
        RETRYING.expires_at,
    ]
    assert sentence.text(lambda ms: f"<{ms}>").count("<") == 4


def test_text_from_outside_is_never_read_as_a_template() -> None:
    endpoint = replace(FROZEN, rule="{} {0}")
    sentence = explain_endpoint(endpoint, HealthRules(), now=NOW)
    assert "since 13:52 ({} {0});" in read(sentence)


@pytest.mark.parametrize(
    ("spent_ms", "text"),
    [
        pytest.param(-5, "0 ms", id="never less than nothing"),
        pytest.param(999, "999 ms", id="under a second"),
        pytest.param(1_000, "1 s", id="a second"),
        pytest.param(59_999, "59 s", id="under a minute"),
        pytest.param(MINUTE, "1 min", id="a minute"),
        pytest.param(MINUTE + 1_000, "1 min 1 s", id="a minute and a second"),
        pytest.param(HOUR - 1, "59 min 59 s", id="under an hour"),
        pytest.param(HOUR, "1 h", id="an hour"),
        pytest.param(HOUR + MINUTE, "1 h 1 min", id="an hour and a minute"),
        pytest.param(1_000 * HOUR, "1,000 h", id="many hours"),
    ],
)
def test_a_span_is_as_exact_as_its_length_asks_for(spent_ms: int, text: str) -> None:
    sentence = explain_change(State.DISABLED, State.ENABLED, "success", {"disabled_ms": spent_ms})
    assert sentence.endswith(f"an attempt succeeded after {text}.")


def test_a_pause_that_the_receiver_asked_for_is_over_at_its_end() -> None:
    def told(hold_until: int) -> str:
        endpoint = replace(ENABLED, hold_until=hold_until)
        return read(explain(facts(delivery=OVERDUE, endpoint=endpoint), now=NOW))

    assert "asked for a pause until 14:00 (Retry-After)" in told(NOW + 1)
    assert "asked for a pause" not in told(NOW)


def test_a_window_is_over_at_its_end() -> None:
    def told(expires_at: int) -> str:
        row = replace(NEVER, expires_at=expires_at)
        return read(explain(facts(delivery=row, endpoint=FROZEN), now=NOW))

    assert "its window ended at 14:00, so it will be dropped as expired shortly" in told(NOW)
    assert "dropped at 14:00 unless delivered" in told(NOW + 1)


ENDPOINTS: list[Any] = [
    pytest.param(ENABLED, "The endpoint has been enabled since 2 Nov 14:00.", id="enabled"),
    pytest.param(
        replace(ENABLED, hold_until=NOW + HOUR),
        "The endpoint has been enabled since 2 Nov 14:00; it asked for a pause until 15:00 "
        "(Retry-After).",
        id="a pause",
    ),
    pytest.param(
        replace(ENABLED, hold_until=NOW),
        "The endpoint has been enabled since 2 Nov 14:00.",
        id="a pause that is over",
    ),
    pytest.param(
        DISABLED,
        "The endpoint has been disabled since 13:52 after 2,000 failures in a row; the next "
        "probe is due at 14:02, and a success enables it.",
        id="disabled",
    ),
    pytest.param(
        replace(DISABLED, next_probe_at=NOW),
        "The endpoint has been disabled since 13:52 after 2,000 failures in a row; the next "
        "probe is due now, and a success enables it.",
        id="disabled, its probe due",
    ),
    pytest.param(
        FROZEN,
        "The endpoint has been frozen since 13:52 after 2,010 failures in a row and no success "
        "for more than 72 h; nothing is attempted until a person enables it.",
        id="frozen",
    ),
]


@pytest.mark.parametrize(("endpoint", "sentence"), ENDPOINTS)
def test_the_state_of_an_endpoint_is_a_sentence(endpoint: Endpoint, sentence: str) -> None:
    assert read(explain_endpoint(endpoint, HealthRules(), now=NOW)) == sentence


CHANGES: list[Any] = [
    pytest.param(
        (State.ENABLED, State.DISABLED, "failure_rate"),
        {"attempts": 1_010, "failures": 810, "limit_percent": 70},
        "",
        "Disabled (was enabled): 810 of 1,010 attempts failed, which is more than 70 %.",
        id="by the rate",
    ),
    pytest.param(
        (State.ENABLED, State.DISABLED, "consecutive_failures"),
        {"consecutive_failures": 2_000, "limit": 2_000},
        "",
        "Disabled (was enabled): 2,000 attempts in a row failed; the limit is 2,000.",
        id="by failures in a row",
    ),
    pytest.param(
        (State.DISABLED, State.FROZEN, "no_success"),
        {
            "consecutive_failures": 2_001,
            "limit": 2_000,
            "without_success_ms": 72 * HOUR + 20 * MINUTE,
            "limit_ms": 72 * HOUR,
        },
        "",
        "Frozen (was disabled): 2,001 attempts in a row failed and nothing succeeded for "
        "72 h 20 min; the limits are 2,000 and 72 h.",
        id="by time without success",
    ),
    pytest.param(
        (State.DISABLED, State.FROZEN, "hopeless"),
        {"consecutive_failures": 50_000, "limit": 50_000},
        "",
        "Frozen (was disabled): 50,000 attempts in a row failed; the limit is 50,000.",
        id="hopeless",
    ),
    pytest.param(
        (State.DISABLED, State.ENABLED, "success"),
        {"disabled_ms": 20 * MINUTE},
        "",
        "Enabled (was disabled): an attempt succeeded after 20 min.",
        id="by a success",
    ),
    pytest.param(
        (State.FROZEN, State.ENABLED, "enabled_by_person"),
        {},
        "key ops-1",
        "Enabled (was frozen): enabled by key ops-1.",
        id="by a named person",
    ),
    pytest.param(
        (State.ENABLED, State.FROZEN, "frozen_by_person"),
        {},
        "",
        "Frozen (was enabled): frozen by a person.",
        id="by somebody",
    ),
    pytest.param(
        (State.ENABLED, State.FROZEN, "moon"),
        {},
        "sun",
        "Frozen (was enabled): moon, by sun.",
        id="by a rule unknown here",
    ),
]


@pytest.mark.parametrize(("change", "numbers", "by", "sentence"), CHANGES)
def test_a_change_of_state_is_a_sentence(
    change: tuple[State, State, str], numbers: dict[str, int], by: str, sentence: str
) -> None:
    assert explain_change(*change, numbers, by) == sentence


@given(
    st.sampled_from(Status),
    st.sampled_from([None, *Reason]),
    st.sampled_from([NEVER, RETRYING, LAST, OVERDUE, REPLAY, SENDER_ERROR]),
    st.sampled_from([None, ENABLED, HELD, BACK, DISABLED, FROZEN]),
    st.sampled_from([None, *Lane]),
    st.integers(-3 * DAY, 3 * DAY),
)
def test_whatever_the_facts_there_is_one_sentence(
    status: Status,
    reason: Reason | None,
    delivery: Delivery,
    endpoint: Endpoint | None,
    in_flight: Lane | None,
    later: int,
) -> None:
    finished = None if status is Status.PENDING else NOW
    given_facts = facts(
        status=status,
        reason=reason,
        delivery=delivery,
        endpoint=endpoint,
        in_flight=in_flight,
        finished_at=finished,
    )
    sentence = read(explain(given_facts, now=NOW + later))
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0
    assert "None" not in sentence
