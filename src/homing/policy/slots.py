"""The slots of a lane, divided among tenants: the next turn, and whether one more is allowed.

Tenants take turns, and within a tenant its endpoints. A tenant may take a slot only while it holds
fewer than WEIGHT times the free slots, not counting a reserve: the rule by which network switches
divide their memory between ports. So a single tenant gets most of the lane, two greedy tenants get
equal parts, and a tenant that holds none finds a slot. The rule needs no list of waiting tenants.

Within a tenant the same rule holds by rank, with smaller weights: endpoints that fail, or of which
nothing is known yet, never hold all slots that their tenant may have, so that its healthy endpoints
continue.

A tenant that may not take another slot leaves the turns until enough slots are free or it returns
one of its own; meanwhile it costs nothing. Every step is O(log slots), however many tenants wait.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

# The ranks of an endpoint: its last attempt got a response, it has none yet, it got no response.
TRUSTED, NEW, FAILING = RANKS = 0, 1, 2
WEIGHTS = (8, 4, 2)
RESERVE_PART = 16  # of a lane, for tenants that hold no slot of it
RESERVE_FROM = 4  # slots; a smaller lane has none to spare
_TURNS_AFTER = ((1, 2, 0), (2, 0, 1), (0, 1, 2))  # the order of ranks after the turn of each
_NOT_PARKED: list[int | None] = [None, None, None]
IDLE_MAX = 1_024  # tenants that neither hold a slot nor wait, before they are forgotten


def reserve_of(slots: int) -> int:
    """The slots of a lane that are reserved for tenants that hold none."""
    return max(1, slots // RESERVE_PART) if slots >= RESERVE_FROM else 0


def needed(held: list[int], rank: int, *, reserve: int) -> int:
    """How many slots of the lane must be free for a tenant that holds these to take one more.

    ``held`` counts by rank. The slots of a rank and of all worse ranks stay below the rank's weight
    times the free slots beyond the reserve; this holds for the given rank and for all better ones.
    """
    trusted, new, failing = held
    total = trusted + new + failing
    if not total:
        return 1
    need = total // WEIGHTS[TRUSTED]
    if rank >= NEW:
        need = max(need, (new + failing) // WEIGHTS[NEW])
        if rank >= FAILING:
            need = max(need, failing // WEIGHTS[FAILING])
    return reserve + need + 1


class _Tenant(Generic[T]):
    """The slots that one tenant holds in a lane, and its waiting items, by rank."""

    __slots__ = ("held", "last", "parked", "waiting")

    def __init__(self) -> None:
        self.held = [0, 0, 0]
        self.waiting: tuple[OrderedDict[T, None], ...] = tuple(OrderedDict() for _ in RANKS)
        self.parked: list[int | None] = [None, None, None]  # the free slots that a rank waits for
        self.last = FAILING  # the rank that had the last turn

    @property
    def idle(self) -> bool:
        return not (any(self.held) or any(self.waiting))


class LaneSlots(Generic[T]):
    """One lane: its slots, their holders, and the turns of the items that wait for one.

    An item stays in, turn after turn, until it is discarded. ``take`` takes a slot, ``next`` does
    not.
    """

    def __init__(self, slots: int) -> None:
        self.slots, self.held = slots, 0
        self._reserve = reserve_of(slots)
        self._tenants: dict[str, _Tenant[T]] = {}
        self._at: dict[T, tuple[str, int]] = {}  # item → its tenant and rank
        # OrderedDict, for its O(1) move to the end: a plain dict scans its deleted entries.
        self._ring: OrderedDict[str, None] = OrderedDict()  # tenants that may have a turn
        self._parked: dict[int, OrderedDict[tuple[str, int], None]] = {}  # by free slots needed
        self._needs: list[int] = []  # a heap of the keys of ``_parked``
        self._idle_max = IDLE_MAX

    @property
    def free(self) -> int:
        return self.slots - self.held

    # --- slots -------------------------------------------------------------------------------

    def take(self, tenant: str, rank: int) -> None:
        """Take a slot, whether or not the rule allows it: a canary needs no permission."""
        self.held += 1
        state = self._tenants.get(tenant) or self._tenant(tenant)
        state.held[rank] += 1

    def give(self, tenant: str, rank: int) -> None:
        """Return a slot."""
        self.held -= 1
        state = self._tenants[tenant]
        state.held[rank] -= 1
        assert state.held[rank] >= 0, "a slot is returned once"
        if state.parked != _NOT_PARKED:
            for waits in RANKS:
                if state.parked[waits] is not None:
                    self._unpark(tenant, state, waits)

    def held_by(self, tenant: str) -> int:
        state = self._tenants.get(tenant)
        return sum(state.held) if state is not None else 0

    def may_take(self, tenant: str, rank: int) -> bool:
        """Whether this tenant may take one more slot now."""
        state = self._tenants.get(tenant)
        held = state.held if state is not None else [0, 0, 0]
        return needed(held, rank, reserve=self._reserve) <= self.free

    # --- turns -------------------------------------------------------------------------------

    def add(self, tenant: str, item: T, rank: int = TRUSTED) -> None:
        """Add an item at the end of its rank; if it is there already, it keeps its place."""
        at = self._at.get(item)
        if at is not None:
            assert at[0] == tenant, "an item has one tenant"
            if at[1] == rank:
                return
            self.discard(item)
        self._at[item] = tenant, rank
        state = self._tenant(tenant)
        state.waiting[rank][item] = None
        if state.parked[rank] is None:
            self._ring.setdefault(tenant, None)

    def discard(self, item: T) -> None:
        """Remove an item, if it is there."""
        at = self._at.pop(item, None)
        if at is None:
            return
        tenant, rank = at
        state = self._tenants[tenant]
        waiting = state.waiting[rank]
        del waiting[item]
        if not waiting:
            if state.parked[rank] is not None:
                self._leave_parked(tenant, state, rank)
            if not any(state.waiting):
                self._ring.pop(tenant, None)

    def next(self) -> T | None:
        """The item whose turn it is; None if no waiting item may take a slot."""
        free = self.slots - self.held
        if self._needs:
            self._unpark_one(free)  # One a turn, so that a turn costs the same however many wait.
        while self._ring or self._unpark_one(free):
            tenant = next(iter(self._ring))
            item = self._pick(tenant, free)
            if item is not None:
                self._ring.move_to_end(tenant)
                return item
            del self._ring[tenant]
        return None

    def rank_of(self, item: T) -> int:
        """The rank in which an item waits."""
        return self._at[item][1]

    def at_once(self, tenant: str, rank: int) -> bool:
        """Whether an item that joins now would get one of the free slots: few of its rank wait."""
        state = self._tenants.get(tenant)
        waiting = len(state.waiting[rank]) if state is not None else 0
        return not waiting or (waiting < self.free and self.may_take(tenant, rank))

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, item: object) -> bool:
        return item in self._at

    # --- within ------------------------------------------------------------------------------

    def _tenant(self, tenant: str) -> _Tenant[T]:
        state = self._tenants.get(tenant)
        if state is None:
            if len(self._tenants) >= self._idle_max:
                self._tenants = {name: it for name, it in self._tenants.items() if not it.idle}
                self._idle_max = max(IDLE_MAX, 2 * len(self._tenants))
            state = self._tenants[tenant] = _Tenant()
        return state

    def _pick(self, tenant: str, free: int) -> T | None:
        """The next item of a tenant: its ranks take turns; one that may take no slot is parked."""
        state = self._tenants[tenant]
        for rank in _TURNS_AFTER[state.last]:
            waiting = state.waiting[rank]
            if not waiting or state.parked[rank] is not None:
                continue
            need = needed(state.held, rank, reserve=self._reserve)
            if need <= free:
                item = next(iter(waiting))
                waiting.move_to_end(item)
                state.last = rank
                return item
            self._park(tenant, state, rank, need)
        return None

    def _park(self, tenant: str, state: _Tenant[T], rank: int, need: int) -> None:
        state.parked[rank] = need
        there = self._parked.get(need)
        if there is None:
            there = self._parked[need] = OrderedDict()
            heapq.heappush(self._needs, need)
        there[tenant, rank] = None

    def _leave_parked(self, tenant: str, state: _Tenant[T], rank: int) -> None:
        need, state.parked[rank] = state.parked[rank], None
        assert need is not None
        del self._parked[need][tenant, rank]

    def _unpark(self, tenant: str, state: _Tenant[T], rank: int) -> None:
        self._leave_parked(tenant, state, rank)
        self._ring.setdefault(tenant, None)

    def _unpark_one(self, free: int) -> bool:
        """Let the first parked rank for which enough slots are free take turns again."""
        while self._needs and self._needs[0] <= free:
            there = self._parked[self._needs[0]]
            if there:
                tenant, rank = next(iter(there))
                self._unpark(tenant, self._tenants[tenant], rank)
                return True
            del self._parked[heapq.heappop(self._needs)]
        return False
