"""Room: how many bytes of request bodies are held at once, over all connections.

One body is bounded, and many of them at once are not bounded by that. What does not fit is refused
with a 503 while it arrives, before it is buffered; small bodies are not counted, they are bounded
by the number of connections.
"""

from __future__ import annotations

from homing.errors import Busy

SMALL_BYTES = 16 * 1024
ROOM_BYTES = 128 * 1024 * 1024


class Room:
    """Counted in bytes; who takes some gives it back when the request is answered."""

    __slots__ = ("held", "most")

    def __init__(self, most: int = ROOM_BYTES) -> None:
        self.most = most
        self.held = 0

    def take(self, count: int) -> None:
        """Raises Busy if there is none."""
        if self.held + count > self.most:
            raise Busy
        self.held += count

    def leave(self, body: bytes) -> None:
        """The request that had this body is answered."""
        if len(body) > SMALL_BYTES:
            self.held -= len(body)
