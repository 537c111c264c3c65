"""Why an attempt failed, in a few words: ``503 Service Unavailable``, ``connection refused``."""

from __future__ import annotations

from http import HTTPStatus

from homing.languages.sentences import say
from homing.model import Failure
from homing.policy.outcome import SENDER_FAILURES

_PHRASES = {it.value: it.phrase for it in HTTPStatus}
_WORDS = {
    Failure.TIMEOUT: say("no response in time"),
    Failure.CONNECT_TIMEOUT: say("no connection in time"),
    Failure.REFUSED: say("connection refused"),
    Failure.UNREACHABLE: say("host unreachable"),
    Failure.RESET: say("connection reset"),
    Failure.CLOSED: say("connection closed without a response"),
    Failure.BAD_RESPONSE: say("response is not HTTP"),
    Failure.RESPONSE_TOO_LARGE: say("response head too large"),
    Failure.FORBIDDEN_ADDRESS: say("address not allowed"),
}


def failure_text(code: int | None, failure: Failure | None, detail: str = "") -> str:
    """The status with its phrase, or the failure; ``detail`` is the line that the sender logged.

    The text is a Sentence unless it is only a status or a line of the log.
    """
    if code is not None:
        return f"{code} {_PHRASES.get(code, '')}".rstrip()
    if failure is None:
        return detail
    if failure is Failure.TLS:
        reason = detail.partition(": ")[2] or detail or say("handshake failed")
        return say("TLS: {reason}", reason=reason)
    if failure is Failure.DNS:
        return say("DNS: {reason}", reason=detail or say("unknown host"))
    if failure is Failure.TOKEN:
        return detail or say("no access token")
    if failure in SENDER_FAILURES:
        reason = detail or failure.value.replace("_", " ")
        return say("sender error: {reason}", reason=reason)
    return _WORDS[failure]
