"""The outcomes that wait to be written: tenants take turns, and no commit is large.

While only one tenant has outcomes, they are written in the order of their arrival. While several
tenants have outcomes, each commit takes a few of each tenant in turn, and failed attempts, which
cost most, are rationed: a failed attempt holds its slot until it is written, so a tenant whose URLs
all refuse makes no more attempts than its ration. The outcomes of one endpoint always stay in
order, because health counts them in the order in which they finished.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

from homing.engine.attempt import CompletedAttempt
from homing.engine.decide import Item, Report
from homing.model import Lane, Outcome

COMMIT_COST_MAX = 1_000  # of the outcomes in one commit: a publish never waits for more
TURN_ROWS = 16  # of one tenant, before another has its turn
SHARED_MS = 10_000  # after an outcome of another tenant the store counts as shared for this long
SUCCESS_COST = 1  # of a successful attempt: its row moves to history
FAILURE_COST = 4  # of a failed attempt: it is decided, logged and scheduled again
TENANT_RATION = 32  # cost of one tenant in one commit, while the store is shared
COMMIT_RATION = 256  # cost of all tenants in one commit, while the store is shared
_ENDLESS = 1 << 40
_DELIVERED, _PROBE = Outcome.DELIVERED, Lane.PROBE  # Python 3.11 looks up an enum slowly.


class _Tenant:
    """The outcomes of one tenant: those that may go at once, and those that are rationed.

    Each has its number in the order of arrival.
    """

    __slots__ = ("costly", "light")

    def __init__(self) -> None:
        self.light: deque[tuple[int, Item]] = deque()
        self.costly: deque[tuple[int, Item]] = deque()

    def next(self) -> deque[tuple[int, Item]]:
        """Return the part whose first outcome came first."""
        if not self.costly or (self.light and self.light[0][0] < self.costly[0][0]):
            return self.light
        return self.costly


class SettleQueue:
    """Outcomes by tenant, in turns."""

    def __init__(self) -> None:
        self._new: list[Item] = []  # in the order of arrival
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()  # the next tenant is first
        self._behind: Counter[int] = Counter()  # endpoint → its outcomes among the costly ones
        self._sorted = self._number = 0  # outcomes in ``_tenants``: now, and ever
        self._last_tenant = ""
        self._shared_until = 0
        self.light = 0  # waiting successes, approximately (``_is_light``)

    def __len__(self) -> int:
        return len(self._new) + self._sorted

    def add(self, item: Item, now: int) -> None:
        """Append an outcome; if its tenant is not the last one's, the store counts as shared."""
        self._new.append(item)
        if isinstance(item, CompletedAttempt):
            tenant = item.work.delivery.tenant
            self.light += _is_light(item)
        elif isinstance(item, Report):
            return
        else:
            tenant = item.delivery.tenant
        if tenant != self._last_tenant:
            if self._last_tenant:
                self._shared_until = now + SHARED_MS
            self._last_tenant = tenant

    def shared(self, now: int) -> bool:
        """Return whether outcomes of several tenants have arrived recently."""
        return now < self._shared_until

    def take(self, now: int, *, rationed: bool = True) -> list[Item]:
        """Take the outcomes of the next commit off the queue."""
        rationed = rationed and self.shared(now)
        if not rationed and not self._sorted:
            if self.light == len(self._new) <= COMMIT_COST_MAX:
                taken, self._new, self.light = self._new, [], 0
                return taken
            count = _fitting(self._new)
            taken, self._new = self._new[:count], self._new[count:]
            self.light = sum(map(_is_light, self._new))
            return taken
        self._sort()
        taken = self._in_turns(COMMIT_RATION if rationed else _ENDLESS)
        self._sorted -= len(taken)
        self.light = sum(len(tenant.light) for tenant in self._tenants.values())
        return taken

    def _sort(self) -> None:
        new, self._new = self._new, []
        for item in new:
            name = _tenant_of(item)
            tenant = self._tenants.get(name)
            if tenant is None:
                tenant = self._tenants[name] = _Tenant()
            self._number += 1
            if _cost(item) or item.endpoint_id in self._behind:
                tenant.costly.append((self._number, item))
                self._behind[item.endpoint_id] += 1
            else:
                tenant.light.append((self._number, item))
        self._sorted += len(new)

    def _in_turns(self, ration: int) -> list[Item]:
        """Take some of each tenant in turn, until the commit is full or the ration is used up."""
        taken: list[Item] = []
        room = COMMIT_COST_MAX
        turns = deque((*it, min(TENANT_RATION, ration)) for it in self._tenants.items())
        if ration == _ENDLESS:
            turns = deque((*it, ration) for it in self._tenants.items())
        while turns and room > 0:
            name, tenant, own = turns.popleft()
            limit = min(TURN_ROWS, room)
            costly = len(tenant.costly)
            some, cost = self._turn(tenant, limit, min(own, ration))
            taken += some
            ration -= cost
            room -= cost + len(some) * SUCCESS_COST
            # If other tenants have used up the ration, this one keeps its place for the next.
            cut_short = tenant.costly and len(tenant.costly) == costly
            if some and not cut_short:
                self._tenants.move_to_end(name)
            if not tenant.light and not tenant.costly:
                del self._tenants[name]
            elif some:
                turns.append((name, tenant, own - cost))
        return taken

    def _turn(self, tenant: _Tenant, limit: int, ration: int) -> tuple[list[Item], int]:
        """Take up to ``limit`` outcomes of one tenant, in order; return them and their cost."""
        some: list[Item] = []
        spent = 0
        while len(some) < limit:
            part = tenant.next()
            if part is tenant.costly and spent + _cost(part[0][1]) > ration:
                part = tenant.light
            if not part:
                break
            item = part.popleft()[1]
            some.append(item)
            if part is tenant.costly:
                spent += _cost(item)
                self._behind[item.endpoint_id] -= 1
                if not self._behind[item.endpoint_id]:
                    del self._behind[item.endpoint_id]
        return some, spent


def _is_light(item: Item) -> bool:
    """Return whether an outcome is a success on which nothing depends, so not a probe's."""
    return type(item) is CompletedAttempt and item.outcome is _DELIVERED and item.lane is not _PROBE


def _fitting(items: list[Item]) -> int:
    """Return how many outcomes, from the first on, fit into one commit: one or more."""
    if len(items) * FAILURE_COST <= COMMIT_COST_MAX:
        return len(items)
    room = COMMIT_COST_MAX
    for count, item in enumerate(items[:COMMIT_COST_MAX]):
        success = type(item) is CompletedAttempt and item.outcome is _DELIVERED
        room -= SUCCESS_COST if success else _cost(item) or SUCCESS_COST
        if room < 0:
            return count
    return min(len(items), COMMIT_COST_MAX)


def _tenant_of(item: Item) -> str:
    match item:
        case CompletedAttempt():
            return item.work.delivery.tenant
        case Report():
            return ""
        case _:
            return item.delivery.tenant


def _cost(item: Item) -> int:
    match item:
        case CompletedAttempt():
            return 0 if item.outcome is _DELIVERED else FAILURE_COST
        case Report():
            return 0
        case _:
            return 1
