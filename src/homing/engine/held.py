"""Which buckets this process holds: one index into a list tells, on the hot path too.

An embedded process holds all 256 for ever. In a fleet ``Fleet`` keeps this up to date: a bucket
that is being handed over is no longer ``mine`` (nothing new starts) while its ``epochs`` still
stands (what is in flight is settled). Nothing starts at or after ``good_until``: it lies before
the moment at which another process may take the buckets, by our own clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from homing.policy.shares import BUCKETS

FOR_EVER = 1 << 62


def _nobody(_bucket: int, _endpoint_id: int) -> None:
    raise AssertionError("an embedded process holds every bucket")


async def _known(_version: int) -> None:
    """An embedded process knows what it has read."""


class Held:
    """The buckets of this process."""

    def __init__(self, *, fenced: bool = False) -> None:
        self.fenced = fenced  # leases are real: what is written under one carries its epoch
        held = 0 if fenced else 1
        self.mine = [held] * BUCKETS  # not 0: its work may start here
        self.epochs = [held] * BUCKETS  # of our leases; 0: not ours
        self.good_until = 0 if fenced else FOR_EVER
        # Told of deliveries, and of people's changes, that are another process's to act on.
        self.work_abroad: Callable[[int, int], None] = _nobody
        self.change_abroad: Callable[[int, int], None] = _nobody
        self.tell: Callable[[str], None] = lambda _topic: None  # all others, of a topic
        self.all_know: Callable[[int], Awaitable[None]] = _known  # until they act on a version

    def fence(self, bucket: int) -> int:
        """The epoch under which a write to this bucket is made; 0: none is needed."""
        return self.epochs[bucket] if self.fenced else 0

    def fences(self, buckets: Iterable[int]) -> tuple[tuple[int, int], ...]:
        if not self.fenced:
            return ()
        return tuple((bucket, self.epochs[bucket]) for bucket in sorted(set(buckets)))

    def numbers(self) -> list[int]:
        """The buckets whose work may start here."""
        return [bucket for bucket, epoch in enumerate(self.mine) if epoch]

    @property
    def keeps_house(self) -> bool:
        """Whether what is done once for all (retention, replays of many) is done here."""
        return self.mine[0] != 0
