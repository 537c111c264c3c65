"""Why an attempt failed, in a few words for people."""

from __future__ import annotations

import pytest

from homing.model import Failure
from homing.policy.failure_text import failure_text


@pytest.mark.parametrize(
    ("code", "failure", "detail", "text"),
    [
        (503, None, "", "503 Service Unavailable"),
        (404, None, "", "404 Not Found"),
        (599, None, "", "599"),
        (None, Failure.REFUSED, "connection refused", "connection refused"),
        (None, Failure.TIMEOUT, "no response within 5 s", "no response in time"),
        (
            None,
            Failure.TLS,
            "certificate refused: self-signed certificate",
            "TLS: self-signed certificate",
        ),
        (None, Failure.TLS, "", "TLS: handshake failed"),
        (None, Failure.DNS, "the name has no address", "DNS: the name has no address"),
        (None, Failure.SENDER_DNS, "no name server", "sender error: no name server"),
    ],
)
def test_a_status_has_its_phrase_and_a_failure_its_words(
    code: int | None, failure: Failure | None, detail: str, text: str
) -> None:
    assert failure_text(code, failure, detail) == text


@pytest.mark.parametrize("failure", Failure)
def test_every_failure_has_words_without_a_detail(failure: Failure) -> None:
    words = failure_text(None, failure)
    assert words
    assert not words.endswith(": ")
