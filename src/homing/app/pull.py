"""Subscriptions without a URL: read their events, acknowledge them, list and remove readers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any
from weakref import finalize

from msgspec import Struct

from homing.app.access import MANAGERS, READERS, Caller, use_case
from homing.app.counted_calls import CountedCalls
from homing.engine.engine import Engine
from homing.engine.shared import Shared
from homing.errors import (
    BehindRetention,
    Conflict,
    FieldProblem,
    Gone,
    Invalid,
    NotAuthorized,
    NotFound,
    TooMany,
)
from homing.languages.sentences import say
from homing.model import Event, Subscription, id_floor, show_id
from homing.policy.pull import CURSOR_RULE, Cursors, reader_problem
from homing.policy.share import Share
from homing.ports import ViewStore
from homing.ports.pull import PAGE_BYTES_MAX, PullEntry, PullPage, PullReader, PullStore

WAIT_MS_MAX = 60_000  # that one read waits for an event
WAITING_MAX = 1_000  # reads that wait at a time, which tenants share
WAITING_RESERVE = 10  # one of so many is for tenants of which none waits
WAITING_OF_TENANT_MAX = 250  # of one tenant
WAITING_OF_KEY_MAX = 64  # and of one key
STREAM_WAIT_MS = 15_000  # after which a quiet stream gets a line, so that nobody closes it
LIMIT_MAX = 1_000
EVENT_MEMORY = 1024  # for all of an event but its data
MEMORY_MAX = 64 * 1024 * 1024  # of pages that were read and are not sent yet, of all tenants,
MEMORY_RESERVE = 8 * 1024 * 1024  # a part of it for tenants that have none
MEMORY_WAIT_S = 10.0  # for the share of a tenant whose readers do not take what they asked for
# A single event of the largest size is a page, too.
PAGE_MEMORY_MAX = 2 * PAGE_BYTES_MAX + LIMIT_MAX * EVENT_MEMORY

_UNREAD = (
    "Pages of events that their readers have not taken yet fill the memory of this tenant: read "
    "them to the end or close their connections, then try again."
)


def _memory_of(entry: PullEntry) -> int:
    """What an event takes that was read: its data twice, for it is written once more."""
    return 2 * len(entry.event.data) + EVENT_MEMORY


class PulledEvent(Struct, frozen=True, gc=False):
    """An event, and the cursor to acknowledge it with."""

    cursor: str
    event: Event


class Pulled(Struct, frozen=True, weakref=True):
    """The next events of a subscription.

    While anything refers to them, they count for the memory of the tenant: drop a page that is sent
    before the next one is read.
    """

    events: list[PulledEvent]
    cursor: str  # to go on after
    lag: int  # events after the cursor; erased ones may be among them


class ReaderShown(Struct, frozen=True):
    """A reader, and how many events it has not acknowledged."""

    name: str
    cursor: str
    lag: int
    created_at: int
    acked_at: int | None


class PullParts(Struct, frozen=True):
    """The parts that the use cases need to read streams."""

    store: PullStore
    views: PullStore  # the same streams, for reads that must not delay a commit
    cursors: Cursors


class Pull:
    """The events of subscriptions without a URL."""

    def __init__(
        self,
        engine: Engine,
        views: ViewStore,
        parts: PullParts,
        counted: CountedCalls,
        *,
        now: Callable[[], int],
    ) -> None:
        self._engine, self._views, self._now, self._counted = engine, views, now, counted
        self._store, self._reads, self._cursors = parts.store, parts.views, parts.cursors
        self._waiting = Share(WAITING_MAX, reserve=WAITING_MAX // WAITING_RESERVE)
        self._waiting_of_key: Counter[tuple[str, int | None]] = Counter()
        self._memory = Shared(Share(MEMORY_MAX, reserve=MEMORY_RESERVE))

    @use_case(READERS)
    async def read(
        self,
        caller: Caller,
        subscription_id: int,
        *,
        reader: str,
        after: str | None = None,
        from_now: bool = False,
        limit: int,
        wait_ms: int = 0,
    ) -> Pulled:
        """The events after the cursor, or after those that the reader has acknowledged.

        If there is none, the read waits for one for up to ``wait_ms``. A new reader begins with the
        oldest event, or, with ``from_now``, with the next one. Raises Gone if events after the
        cursor are past retention, Invalid, NotFound, Conflict, or TooMany.
        """
        subscription = await self._found(caller, subscription_id)
        place = self._place(subscription, reader, after)
        if from_now and after is None:
            caller.must_be(MANAGERS)
            now = self._now()
            made = await self._store.begin_reader(subscription.id, reader, now=now)
            if made.created_at == now:
                self._count(caller, Pull.read, subscription, reader)
        page, head = await self._page(subscription, reader, place, limit)
        if not page.events and not page.lag and wait_ms > 0:
            with self._place_to_wait(caller):
                await self._engine.pulls.wait(
                    subscription.id, head=head, timeout_s=min(wait_ms, WAIT_MS_MAX) / 1000
                )
            await self._found(caller, subscription_id)  # It may have been deleted meanwhile.
            page, _ = await self._page(subscription, reader, head, limit)
        return page

    @use_case(READERS)
    async def stream(
        self,
        caller: Caller,
        subscription_id: int,
        *,
        reader: str,
        after: str | None = None,
        from_now: bool = False,
        limit: int,
    ) -> AsyncGenerator[Pulled, None]:
        """Pages of events for as long as the caller reads; an empty page after a quiet time."""
        first = await self.read(
            caller, subscription_id, reader=reader, after=after, from_now=from_now, limit=limit
        )
        return self._pages(caller, subscription_id, reader, first, limit)

    async def _pages(
        self, caller: Caller, subscription_id: int, reader: str, page: Pulled, limit: int
    ) -> AsyncGenerator[Pulled, None]:
        while True:
            cursor = page.cursor
            yield page
            del page
            try:
                page = await self.read(
                    caller,
                    subscription_id,
                    reader=reader,
                    after=cursor,
                    limit=limit,
                    wait_ms=STREAM_WAIT_MS,
                )
            except (NotFound, Conflict, Gone, NotAuthorized, TooMany):
                return  # The next request gets the reason.

    @use_case(MANAGERS, reads=False)
    async def ack(
        self, caller: Caller, subscription_id: int, *, reader: str, cursor: str
    ) -> ReaderShown:
        """Acknowledges all events up to the cursor; the reader never moves backward.

        Raises Invalid for a cursor of another subscription, NotFound, or Conflict.
        """
        subscription = await self._found(caller, subscription_id)
        place = self._place(subscription, reader, cursor, field="cursor")
        assert place is not None
        found = await self._store.ack(subscription.id, reader, position=place, now=self._now())
        self._count(caller, Pull.ack, subscription, reader)
        heads = await self._reads.heads([subscription.id])
        return self._reader(subscription, found, heads.get(subscription.id, found.position))

    @use_case(READERS)
    async def readers(self, caller: Caller, subscription_id: int) -> list[ReaderShown]:
        """The readers of a subscription by name; raises NotFound or Conflict."""
        subscription = await self._found(caller, subscription_id)
        found, head = await self._reads.readers(subscription.id)
        return [self._reader(subscription, it, head) for it in found]

    @use_case(MANAGERS, changes=True)
    async def remove_reader(self, caller: Caller, subscription_id: int, reader: str) -> None:
        """Removes a reader; the same name later begins with the oldest event. Raises NotFound."""
        subscription = await self._found(caller, subscription_id)
        await self._store.remove_reader(subscription.id, reader)

    def _count(
        self, caller: Caller, use_case: Callable[..., Any], subscription: Subscription, reader: str
    ) -> None:
        """Count a change of a reader: programs make it so often that an entry each is too many."""
        object_id = show_id("sub", subscription.id)
        self._counted.changed(
            caller, use_case, tenant=subscription.tenant, object_id=object_id, detail=reader
        )

    async def _found(self, caller: Caller, subscription_id: int) -> Subscription:
        found = await self._views.subscription(subscription_id)
        if found is None or found.deleted_at is not None or not caller.sees(found.tenant):
            raise NotFound(say("There is no such subscription."))
        if found.url:
            raise Conflict(
                say(
                    "The events of this subscription are sent to its URL: "
                    "only those of a subscription without a URL can be read."
                )
            )
        return found

    def _place(
        self, subscription: Subscription, reader: str, cursor: str | None, *, field: str = "after"
    ) -> int | None:
        """The position of a cursor; raises Invalid if it, or the reader's name, is not valid."""
        problems = reader_problem(reader)
        place = None
        if cursor is not None:
            place = self._cursors.read(subscription.id, cursor)
            if place is None:
                problems += (FieldProblem(field, CURSOR_RULE),)
        if problems:
            raise Invalid(problems=problems)
        return place

    async def _page(
        self, subscription: Subscription, reader: str, after: int | None, limit: int
    ) -> tuple[Pulled, int]:
        """The next page, and the end of the stream; its tenant holds memory as long as it lives."""
        tenant, memory = subscription.tenant, self._memory
        try:
            async with asyncio.timeout(MEMORY_WAIT_S):
                await memory.take(tenant, PAGE_MEMORY_MAX)
        except TimeoutError:
            raise TooMany(_UNREAD) from None
        used = 0
        try:
            found = await self._read(subscription, reader, after, limit)
            used = min(sum(map(_memory_of, found.entries)), PAGE_MEMORY_MAX)
            page = self._shown(subscription, found)
        except BaseException:
            used = 0
            raise
        finally:
            memory.give(tenant, PAGE_MEMORY_MAX - used)
        finalize(page, memory.give, tenant, used).atexit = False
        return page, found.head

    async def _read(
        self, subscription: Subscription, reader: str, after: int | None, limit: int
    ) -> PullPage:
        kept_ms = self._engine.retention_of(subscription.tenant)
        try:
            return await self._reads.page(
                subscription.id,
                tenant=subscription.tenant,
                reader=reader,
                after=after,
                bound_id=id_floor(max(self._now() - kept_ms, 0)),
                limit=min(limit, LIMIT_MAX),
            )
        except BehindRetention as error:
            oldest = self._cursors.show(subscription.id, error.oldest)
            raise Gone(
                "Events after this cursor are past retention and cannot be read any more. "
                f"To go on with the oldest event, read after the cursor {oldest}."
            ) from None

    def _shown(self, subscription: Subscription, page: PullPage) -> Pulled:
        show, number = self._cursors.show, subscription.id
        events = [PulledEvent(show(number, it.position), it.event) for it in page.entries]
        return Pulled(events, show(number, page.upto), page.head - page.upto)

    def _reader(self, subscription: Subscription, it: PullReader, head: int) -> ReaderShown:
        cursor = self._cursors.show(subscription.id, it.position)
        return ReaderShown(it.name, cursor, max(head - it.position, 0), it.created_at, it.acked_at)

    @contextlib.contextmanager
    def _place_to_wait(self, caller: Caller) -> Iterator[None]:
        """Raises TooMany if too many reads wait: of one key, of one tenant, or in all.

        A tenant of which none waits finds a place, however many others have.
        """
        tenant = caller.tenant or ""
        key, of_tenant = (tenant, caller.key_id), self._waiting.held_by(tenant)
        full = 0
        if self._waiting_of_key[key] >= WAITING_OF_KEY_MAX:
            full = WAITING_OF_KEY_MAX
        elif of_tenant >= WAITING_OF_TENANT_MAX or not self._waiting.may_take(tenant):
            full = max(of_tenant, 1)
        if full:
            raise TooMany(
                f"{full} reads wait for events already: use fewer at a time, or do not wait."
            )
        self._waiting.take(tenant)
        self._waiting_of_key[key] += 1
        try:
            yield
        finally:
            self._waiting.give(tenant)
            self._waiting_of_key -= Counter((key,))
