"""verify with Ed25519: public keys, JWK sets, and how often a set is fetched."""

from __future__ import annotations

import builtins
import threading
from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client.scripted import CLOSE, HANG, Scripted, response, scripted
from homing.policy.signature import Signer
from homing_client import (
    BadSecret,
    CryptographyMissing,
    HeaderMissing,
    Jwks,
    KeysUnavailable,
    SignatureWrong,
    TimestampOutside,
    verify,
)
from homing_client.jwks import KEYS_MAX
from homing_client.verify import ED25519_MAX

NOW = 1_760_000_000
BODY = b'{"id":"e","type":"a.b","data":{"n":1}}'
SECRET = "whsec_" + b64encode(b"k" * 32).decode()


class Pair:
    """A key pair of the sender."""

    def __init__(self, fill: int) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(bytes([fill]) * 32)
        self.raw = self._private.public_key().public_bytes_raw()
        self.public = "whpk_" + b64encode(self.raw).decode()
        x = urlsafe_b64encode(self.raw).rstrip(b"=").decode()
        self.jwk = {"kty": "OKP", "crv": "Ed25519", "x": x, "use": "sig", "kid": str(fill)}

    def sign(self, body: bytes = BODY, *, webhook_id: str = "dlv_1", at: int = NOW) -> str:
        signature = self._private.sign(f"{webhook_id}.{at}.".encode() + body)
        return "v1a," + b64encode(signature).decode()


ONE, TWO = Pair(1), Pair(2)


def headers(*signatures: str) -> dict[str, str]:
    return {
        "webhook-id": "dlv_1",
        "webhook-timestamp": str(NOW),
        "webhook-signature": " ".join(signatures),
    }


def hmac_signature() -> str:
    return Signer(SECRET).sign(b"dlv_1", str(NOW).encode(), BODY).decode()


# --- public keys ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        ONE.public,
        ONE.public.rstrip("="),
        [TWO.public, ONE.public],
        [SECRET, ONE.public],
        {"keys": [TWO.jwk, ONE.jwk]},
        [{"keys": [ONE.jwk]}, SECRET],
    ],
    ids=["a key", "without padding", "two", "with a secret", "a JWK set", "a set and a secret"],
)
def test_a_request_is_verified_with(keys: Any) -> None:
    for signed in (headers(ONE.sign()), headers(hmac_signature(), TWO.sign(b"x"), ONE.sign())):
        assert verify(signed, BODY, keys, now=NOW).id == "dlv_1"


def test_one_kind_of_signature_is_enough_where_both_are_sent() -> None:
    signed = headers(hmac_signature(), ONE.sign())
    for keys in (SECRET, ONE.public, [SECRET, TWO.public], [SECRET, ONE.public]):
        assert verify(signed, BODY, keys, now=NOW).id == "dlv_1"


@pytest.mark.parametrize(
    "signature",
    [
        ONE.sign(b"other"),
        ONE.sign(webhook_id="dlv_2"),
        ONE.sign(at=NOW + 1),
        TWO.sign(),
        "v1a,AAAA",
    ],
    ids=["another body", "another id", "another time", "another key", "too short"],
)
def test_a_signature_is_wrong_that_was_made_for(signature: str) -> None:
    with pytest.raises(SignatureWrong, match="public key is a different one"):
        verify(headers(signature), BODY, ONE.public, now=NOW)


def test_a_public_key_is_never_the_secret_of_an_hmac() -> None:
    """The key is public: otherwise anybody could sign."""
    forged = Signer("whsec_" + b64encode(ONE.raw).decode()).sign(b"dlv_1", str(NOW).encode(), BODY)
    with pytest.raises(HeaderMissing, match="no v1a signature"):
        verify(headers(forged.decode()), BODY, ONE.public, now=NOW)
    with pytest.raises(SignatureWrong):
        verify(headers(forged.decode(), TWO.sign()), BODY, ONE.public, now=NOW)


def test_the_time_is_checked_after_the_signature() -> None:
    with pytest.raises(TimestampOutside):
        verify(headers(ONE.sign()), BODY, ONE.public, now=NOW + 301)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("whpk_" + b64encode(b"x" * 31).decode(), "number 1 has not the 32 bytes"),
        ("whpk_!", "number 1 is not whpk_ followed by base64"),
        ("whpk_", "number 1 is empty"),
        ("whsk_" + b64encode(b"x" * 64).decode(), "number 1 is a private key"),
        ({"keys": []}, "has no Ed25519 key"),
    ],
)
def test_an_unusable_key_is_a_mistake_of_the_receiver(key: Any, reason: str) -> None:
    with pytest.raises(BadSecret, match=reason):
        verify(headers(ONE.sign()), BODY, key, now=NOW)


def test_other_keys_of_a_jwk_set_are_left_out() -> None:
    others: list[Any] = [
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {**ONE.jwk, "crv": "X25519"},
        {**ONE.jwk, "use": "enc"},
        {**ONE.jwk, "x": "AAAA"},
        {**ONE.jwk, "x": 7},
        "text",
    ]
    with pytest.raises(SignatureWrong):
        verify(headers(ONE.sign()), BODY, {"keys": [*others, TWO.jwk]}, now=NOW)
    assert verify(headers(ONE.sign()), BODY, {"keys": [*others, ONE.jwk]}, now=NOW)


