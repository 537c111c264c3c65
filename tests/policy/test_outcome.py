"""2xx is delivered, sender-side failures are sender errors, everything else failed.

Promised: what-homing-promises.md#attempts.
"""

from __future__ import annotations

import pytest

from homing.model import Failure, Outcome
from homing.policy.outcome import SENDER_FAILURES, judge, resets_ramp, wants_hold


@pytest.mark.parametrize("code", [200, 201, 202, 204, 299])
def test_2xx_is_delivered(code: int) -> None:
    assert judge(code, None) is Outcome.DELIVERED


@pytest.mark.parametrize("code", [100, 101, 199, 300, 301, 304, 400, 401, 404, 410, 429, 500, 503])
def test_every_other_status_failed(code: int) -> None:
    assert judge(code, None) is Outcome.FAILED


@pytest.mark.parametrize("failure", Failure)
def test_without_a_status_it_failed_unless_the_failure_is_sender_side(failure: Failure) -> None:
    sender_side = failure.value.startswith("sender_")
    assert judge(None, failure) is (Outcome.SENDER_ERROR if sender_side else Outcome.FAILED)
    assert (failure in SENDER_FAILURES) is sender_side


def test_a_body_that_breaks_off_never_changes_the_outcome() -> None:
    assert judge(200, Failure.RESET) is Outcome.DELIVERED
    assert judge(500, Failure.TIMEOUT) is Outcome.FAILED


@pytest.mark.parametrize("failure", [None, *Failure])
def test_a_timeout_or_connect_failure_puts_the_endpoint_back_to_one_slot(
    failure: Failure | None,
) -> None:
    resetting = {
        Failure.TIMEOUT,
        Failure.CONNECT_TIMEOUT,
        Failure.REFUSED,
        Failure.SENDER_TUNNEL,
        Failure.UNREACHABLE,
        Failure.TLS,
        Failure.DNS,
        Failure.TOKEN,
    }
    assert resets_ramp(failure) is (failure in resetting)


@pytest.mark.parametrize(
    ("code", "read"), [(429, True), (503, True), (500, False), (200, False), (None, False)]
)
def test_retry_after_is_read_on_429_and_503(code: int | None, read: bool) -> None:
    assert wants_hold(code) is read


def test_failures_of_the_sender_are_known_by_their_names() -> None:
    assert {it for it in Failure if it.name.startswith("SENDER_")} == SENDER_FAILURES
