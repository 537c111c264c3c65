"""Private keys are read in a bounded time, whatever is in them, wherever a tenant may give one."""

from __future__ import annotations

import base64
import time

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed448, rsa

from homing.policy.admission import draft_of
from homing.policy.certificates import identity_of, identity_problems
from homing.policy.client_assertion import key_problem
from homing.policy.private_keys import BadKey, PrivateKey, accept_key, load_key
from net.certificates import a_client_certificate
from policy.build import a_subscription

CERTIFICATE, KEY = a_client_certificate()
CPU_MAX_S = 0.1  # The test of the primes takes six seconds.


def _length(size: int) -> bytes:
    if size < 128:
        return bytes([size])
    text = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes([0x80 | len(text)]) + text


def _item(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + _length(len(content)) + content


def _number(value: int) -> bytes:
    return _item(2, value.to_bytes(value.bit_length() // 8 + 1))


def _pem(label: str, *items: bytes) -> str:
    text = base64.encodebytes(_item(0x30, b"".join(items))).decode()
    return f"-----BEGIN {label}-----\n{text}-----END {label}-----\n"


def _mersenne(first: int, second: int) -> str:
    """An RSA key whose primes are real ones, and known: OpenSSL tests them for long."""
    p, q, e = 2**first - 1, 2**second - 1, 65537
    d = pow(e, -1, (p - 1) * (q - 1))
    numbers = (0, p * q, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    return _pem("RSA PRIVATE KEY", *map(_number, numbers))


def _dsa(bits: int) -> str:
    """A DSA key without its public half, which is computed when it is loaded."""
    p, q, g, x = (
        (1 << bits - 1) + 1,
        (1 << bits // 2) + 1,
        (1 << bits - 2) + 1,
        (1 << bits // 2) - 1,
    )
    algorithm = _item(
        0x30,
        bytes.fromhex("06072a8648ce380401") + _item(0x30, _number(p) + _number(q) + _number(g)),
    )
    return _pem("PRIVATE KEY", _number(0), algorithm, _item(4, _number(x)))


DEAR = {"RSA of 8,676 bits": _mersenne(4423, 4253), "DSA of 32,000 bits": _dsa(32_000)}


@pytest.mark.parametrize("key", DEAR.values(), ids=DEAR.keys())
def test_a_key_that_takes_seconds_to_check_is_refused_at_once_wherever_it_is_given(
    key: str,
) -> None:
    before = time.thread_time()
    draft = draft_of(a_subscription(client_certificate=CERTIFICATE, client_key=key))
    (problem,) = identity_problems(draft, before=None, now=0)
    assert problem.field == "client_key"
    stored = identity_of(a_subscription(client_certificate=CERTIFICATE, client_key=key))
    assert stored is not None
    assert stored.problem
    assert key_problem(key)
    assert time.thread_time() - before < CPU_MAX_S


def test_the_reason_names_the_limit() -> None:
    with pytest.raises(BadKey, match="RSA key of 2048 to 4096 bits, not of 8676"):
        load_key(DEAR["RSA of 8,676 bits"])
    with pytest.raises(BadKey, match="use RSA or an elliptic curve"):
        load_key(DEAR["DSA of 32,000 bits"])
    with pytest.raises(BadKey, match="there are several"):
        load_key(f"{KEY}\n{DEAR['DSA of 32,000 bits']}")


@pytest.mark.parametrize(
    "layout",
    [serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL],
)
def test_a_key_is_read_in_both_layouts_with_what_openssl_writes_around_it(
    layout: serialization.PrivateFormat,
) -> None:
    key = rsa.generate_private_key(65537, 2048)
    text = key.private_bytes(
        serialization.Encoding.PEM, layout, serialization.NoEncryption()
    ).decode()
    around = f"Bag Attributes\n    friendlyName: ours\n{text}"
    assert accept_key(around.replace("\n", "\r\n")).public_key() == key.public_key()


def test_ed448_can_sign() -> None:
    key = ed448.Ed448PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    assert accept_key(text.decode()).public_key() == key.public_key()


def test_an_accepted_key_is_not_loaded_again_for_each_version_of_a_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[str] = []

    def counted(pem: str) -> PrivateKey:
        loaded.append(pem)
        return load_key(pem)

    monkeypatch.setattr("homing.policy.certificates.load_key", counted)
    first = a_subscription(client_certificate=CERTIFICATE, client_key=KEY, description="a")
    second = a_subscription(client_certificate=CERTIFICATE, client_key=KEY, description="b")
    identity = identity_of(first)
    assert identity is not None
    assert identity_of(second) is identity
    assert loaded == [KEY]
