"""Exceptions of the network, told apart into the receiver's and the sender's."""

from __future__ import annotations

import errno
import os
import ssl

import pytest

from homing.model import Failure
from homing.net import trouble


@pytest.mark.parametrize(
    ("number", "failure"),
    [
        (errno.ECONNREFUSED, Failure.REFUSED),
        (errno.ECONNRESET, Failure.RESET),
        (errno.EPIPE, Failure.RESET),
        (errno.ETIMEDOUT, Failure.TIMEOUT),
        (errno.EHOSTUNREACH, Failure.UNREACHABLE),
        (errno.ENETUNREACH, Failure.SENDER_NETWORK),
        (errno.EPERM, Failure.SENDER_NETWORK),
        (errno.EACCES, Failure.SENDER_NETWORK),
        (errno.EINVAL, Failure.SENDER_NETWORK),
        (errno.EMFILE, Failure.SENDER_LIMITS),
        (errno.ENFILE, Failure.SENDER_LIMITS),
        (errno.ENOMEM, Failure.SENDER_LIMITS),
        (errno.EADDRNOTAVAIL, Failure.SENDER_LIMITS),
    ],
)
def test_an_error_number_has_its_class(number: int, failure: Failure) -> None:
    found = trouble.of_error(OSError(number, os.strerror(number)))
    assert found.failure is failure
    assert found.detail


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ConnectionResetError(), Failure.RESET),
        (ssl.SSLError(1, "[SSL] handshake"), Failure.TLS),
        (MemoryError(), Failure.SENDER_LIMITS),
        (KeyError("authorization: Bearer abc"), Failure.SENDER_FAULT),
    ],
)
def test_an_error_without_a_number_has_its_class(error: Exception, failure: Failure) -> None:
    found = trouble.of_error(error)
    assert found.failure is failure
    assert "abc" not in found.detail, "what an unforeseen error says may be a secret"
