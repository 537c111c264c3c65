"""``verify``: checks that a request was sent by Homing, recently, and was not changed.

    verified = verify(request.headers, body, secrets)   # raises NotVerified: respond with 401

The body must be the received bytes: JSON that was parsed and written again has another signature.
Signatures follow Standard Webhooks, over ``id.timestamp.body``: v1 is HMAC-SHA256 with a secret
(``whsec_…``), v1a is Ed25519 with a key pair, of which the receiver has the public key (``whpk_…``,
or a JWK set). A public key is never used for v1. The signature is checked before the time, so that
the error distinguishes a wrong clock from a wrong secret. No error contains a secret, a signature
or a body.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from homing_client.errors import (
    BadSecret,
    CryptographyMissing,
    HeaderMissing,
    SignatureWrong,
    TimestampOutside,
)
from homing_client.jwks import Jwks, read_jwks
from homing_client.time_and_random import unix_time

TOLERANCE_S = 300
SIGNATURES_MAX = 32
ED25519_MAX = 10  # v1a signatures that are checked: one costs as much as a hundred of v1
_PREFIX, _PUBLIC, _PRIVATE = "whsec_", "whpk_", "whsk_"
_PUBLIC_BYTES = 32
_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_TYPE, _DELIVERY, _ATTEMPT = "homing-event-type", "homing-delivery", "homing-attempt"
_WANTED = frozenset((_ID, _TIMESTAMP, _SIGNATURE, _TYPE, _DELIVERY, _ATTEMPT))
# No dot in the id: in the signed text it would be unclear where the id ends and the time begins.
_ID_FORM = re.compile(r"[!-\-/-~]{1,256}")
_TIMESTAMP_FORM = re.compile(r"[0-9]{1,12}")
_ATTEMPT_FORM = re.compile(r"[0-9]{1,9}")

Pairs = Iterable[tuple[str | bytes, str | bytes]]
Key = str | Jwks | Mapping[str, Any]  # a secret, a public key, or a JWK set


class Verified(Struct, frozen=True):
    """The identity of a verified request.

    ``id`` is the same on every retry and replay: deduplicate by it. It and the timestamp are
    signed; the ``homing-`` headers are not, and are None if the sender did not send them.
    """

    id: str
    timestamp: int  # Unix seconds of this attempt
    event_type: str | None = None
    delivery: str | None = None
    attempt: int | None = None


def verify(
    headers: Mapping[str, str] | Pairs,
    body: bytes,
    secrets: Key | Sequence[Key],
    *,
    tolerance_s: float = TOLERANCE_S,
    now: float | None = None,
) -> Verified:
    """The identity of the request; raises NotVerified, or BadSecret for an unusable secret.

    ``secrets`` is what signatures are checked with; one that fits is enough. Each is a secret of
    the subscription (``whsec_…``; during a rotation, the old and the new one), a public key of the
    tenant (``whpk_…``), a ``Jwks``, or a JWK set as a mapping. ``headers`` is a mapping (names in
    upper or lower case) or pairs of text or bytes.

    Raises KeysUnavailable if a ``Jwks`` cannot be fetched, and CryptographyMissing for a public key
    without the package cryptography.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError("the body must be the received bytes")
    keys = _keys(secrets)
    found = _wanted(headers)
    webhook_id = _required(found, _ID, _ID_FORM)
    timestamp = _required(found, _TIMESTAMP, _TIMESTAMP_FORM)
    versions = (("v1",) if keys.secret else ()) + (("v1a",) if keys.public or keys.sets else ())
    signatures = _signatures(found, versions)
    signed = b"%b.%b.%b" % (webhook_id.encode(), timestamp.encode(), bytes(body))
    if not _fits(keys, signatures, signed):
        raise SignatureWrong(
            f"The {keys.name()} is a different one, or the request was changed in transit."
        )
    at = int(timestamp)
    _check_time(at, unix_time() if now is None else now, tolerance_s)
    attempt = found.get(_ATTEMPT, "")
    return Verified(
        id=webhook_id,
        timestamp=at,
        event_type=found.get(_TYPE),
        delivery=found.get(_DELIVERY),
        attempt=int(attempt) if _ATTEMPT_FORM.fullmatch(attempt) else None,
    )


class _Keys(Struct):
    """What signatures are checked with, by kind."""

    secret: list[bytes] = []
    public: list[bytes] = []
    sets: list[Jwks] = []

    def name(self) -> str:
        """What to call them in an error."""
        if self.public or self.sets:
            return "secret or the key" if self.secret else "public key"
        return "secret"


