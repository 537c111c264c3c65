"""``verify``: checks that a request was sent by Homing, recently, and was not changed.

    verified = verify(request.headers, body, secrets)   # raises NotVerified: respond with 401

The body must be the received bytes: JSON that was parsed and written again has another signature.
Signatures follow Standard Webhooks v1 (HMAC-SHA256 over ``id.timestamp.body``). The signature is
checked before the time, so that the error distinguishes a wrong clock from a wrong secret. No error
contains a secret, a signature or a body.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from homing_client.errors import BadSecret, HeaderMissing, SignatureWrong, TimestampOutside
from homing_client.time_and_random import unix_time

TOLERANCE_S = 300
SIGNATURES_MAX = 16
_PREFIX = "whsec_"
_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_TYPE, _DELIVERY, _ATTEMPT = "homing-event-type", "homing-delivery", "homing-attempt"
_WANTED = frozenset((_ID, _TIMESTAMP, _SIGNATURE, _TYPE, _DELIVERY, _ATTEMPT))
# No dot in the id: in the signed text it would be unclear where the id ends and the time begins.
_ID_FORM = re.compile(r"[!-\-/-~]{1,256}")
_TIMESTAMP_FORM = re.compile(r"[0-9]{1,12}")
_ATTEMPT_FORM = re.compile(r"[0-9]{1,9}")

Pairs = Iterable[tuple[str | bytes, str | bytes]]


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
    secrets: str | Sequence[str],
    *,
    tolerance_s: float = TOLERANCE_S,
    now: float | None = None,
) -> Verified:
    """The identity of the request; raises NotVerified, or BadSecret for an unusable secret.

    ``secrets`` are those of the subscription: during a rotation, the old and the new one.
    ``headers`` is a mapping (names in upper or lower case) or pairs of text or bytes.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError("the body must be the received bytes")
    keys = _keys(secrets)
    found = _wanted(headers)
    webhook_id = _required(found, _ID, _ID_FORM)
    timestamp = _required(found, _TIMESTAMP, _TIMESTAMP_FORM)
    signatures = _signatures(found)
    signed = b"%b.%b.%b" % (webhook_id.encode(), timestamp.encode(), bytes(body))
    matches = False
    for key in keys:
        expected = hmac.digest(key, signed, "sha256")
        for signature in signatures:  # All of them: the duration must not reveal which one matches.
            matches |= hmac.compare_digest(expected, signature)
    if not matches:
        raise SignatureWrong(
            "The secret is a different one, or the request was changed in transit."
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


def _keys(secrets: str | Sequence[str]) -> list[bytes]:
    """The keys in ``whsec_…``; an error names a wrong one by number, never by value."""
    texts = [secrets] if isinstance(secrets, str) else list(secrets)
    if not texts:
        raise BadSecret("No secret was given.")
    return [_key(text, number) for number, text in enumerate(texts, 1)]


def _key(text: str, number: int) -> bytes:
    coded = text.strip().removeprefix(_PREFIX).rstrip("=")
    try:
        key = b64decode(coded + "=" * (-len(coded) % 4), validate=True)
    except ValueError:
        raise BadSecret(f"Secret number {number} is not {_PREFIX} followed by base64.") from None
    if not key:
        raise BadSecret(f"Secret number {number} is empty.")
    return key


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


def _signatures(found: Mapping[str, str]) -> list[bytes]:
    """Every ``v1`` signature of the header; other versions are ignored."""
    text = found.get(_SIGNATURE)
    if text is None:
        raise HeaderMissing(f"{_SIGNATURE} is missing.")
    signatures: list[bytes] = []
    for entry in text.split()[:SIGNATURES_MAX]:
        version, _, coded = entry.partition(",")
        if version != "v1":
            continue
        try:
            signatures.append(b64decode(coded, validate=True))
        except ValueError:
            raise HeaderMissing(f"{_SIGNATURE} cannot be read.") from None
    if not signatures:
        raise HeaderMissing(f"{_SIGNATURE} has no v1 signature.")
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
