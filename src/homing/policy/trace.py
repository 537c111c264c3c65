"""Traces (W3C Trace Context): to which trace an event belongs, and the ids of its spans.

The ids of spans are computed from the ids of events and deliveries. So nothing but the publisher's
``traceparent`` is stored, and an attempt two days later, by another process, belongs to the same
trace as the first.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from msgspec import Struct

from homing.model import Event

TRACEPARENT_CHARS = 55
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_SPREAD = 0x9E3779B97F4A7C15
_WHOLE = 1 << 64


class Trace(Struct, frozen=True, gc=False):
    """The trace of one event; all ids in lower-case hexadecimal."""

    trace_id: str
    parent_id: str  # the span in which the publisher called; empty: the trace begins here
    sampled: bool  # whether its spans are recorded


def read_traceparent(text: str) -> str:
    """The header's value in its first version; empty if it is invalid: then it is ignored."""
    text = text.strip()
    if _TRACEPARENT.match(text) is None:
        return ""
    if len(text) > TRACEPARENT_CHARS and (text.startswith("00") or text[TRACEPARENT_CHARS] != "-"):
        return ""
    return f"00{text[2:TRACEPARENT_CHARS]}"


def is_sampled(event: Event, share: float) -> bool:
    """Whether the spans of an event are recorded: its publisher decides, otherwise its id."""
    if event.trace:
        return int(event.trace[-2:], 16) & 1 == 1
    return event.id * _SPREAD % _WHOLE < share * _WHOLE


def trace_of(event: Event, *, share: float) -> Trace:
    """The trace of an event; one that came without a trace gets its own."""
    sampled = is_sampled(event, share)
    if event.trace:
        _, trace_id, parent_id, _ = event.trace.split("-")
        return Trace(trace_id, parent_id, sampled)
    seed = f"{event.id} {event.tenant} {event.key} {event.time} ".encode()
    return Trace(blake2b(seed + event.data[:256], digest_size=16).hexdigest(), "", sampled)


def trace_id_of(event: Event, *, share: float) -> str:
    """The id of its trace, if it has one: its publisher's, or its own if it is sampled."""
    return trace_of(event, share=share).trace_id if event.trace or is_sampled(event, share) else ""


def publish_span(event_id: int) -> str:
    """The id of the span in which an event was published."""
    return _span(f"publish {event_id}")


def commit_span(event_id: int) -> str:
    """The id of the span in which an event was written."""
    return _span(f"commit {event_id}")


def attempt_span(delivery_id: int, number: int) -> str:
    """The id of the span of one attempt."""
    return _span(f"attempt {delivery_id} {number}")


def traceparent(trace: Trace, span_id: str) -> str:
    """The header that a receiver gets within this span."""
    return f"00-{trace.trace_id}-{span_id}-{int(trace.sampled):02x}"


def header_line(event: Event, delivery_id: int, number: int, *, share: float | None) -> bytes:
    """The traceparent of an attempt as a header line; empty if the event has no trace to pass on.

    ``share`` is None where nothing is traced here: then the publisher's own is passed on.
    """
    value = event.trace
    if share is not None and is_sampled(event, share):
        value = traceparent(trace_of(event, share=share), attempt_span(delivery_id, number))
    return f"traceparent: {value}\r\n".encode() if value else b""


def _span(text: str) -> str:
    return blake2b(text.encode(), digest_size=8).hexdigest()
