"""The latest attempts of this process, in memory, for people who watch them live.

The store has attempts in the order of their deliveries; an index by time would make every settle
slower for the few people who watch. A live view needs only the last attempts of this process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from msgspec import Struct

from homing.model import Attempt

KEPT = 1_000


class Seen(Struct, frozen=True):
    """Attempts in the order they were settled, and how many were missed before them."""

    attempts: list[Attempt]
    last: int  # the number with which to ask for the next ones
    missed: int


class Recent:
    """A ring of attempts with rising numbers, which keep rising after a restart."""

    def __init__(self, *, after: int, kept: int = KEPT) -> None:
        self._first = self._last = after
        self._ring: deque[Attempt | None] = deque(maxlen=kept)  # None: it was erased

    def add(self, attempts: Sequence[Attempt]) -> None:
        self._ring.extend(attempts)
        self._last += len(attempts)

    def forget(self, erased: Callable[[Attempt], bool]) -> None:
        """Forget attempts; the numbers of the others stay."""
        for place, attempt in enumerate(self._ring):
            if attempt is not None and erased(attempt):
                self._ring[place] = None

    def after(self, number: int | None, *, limit: int) -> Seen:
        """The next attempts after this number; without one, the latest."""
        oldest = self._last - len(self._ring)  # the number before the oldest that is kept
        if number is None:
            begin, missed = max(oldest, self._last - limit), 0
        else:
            asked = min(max(number, self._first), self._last)
            begin = max(oldest, asked)
            missed = begin - asked
        skip = begin - oldest
        found = list(islice(self._ring, skip, skip + limit))
        return Seen([it for it in found if it is not None], begin + len(found), missed)
