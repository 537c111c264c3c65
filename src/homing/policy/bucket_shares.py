"""Which buckets a process of a fleet takes, and which it gives up.

Every process computes the same shares from the same rows, so no leader is needed: 256 buckets
divided by the number of live delivering processes. The remainder goes to those that own the most
buckets already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

BUCKETS = 256


class Plan(Struct, frozen=True):
    """The buckets that one process takes or gives up next."""

    take: tuple[int, ...] = ()
    give: tuple[int, ...] = ()


def shares(members: Sequence[int], owners: Sequence[int | None]) -> dict[int, int]:
    """How many buckets each member should own."""
    if not members:
        return {}
    held = Counter(owner for owner in owners if owner is not None)
    base, odd = divmod(BUCKETS, len(members))
    ranked = sorted(members, key=lambda it: (-held[it], it))
    return {member: base + (rank < odd) for rank, member in enumerate(ranked)}


def plan(me: int, members: Sequence[int], owners: Sequence[int | None]) -> Plan:
    """The next step of process ``me``; ``owners`` is the live owner of each bucket, or None.

    A process not in ``members`` (it leaves, or only serves the API) gives up all its buckets. Free
    buckets are assigned in one order to all members that lack some, so that no two members take
    the same bucket.
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
    """Bucket numbers as text, like ``0-3,7``."""
    parts: list[list[int]] = []
    for bucket in sorted(buckets):
        if parts and bucket == parts[-1][-1] + 1:
            parts[-1][1:] = [bucket]
        else:
            parts.append([bucket])
    return ",".join("-".join(map(str, part)) for part in parts)
