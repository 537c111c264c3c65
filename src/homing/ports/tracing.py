"""Where spans go: an exporter that takes what the engine has done and never makes it wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class Span(Struct, frozen=True, gc=False):
    """One piece of work in a trace; ids in hexadecimal, times of the wall clock in ms."""

    name: str
    is_request: bool  # to a receiver; otherwise a publish or its commit
    trace_id: str
    span_id: str
    parent_id: str
    link_id: str  # the span of the attempt before; empty: there was none
    began_at: int
    ended_at: int
    error: str  # empty: it succeeded
    attributes: tuple[tuple[str, str | int], ...]


class SpanExporter(Protocol):
    """Takes spans and returns at once; it drops what it cannot hold."""

    def add(self, spans: Sequence[Span]) -> None: ...