def _keys(secrets: Key | Sequence[Key]) -> _Keys:
    """The keys by kind; an error names a wrong one by number, never by value."""
    given = [secrets] if isinstance(secrets, str | Jwks | Mapping) else list(secrets)
    if not given:
        raise BadSecret("No secret was given.")
    keys = _Keys()
    for number, one in enumerate(given, 1):
        if isinstance(one, Jwks):
            keys.sets.append(one)
        elif isinstance(one, Mapping):
            keys.public += read_jwks(one)
        elif one.strip().startswith(_PUBLIC):
            keys.public.append(_key(one, number, _PUBLIC))
        else:
            keys.secret.append(_key(one, number, _PREFIX))
    if not (keys.secret or keys.public or keys.sets):
        raise BadSecret("The JWK set has no Ed25519 key.")
    return keys


def _key(text: str, number: int, prefix: str) -> bytes:
    if text.strip().startswith(_PRIVATE):
        raise BadSecret(f"Secret number {number} is a private key: give the public key, {_PUBLIC}…")
    coded = text.strip().removeprefix(prefix).rstrip("=")
    try:
        key = b64decode(coded + "=" * (-len(coded) % 4), validate=True)
    except ValueError:
        raise BadSecret(f"Secret number {number} is not {prefix} followed by base64.") from None
    if not key:
        raise BadSecret(f"Secret number {number} is empty.")
    if prefix == _PUBLIC and len(key) != _PUBLIC_BYTES:
        raise BadSecret(f"Secret number {number} has not the {_PUBLIC_BYTES} bytes of a key.")
    return key


def _fits(keys: _Keys, signatures: Mapping[str, list[bytes]], signed: bytes) -> bool:
    """Whether a signature is right. The sets are asked last: they may have to be fetched."""
    matches = False
    for key in keys.secret:
        expected = hmac.digest(key, signed, "sha256")
        for signature in signatures["v1"]:  # All: the duration must not reveal which one matches.
            matches |= hmac.compare_digest(expected, signature)
    if matches or not signatures["v1a"]:
        return matches
    asymmetric = signatures["v1a"][:ED25519_MAX]
    if _signed_by(keys.public, asymmetric, signed):
        return True
    for key_set in keys.sets:
        fetched = key_set.keys()
        if _signed_by(fetched.keys, asymmetric, signed):
            return True
        if _signed_by(key_set.keys_after(fetched.number), asymmetric, signed):
            return True
    return False


def _signed_by(keys: Iterable[bytes], signatures: Iterable[bytes], signed: bytes) -> bool:
    """Whether one of the keys made one of the signatures."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise CryptographyMissing from None
    for key in keys:
        public = Ed25519PublicKey.from_public_bytes(key)
        for signature in signatures:
            try:
                public.verify(signature, signed)
            except InvalidSignature:
                continue
            return True
    return False


def _wanted(headers: Mapping[str, str] | Pairs) -> dict[str, str]:
    """The headers that matter, by their names in lower case."""
    found: dict[str, str] = {}
    pairs: Any = headers.items() if hasattr(headers, "items") else headers
    for name, value in pairs:
        low = _text(name).lower()
        if low in _WANTED:
            if low in found:
                raise HeaderMissing(f"{low} occurs twice.")
            found[low] = _text(value)
    return found


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _required(found: Mapping[str, str], name: str, form: re.Pattern[str]) -> str:
    value = found.get(name)
    if value is None:
        raise HeaderMissing(f"{name} is missing.")
    if form.fullmatch(value) is None:
        raise HeaderMissing(f"{name} cannot be read.")
    return value


def _signatures(found: Mapping[str, str], versions: Sequence[str]) -> dict[str, list[bytes]]:
    """The signatures of the header by version; other versions are ignored."""
    text = found.get(_SIGNATURE)
    if text is None:
        raise HeaderMissing(f"{_SIGNATURE} is missing.")
    signatures: dict[str, list[bytes]] = {"v1": [], "v1a": []}
    for entry in text.split()[:SIGNATURES_MAX]:
        version, _, coded = entry.partition(",")
        if version not in versions:
            continue
        try:
            signatures[version].append(b64decode(coded, validate=True))
        except ValueError:
            raise HeaderMissing(f"{_SIGNATURE} cannot be read.") from None
    if not any(signatures.values()):
        raise HeaderMissing(f"{_SIGNATURE} has no {' or '.join(versions)} signature.")
    return signatures


def _check_time(at: int, now: float, tolerance_s: float) -> None:
    late_s = now - at
    if late_s > tolerance_s:
        raise TimestampOutside(
            f"The request was signed {late_s:.0f} s ago, and {tolerance_s:.0f} s are allowed: "
            "it was delayed, or somebody has replayed it, or one of the clocks is wrong."
        )
    if -late_s > tolerance_s:
        raise TimestampOutside(
            f"The request was signed {-late_s:.0f} s in the future, and {tolerance_s:.0f} s are "
            "allowed: one of the clocks is wrong."
        )
