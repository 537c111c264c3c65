"""What tenants share and wait for: places and memory (``Shared``), and time of the loop (``Work``).

How much a tenant may hold is the rule of ``policy.share``. A request that may not have its part yet
waits; waiting tenants take turns, and within a tenant requests keep their order.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from homing.policy.share import Share

WORK_NS = 500_000_000  # in each second, for all tenants together; one alone may use two fifths
WORK_RESERVE_NS = 100_000_000
WORK_WINDOW_S = 1.0

_Waiter = tuple[int, asyncio.Future[None]]


def _always(_tenant: str) -> bool:
    return True


class Shared:
    """A share that requests wait for."""

    def __init__(self, share: Share, *, also: Callable[[str], bool] = _always) -> None:
        """``also``: a condition of its own, by tenant; ``look`` after it has changed."""
        self.share, self._also = share, also
        # OrderedDict, for its O(1) move to the end: a plain dict scans its deleted entries.
        self._waiting: OrderedDict[str, deque[_Waiter]] = OrderedDict()

    def waiting(self, tenant: str) -> int:
        """How many requests of a tenant wait."""
        return len(self._waiting.get(tenant, ()))

    async def take(self, tenant: str, amount: int = 1) -> None:
        """Take so much, at once if the tenant may and none of its requests waits."""
        if tenant not in self._waiting and self._may(tenant, amount):
            self.share.take(tenant, amount)
            return
        waiter = amount, asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(waiter)
        try:
            await waiter[1]
        except asyncio.CancelledError:
            if waiter[1].done() and not waiter[1].cancelled():  # It was given its part before.
                self.give(tenant, amount)
            else:
                self._leave(tenant, waiter)
                self.look()  # The next one of this tenant may need less.
            raise

    def give(self, tenant: str, amount: int = 1) -> None:
        """Return so much, to those that wait."""
        self.share.give(tenant, amount)
        self.look()

    @asynccontextmanager
    async def hold(self, tenant: str, amount: int = 1) -> AsyncIterator[None]:
        """Hold so much for the length of a step."""
        await self.take(tenant, amount)
        try:
            yield
        finally:
            self.give(tenant, amount)

    def look(self) -> None:
        """Give their parts to all requests that may have them now; tenants take turns."""
        skipped = 0
        while self._waiting and self.share.free > 0 and skipped < len(self._waiting):
            tenant, waiters = next(iter(self._waiting.items()))
            self._waiting.move_to_end(tenant)
            amount, future = waiters[0]
            if not self._may(tenant, amount):
                skipped += 1
                continue
            skipped = 0
            self._leave(tenant, waiters[0])
            if not future.done():
                self.share.take(tenant, amount)
                future.set_result(None)

    def _may(self, tenant: str, amount: int) -> bool:
        return self.share.may_take(tenant, amount) and self._also(tenant)

    def _leave(self, tenant: str, waiter: _Waiter) -> None:
        waiters = self._waiting.get(tenant)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[tenant]


class Work:
    """Time of the event loop that the input of tenants costs: each has its share of every second.

    Such work is done in pieces, one in a turn of the loop. The limits of what a tenant may give
    bound a piece; this bounds how many there are.
    """

    def __init__(self, cpu_ns: Callable[[], int]) -> None:
        """``cpu_ns``: how much CPU this thread has used."""
        self._cpu_ns = cpu_ns
        self._spent = Share(WORK_NS, reserve=WORK_RESERVE_NS)
        self._pieces = Shared(Share(1), also=self._spent.may_take)

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """The tenant's turn to do a piece of work, which must not wait for anything."""
        async with self._pieces.hold(tenant):
            await asyncio.sleep(0)  # The loop has a turn between two pieces.
            with self._measured(tenant):
                yield

    @contextmanager
    def _measured(self, tenant: str) -> Iterator[None]:
        began = self._cpu_ns()
        try:
            yield
        finally:
            if spent := self._cpu_ns() - began:
                self._spent.take(tenant, spent)
                loop = asyncio.get_running_loop()
                loop.call_later(WORK_WINDOW_S, self._return, tenant, spent)

    def _return(self, tenant: str, spent: int) -> None:
        self._spent.give(tenant, spent)
        self._pieces.look()
