"""The log shows the header lines of a request as they were sent, with the secrets masked."""

from __future__ import annotations

from typing import Any

import pytest

from homing.engine.attempt import RequestTemplate
from homing.model import Attempt, Decided, Format, Lane, Outcome, Phases, Secret, Signature, Work
from homing.policy.sent_headers import logged_lines
from homing.policy.signature import TenantSigner, new_private_key, new_secret
from policy.build import NOW, a_delivery, a_subscription, an_event

ONE = Secret(new_secret(b"1" * 24))
OTHER = Secret(new_secret(b"2" * 32), until=NOW + 1)
PAST = Secret(new_secret(b"3" * 32), until=NOW)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def an_attempt(request_headers: bytes, *, delivery_id: int, number: int) -> Attempt:
    return Attempt(
        delivery_id=delivery_id,
        number=number,
        endpoint_id=1,
        subscription_id=2,
        lane=Lane.FRESH,
        started_at=NOW,
        finished_at=NOW,
        outcome=Outcome.DELIVERED,
        code=200,
        failure=None,
        detail="",
        address=None,
        phases=Phases(),
        request_headers=request_headers,
        response_headers=b"",
        excerpt=b"",
        decided=Decided.DELIVERED,
    )


CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], int]] = [
    ("standard", {}, {}, {}, 1),
    ("raw", {"format": Format.RAW}, {}, {}, 1),
    ("cloudevents", {"format": Format.CLOUDEVENTS}, {}, {}, 1),
    ("a retry", {}, {"attempts": 299}, {}, 300),
    ("a replay", {}, {"root_id": 5}, {}, 1),
    ("a rotation", {"secrets": (ONE, OTHER)}, {}, {}, 1),
    ("after a rotation", {"secrets": (ONE, PAST)}, {}, {}, 1),
    ("Ed25519", {"signature": Signature.ED25519}, {}, {}, 1),
    ("both signatures", {"signature": Signature.BOTH, "token": "sesame"}, {"root_id": 5}, {}, 1),
    ("a token", {"token": "sesame"}, {}, {}, 1),
    ("own headers", {"headers": (("x-key", "sesame"), ("x-two", "sesame"))}, {}, {}, 1),
    ("a trace", {"token": "sesame"}, {}, {"trace": TRACE}, 1),
    ("a long type", {}, {}, {"type": "a" * 256}, 1),
]


@pytest.mark.parametrize(
    ("subscription", "delivery", "event", "number"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_logged_lines_are_the_sent_lines_with_masked_secrets(
    subscription: dict[str, Any], delivery: dict[str, Any], event: dict[str, Any], number: int
) -> None:
    given = a_subscription(**{"secrets": (ONE,), **subscription})
    work = Work(a_delivery(**delivery), an_event(**event))
    signer = TenantSigner([Secret(new_private_key(bytes([it]) * 32)) for it in (1, 2)])
    template = RequestTemplate(given, deadline_ms=5_000, signer_of=lambda _tenant: signer)
    request, logged = template.write(work, number=number, now=NOW, wall=NOW + 86_400_500)
    attempt = an_attempt(logged, delivery_id=work.delivery.id, number=number)
    sent = request.header_block
    assert logged_lines(attempt) == sent.replace(b"sesame", b"****")
    assert b"sesame" not in logged
    assert b"webhook-timestamp: %d\r\n" % ((NOW + 86_400_500) // 1000) in sent


def test_the_short_form_of_usual_lines_is_short() -> None:
    template = RequestTemplate(a_subscription(secrets=(ONE,)), deadline_ms=5_000)
    request, logged = template.write(Work(a_delivery(), an_event()), number=1, now=NOW, wall=NOW)
    assert len(request.header_block) > 250
    assert len(logged) <= 60


def test_a_short_form_of_this_release_stays_readable() -> None:
    """Rows in databases have this form; if the lines change, they need a new form."""
    stored = bytes.fromhex("9500a5302e312e30ce6af59fc0c420") + b"\7" * 32 + b"\xaaorder.paid"
    attempt = an_attempt(stored, delivery_id=7, number=1)
    assert logged_lines(attempt).decode().split("\r\n") == [
        "content-type: application/json",
        "user-agent: homing/0.1.0",
        "webhook-id: dlv_0000000000007",
        "webhook-timestamp: 1794482112",
        "webhook-signature: v1,BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
        "homing-event-type: order.paid",
        "homing-delivery: dlv_0000000000007",
        "homing-attempt: 1",
        "",
    ]


@pytest.mark.parametrize("lines", [b"", b"webhook-id: x\r\n"])
def test_whole_lines_of_earlier_releases_are_shown_as_they_are(lines: bytes) -> None:
    assert logged_lines(an_attempt(lines, delivery_id=7, number=1)) == lines
