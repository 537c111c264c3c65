"""``Seen``: the requests that this process has handled, by their ``webhook-id``.

    with seen.once(verified.id) as new:
        if new:
            handle(event)

A request that is sent again while its first is still being handled must get neither a 2xx (the
first may yet fail, and nobody would try again) nor be handled twice: it gets StillHandling, and
the sender comes back later. A request whose handling fails is forgotten, so that its retry counts.
This knows nothing of other processes and nothing after a restart. Where that matters, keep the id
in the database, in the transaction that does the work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from homing.client.errors import StillHandling
from homing.client.pace import monotonic

KEEP_S = 4 * 24 * 3600.0  # Longer than any preset of the server goes on trying.
MOST = 100_000


class Seen:
    """Handled ids, bounded by time and count; the oldest go first. Safe to share by threads."""

    def __init__(
        self,
        *,
        keep_s: float = KEEP_S,
        most: int = MOST,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if keep_s <= 0 or most < 1:
            raise ValueError("it must keep at least one id for some time")
        self._keep_s, self._most, self._clock = keep_s, most, clock
        self._handled: dict[str, float] = {}  # id → when; in the order of handling
        self._handling: set[str] = set()
        self._lock = threading.Lock()

    @contextmanager
    def once(self, webhook_id: str) -> Iterator[bool]:
        """True the first time, False once it was handled; raises StillHandling in between."""
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
            if self._handled[oldest] > before and len(self._handled) <= self._most:
                return
            del self._handled[oldest]
