"""Why an attempt failed, in a few words: ``503 Service Unavailable``, ``connection refused``."""

from __future__ import annotations

from http import HTTPStatus

from homing.model import Failure
from homing.policy.outcome import SENDER_FAILURES

_PHRASES = {it.value: it.phrase for it in HTTPStatus}
_WORDS = {
    Failure.TIMEOUT: "no response in time",
    Failure.CONNECT_TIMEOUT: "no connection in time",
    Failure.REFUSED: "connection refused",
    Failure.UNREACHABLE: "host unreachable",
    Failure.RESET: "connection reset",
    Failure.CLOSED: "connection closed without a response",
    Failure.BAD_RESPONSE: "response is not HTTP",
    Failure.RESPONSE_TOO_LARGE: "response head too large",
    Failure.FORBIDDEN_ADDRESS: "address not allowed",
}


def failure_text(code: int | None, failure: Failure | None, detail: str = "") -> str:
    """The status with its phrase, or the failure; ``detail`` is the line that the sender logged."""
    if code is not None:
        return f"{code} {_PHRASES.get(code, '')}".rstrip()
    if failure is None:
        return detail
    if failure is Failure.TLS:
        return f"TLS: {detail.partition(': ')[2] or detail or 'handshake failed'}"
    if failure is Failure.DNS:
        return f"DNS: {detail or 'unknown host'}"
    if failure is Failure.TOKEN:
        return detail or "no access token"
    if failure in SENDER_FAILURES:
        return f"sender error: {detail or failure.value.replace('_', ' ')}"
    return _WORDS[failure]
