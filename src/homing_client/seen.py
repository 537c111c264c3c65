"""``Seen``: remembers by ``webhook-id`` which requests this process has handled.

    with seen.once(verified.id) as new:
        if new:
            handle(event)

A request may be sent again while the first one is still being handled. It must not get a 2xx (the
first may still fail, and then nobody would retry), and it must not be handled twice: ``once``
raises StillHandling, and the sender retries later. If handling fails, the id is forgotten, so that
the retry is handled. Other processes do not share this memory, and a restart empties it. Where that
matters, store the id in the database, in the transaction that does the work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from homing_client.errors import StillHandling
from homing_client.time_and_random import monotonic

KEEP_S = 4 * 24 * 3600.0  # Longer than the retry window of every preset of the server.
IDS_MAX = 100_000


class Seen:
    """Handled ids, limited by time and count; the oldest are forgotten first. Thread-safe."""

    def __init__(
        self,
        *,
        keep_s: float = KEEP_S,
        max_ids: int = IDS_MAX,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if keep_s <= 0 or max_ids < 1:
            raise ValueError("keep_s must be more than 0, and max_ids at least 1")
        self._keep_s, self._max_ids, self._clock = keep_s, max_ids, clock
        self._handled: dict[str, float] = {}  # id → time, in the order of handling
        self._handling: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def once(self, webhook_id: str) -> Iterator[bool]:
        """True for the first request, False after it was handled; raises StillHandling between."""
        if not self._begin(webhook_id):
            yield False
            return
        try:
            yield True
        except BaseException:
            with self._lock:
                self._handling.discard(webhook_id)
            raise
        with self._lock:
            self._handling.discard(webhook_id)
            self._handled[webhook_id] = self._clock()
            self._forget_old()

    def __contains__(self, webhook_id: str) -> bool:
        with self._lock:
            self._forget_old()
            return webhook_id in self._handled

    def __len__(self) -> int:
        with self._lock:
            self._forget_old()
            return len(self._handled)

    def _begin(self, webhook_id: str) -> bool:
        with self._lock:
            self._forget_old()
            if webhook_id in self._handled:
                return False
            if webhook_id in self._handling:
                raise StillHandling
            self._handling.add(webhook_id)
            return True

    def _forget_old(self) -> None:
        before = self._clock() - self._keep_s
        while self._handled:
            oldest = next(iter(self._handled))
            if self._handled[oldest] > before and len(self._handled) <= self._max_ids:
                return
            del self._handled[oldest]
