"""An open cause in plain words: what fails, since when, what waits, what happens next."""

from __future__ import annotations

from typing import Any

import pytest

from homing.model import Cause, CauseKey, Endpoint, Failure
from homing.policy.causes import CLASSES, HTTP_STATUS, OTHER
from homing.policy.health import HealthRules
from homing.policy.incidents import explain_incident, what_fails
from homing.policy.outcome import SENDER_FAILURES
from policy.build import DAY, HOUR, MINUTE, NOW, a_health, an_endpoint
from policy.samples import DISABLED, ENABLED, FROZEN, read

UNAVAILABLE = CauseKey(HTTP_STATUS, "", 503)


def incident(endpoint: Endpoint = ENABLED, **given: Any) -> str:
    asked: dict[str, Any] = {"attempts": 14, "in_all": 14, "waiting": 214, "key": UNAVAILABLE}
    asked |= {"first_expiry": NOW + 2 * DAY} | given
    cause = Cause(
        id=1,
        tenant="acme",
        endpoint_id=endpoint.id,
        key=asked["key"],
        first_seen=NOW - HOUR,
        last_seen=NOW - MINUTE,
        attempts=asked["attempts"],
        deliveries=3,
        example_id=5,
        example_number=1,
    )
    return read(
        explain_incident(
            cause,
            endpoint,
            HealthRules(),
            attempts_in_all=asked["in_all"],
            waiting=asked["waiting"],
            waiting_max=1_000,
            first_expiry=asked["first_expiry"],
        )
    )


BEGIN = "Every attempt has failed since 13:00: the server responds with 503 Service Unavailable."
END = "the first is dropped at 14 Nov 14:00 unless it is delivered."


@pytest.mark.parametrize(
    ("endpoint", "then"),
    [
        (ENABLED, "214 deliveries wait for a retry"),
        (DISABLED, "214 deliveries wait for a successful probe (one every 10 min)"),
        (FROZEN, "214 deliveries wait until a person enables the URL"),
    ],
)
def test_a_sentence_says_what_fails_what_waits_and_what_happens(
    endpoint: Endpoint, then: str
) -> None:
    assert incident(endpoint) == f"{BEGIN} {then}; {END}"


def test_a_cause_among_others_says_its_part() -> None:
    begin = "9 of 14 failed attempts since 13:00: the server responds with 503"
    assert incident(attempts=9).startswith(begin)


def test_a_cause_that_came_back_does_not_claim_every_attempt() -> None:
    endpoint = an_endpoint(health=a_health(last_success_at=NOW - 30 * MINUTE))
    assert incident(endpoint).startswith("14 attempts have failed since 13:00: ")
    assert incident(endpoint, attempts=1, in_all=1).startswith("1 attempt has failed since 13:00: ")


@pytest.mark.parametrize(
    ("given", "end"),
    [
        ({"waiting": 0}, " No delivery waits."),
        (
            {"waiting": 1},
            " 1 delivery waits for a retry; it is dropped at 14 Nov 14:00 unless it is delivered.",
        ),
        ({"waiting": 1_001}, f" More than 1,000 deliveries wait for a retry; {END}"),
        ({"waiting": 2, "first_expiry": None}, " 2 deliveries wait for a retry."),
    ],
)
def test_waiting_deliveries_are_counted_up_to_a_limit(given: dict[str, Any], end: str) -> None:
    assert incident(**given) == BEGIN + end


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (UNAVAILABLE, "the server responds with 503 Service Unavailable"),
        (CauseKey(HTTP_STATUS, "", 599), "the server responds with 599"),
        (CauseKey("tls", "self_signed"), "the TLS handshake fails (self-signed certificate)"),
        (CauseKey("tls"), "the TLS handshake fails"),
        (CauseKey("dns", "unknown_host"), "the host name cannot be resolved (unknown host)"),
        (CauseKey("dns"), "the host name cannot be resolved"),
        (CauseKey("refused"), "the server refuses the connection"),
        (OTHER, "various failures"),
    ],
)
def test_what_fails_is_said_in_words(key: CauseKey, words: str) -> None:
    assert what_fails(key) == words


@pytest.mark.parametrize("failure", sorted(set(Failure) - SENDER_FAILURES))
def test_every_failure_of_a_receiver_has_words(failure: Failure) -> None:
    words = what_fails(CauseKey(failure.value))
    assert words.startswith(("the ", "no "))
    assert failure.value in CLASSES
