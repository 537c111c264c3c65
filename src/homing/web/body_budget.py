"""The body memory budget: how many bytes of request bodies are held at once, over all connections.

One body is bounded, but many at once are not bounded by that. A body that does not fit is refused
with a 503 while it arrives, before it is buffered; small bodies are not counted, because they are
bounded by the number of connections.
"""

from __future__ import annotations

from homing.errors import Busy

SMALL_BYTES = 16 * 1024
BUDGET_BYTES = 128 * 1024 * 1024


class BodyBudget:
    """Counts bytes; each request gives its bytes back when it has its response."""

    __slots__ = ("bytes_max", "held")

    def __init__(self, bytes_max: int = BUDGET_BYTES) -> None:
        self.bytes_max = bytes_max
        self.held = 0

    def take(self, count: int) -> None:
        """Raises Busy if so many bytes are not left."""
        if self.held + count > self.bytes_max:
            raise Busy
        self.held += count

    def release(self, body: bytes) -> None:
        """The request with this body has its response."""
        if len(body) > SMALL_BYTES:
            self.held -= len(body)
