"""Which endpoints were healthy a short time ago, and which of them have fallen since.

Every count that the detector needs is kept as outcomes come in: a success costs one look into a
dict, and no failure walks over the endpoints. A success moves its endpoint to the end of the list,
so that those whose success is too old stand at the front.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from enum import StrEnum

from msgspec import Struct

AGAIN_MS = 1_000  # successes of one endpoint that follow each other faster are one


class Fall(StrEnum):
    """What a failure without a response says about its endpoint."""

    NEW = "new"  # it was healthy, and falls
    AGAIN = "again"  # it has fallen before, and nothing has got through since
    NONE = "none"  # it was not healthy


class Witness(Struct, gc=False):
    """An endpoint that has succeeded."""

    tenant: str
    host: str
    at: int  # of its last success


class Group:
    """Endpoints, counted with their hosts and tenants."""

    __slots__ = ("_hosts", "_tenants", "members")

    def __init__(self) -> None:
        # OrderedDict, for its O(1) move to the end: a plain dict walks over what was deleted.
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
        self.fallen_since = 0  # the first of the fallen fell
        self._silent: set[int] = set()  # of the fallen: a kept connection broke, no more
        self._read: list[tuple[int, int]] = []  # (last success, id) of those read from the store
        # Responses without a look-up, and when: they do not show whether names can be looked up.
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
        """An endpoint has become healthy; ``read``: its success lies back, in the store."""
        if endpoint_id in self.healthy.members:
            return
        self.healthy.add(endpoint_id, witness)
        if read:
            heapq.heappush(self._read, (witness.at, endpoint_id))

    def abstain(self, endpoint_id: int, at: int) -> None:
        """A remembered address was used: this endpoint does not vote for a while."""
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
        """What sorts endpoints: the healthy, the latest success first; the unknown; the fallen."""
        witness = self.healthy.members.get(endpoint_id)
        if witness is None:
            return 1, 0
        return 2 if endpoint_id in self.fallen.members else 0, -witness.at

    # --- failures ----------------------------------------------------------------------------

    def fall(self, endpoint_id: int, *, now: int, since: int, silent: bool) -> Fall:
        """An endpoint cannot be reached; it was healthy if it has succeeded since then."""
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
        """It responded: it has not fallen, or no longer."""
        self.fallen.discard(endpoint_id)
        self._silent.discard(endpoint_id)

    def rise_silent(self) -> set[int]:
        """Those whose kept connections broke are no evidence: others' kept ones live."""
        risen, self._silent = self._silent, set()
        for endpoint_id in risen:
            self.fallen.discard(endpoint_id)
        return risen

    def rise_all(self) -> None:
        """They fell by a sender-side failure, which is over."""
        self.fallen = Group()
        self._silent.clear()

    def disprove(self) -> None:
        """Something got through: the fallen are not healthy until they succeed again."""
        for endpoint_id in self.fallen.members:
            self.healthy.discard(endpoint_id)
            self._abstained.pop(endpoint_id, None)
        self.rise_all()

    # --- time, and endpoints that go -----------------------------------------------------------

    def expire(self, since: int) -> None:
        """Forget those that have not succeeded since then."""
        healthy, read = self.healthy.members, self._read
        while healthy and next(iter(healthy.values())).at < since:
            self.forget(next(iter(healthy)))
        while read and read[0][0] < since:
            _, endpoint_id = heapq.heappop(read)
            witness = healthy.get(endpoint_id)
            if witness is not None and witness.at < since:
                self.forget(endpoint_id)

    def forget(self, endpoint_id: int) -> None:
        """It belongs to another process now, or its success is too old."""
        self.healthy.discard(endpoint_id)
        self._abstained.pop(endpoint_id, None)
        self.rise(endpoint_id)
