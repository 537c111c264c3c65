"""An open cause in two sentences for people: what fails since when, and what waits for what."""

from __future__ import annotations

from typing import assert_never

from homing.model import Cause, CauseKey, Endpoint, Failure, State
from homing.policy.causes import HTTP_STATUS, title
from homing.policy.explain import span_text
from homing.policy.health import HealthRules
from homing.policy.sentences import At, Part, Sentence, join, say

_FAILS = {
    Failure.TIMEOUT: "the server does not respond in time",
    Failure.CONNECT_TIMEOUT: "no connection to the server is made in time",
    Failure.REFUSED: "the server refuses the connection",
    Failure.UNREACHABLE: "the host of the server is unreachable",
    Failure.RESET: "the server resets the connection",
    Failure.CLOSED: "the server closes the connection without a response",
    Failure.TLS: "the TLS handshake fails",
    Failure.DNS: "the host name cannot be resolved",
    Failure.BAD_RESPONSE: "the response of the server is not HTTP",
    Failure.RESPONSE_TOO_LARGE: "the head of the server's response is too large",
    Failure.FORBIDDEN_ADDRESS: "the host name leads to an address that is not allowed",
    Failure.TOKEN: "the OAuth token endpoint gives no access token",
}
# What to do about a cause, by its failure class and sub-reason.
_TO_DO = {
    (Failure.TOKEN, "invalid_client"): "check its oauth_client_id, oauth_method and secret or key",
    (Failure.TOKEN, "unauthorized_client"): "allow this client the client credentials grant",
    (Failure.TOKEN, "invalid_scope"): "check its oauth_scope",
    (Failure.TOKEN, "invalid_audience"): "check its oauth_audience",
    (Failure.TOKEN, "redirect"): "set its oauth_token_url to the address after the redirect",
    (Failure.TOKEN, "bad_response"): "check its oauth_token_url",
}


def explain_incident(
    cause: Cause,
    endpoint: Endpoint,
    rules: HealthRules,
    *,
    attempts_in_all: int,
    waiting: int,
    waiting_max: int,
    first_expiry: int | None,
) -> Sentence:
    """Two sentences about an open cause.

    ``attempts_in_all`` counts the failed attempts of all open causes of the endpoint. ``waiting``
    counts its pending deliveries; above ``waiting_max`` the text says "more than".
    ``first_expiry`` is the time at which the first of these deliveries expires.
    """
    held = _held(endpoint, rules)
    return join(
        (
            _since(cause, endpoint, attempts_in_all),
            ". ",
            _waiting(waiting, waiting_max, first_expiry, held),
        )
    )


def _since(cause: Cause, endpoint: Endpoint, attempts_in_all: int) -> Sentence:
    """``Every attempt has failed since 11:25: the server responds with 503 …``."""
    last_success = endpoint.health.last_success_at
    if cause.attempts < attempts_in_all:
        some = f"{cause.attempts:,} of {attempts_in_all:,} failed attempts"
        return say("{} since {}: {}", some, At(cause.first_seen), what_fails(cause.key))
    if last_success is not None and last_success >= cause.first_seen:
        many = "1 attempt has" if cause.attempts == 1 else f"{cause.attempts:,} attempts have"
        return say("{} failed since {}: {}", many, At(cause.first_seen), what_fails(cause.key))
    return say("Every attempt has failed since {}: {}", At(cause.first_seen), what_fails(cause.key))


def what_fails(key: CauseKey) -> str:
    """``the server responds with 503 Service Unavailable``."""
    words = title(key)
    if key.failure == HTTP_STATUS:
        return f"the server responds with {words}"
    if key.failure not in _FAILS:
        return words
    fails = _FAILS[Failure(key.failure)]
    if not key.reason:
        return fails
    to_do = _TO_DO.get((Failure(key.failure), key.reason), "")
    return f"{fails} ({words.partition(': ')[2]}){f'; {to_do}' if to_do else ''}"


def _waiting(waiting: int, waiting_max: int, first_expiry: int | None, held: str) -> Part:
    if not waiting:
        return "No delivery waits."
    if waiting == 1:
        many, verb, first = "1 delivery", "waits", "it"
    else:
        number = f"More than {waiting_max:,}" if waiting > waiting_max else f"{waiting:,}"
        many, verb, first = f"{number} deliveries", "wait", "the first"
    if first_expiry is None:
        return f"{many} {verb}{held}."
    return say(
        "{} {}{}; {} is dropped at {} unless it is delivered.",
        many,
        verb,
        held,
        first,
        At(first_expiry),
    )


def _held(endpoint: Endpoint, rules: HealthRules) -> str:
    """What the deliveries wait for."""
    match endpoint.health.state:
        case State.ENABLED:
            return " for a retry"
        case State.DISABLED:
            every = span_text(rules.probe_every_ms)
            return f" for a successful probe (one every {every})"
        case State.FROZEN:
            return " until a person enables the URL"
        case _ as never:
            assert_never(never)
