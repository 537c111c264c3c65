"""Client assertions for ``private_key_jwt`` (RFC 7523): the private key, and JWTs signed with it.

OpenSSL's own check of an RSA key tests its primes, which takes a tenth of a second for 2048 bits
and over half a second for 4096: too long for an event loop. So a key is loaded without that check.
``key_problem`` compares the numbers of the key instead, and signs once: the signature must verify.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from homing.languages.sentences import say

RSA_BITS = range(2048, 4096 + 1)
EXPONENT_MAX = 1 << 33
LIFE_S = 120  # of an assertion

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

_KEY_RULE = say("must be a PEM private key: RSA of 2048 to 4096 bits, or EC on the curve P-256")


def key_problem(pem: str) -> str | None:
    """Why this private key cannot be used; None if it can. No reason has a part of the key."""
    if "ENCRYPTED" in pem:
        return say(
            "must not be encrypted: remove its passphrase ({command})",
            command="openssl pkey -in FILE",
        )
    try:
        key = _load(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return _KEY_RULE
    if isinstance(key, rsa.RSAPrivateKey):
        return _rsa_problem(key)
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return None
    return _KEY_RULE


def assertion(
    pem: str, *, client_id: str, audience: str, key_id: str, wall_s: int, unique: str
) -> str:
    """A signed JWT by which a client proves to a token endpoint that it has the private key.

    ``audience`` is the token URL. ``unique`` is different in every assertion.
    """
    key = _load(pem)
    is_rsa = isinstance(key, rsa.RSAPrivateKey)
    header = {"alg": "RS256" if is_rsa else "ES256", "typ": "JWT"}
    if key_id:
        header["kid"] = key_id
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": unique,
        "iat": wall_s,
        "exp": wall_s + LIFE_S,
    }
    signed = f"{_part(msgspec.json.encode(header))}.{_part(msgspec.json.encode(claims))}"
    return f"{signed}.{_part(_sign(key, signed.encode()))}"


def _sign(key: Any, content: bytes) -> bytes:
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    assert isinstance(key, ec.EllipticCurvePrivateKey), "the key was checked"
    r, s = decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32) + s.to_bytes(32)


def _load(pem: str) -> Any:
    return serialization.load_pem_private_key(
        pem.encode(), password=None, unsafe_skip_rsa_key_validation=True
    )


def _rsa_problem(key: rsa.RSAPrivateKey) -> str | None:
    if key.key_size not in RSA_BITS:
        return say("must be an RSA key of 2048 to 4096 bits, not of {bits}", bits=str(key.key_size))
    it = key.private_numbers()
    p, q, d = it.p, it.q, it.d
    e, n = it.public_numbers.e, it.public_numbers.n
    fits = (
        p * q == n
        and p & q & e & 1
        and min(p, q) > 1
        and 3 <= e < EXPONENT_MAX
        and e * d % (p - 1) == 1
        and e * d % (q - 1) == 1
        and it.dmp1 == d % (p - 1)
        and it.dmq1 == d % (q - 1)
        and it.iqmp * q % p == 1
    )
    if not fits:
        return say("must be a valid RSA key: its numbers do not fit together")
    try:
        key.public_key().verify(_sign(key, b"?"), b"?", padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, ValueError):
        return say("must be a valid RSA key: a signature made with it does not verify")
    return None


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
