"""Fair shares: which buckets a process takes, and which it gives up, from what all of them see.

Every process computes the same shares from the same rows, so nobody has to lead: 256 buckets by
the number of live delivering processes, the odd ones to those that hold the most already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

BUCKETS = 256


class Plan(Struct, frozen=True):
    """What one process does next, in bucket numbers."""

    take: tuple[int, ...] = ()
    give: tuple[int, ...] = ()


def shares(members: Sequence[int], owners: Sequence[int | None]) -> dict[int, int]:
    """How many buckets each member should hold; those that hold the most get the odd ones."""
    if not members:
        return {}
    held = Counter(owner for owner in owners if owner is not None)
    base, odd = divmod(BUCKETS, len(members))
    ranked = sorted(members, key=lambda it: (-held[it], it))
    return {member: base + (rank < odd) for rank, member in enumerate(ranked)}


def plan(me: int, members: Sequence[int], owners: Sequence[int | None]) -> Plan:
    """``owners``: of each bucket the live process that holds it, or None.

    One that is no member (it leaves, or only serves the API) gives up all it has. The free ones
    are dealt out in one order to all that lack some: two never reach for the same bucket.
    """
    wanted = shares(members, owners)
    mine = [bucket for bucket, owner in enumerate(owners) if owner == me]
    share = wanted.get(me, 0)
    if len(mine) > share:
        return Plan(give=tuple(mine[share:]))
    held = Counter(owner for owner in owners if owner is not None)
    free = iter([bucket for bucket, owner in enumerate(owners) if owner is None])
    for member in sorted(wanted):
        dealt = [bucket for _, bucket in zip(range(wanted[member] - held[member]), free)]  # noqa: B905
        if member == me:
            return Plan(take=tuple(dealt))
    return Plan()


def ranges(buckets: Iterable[int]) -> str:
    """``0-3,7``."""
    parts: list[list[int]] = []
    for bucket in sorted(buckets):
        if parts and bucket == parts[-1][-1] + 1:
            parts[-1][1:] = [bucket]
        else:
            parts.append([bucket])
    return ",".join("-".join(map(str, part)) for part in parts)
