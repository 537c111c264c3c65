"""An open cause in two sentences for people: the failure, its start, and the waiting deliveries."""

from __future__ import annotations

from typing import assert_never

from homing.languages.sentences import At, Sentence, Span, many, say
from homing.model import Cause, CauseKey, Endpoint, Failure, State
from homing.policy.causes import HTTP_STATUS, reason_text, title
from homing.policy.health import HealthRules

_FAILS = {
    Failure.TIMEOUT: say("the server does not respond in time"),
    Failure.CONNECT_TIMEOUT: say("no connection to the server is made in time"),
    Failure.REFUSED: say("the server refuses the connection"),
    Failure.UNREACHABLE: say("the host of the server is unreachable"),
    Failure.RESET: say("the server resets the connection"),
    Failure.CLOSED: say("the server closes the connection without a response"),
    Failure.TLS: say("the TLS handshake fails"),
    Failure.DNS: say("the host name cannot be resolved"),
    Failure.BAD_RESPONSE: say("the response of the server is not HTTP"),
    Failure.RESPONSE_TOO_LARGE: say("the head of the server's response is too large"),
    Failure.FORBIDDEN_ADDRESS: say("the host name leads to an address that is not allowed"),
    Failure.TOKEN: say("the OAuth token endpoint gives no access token"),
}
# What to do about a cause, by its failure class and sub-reason.
_TO_DO = {
    (Failure.TOKEN, "invalid_client"): say(
        "check its oauth_client_id, oauth_method and secret or key"
    ),
    (Failure.TOKEN, "unauthorized_client"): say("allow this client the client credentials grant"),
    (Failure.TOKEN, "invalid_scope"): say("check its oauth_scope"),
    (Failure.TOKEN, "invalid_audience"): say("check its oauth_audience"),
    (Failure.TOKEN, "redirect"): say("set its oauth_token_url to the address after the redirect"),
    (Failure.TOKEN, "bad_response"): say("check its oauth_token_url"),
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
    return say(
        "{first} {second}",
        first=_since(cause, endpoint, attempts_in_all),
        second=_waiting(endpoint, rules, waiting, waiting_max, first_expiry),
    )


def _since(cause: Cause, endpoint: Endpoint, attempts_in_all: int) -> Sentence:
    """``Every attempt has failed since 11:25: the server responds with 503 …``."""
    since, failure = At(cause.first_seen), what_fails(cause.key)
    last_success = endpoint.health.last_success_at
    if cause.attempts < attempts_in_all:
        return say(
            "{attempts} of {in_all} failed attempts since {since}: {failure}.",
            attempts=cause.attempts,
            in_all=attempts_in_all,
            since=since,
            failure=failure,
        )
    if last_success is not None and last_success >= cause.first_seen:
        return many(
            "{count} attempt has failed since {since}: {failure}.",
            "{count} attempts have failed since {since}: {failure}.",
            cause.attempts,
            since=since,
            failure=failure,
        )
    return say("Every attempt has failed since {since}: {failure}.", since=since, failure=failure)


def what_fails(key: CauseKey) -> str:
    """``the server responds with 503 Service Unavailable``."""
    if key.failure == HTTP_STATUS:
        return say("the server responds with {status}", status=title(key))
    if key.failure not in _FAILS:
        return title(key)
    failure, reason = _FAILS[Failure(key.failure)], reason_text(key)
    if reason is None:
        return failure
    to_do = _TO_DO.get((Failure(key.failure), key.reason))
    if to_do is None:
        return say("{failure} ({reason})", failure=failure, reason=reason)
    return say("{failure} ({reason}); {to_do}", failure=failure, reason=reason, to_do=to_do)


def _waiting(
    endpoint: Endpoint,
    rules: HealthRules,
    waiting: int,
    waiting_max: int,
    first_expiry: int | None,
) -> Sentence:
    if not waiting:
        return say("No delivery waits.")
    if waiting > waiting_max:
        deliveries = _more_wait(endpoint, rules, waiting_max)
    else:
        deliveries = _some_wait(endpoint, rules, waiting)
    if first_expiry is None:
        return say("{clause}.", clause=deliveries)
    if waiting == 1:
        return say(
            "{delivery_waits}; it is dropped at {at} unless it is delivered.",
            delivery_waits=deliveries,
            at=At(first_expiry),
        )
    return say(
        "{deliveries_wait}; the first is dropped at {at} unless it is delivered.",
        deliveries_wait=deliveries,
        at=At(first_expiry),
    )


def _some_wait(endpoint: Endpoint, rules: HealthRules, count: int) -> Sentence:
    """How many deliveries wait, and for what."""
    match endpoint.health.state:
        case State.ENABLED:
            return many(
                "{count} delivery waits for a retry", "{count} deliveries wait for a retry", count
            )
        case State.DISABLED:
            return many(
                "{count} delivery waits for a successful probe (one every {interval})",
                "{count} deliveries wait for a successful probe (one every {interval})",
                count,
                interval=Span(rules.probe_every_ms),
            )
        case State.FROZEN:
            return many(
                "{count} delivery waits until a person enables the URL",
                "{count} deliveries wait until a person enables the URL",
                count,
            )
        case _ as never:
            assert_never(never)


def _more_wait(endpoint: Endpoint, rules: HealthRules, limit: int) -> Sentence:
    """That more deliveries wait than were counted, and for what."""
    match endpoint.health.state:
        case State.ENABLED:
            return say("More than {limit} deliveries wait for a retry", limit=limit)
        case State.DISABLED:
            return say(
                "More than {limit} deliveries wait for a successful probe (one every {interval})",
                limit=limit,
                interval=Span(rules.probe_every_ms),
            )
        case State.FROZEN:
            return say(
                "More than {limit} deliveries wait until a person enables the URL", limit=limit
            )
        case _ as never:
            assert_never(never)
