"""The outcome of an attempt: delivered, failed, or a sender-side failure.

Delivered is a 2xx status, and nothing else is. There is no list of statuses that end a delivery
early: a 404 or a 410 may be a deployment in progress, and is retried like any other failure. Only a
policy that says so obeys a 410 (``policy.receiver``).
"""

from __future__ import annotations

from typing import assert_never

from homing.model import Failure, Outcome

SENDER_FAILURES: frozenset[Failure] = frozenset(
    {
        Failure.SENDER_DNS,
        Failure.SENDER_NETWORK,
        Failure.SENDER_LIMITS,
        Failure.SENDER_TLS,
        Failure.SENDER_FAULT,
        Failure.SENDER_TOKEN,
        Failure.SENDER_CERTIFICATE,
        Failure.SENDER_PROXY,
        Failure.SENDER_TUNNEL,
    }
)


_DELIVERED, _FAILED = Outcome.DELIVERED, Outcome.FAILED  # Python 3.11 looks them up slowly.


def judge(code: int | None, failure: Failure | None) -> Outcome:
    """The outcome; a status that arrived counts, whatever happened after it."""
    if code is not None:
        return _DELIVERED if 200 <= code <= 299 else _FAILED
    assert failure is not None, "a response is a status code or a failure"
    return Outcome.SENDER_ERROR if failure in SENDER_FAILURES else _FAILED


def resets_ramp(failure: Failure | None) -> bool:
    """Whether it resets the endpoint to one slot: a timeout or a connect failure does.

    So does a failure of the token endpoint: attempts that wait for it hold their slots.
    """
    match failure:
        case (
            Failure.TIMEOUT
            | Failure.CONNECT_TIMEOUT
            | Failure.REFUSED
            | Failure.UNREACHABLE
            | Failure.TLS
            | Failure.DNS
            | Failure.TOKEN
            | Failure.SENDER_TUNNEL
        ):
            return True
        case (
            None
            | Failure.RESET
            | Failure.CLOSED
            | Failure.BAD_RESPONSE
            | Failure.RESPONSE_TOO_LARGE
            | Failure.FORBIDDEN_ADDRESS
            | Failure.SENDER_DNS
            | Failure.SENDER_NETWORK
            | Failure.SENDER_LIMITS
            | Failure.SENDER_TLS
            | Failure.SENDER_FAULT
            | Failure.SENDER_TOKEN
            | Failure.SENDER_CERTIFICATE
            | Failure.SENDER_PROXY
        ):
            return False
        case _ as never:
            assert_never(never)


def wants_hold(code: int | None) -> bool:
    """Whether ``Retry-After`` is read on this status."""
    return code in {429, 503}