def test_a_forged_request_costs_a_bounded_number_of_checks() -> None:
    many = [*(Pair(100 + number).jwk for number in range(KEYS_MAX)), ONE.jwk]
    with pytest.raises(SignatureWrong):
        verify(headers(ONE.sign()), BODY, {"keys": many}, now=NOW)
    assert verify(headers(ONE.sign()), BODY, {"keys": many[1:]}, now=NOW)
    late = [Pair(99).sign()] * ED25519_MAX + [ONE.sign()]
    with pytest.raises(SignatureWrong):
        verify(headers(*late), BODY, ONE.public, now=NOW)
    assert verify(headers(*late[1:]), BODY, ONE.public, now=NOW)


def test_without_cryptography_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(CryptographyMissing, match=r'pip install "homing-client\[ed25519\]"'):
        verify(headers(ONE.sign()), BODY, ONE.public, now=NOW)
    assert verify(headers(hmac_signature(), ONE.sign()), BODY, SECRET, now=NOW)


# --- a JWK set at a URL ---------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


def key_set(*pairs: Pair) -> bytes:
    return response(200, {"keys": [it.jwk for it in pairs]}, connection="close")


def jwks(server: Scripted, clock: Clock) -> Jwks:
    return Jwks(f"{server.url}/.well-known/jwks.json?tenant=acme", clock=clock)


def accepts(pair: Pair, keys: Jwks) -> bool:
    try:
        verify(headers(pair.sign()), BODY, keys, now=NOW)
    except SignatureWrong:
        return False
    return True


def test_a_set_is_fetched_once_and_again_when_it_is_old() -> None:
    clock = Clock()
    with scripted(key_set(ONE)) as server:
        keys = jwks(server, clock)
        assert server.asked == []
        assert all(accepts(ONE, keys) for _ in range(3))
        (asked,) = server.asked
        assert asked.line == "GET /.well-known/jwks.json?tenant=acme HTTP/1.1"
        assert "authorization" not in asked.headers
        clock.at += 299
        assert accepts(ONE, keys)
        assert len(server.asked) == 1
        clock.at += 1
        assert accepts(ONE, keys)
        assert len(server.asked) == 2


def test_a_rotation_is_noticed_by_a_signature_that_no_known_key_made() -> None:
    clock = Clock()
    with scripted(key_set(ONE), key_set(TWO, ONE)) as server:
        keys = jwks(server, clock)
        assert accepts(ONE, keys)
        clock.at += 30
        assert accepts(TWO, keys)
        assert len(server.asked) == 2


def test_forged_requests_fetch_the_set_at_most_every_thirty_seconds() -> None:
    clock = Clock()
    with scripted(key_set(ONE)) as server:
        keys = jwks(server, clock)
        for _ in range(10):
            assert not accepts(TWO, keys)
        assert len(server.asked) == 1
        clock.at += 30
        for _ in range(10):
            assert not accepts(TWO, keys)
        assert len(server.asked) == 2


def test_a_request_without_v1a_fetches_nothing() -> None:
    with scripted(key_set(ONE)) as server:
        keys = jwks(server, Clock())
        with pytest.raises(HeaderMissing, match="no v1a signature"):
            verify(headers(hmac_signature()), BODY, keys, now=NOW)
        assert verify(headers(hmac_signature()), BODY, [SECRET, keys], now=NOW)
        assert server.asked == []


@pytest.mark.parametrize(
    "trouble",
    [
        response(503, {"title": "no"}, connection="close"),
        response(200, ["keys"], connection="close"),
        response(200, {"keys": 7}, connection="close"),
        response(200, {"keys": [], "pad": "x" * 70_000}, connection="close"),
        CLOSE,
    ],
    ids=["a refusal", "no object", "no list", "too large", "no response"],
)
def test_while_a_set_cannot_be_fetched_the_last_keys_are_used_for_a_day(trouble: bytes) -> None:
    clock = Clock()
    with scripted(key_set(ONE), trouble) as server:
        keys = jwks(server, clock)
        assert accepts(ONE, keys)
        clock.at += 86_399
        assert accepts(ONE, keys)
        clock.at += 1
        with pytest.raises(KeysUnavailable):
            accepts(ONE, keys)


def test_a_set_that_was_never_fetched_is_not_a_wrong_signature() -> None:
    clock = Clock()
    with scripted(response(503, connection="close"), key_set(ONE)) as server:
        keys = jwks(server, clock)
        for _ in range(3):  # It is not asked again at once.
            with pytest.raises(KeysUnavailable, match="503"):
                accepts(ONE, keys)
        assert len(server.asked) == 1
        clock.at += 30
        assert accepts(ONE, keys)


def test_a_server_that_hangs_is_given_up() -> None:
    with scripted(HANG) as server:
        keys = Jwks(f"{server.url}/", timeout_s=0.05)
        with pytest.raises(KeysUnavailable, match="in time"):
            accepts(ONE, keys)


def test_threads_that_need_newer_keys_wait_for_one_fetch() -> None:
    clock = Clock()
    with scripted(key_set(ONE), key_set(TWO)) as server:
        keys = jwks(server, clock)
        assert accepts(ONE, keys)
        clock.at += 30
        found: list[bool] = []
        threads = [
            threading.Thread(target=lambda: found.append(accepts(TWO, keys))) for _ in range(8)
        ]
        for it in threads:
            it.start()
        for it in threads:
            it.join()
        assert found == [True] * 8
        assert len(server.asked) == 2


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://a.example/", "https://", "https://u:p@a.example/", "a b"]
)
def test_a_url_that_cannot_be_fetched_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="the URL must"):
        Jwks(url)
