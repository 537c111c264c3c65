"""The body memory budget: limits the bytes of request bodies in memory, over all connections.

The limit of one body does not limit many bodies at once. A body that exceeds the budget is refused
with a 503 while it arrives, before it is buffered. Small bodies are not counted: the number of
connections limits them.
"""

from __future__ import annotations

from homing.errors import Busy

SMALL_BYTES = 16 * 1024
BUDGET_BYTES = 128 * 1024 * 1024


class BodyBudget:
    """Counts the bytes of bodies; a request releases its bytes after its response."""

    __slots__ = ("bytes_max", "held")

    def __init__(self, bytes_max: int = BUDGET_BYTES) -> None:
        self.bytes_max = bytes_max
        self.held = 0

    def take(self, count: int) -> None:
        """Counts these bytes; raises Busy if the budget does not allow them."""
        if self.held + count > self.bytes_max:
            raise Busy
        self.held += count

    def release(self, body: bytes) -> None:
        """Releases the bytes of a body after its response was sent."""
        if len(body) > SMALL_BYTES:
            self.held -= len(body)
