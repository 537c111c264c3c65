"""Fair DNS look-ups: which name is looked up next, and for which tenant.

A look-up occupies a thread until the system's resolver returns, and it cannot be interrupted. So a
tenant has a small share of the threads (``policy.share``): a quarter of those that are still free,
and a fifth of all is reserved for tenants that occupy none. One tenant with dead names leaves most
of the threads free, and after many such tenants the next one still finds a thread. Waiting tenants
take turns, and within a tenant the names keep their order.

A name is looked up once, however many requests wait for it. It waits in the queue of each tenant
that asked for it, and starts when the first of them has its turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct

from homing.policy.share import Share

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


SHARE_OF_FREE = 1 / 4  # that a tenant may hold
RESERVE_OF_ALL = 5  # One in five is reserved for tenants that hold none.


def _share(total: int) -> Share:
    return Share(total, weight=SHARE_OF_FREE, reserve=total // RESERVE_OF_ALL)


class LookUpQueue(Generic[K]):
    """Names that wait for a thread, and how many threads each tenant holds."""

    def __init__(self, threads_max: int) -> None:
        self.threads = _share(threads_max)
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
        if self.threads.free == 0:
            return None
        for tenant in self._waiting:
            if self.threads.may_take(tenant):
                break
        else:
            return None
        name = next(iter(self._waiting[tenant]))
        self._waiting.move_to_end(tenant)
        for asker in self._askers.pop(name):
            self._forget(asker, name)
        self.threads.take(tenant)
        return tenant, name

    def end(self, tenant: str) -> None:
        """Release a thread of this tenant."""
        self.threads.give(tenant)

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
        self._share, self._keep_s_max = _share(entries_max), keep_s_max
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
        if not self._share.may_take(owner):
            mine = self._owned.get(owner)
            if mine is None:
                return
            self.forget(next(iter(mine)))
        self._share.take(owner)
        until = now + min(keep_s, self._keep_s_max)
        self._entries[key] = _Kept(owner, value, until, now + self._keep_s_max)
        self._owned.setdefault(owner, OrderedDict())[key] = None

    def forget(self, key: K) -> None:
        kept = self._entries.pop(key, None)
        if kept is not None:
            self._share.give(kept.owner)
            mine = self._owned[kept.owner]
            del mine[key]
            if not mine:
                del self._owned[kept.owner]
