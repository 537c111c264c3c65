"""Signatures are those of Standard Webhooks; its own library is the referee."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from homing.errors import Invalid
from homing.policy.signature import Signer, new_secret, read_secret

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_example_of_the_specification() -> None:
    signature = Signer(SECRET).sign(
        b"msg_p5jXN8AQM9LWM0D4loKWxJek", b"1614265330", b'{"test": 2432232314}'
    )
    assert signature == b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(
    st.binary(min_size=24, max_size=64),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40),
    st.integers(0, 4_000_000_000),
    st.text(max_size=200).filter(lambda text: text.isprintable()),
)
def test_the_referee_signs_the_same(key: bytes, webhook_id: str, second: int, body: str) -> None:
    secret = new_secret(key)
    expected = Webhook(secret).sign(webhook_id, datetime.fromtimestamp(second, tz=UTC), body)
    signer = Signer(secret)
    for _ in range(2):  # the cached state is not used up
        signature = signer.sign(webhook_id.encode(), str(second).encode(), body.encode())
        assert signature.decode() == expected


@given(st.binary(min_size=24, max_size=64))
def test_a_new_secret_reads_back(key: bytes) -> None:
    assert read_secret(new_secret(key)) == key


def test_padding_may_be_left_out() -> None:
    key = b"k" * 25
    assert new_secret(key).endswith("=")
    assert read_secret(new_secret(key).rstrip("=")) == key


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", id="no prefix"),
        pytest.param("", "whsec_", id="empty"),
        pytest.param("whsec_", "24 to 64", id="nothing after the prefix"),
        pytest.param("whsec_" + "A" * 31, "24 to 64", id="23 bytes"),
        pytest.param("whsec_" + base64.b64encode(b"x" * 65).decode(), "24 to 64", id="65 bytes"),
        pytest.param("whsec_" + "A" * 33, "base64", id="a length that base64 has not"),
        pytest.param("whsec_" + "A" * 31 + "-", "base64", id="the alphabet for URLs"),
        pytest.param("whsec_" + "A" * 31 + "\n", "base64", id="a line feed"),
        pytest.param("whsec_" + "A" * 31 + "é", "base64", id="not ASCII"),
        pytest.param("whsec_" + "A" * 32 + "!!!!", "base64", id="signs among good ones"),
        pytest.param("whsec_" + "A" * 30 + "==AA", "base64", id="padding in the middle"),
    ],
)
def test_a_bad_secret_is_refused_and_not_repeated(text: str, reason: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_secret(text)
    (problem,) = refused.value.problems
    assert problem.field == "secret"
    assert reason in problem.reason
    assert refused.value.__cause__ is None
    if len(text) > 10:
        assert text[6:] not in repr(refused.value) + str(refused.value.problems)


def test_a_signer_shows_nothing() -> None:
    assert repr(Signer(SECRET)) == "Signer(****)"
