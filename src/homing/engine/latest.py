"""The newest event of a key: before an attempt, an older delivery is replaced by the newest one.

In a fleet only the store knows whether a newer event was accepted. Deliveries of subscriptions with
the order ``latest`` that are about to be sent take their slots. Then one call of the store at a
time looks up many of them together, and finishes those that are superseded.

An embedded process accepts every event itself. For many keys it remembers the last delivery that it
has published, and sends this delivery without asking the store.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

import structlog
from msgspec import Struct

from homing.engine.core import Core
from homing.engine.load import AGAIN_MS
from homing.engine.queue import EndpointQueue
from homing.errors import HomingError, LostLeases
from homing.model import Delivery, Lane, Subscription, Work

log = structlog.get_logger("homing.latest")

AT_ONCE_MAX = 256  # deliveries in one call
REMEMBERED_MAX = 10_000  # keys; for the others the store is asked


class Starting(Struct, frozen=True, gc=False):
    """An attempt that has its slot and is about to be sent."""

    queue: EndpointQueue
    work: Work
    lane: Lane
    subscription: Subscription
    rank: int
    canary: bool = False  # started although a sender outage is confirmed


class NewestFirst:
    """Asks the store for newer deliveries; the functions are the dispatcher's."""

    def __init__(
        self,
        core: Core,
        *,
        send: Callable[[Starting, Work], None],
        give_back: Callable[[Starting], None],
        ask_again: Callable[[Starting, int], None],
    ) -> None:
        self._flow, self._clock, self._ownership = core.flow, core.clock, core.ownership
        self._send, self._give_back, self._ask_again = send, give_back, ask_again
        self._waiting: list[Starting] = []
        self._newest: OrderedDict[tuple[int, str], int] = OrderedDict()  # by subscription and key
        self._task: asyncio.Task[None] | None = None
        self.superseded = 0  # deliveries, since the start of the process

    def accepted(self, delivery: Delivery) -> None:
        """Remember this delivery as the newest of its key."""
        if self._ownership.fenced:
            return  # Another process may accept a newer event.
        if len(self._newest) >= REMEMBERED_MAX:
            self._newest.popitem(last=False)
        self._newest[delivery.subscription_id, delivery.order_key] = delivery.id

    def blocked(self, delivery: Delivery) -> None:
        """Note that this delivery waits for an older one of its key."""
        self._newest.pop((delivery.subscription_id, delivery.order_key), None)

    def forget(self) -> None:
        """Forget all keys: the store may have newer deliveries that this process does not know."""
        self._newest.clear()

    def is_newest(self, delivery: Delivery) -> bool:
        """Whether this delivery, about to be sent, is known to be the newest of its key."""
        key = delivery.subscription_id, delivery.order_key
        return self._newest.pop(key, 0) == delivery.id

    def add(self, starting: Starting) -> None:
        self._waiting.append(starting)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:AT_ONCE_MAX], self._waiting[AT_ONCE_MAX:]
                await self._ask(batch)
        finally:
            self._task = None

    async def _ask(self, batch: list[Starting]) -> None:
        deliveries = [it.work.delivery for it in batch]
        fences = self._ownership.fences(it.bucket for it in deliveries)
        try:
            found = await self._flow.newest(deliveries, now=self._clock.now(), fences=fences)
        except Exception as error:
            if not isinstance(error, LostLeases):
                log.warning(
                    "newer events could not be read; the deliveries are tried again",
                    error=str(error),
                    exc_info=not isinstance(error, HomingError),
                )
                await asyncio.sleep(AGAIN_MS / 1000)
            for it in batch:
                self._give_back(it)
            return
        for it in batch:
            work = found.get(it.work.delivery.id, it.work)
            if isinstance(work, int):
                self._ask_again(it, work)
            else:
                self.superseded += work is not it.work
                self._send(it, work)
