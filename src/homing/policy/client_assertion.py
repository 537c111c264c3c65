"""Client assertions for ``private_key_jwt`` (RFC 7523): JWTs signed with a tenant's key."""

from __future__ import annotations

import base64

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from homing.languages.sentences import say
from homing.policy.private_keys import BadKey, PrivateKey, accept_key, load_key

LIFE_S = 120  # of an assertion

_KEY_RULE = say("must be a PEM private key: RSA of 2048 to 4096 bits, or EC on the curve P-256")


def key_problem(pem: str) -> str | None:
    """Why this private key cannot be used; None if it can. No reason has a part of the key."""
    try:
        key = accept_key(pem)
    except BadKey as error:
        return error.reason
    if isinstance(key, rsa.RSAPrivateKey):
        return None
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return None
    return _KEY_RULE


def assertion(
    pem: str, *, client_id: str, audience: str, key_id: str, wall_s: int, unique: str
) -> str:
    """A signed JWT by which a client proves to a token endpoint that it has the private key.

    ``audience`` is the token URL. ``unique`` is different in every assertion.
    """
    key = load_key(pem)
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


def _sign(key: PrivateKey, content: bytes) -> bytes:
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    assert isinstance(key, ec.EllipticCurvePrivateKey), "the key was checked"
    r, s = decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32) + s.to_bytes(32)


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
