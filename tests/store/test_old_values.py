"""Attempts stored before outcomes and failures were renamed are read with the new values."""

from __future__ import annotations

import pytest

from homing.model import Failure, Outcome
from homing.store import rows
from homing.store.tx import Row
from store.build import Maker


def stored(*, outcome: str, failure: str | None) -> Row:
    """A row of ``attempt`` with these texts."""
    make = Maker()
    event = make.event(make.subscription(make.endpoint()))
    row = list(rows.attempt_row(make.attempt(event.deliveries[0])))
    row[7], row[9] = outcome, failure
    return tuple(row)


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("our_dns", Failure.SENDER_DNS),
        ("our_network", Failure.SENDER_NETWORK),
        ("our_limits", Failure.SENDER_LIMITS),
        ("our_tls", Failure.SENDER_TLS),
        ("our_fault", Failure.SENDER_FAULT),
    ],
)
def test_an_old_sender_side_failure_is_a_sender_error(text: str, failure: Failure) -> None:
    attempt = rows.attempt(stored(outcome="ours", failure=text))
    assert (attempt.outcome, attempt.failure) == (Outcome.SENDER_ERROR, failure)


@pytest.mark.parametrize(
    ("text", "failure"),
    [("bad_answer", Failure.BAD_RESPONSE), ("answer_too_large", Failure.RESPONSE_TOO_LARGE)],
)
def test_an_old_bad_response_is_read(text: str, failure: Failure) -> None:
    attempt = rows.attempt(stored(outcome="failed", failure=text))
    assert (attempt.outcome, attempt.failure) == (Outcome.FAILED, failure)


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("failure", [None, *Failure])
def test_every_value_of_today_is_read_as_it_was_written(
    outcome: Outcome, failure: Failure | None
) -> None:
    attempt = rows.attempt(stored(outcome=outcome, failure=failure))
    assert (attempt.outcome, attempt.failure) == (outcome, failure)
