"""verify, with a foreign implementation as the referee and Hypothesis as the forger."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.signature import Signer
from homing_client import (
    BadSecret,
    HeaderMissing,
    NotVerified,
    SignatureWrong,
    TimestampOutside,
    verify,
)

SECRET = "whsec_" + b64encode(b"k" * 32).decode()
OTHER = "whsec_" + b64encode(b"o" * 24).decode()
NOW = 1_760_000_000
BODY = b'{"id":"e","type":"a.b","data":{"n":1}}'

ids = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="."), min_size=1
)
bodies = st.one_of(st.binary(), st.text().map(str.encode))
secrets = st.binary(min_size=24, max_size=64).map(lambda key: "whsec_" + b64encode(key).decode())


def by_library(secret: str, webhook_id: str, at: int, body: bytes) -> dict[str, str]:
    """Headers signed by the foreign library (it signs text)."""
    signature = standardwebhooks.Webhook(secret).sign(
        webhook_id, datetime.fromtimestamp(at, UTC), body.decode()
    )
    return headers(webhook_id, at, signature)


def by_homing(secret: str, webhook_id: str, at: int, body: bytes) -> dict[str, str]:
    """Headers signed as the server does it."""
    signature = Signer(secret).sign(webhook_id.encode(), str(at).encode(), body).decode()
    return headers(webhook_id, at, signature)


def headers(webhook_id: str, at: int, signature: str) -> dict[str, str]:
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(at),
        "webhook-signature": signature,
    }


# --- the referee ----------------------------------------------------------------------------


@given(secrets, ids, st.text(), st.integers(1, 4_000_000_000))
def test_what_the_foreign_library_signs_we_verify(
    secret: str, webhook_id: str, text: str, at: int
) -> None:
    body = text.encode()
    verified = verify(by_library(secret, webhook_id, at, body), body, secret, now=at)
    assert (verified.id, verified.timestamp) == (webhook_id, at)


@given(secrets, ids, st.text())
def test_what_the_server_signs_the_foreign_library_and_we_verify(
    secret: str, webhook_id: str, text: str
) -> None:
    at = int(datetime.now(UTC).timestamp())
    signed = by_homing(secret, webhook_id, at, text.encode())
    standardwebhooks.Webhook(secret).verify(
        f'["{len(text)}"]', by_homing_for(secret, len(text), at)
    )
    assert verify(signed, text.encode(), secret).id == webhook_id


def by_homing_for(secret: str, number: int, at: int) -> dict[str, str]:
    """The foreign library parses what it verifies, so it gets JSON."""
    return by_homing(secret, "msg", at, f'["{number}"]'.encode())


# --- the forger -----------------------------------------------------------------------------


@given(bodies, bodies)
def test_another_body_is_refused(body: bytes, forged: bytes) -> None:
    signed = by_homing(SECRET, "msg", NOW, body)
    if body != forged:
        with pytest.raises(SignatureWrong):
            verify(signed, forged, SECRET, now=NOW)


@given(ids, ids)
def test_another_id_is_refused(webhook_id: str, forged: str) -> None:
    signed = by_homing(SECRET, webhook_id, NOW, BODY)
    if webhook_id != forged:
        with pytest.raises(NotVerified):
            verify({**signed, "webhook-id": forged}, BODY, SECRET, now=NOW)


@given(st.integers(-300, 300).filter(bool))
def test_another_timestamp_is_refused_also_within_the_tolerance(by: int) -> None:
    signed = by_homing(SECRET, "msg", NOW, BODY)
    with pytest.raises(SignatureWrong):
        verify({**signed, "webhook-timestamp": str(NOW + by)}, BODY, SECRET, now=NOW)


@given(st.text(max_size=100))
def test_no_made_up_signature_gets_through(signature: str) -> None:
    with pytest.raises(NotVerified):
        verify(headers("msg", NOW, signature), BODY, SECRET, now=NOW)


@given(secrets)
def test_another_secret_is_refused(secret: str) -> None:
    if secret != SECRET:
        with pytest.raises(SignatureWrong):
            verify(by_homing(secret, "msg", NOW, BODY), BODY, SECRET, now=NOW)


def test_a_dot_cannot_move_from_the_body_into_the_id() -> None:
    signed = by_homing(SECRET, "msg", NOW, f"{NOW}.rest".encode())
    forged = {**signed, "webhook-id": f"msg.{NOW}"}
    with pytest.raises(HeaderMissing, match="webhook-id cannot be read"):
        verify(forged, b"rest", SECRET, now=NOW)


# --- rotation, time, forms ------------------------------------------------------------------


def test_during_a_rotation_any_of_the_secrets_will_do_on_either_side() -> None:
    both = by_homing(SECRET, "msg", NOW, BODY)["webhook-signature"]
    both += " " + by_homing(OTHER, "msg", NOW, BODY)["webhook-signature"]
    assert verify(headers("msg", NOW, both), BODY, OTHER, now=NOW).id == "msg"
    assert verify(by_homing(OTHER, "msg", NOW, BODY), BODY, [SECRET, OTHER], now=NOW).id == "msg"
    assert verify(headers("msg", NOW, "v1a,AAAA v9,? " + both), BODY, SECRET, now=NOW).id == "msg"


@pytest.mark.parametrize("late_s", [-300, -1, 0, 1, 300])
def test_clocks_may_differ_within_the_tolerance(late_s: int) -> None:
    assert (
        verify(by_homing(SECRET, "msg", NOW, BODY), BODY, SECRET, now=NOW + late_s).timestamp == NOW
    )


@pytest.mark.parametrize(("late_s", "says"), [(301, "301 s ago"), (-301, "301 s in the future")])
def test_outside_the_tolerance_the_error_says_by_how_much(late_s: int, says: str) -> None:
    with pytest.raises(TimestampOutside, match=says):
        verify(by_homing(SECRET, "msg", NOW, BODY), BODY, SECRET, now=NOW + late_s)
    verify(by_homing(SECRET, "msg", NOW, BODY), BODY, SECRET, now=NOW + late_s, tolerance_s=400)


def test_without_a_time_it_is_now() -> None:
    at = int(datetime.now(UTC).timestamp())
    assert verify(by_homing(SECRET, "msg", at, BODY), BODY, SECRET).timestamp == at
    with pytest.raises(TimestampOutside):
        verify(by_homing(SECRET, "msg", NOW, BODY), BODY, SECRET)


class Shouting(Mapping[str, str]):
    """A mapping that is not a dict."""

    def __init__(self, of: dict[str, str]) -> None:
        self._of = {name.upper(): value for name, value in of.items()}

    def __getitem__(self, name: str) -> str:
        return self._of[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)


MORE = {"homing-event-type": "a.b", "homing-delivery": "dlv_1", "homing-attempt": "3"}


@pytest.mark.parametrize(
    "form",
    [
        dict,
        Shouting,
        lambda given: list(given.items()),
        lambda given: [(name.encode(), value.encode()) for name, value in given.items()],
    ],
    ids=["dict", "mapping", "pairs", "bytes"],
)
def test_headers_come_in_any_form_and_case(form: Any) -> None:
    verified = verify(form({**by_homing(SECRET, "msg", NOW, BODY), **MORE}), BODY, SECRET, now=NOW)
    assert (verified.event_type, verified.delivery, verified.attempt) == ("a.b", "dlv_1", 3)


def test_other_senders_give_no_homing_headers() -> None:
    verified = verify(by_library(SECRET, "msg", NOW, BODY), BODY, SECRET, now=NOW)
    assert (verified.event_type, verified.delivery, verified.attempt) == (None, None, None)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_header_that_is_missing_unreadable_or_doubled_is_named(name: str) -> None:
    signed = by_homing(SECRET, "msg", NOW, BODY)
    without = {key: value for key, value in signed.items() if key != name}
    with pytest.raises(HeaderMissing, match=f"{name} is missing"):
        verify(without, BODY, SECRET, now=NOW)
    with pytest.raises(HeaderMissing, match=name):
        verify({**signed, name: "v1,é"}, BODY, SECRET, now=NOW)
    with pytest.raises(HeaderMissing, match=f"{name} occurs twice"):
        verify([*signed.items(), (name.upper(), "x")], BODY, SECRET, now=NOW)


@pytest.mark.parametrize("wrong", ["whsec_not base64!", "", [], ["whsec_", SECRET]])
def test_a_secret_of_ones_own_that_cannot_be_read_is_another_error(wrong: Any) -> None:
    with pytest.raises(BadSecret) as caught:
        verify(by_homing(SECRET, "msg", NOW, BODY), BODY, wrong, now=NOW)
    assert "not base64!" not in str(caught.value)


def test_no_error_repeats_a_secret_a_signature_or_a_body() -> None:
    signed = by_homing(OTHER, "msg", NOW, BODY)
    with pytest.raises(SignatureWrong) as caught:
        verify(signed, BODY, SECRET, now=NOW)
    right = by_homing(SECRET, "msg", NOW, BODY)["webhook-signature"]
    for hidden in (SECRET, SECRET[6:], right[3:], signed["webhook-signature"][3:], BODY.decode()):
        assert hidden not in str(caught.value)


def test_a_body_that_is_no_bytes_is_a_mistake_of_the_caller() -> None:
    text: Any = BODY.decode()
    with pytest.raises(TypeError, match="received bytes"):
        verify(by_homing(SECRET, "msg", NOW, BODY), text, SECRET, now=NOW)
