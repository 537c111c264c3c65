"""Exports: whole lists in bounded pages, one export of a tenant at a time.

An open export costs a page of memory. Work is the reading of pages: a few are read at a time, and
tenants take turns, so that no number of exports of others keeps a tenant waiting for their end.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from homing.app.access import READERS, Caller, use_case
from homing.app.deliveries import Deliveries
from homing.app.endpoints import EndpointListed, Endpoints
from homing.app.events import Events
from homing.app.subscriptions import Subscriptions
from homing.engine.shared import Shared
from homing.errors import TooMany
from homing.languages.sentences import say
from homing.model import State, Subscription
from homing.policy.share import Share
from homing.ports import DeliveryFilter, DeliveryRow, EventRow

ROWS_MAX = 100_000  # of one export
PAGE_ROWS = 500
PAGES_MAX = 2_000  # of one export: a page of a search may have few rows, or none
AT_ONCE = 4  # pages that are read in this process
OPEN_MAX = 100  # exports in this process, of as many tenants
LIFE_MS = 10 * 60_000  # An export that was never read to its end does not block others for long.
AGAIN_MS = 5_000

T = TypeVar("T")
Page = tuple[list[T], int | None]  # rows, and the ``before_id`` of the next page


class OpenExports:
    """The exports that are open, of one kind."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._open: dict[str | None, int] = {}  # tenant → since
        self._reading = Shared(Share(AT_ONCE, weight=AT_ONCE))

    async def begin(
        self,
        tenant: str | None,
        page: Callable[[int | None], Awaitable[Page[T]]],
    ) -> AsyncIterator[list[T]]:
        """Pages of at most ``ROWS_MAX`` rows, when the first has been read; raises TooMany."""
        now = self._now()
        others = [it for it, since in self._open.items() if now - since < LIFE_MS]
        if tenant in others or len(others) >= OPEN_MAX:
            raise TooMany(say("Another export is running."), after_ms=AGAIN_MS)
        pages = self._pages(tenant, page, now)
        return _with_first(await anext(pages), pages)  # Once begun, its ``finally`` runs, too.

    async def _pages(
        self,
        tenant: str | None,
        page: Callable[[int | None], Awaitable[Page[T]]],
        now: int,
    ) -> AsyncGenerator[list[T]]:
        self._open[tenant] = now
        try:
            count, before_id = 0, None
            for _ in range(PAGES_MAX):
                async with self._reading.hold(tenant or ""):
                    rows, before_id = await page(before_id)
                count += len(rows)
                yield rows
                if before_id is None or count >= ROWS_MAX:
                    return
        finally:
            if self._open.get(tenant) == now:
                del self._open[tenant]


class Exports:
    """Reads whole lists of what a caller may see, newest first."""

    def __init__(
        self,
        *,
        deliveries: Deliveries,
        endpoints: Endpoints,
        events: Events,
        subscriptions: Subscriptions,
        now: Callable[[], int],
    ) -> None:
        self._deliveries, self._endpoints = deliveries, endpoints
        self._events, self._subscriptions = events, subscriptions
        self._open = OpenExports(now)

    @use_case(READERS)
    async def deliveries(
        self, caller: Caller, conditions: DeliveryFilter
    ) -> AsyncIterator[list[DeliveryRow]]:
        """Deliveries that match; raises TooMany."""

        async def page(before_id: int | None) -> Page[DeliveryRow]:
            return await self._deliveries.page(
                caller, conditions, before_id=before_id, limit=PAGE_ROWS
            )

        return await self._begun(caller, page)

    @use_case(READERS)
    async def endpoints(
        self, caller: Caller, *, tenant: str | None, state: State | None, text: str
    ) -> AsyncIterator[list[EndpointListed]]:
        """Endpoints whose URL contains this text, of one state if it is given; raises TooMany."""

        async def page(before_id: int | None) -> Page[EndpointListed]:
            rows, after = await self._endpoints.page(
                caller, tenant=tenant, state=state, before_id=before_id, limit=PAGE_ROWS
            )
            return [it for it in rows if text.lower() in it.endpoint.url.lower()], after

        return await self._begun(caller, page)

    @use_case(READERS)
    async def events(
        self, caller: Caller, *, tenant: str | None, event_type: str | None
    ) -> AsyncIterator[list[EventRow]]:
        """Events without their data, of one type if it is given; raises TooMany."""

        async def page(before_id: int | None) -> Page[EventRow]:
            return await self._events.page(
                caller, tenant=tenant, event_type=event_type, before_id=before_id, limit=PAGE_ROWS
            )

        return await self._begun(caller, page)

    @use_case(READERS)
    async def subscriptions(
        self, caller: Caller, *, tenant: str | None
    ) -> AsyncIterator[list[Subscription]]:
        """Subscriptions; raises TooMany."""

        async def page(before_id: int | None) -> Page[Subscription]:
            return await self._subscriptions.page(
                caller, tenant=tenant, before_id=before_id, limit=PAGE_ROWS
            )

        return await self._begun(caller, page)

    async def _begun(
        self, caller: Caller, page: Callable[[int | None], Awaitable[Page[T]]]
    ) -> AsyncIterator[list[T]]:
        return await self._open.begin(caller.tenant, page)


async def _with_first(first: list[T], rest: AsyncGenerator[list[T]]) -> AsyncIterator[list[T]]:
    async with aclosing(rest):
        yield first
        async for page in rest:
            yield page
