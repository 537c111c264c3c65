"""Which buckets this process owns: the hot path finds out by one index into a list.

An embedded process owns all 256 for ever. In a fleet ``Fleet`` keeps this up to date: a bucket
that is being handed over is no longer ``mine`` (nothing new starts) while its ``epochs`` entry
stays (attempts in flight are settled). Nothing starts at or after ``good_until``: by the clock of
this process, that is before another process may take the buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from homing.policy.bucket_shares import BUCKETS

FOR_EVER = 1 << 62


def _no_other_owner(_bucket: int, _endpoint_id: int, _due_at: int = 0, _position: int = 0) -> None:
    raise AssertionError("an embedded process owns every bucket")


class BucketOwnership:
    """The buckets of this process, and how the owners of the others are notified."""

    def __init__(self, *, fenced: bool = False) -> None:
        self.fenced = fenced  # leases are real: a write under one carries its epoch
        epoch = 0 if fenced else 1
        self.mine = [epoch] * BUCKETS  # not 0: deliveries of this bucket may start
        self.epochs = [epoch] * BUCKETS  # of the leases of this process; 0: none
        self.good_until = 0 if fenced else FOR_EVER
        self._ordered_from: dict[int, int] = {}  # by bucket, after a lease that expired
        # Set by the fleet. The owner of a bucket acts on new deliveries and on changes in it.
        self.notify_owner: Callable[..., None] = _no_other_owner
        self.notify_owner_of_change: Callable[[int, int], None] = _no_other_owner
        self.notify_peers: Callable[[str], None] = lambda _topic: None

    def fence(self, bucket: int) -> int:
        """The epoch under which a write to this bucket is made; 0: none is needed."""
        return self.epochs[bucket] if self.fenced else 0

    def fences(self, buckets: Iterable[int]) -> tuple[tuple[int, int], ...]:
        if not self.fenced:
            return ()
        return tuple((bucket, self.epochs[bucket]) for bucket in sorted(set(buckets)))

    def numbers(self) -> list[int]:
        """The buckets whose deliveries may start here."""
        return [bucket for bucket, epoch in enumerate(self.mine) if epoch]

    @property
    def is_maintenance_leader(self) -> bool:
        """Whether this process runs retention and replay jobs for the whole fleet."""
        return self.mine[0] != 0

    # --- changes by the fleet ------------------------------------------------------------------

    def gain(self, epochs: dict[int, int], *, ordered_from: int = 0) -> None:
        """Add buckets that were taken, with their epochs.

        ``ordered_from``: their former owner did not hand them over, and has no request in flight
        any more at this time.
        """
        for bucket, epoch in epochs.items():
            self.mine[bucket] = self.epochs[bucket] = epoch
            if ordered_from:
                self._ordered_from[bucket] = ordered_from

    def ordered_from(self, bucket: int) -> int:
        """When deliveries with an order may be attempted in this bucket: no request of a former
        owner arrives after that."""
        return self._ordered_from.get(bucket, 0)

    def close(self, buckets: Iterable[int]) -> None:
        """Start nothing new in these buckets; attempts in flight are settled."""
        for bucket in buckets:
            self.mine[bucket] = 0

    def reopen(self, buckets: Iterable[int]) -> None:
        for bucket in buckets:
            self.mine[bucket] = self.epochs[bucket]

    def lose(self, buckets: Iterable[int]) -> None:
        for bucket in buckets:
            self.mine[bucket] = self.epochs[bucket] = 0
            self._ordered_from.pop(bucket, None)

    def extend(self, until: int) -> None:
        """Let attempts start until this time."""
        self.good_until = until
