"""``verify``: tells whether a request is from Homing, is meant for now, and is as it was sent.

    verified = verify(request.headers, body, secrets)   # raises NotVerified: answer with 401

The body must be the bytes as they came: JSON that was parsed and written again signs otherwise.
Signatures are after Standard Webhooks v1 (HMAC-SHA256 over ``id.timestamp.body``). The signature
is looked at before the time, so that a wrong clock is told from a wrong secret. No error repeats
a secret, a signature or a body.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from homing.client.errors import BadSecret, HeaderMissing, SignatureWrong, TimestampOutside
from homing.client.pace import unix_time

TOLERANCE_S = 300
SIGNATURES_MAX = 16
_PREFIX = "whsec_"
_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_TYPE, _DELIVERY, _ATTEMPT = "homing-event-type", "homing-delivery", "homing-attempt"
_WANTED = frozenset((_ID, _TIMESTAMP, _SIGNATURE, _TYPE, _DELIVERY, _ATTEMPT))
# A dot in the id would leave open where the id ends and the time begins in what was signed.
_ID_FORM = re.compile(r"[!-\-/-~]{1,256}")
_TIMESTAMP_FORM = re.compile(r"[0-9]{1,12}")
_ATTEMPT_FORM = re.compile(r"[0-9]{1,9}")

Pairs = Iterable[tuple[str | bytes, str | bytes]]


class Verified(Struct, frozen=True):
    """What a verified request says of itself.

    ``id`` is the same on every retry and replay: dedupe by it. It and the timestamp are signed;
    the ``homing-`` headers are not, and are None where the sender gave none.
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
    """The request's identity; raises NotVerified, or BadSecret for a secret of your own.

    ``secrets`` are those of the subscription: during a rotation give the old and the new one.
    ``headers`` may be any mapping, in any case, or pairs of text or bytes.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError("the body must be the bytes as they came")
    keys = _keys(secrets)
    found = _wanted(headers)
    webhook_id = _required(found, _ID, _ID_FORM)
    timestamp = _required(found, _TIMESTAMP, _TIMESTAMP_FORM)
    signatures = _signatures(found)
    signed = b"%b.%b.%b" % (webhook_id.encode(), timestamp.encode(), bytes(body))
    fits = False
    for key in keys:
        right = hmac.digest(key, signed, "sha256")
        for signature in signatures:  # All of them: the time taken must not tell which one fits.
            fits |= hmac.compare_digest(right, signature)
    if not fits:
        raise SignatureWrong("The secret is another one, or the request was changed on its way.")
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
    """The keys behind ``whsec_…``; an error says which one is wrong, never what it is."""
    texts = [secrets] if isinstance(secrets, str) else list(secrets)
    if not texts:
        raise BadSecret("There is none.")
    return [_key(text, number) for number, text in enumerate(texts, 1)]


def _key(text: str, number: int) -> bytes:
    coded = text.strip().removeprefix(_PREFIX).rstrip("=")
    try:
        key = b64decode(coded + "=" * (-len(coded) % 4), validate=True)
    except ValueError:
        raise BadSecret(f"Number {number} is not {_PREFIX} and base64.") from None
    if not key:
        raise BadSecret(f"Number {number} is empty.")
    return key


def _wanted(headers: Mapping[str, str] | Pairs) -> dict[str, str]:
    """The headers that are looked at, by their names in lower case."""
    found: dict[str, str] = {}
    pairs: Any = headers.items() if hasattr(headers, "items") else headers
    for name, value in pairs:
        low = _text(name).lower()
        if low in _WANTED:
            if low in found:
                raise HeaderMissing(f"{low} is there twice.")
            found[low] = _text(value)
    return found


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _required(found: Mapping[str, str], name: str, form: re.Pattern[str]) -> str:
    value = found.get(name)
    if value is None:
        raise HeaderMissing(f"{name} is not there.")
    if form.fullmatch(value) is None:
        raise HeaderMissing(f"{name} cannot be read.")
    return value


def _signatures(found: Mapping[str, str]) -> list[bytes]:
    """Every ``v1`` signature of the header; those of other versions are for others."""
    text = found.get(_SIGNATURE)
    if text is None:
        raise HeaderMissing(f"{_SIGNATURE} is not there.")
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
            f"It was signed {late_s:.0f} s ago, and {tolerance_s:.0f} s are allowed: it was held "
            "up or sent again by somebody else, or one of the clocks is wrong."
        )
    if -late_s > tolerance_s:
        raise TimestampOutside(
            f"It was signed {-late_s:.0f} s ahead of time, and {tolerance_s:.0f} s are allowed: "
            "one of the clocks is wrong."
        )
