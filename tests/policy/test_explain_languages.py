"""No word of an explanation is left in English when a language has its messages."""

from __future__ import annotations

import re

import pytest

from homing.languages.sentences import English, Sentence
from homing.model import Cause, CauseKey, Endpoint, Failure
from homing.policy.causes import OTHER, key_of, title
from homing.policy.commit_loss import CommitLoss, missing_text
from homing.policy.explain import explain, explain_change, explain_endpoint
from homing.policy.failure_text import failure_text
from homing.policy.health import HealthRules
from homing.policy.incidents import explain_incident, what_fails
from homing.policy.outcome import SENDER_FAILURES
from policy.build import HOUR, NOW
from policy.samples import DISABLED, ENABLED, FROZEN, facts
from policy.test_explain import PENDING
from policy.test_explain_more import CHANGES, ENDPOINTS, FINISHED

_DETAILS = (
    (Failure.TLS, "TLS failed: wrong version number"),
    (Failure.DNS, "unknown host: no such name"),
    (Failure.TIMEOUT, "no end of the TLS handshake"),
    (Failure.TOKEN, "the token endpoint x responded 401 invalid_client"),
)
KEYS = [
    OTHER,
    *(CauseKey(it.value) for it in Failure if it not in SENDER_FAILURES),
    *(key_of(failure, detail, None) for failure, detail in _DETAILS),
]


class Shouting(English):
    """A language in which messages are written in capitals only; values stay as they are."""

    def message(self, one: str, other: str, count: int) -> str:
        text = super().message(one, other, count)
        return re.sub(r"\{[a-z_]+\}|[a-z]", lambda it: it[0] if it[0][0] == "{" else "X", text)


def left_of(text: str) -> list[str]:
    """The words that are not translated."""
    assert isinstance(text, Sentence), text
    return re.findall("[a-z]+", text.text(lambda _: "", Shouting()))


def test_the_explanation_of_a_pending_delivery_is_translated() -> None:
    for delivery, endpoint, in_flight, _ in (it.values for it in PENDING):
        given = facts(delivery=delivery, endpoint=endpoint, in_flight=in_flight)
        assert left_of(explain(given, now=NOW)) == []


def test_the_explanation_of_a_finished_delivery_is_translated() -> None:
    for given, _ in (it.values for it in FINISHED):
        assert left_of(explain(facts(finished_at=NOW, **given), now=NOW)) == []


def test_the_state_of_an_endpoint_is_translated() -> None:
    for endpoint, _ in (it.values for it in ENDPOINTS):
        assert left_of(explain_endpoint(endpoint, HealthRules(), now=NOW)) == []


def test_a_change_of_state_is_translated() -> None:
    for (before, after, rule), numbers, by, _ in (it.values for it in CHANGES):
        names = {*re.findall("[a-z]+", by), "moon"}  # A rule that is unknown is data.
        assert set(left_of(explain_change(before, after, rule, numbers, by))) <= names


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("endpoint", [ENABLED, DISABLED, FROZEN], ids=["on", "off", "frozen"])
@pytest.mark.parametrize("waiting", [0, 1, 7, 1_001])
def test_an_open_cause_is_translated(key: CauseKey, endpoint: Endpoint, waiting: int) -> None:
    said = explain_incident(
        Cause(1, "acme", endpoint.id, key, NOW - HOUR, NOW, 2, 2, 5, 1),
        endpoint,
        HealthRules(),
        attempts_in_all=2,
        waiting=waiting,
        waiting_max=1_000,
        first_expiry=NOW,
    )
    assert left_of(said) == left_of(title(key)) == left_of(what_fails(key)) == []


@pytest.mark.parametrize("kind", ["publish", "settle", "catalog", "leases"])
@pytest.mark.parametrize("from_at", [None, NOW - HOUR])
def test_what_may_be_missing_is_translated(kind: str, from_at: int | None) -> None:
    assert left_of(missing_text(CommitLoss(1, NOW, "", kind, from_at, NOW))) == []


def test_a_status_and_a_line_of_the_log_are_data() -> None:
    assert type(failure_text(503, None)) is str
    assert type(failure_text(None, Failure.TOKEN, "the token endpoint x responded 500")) is str
    assert left_of(failure_text(None, Failure.TLS, "TLS failed: bad luck")) == ["bad", "luck"]
