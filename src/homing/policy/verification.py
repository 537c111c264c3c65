"""Proof that a receiver owns its URL: what it is asked, and which responses are a proof.

``challenge``: a signed POST with a random text. The response must be a 2xx whose body is that text,
or the JSON ``{"challenge": "…"}`` and nothing else: a server that returns every request body
proves nothing. ``cloudevents``: the OPTIONS handshake of "HTTP 1.1 Web Hooks for Event Delivery".
The response must be a 2xx that allows this sender's origin; it may set the rate.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from homing.languages.sentences import Sentence, say
from homing.model import (
    Failure,
    ReceiverState,
    Subscription,
    SubscriptionSpec,
    Verification,
)
from homing.policy.failure_text import failure_text

EVENT_TYPE = "homing.challenge"
DETAIL_CHARS_MAX = 260  # of the line of the log in a problem
HOST_PER_MINUTE_MAX = 30  # challenges to one host, over all tenants, …
HOST_RESERVE = 10  # … of these for tenants that have sent it none; so one alone can send 10
TENANT_PER_MINUTE_MAX = 30
ALL_PER_MINUTE_MAX = 600
ALL_RESERVE = 300  # for tenants that have sent none

_RATE = re.compile(r"[1-9][0-9]{0,8}").fullmatch
_object = msgspec.json.Decoder(dict[str, str])


class Proof(Struct, frozen=True):
    """The result of a challenge: a problem, or the rate that the receiver allows."""

    problem: str = ""  # empty: the receiver has proved that it owns the URL
    per_minute_max: int | None = None


def challenge_body(challenge: str) -> bytes:
    """The body of a challenge."""
    return msgspec.json.encode({"type": EVENT_TYPE, "challenge": challenge})


def judge_echo(
    challenge: str, *, code: int | None, failure: Failure | None, detail: str, body: bytes
) -> Proof:
    """Whether a response returns the challenge."""
    if code is None or not 200 <= code <= 299:
        return _failed(code, failure, detail)
    text = body.strip()
    if text == challenge.encode() or text == b'"%b"' % challenge.encode():
        return Proof()
    try:
        if _object.decode(text) == {"challenge": challenge}:
            return Proof()
    except (msgspec.DecodeError, RecursionError):
        pass
    return Proof(say("The response {code} does not return the challenge.", code=str(code)))


def handshake_headers(origin: str, rate_per_second: float | None) -> bytes:
    """The header lines of the handshake; the rate is in requests per minute."""
    lines = f"webhook-request-origin: {origin}\r\n"
    if rate_per_second is not None:
        lines += f"webhook-request-rate: {max(1, int(rate_per_second * 60))}\r\n"
    return lines.encode()


def judge_handshake(
    origin: str, *, code: int | None, failure: Failure | None, detail: str, headers: bytes
) -> Proof:
    """Whether a response allows this origin, and at which rate."""
    if code is None or not 200 <= code <= 299:
        return _failed(code, failure, detail)
    found = _headers(headers)
    allowed = found.get("webhook-allowed-origin", "")
    if allowed != "*" and allowed.lower() != origin.lower():
        return Proof(
            say(
                "The response {code} has no WebHook-Allowed-Origin with {origin} or *.",
                code=str(code),
                origin=origin,
            )
        )
    rate = found.get("webhook-allowed-rate", "*")
    if rate == "*":
        return Proof()
    if _RATE(rate) is None:
        return Proof(
            say("The WebHook-Allowed-Rate of the response is no number of requests a minute.")
        )
    return Proof(per_minute_max=int(rate))


def _failed(code: int | None, failure: Failure | None, detail: str) -> Proof:
    text = failure_text(code, failure, detail[:DETAIL_CHARS_MAX])
    return Proof(say("The challenge failed: {reason}", reason=text))


def _headers(lines: bytes) -> dict[str, str]:
    found = {}
    for line in lines.decode("latin-1").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found[name.strip().lower()] = value.strip()
    return found


# --- the subscription -----------------------------------------------------------------------


def with_proof(subscription: Subscription, proof: Proof, *, now: int) -> Subscription:
    """The subscription after a challenge of the URL that it has."""
    state = replace(
        subscription.receiver or ReceiverState(),
        asked_at=now,
        problem=str(proof.problem),
        said=proof.problem.pack() if isinstance(proof.problem, Sentence) else {},
    )
    if not proof.problem:
        state = replace(state, verified_at=now, per_minute_max=proof.per_minute_max)
    return limited(replace(subscription, receiver=state))


def limited(subscription: Subscription) -> Subscription:
    """The subscription with a rate that its receiver allows."""
    state = subscription.receiver
    if state is None or state.per_minute_max is None:
        return subscription
    allowed = max(0.01, min(1_000.0, state.per_minute_max / 60))
    own = subscription.rate_per_second
    return replace(subscription, rate_per_second=allowed if own is None else min(own, allowed))


def after_change(before: Subscription, after: Subscription) -> Subscription:
    """A changed subscription without a proof that was about another URL, or of another kind."""
    state = after.receiver
    if before.url == after.url and before.verification is after.verification:
        return limited(after)
    if state is None:
        return after
    state = ReceiverState(gone_at=state.gone_at, gone_upto=state.gone_upto)
    return replace(after, receiver=None if state == ReceiverState() else state)


def needed(
    draft: SubscriptionSpec, before: Subscription | None, installation: Verification
) -> Verification:
    """The verification of a draft: at least the installation's, for a new or changed URL.

    A subscription from before that setting stays as it is until its URL changes.
    """
    if draft.verification is not Verification.NONE or not draft.url:
        return draft.verification
    if before is None or before.url != draft.url:
        return installation
    return Verification.NONE if before.verification is Verification.NONE else installation
