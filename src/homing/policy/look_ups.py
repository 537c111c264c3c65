"""Fair DNS look-ups: which name is looked up next, and for which tenant.

A look-up occupies a thread until the system's resolver returns, and it cannot be interrupted. So a
tenant may occupy a quarter of the threads that are still free, and a fifth of all threads is
reserved for tenants that occupy none: one tenant with dead names leaves most of the threads free,
and after many such tenants the next one still finds a thread. Waiting tenants take turns, and
within a tenant the names keep their order.

A name is looked up once, however many requests wait for it. It waits in the queue of each tenant
that asked for it, and starts when the first of them has its turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


SHARE_OF_FREE = 4  # A tenant may hold one of every four that are free.
RESERVE_OF_ALL = 5  # One in five is reserved for tenants that hold none.


def has_share(held: int, *, free: int, reserve: int) -> bool:
    """Whether a tenant that holds this many may take one more."""
    return free > 0 if held == 0 else SHARE_OF_FREE * held < free - reserve


class LookUpQueue(Generic[K]):
    """Names that wait for a thread, and how many threads each tenant holds."""

    def __init__(self, threads_max: int) -> None:
        self.free = threads_max
        self._reserve = threads_max // RESERVE_OF_ALL
        self.held: dict[str, int] = {}
        # OrderedDict, for its O(1) move to the end: a plain dict scans its deleted entries.
        self._waiting: OrderedDict[str, OrderedDict[K, None]] = OrderedDict()
        self._askers: dict[K, dict[str, int]] = {}  # of a name in the queue: requests by tenant

    def __len__(self) -> int:
        return len(self._askers)

    def join(self, tenant: str, name: K) -> None:
        """Add a request of this tenant that waits for the name."""
        askers = self._askers.setdefault(name, {})
        askers[tenant] = askers.get(tenant, 0) + 1
        self._waiting.setdefault(tenant, OrderedDict()).setdefault(name, None)

    def leave(self, tenant: str, name: K) -> bool:
        """Remove a request of this tenant; True if no request waits for the name any more."""
        askers = self._askers[name]
        askers[tenant] -= 1
        if askers[tenant] == 0:
            del askers[tenant]
            self._forget(tenant, name)
        if not askers:
            del self._askers[name]
        return not askers

    def start(self) -> tuple[str, K] | None:
        """The next name, and the tenant that now holds a thread for it; None: none may start.

        Only tenants that hold a thread are skipped, at most as many as there are threads.
        """
        if self.free == 0:
            return None
        for tenant in self._waiting:
            held = self.held.get(tenant, 0)
            if has_share(held, free=self.free, reserve=self._reserve):
                break
        else:
            return None
        name = next(iter(self._waiting[tenant]))
        self._waiting.move_to_end(tenant)
        for asker in self._askers.pop(name):
            self._forget(asker, name)
        self.free -= 1
        self.held[tenant] = held + 1
        return tenant, name

    def end(self, tenant: str) -> None:
        """Release a thread of this tenant."""
        self.free += 1
        self.held[tenant] -= 1
        if self.held[tenant] == 0:
            del self.held[tenant]

    def _forget(self, tenant: str, name: K) -> None:
        names = self._waiting[tenant]
        del names[name]
        if not names:
            del self._waiting[tenant]


class _Kept(Struct, Generic[V], frozen=True):
    owner: str
    value: V
    until: float
    forget_at: float


class FairCache(Generic[K, V]):
    """A bounded cache in which each owner may hold a share of the free entries.

    An owner that has used up its share replaces its own oldest entry, never another's.
    """

    def __init__(self, entries_max: int, *, keep_s_max: float) -> None:
        self._entries_max, self._keep_s_max = entries_max, keep_s_max
        self._entries: OrderedDict[K, _Kept[V]] = OrderedDict()  # oldest first
        self._owned: dict[str, OrderedDict[K, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def owned(self, owner: str) -> int:
        return len(self._owned.get(owner, ()))

    def get(self, key: K, now: float) -> V | None:
        """The cached value, if it has not expired."""
        kept = self._entries.get(key)
        return kept.value if kept is not None and now < kept.until else None

    def put(self, owner: str, key: K, value: V, *, now: float, keep_s: float) -> None:
        """Cache a value for ``keep_s`` at most."""
        self.forget(key)
        while self._entries:
            oldest, kept = next(iter(self._entries.items()))
            if now < kept.forget_at:
                break
            self.forget(oldest)
        free = self._entries_max - len(self._entries)
        mine = self._owned.get(owner)
        reserve = self._entries_max // RESERVE_OF_ALL
        if not has_share(len(mine or ()), free=free, reserve=reserve):
            if mine is None:
                return
            self.forget(next(iter(mine)))
        until = now + min(keep_s, self._keep_s_max)
        self._entries[key] = _Kept(owner, value, until, now + self._keep_s_max)
        self._owned.setdefault(owner, OrderedDict())[key] = None

    def forget(self, key: K) -> None:
        kept = self._entries.pop(key, None)
        if kept is not None:
            mine = self._owned[kept.owner]
            del mine[key]
            if not mine:
                del self._owned[kept.owner]
