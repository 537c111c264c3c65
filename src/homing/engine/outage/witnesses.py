"""Which endpoints were healthy a short time ago, and which of them have fallen since.

Every count that the detector needs is updated with each outcome: a success costs one look-up in a
dict, and no failure scans the endpoints. A success moves its endpoint to the end of the order, so
that endpoints whose success is too old are at the front.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from enum import StrEnum

from msgspec import Struct

AGAIN_MS = 1_000  # a success that follows another one of its endpoint sooner is not noted


class Fall(StrEnum):
    """The meaning of a failure without a response for its endpoint."""

    NEW = "new"  # the endpoint was healthy, and is fallen now
    AGAIN = "again"  # the endpoint was fallen already
    NONE = "none"  # the endpoint was not healthy


class Witness(Struct, gc=False):
    """An endpoint that has succeeded."""

    tenant: str
    host: str
    at: int  # of its last success


class Group:
    """Endpoints, counted with their hosts and tenants."""

    __slots__ = ("_hosts", "_tenants", "members")

    def __init__(self) -> None:
        # OrderedDict, for its O(1) move to the end: a plain dict scans its deleted entries.
        self.members: OrderedDict[int, Witness] = OrderedDict()
        self._hosts: Counter[str] = Counter()
        self._tenants: Counter[str] = Counter()

    def add(self, endpoint_id: int, witness: Witness) -> None:
        self.members[endpoint_id] = witness
        self._hosts[witness.host] += 1
        self._tenants[witness.tenant] += 1

    def discard(self, endpoint_id: int) -> None:
        witness = self.members.pop(endpoint_id, None)
        if witness is None:
            return
        for counts, name in ((self._hosts, witness.host), (self._tenants, witness.tenant)):
            counts[name] -= 1
            if not counts[name]:
                del counts[name]

    @property
    def endpoints(self) -> int:
        return len(self.members)

    @property
    def hosts(self) -> int:
        return len(self._hosts)

    @property
    def tenants(self) -> int:
        return len(self._tenants)


class Witnesses:
    """The healthy endpoints of this process; the fallen are among them."""

    def __init__(self) -> None:
        self.healthy, self.fallen = Group(), Group()
        self.fallen_since = 0  # when the first of the fallen fell
        self._silent: set[int] = set()  # of the fallen: those that only lost a kept connection
        self._read: list[tuple[int, int]] = []  # (last success, id) of those read from the store
        # Endpoint → when it responded without a DNS look-up: no evidence that look-ups work.
        self._abstained: OrderedDict[int, int] = OrderedDict()

    # --- successes ---------------------------------------------------------------------------

    def again(self, endpoint_id: int, at: int) -> bool:
        """Note a success of a healthy endpoint; False: it is not known as healthy."""
        witness = self.healthy.members.get(endpoint_id)
        if witness is None:
            return False
        if at - witness.at >= AGAIN_MS:
            witness.at = at
            self.healthy.members.move_to_end(endpoint_id)
        return True

    def add(self, endpoint_id: int, witness: Witness, *, read: bool = False) -> None:
        """Add a healthy endpoint; ``read``: its success was read from the store."""
        if endpoint_id in self.healthy.members:
            return
        self.healthy.add(endpoint_id, witness)
        if read:
            heapq.heappush(self._read, (witness.at, endpoint_id))

    def abstain(self, endpoint_id: int, at: int) -> None:
        """Leave an endpoint out of the vote for a while: its attempt used a remembered address."""
        if endpoint_id in self.healthy.members:
            self._abstained[endpoint_id] = at
            self._abstained.move_to_end(endpoint_id)

    def abstained(self, *, since: int) -> int:
        """How many of the healthy endpoints do not vote."""
        there = self._abstained
        while there and next(iter(there.values())) < since:
            there.popitem(last=False)
        return len(there)

    def standing(self, endpoint_id: int) -> tuple[int, int]:
        """A sort key: healthy endpoints, latest success first; then unknown, then fallen ones."""
        witness = self.healthy.members.get(endpoint_id)
        if witness is None:
            return 1, 0
        return 2 if endpoint_id in self.fallen.members else 0, -witness.at

    # --- failures ----------------------------------------------------------------------------

    def fall(self, endpoint_id: int, *, now: int, since: int, silent: bool) -> Fall:
        """Note that an endpoint cannot be reached; it was healthy if it has succeeded ``since``."""
        witness = self.healthy.members.get(endpoint_id)
        if witness is None or witness.at < since:
            return Fall.NONE
        if endpoint_id in self.fallen.members:
            if not silent:
                self._silent.discard(endpoint_id)
            return Fall.AGAIN
        if not self.fallen.members:
            self.fallen_since = now
        self.fallen.add(endpoint_id, witness)
        self._abstained.pop(endpoint_id, None)
        if silent:
            self._silent.add(endpoint_id)
        return Fall.NEW

    def rise(self, endpoint_id: int) -> None:
        """Note a response: the endpoint is not fallen."""
        self.fallen.discard(endpoint_id)
        self._silent.discard(endpoint_id)

    def rise_silent(self) -> set[int]:
        """Clear the fallen that only lost a kept connection: other kept connections still work."""
        risen, self._silent = self._silent, set()
        for endpoint_id in risen:
            self.fallen.discard(endpoint_id)
        return risen

    def rise_all(self) -> None:
        """Clear all fallen endpoints."""
        self.fallen = Group()
        self._silent.clear()

    def disprove(self) -> None:
        """Remove the fallen from the healthy until they succeed again: the sender can connect."""
        for endpoint_id in self.fallen.members:
            self.healthy.discard(endpoint_id)
            self._abstained.pop(endpoint_id, None)
        self.rise_all()

    # --- removal -----------------------------------------------------------------------------

    def expire(self, since: int) -> None:
        """Forget the endpoints that have not succeeded since then."""
        healthy, read = self.healthy.members, self._read
        while healthy and next(iter(healthy.values())).at < since:
            self.forget(next(iter(healthy)))
        while read and read[0][0] < since:
            _, endpoint_id = heapq.heappop(read)
            witness = healthy.get(endpoint_id)
            if witness is not None and witness.at < since:
                self.forget(endpoint_id)

    def forget(self, endpoint_id: int) -> None:
        """Forget an endpoint: another process owns it, or its success is too old."""
        self.healthy.discard(endpoint_id)
        self._abstained.pop(endpoint_id, None)
        self.rise(endpoint_id)
