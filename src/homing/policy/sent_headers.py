"""The header lines that every request has, and the short form in which the log keeps them.

Most of these lines are the same for all requests or follow from the attempt itself. The short form
has the rest (about 60 bytes instead of 280); ``logged_lines`` writes the same lines from it again.
Its first value is the form, which names the lines and the content type. Lines that a later release
changes get a new form, so that an attempt is always shown as it was sent. Attempts that earlier
releases logged have whole lines.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable
from functools import cache

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from homing import __version__
from homing.model import Attempt, show_id
from homing.policy.formats import CLOUDEVENTS_JSON, JSON, OF_THE_DATA

_TYPE = b"content-type: %b\r\n"
_LINES = (
    b"user-agent: homing/%b\r\n"
    b"webhook-id: %b\r\nwebhook-timestamp: %b\r\nwebhook-signature: %b\r\n"
    b"homing-event-type: %b\r\nhoming-delivery: %b\r\nhoming-attempt: %d\r\n"
)
_CONTENT_TYPES = {0: JSON, 1: CLOUDEVENTS_JSON, 2: OF_THE_DATA}  # by form
_DIGEST_BYTES, _ASYMMETRIC_BYTES = 32, 64
_SHORT = 0x90  # The first byte of a short form is an array's; a header line has no such byte.


class _ShortForm(Struct, array_like=True, gc=False):
    form: int
    version: str
    timestamp: int
    digests: bytes  # the signatures of secrets (v1), one after the other
    event_type: str
    others: bytes = b""  # all other header lines, masked
    root_id: int = 0  # of a replay
    asymmetric: bytes = b""  # the signatures of the tenant's keys (v1a), one after the other


short_form: Callable[[tuple[object, ...]], bytes] = Encoder().encode
_read = Decoder(_ShortForm).decode


@cache
def prepared(content_type: bytes) -> tuple[int, bytes]:
    """The form, and the lines, still without webhook id, time, signatures, type, id and number."""
    form = next(it for it, known in _CONTENT_TYPES.items() if known == content_type)
    return form, _type_line(content_type) + _LINES.replace(b"%b", __version__.encode(), 1)


def _type_line(content_type: bytes) -> bytes:
    return b"" if content_type == OF_THE_DATA else _TYPE % content_type


def signatures(digests: bytes, asymmetric: bytes = b"") -> bytes:
    """The value of ``webhook-signature``."""
    v1 = _entries(b"v1,", digests, _DIGEST_BYTES)
    return b" ".join([*v1, *_entries(b"v1a,", asymmetric, _ASYMMETRIC_BYTES)])


def _entries(version: bytes, joined: bytes, size: int) -> list[bytes]:
    parts = [joined[at : at + size] for at in range(0, len(joined), size)]
    return [version + b2a_base64(part, newline=False) for part in parts]


def logged_lines(attempt: Attempt) -> bytes:
    """The header lines of an attempt's request, with the secrets masked."""
    stored = attempt.request_headers
    if not stored or stored[0] < _SHORT:
        return stored
    it = _read(stored)
    delivery_id = show_id("dlv", attempt.delivery_id).encode()
    lines = _type_line(_CONTENT_TYPES[it.form]) + _LINES % (
        it.version.encode(),
        show_id("dlv", it.root_id).encode() if it.root_id else delivery_id,
        b"%d" % it.timestamp,
        signatures(it.digests, it.asymmetric),
        it.event_type.encode(),
        delivery_id,
        attempt.number,
    )
    return lines + it.others
