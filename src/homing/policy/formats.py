"""How an event is written into a request body.

``data`` goes out byte for byte as it came in, so bodies are put together from bytes: reading and
writing JSON again would change numbers, key order and escapes that a receiver may hash or sign.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import assert_never

from msgspec.json import encode

from homing.model import Event, Format
from homing.policy.cloudevents import binary_body, structured_body
from homing.policy.workfront import Frame, workfront_body

JSON = b"application/json"
CLOUDEVENTS_JSON = b"application/cloudevents+json"
OF_THE_DATA = b""  # The header lines of each event have the content type of its data.


def body_writer(fmt: Format, frame: Frame | None = None) -> tuple[Callable[[Event], bytes], bytes]:
    """The function that writes the body of an event, and the content type of the bodies.

    It is the same function for every subscription with the same body; only ``workfront``, whose
    bodies differ, needs a frame.
    """
    match fmt:
        case Format.STANDARD:
            return _standard, JSON
        case Format.RAW:
            return _raw, JSON
        case Format.CLOUDEVENTS:
            return structured_body, CLOUDEVENTS_JSON
        case Format.CLOUDEVENTS_BINARY:
            return binary_body, OF_THE_DATA
        case Format.WORKFRONT:
            assert frame is not None
            return partial(workfront_body, frame=frame), JSON
        case _ as never:
            assert_never(never)


_raw: Callable[[Event], bytes] = attrgetter("data")


def _standard(event: Event) -> bytes:
    """The payload that the Standard Webhooks specification recommends."""
    return b'{"id":%b,"type":%b,"timestamp":%b,"data":%b}' % (
        encode(event.key),
        encode(event.type),
        encode(event.time),
        event.data,
    )
