"""Matching that takes long: in slices, tenants in turns, so that the event loop is never blocked.

Most publishes are matched while they are written (``engine/publish``). A publish with expensive
filters is matched here first; if there are payload fields, a publish with much data is read here,
too. One slice runs per turn of the event loop, and tenants take turns, so that an expensive filter
delays the publishes of its own tenant only. The result is kept with the version of the catalog that
it belongs to: only subscriptions that change later are matched again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence

import structlog
from msgspec import Struct

from homing.engine.catalog import Catalog
from homing.errors import HomingError, ShuttingDown, TooMany
from homing.model import Subscription
from homing.policy.admission import EventDraft
from homing.policy.filters_reading import SLICE_STEPS
from homing.policy.payload_fields import PayloadFields
from homing.policy.wants import Wants, picking
from homing.ports import Clock

log = structlog.get_logger("homing.matching")

TENANT_BYTES_MAX = 32 * 1024 * 1024  # of data that waits here, for one tenant
TENANT_EVENTS_MAX = 10_000
_TOO_MANY = (
    "Too many events of this tenant wait to be matched against its filters: "
    "publish again shortly, or make its filters cheaper."
)
_NO_WANTS: dict[int, Wants] = {}


class Matched(Struct, frozen=True):
    """The subscriptions that an event goes to, as of a version of the catalog."""

    subscriptions: list[Subscription]
    version: int


class Matching(Struct, eq=False):
    """One publish: its events, and the subscriptions found for each so far."""

    drafts: Sequence[EventDraft]
    done: Callable[[Matching | HomingError], None]
    matched: list[Matched | None]
    fields: list[tuple[bytes, ...] | None]  # the hashes of payload fields, if there are any
    slices: Generator[None, int, None] | None = None

    @property
    def tenant(self) -> str:
        return self.drafts[0].tenant

    def is_current(self, catalog: Catalog) -> bool:
        """Whether no subscription of its tenants has changed since the publish was matched."""
        return all(
            found is not None and catalog.changed(draft.tenant) <= found.version
            for draft, found in zip(self.drafts, self.matched, strict=True)
        )

    def found(self, place: int, *, now: int) -> list[Subscription]:
        """The subscriptions that the event at this index goes to, if it is accepted now."""
        matched = self.matched[place]
        assert matched is not None
        return [one for one in matched.subscriptions if not _is_over(one, now)]


class Matcher:
    """Matches expensive publishes."""

    def __init__(self, catalog: Catalog, clock: Clock, payload_fields: PayloadFields) -> None:
        self._catalog, self._clock, self._payload_fields = catalog, clock, payload_fields
        # By tenant; the first has the next turn. A plain dict would scan its deleted entries.
        self._waiting: OrderedDict[str, deque[Matching]] = OrderedDict()
        self._events: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None
        self.slices = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, matching: Matching) -> None:
        """Match a publish, or its changed parts again; calls ``done`` when matched, or refused."""
        tenant = matching.tenant
        events = self._events.get(tenant, 0) + len(matching.drafts)
        size = self._bytes.get(tenant, 0) + _size(matching)
        waiting = self._waiting.setdefault(tenant, deque())
        if waiting and (events > TENANT_EVENTS_MAX or size > TENANT_BYTES_MAX):
            matching.done(TooMany(_TOO_MANY))
            return
        self._events[tenant], self._bytes[tenant] = events, size
        waiting.append(matching)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Refuse all waiting publishes; none of them has been written."""
        waiting, self._waiting = self._waiting, OrderedDict()
        self._events, self._bytes = {}, {}
        for queue in waiting.values():
            for matching in queue:
                matching.done(ShuttingDown())

    async def _run(self) -> None:
        try:
            while self._waiting:
                self._turn(next(iter(self._waiting)))
                await asyncio.sleep(0)
        finally:
            self._task = None

    def _turn(self, tenant: str) -> None:
        """Run one slice of this tenant's oldest publish; then the tenant is last in turn."""
        waiting = self._waiting.pop(tenant)
        matching = waiting[0]
        self.slices += 1
        try:
            finished = self._slice(matching)
        except Exception:
            log.exception("an event could not be matched; its publish is refused")
            self._leave(waiting, tenant)
            matching.done(HomingError())
            return
        if not finished:
            self._waiting[tenant] = waiting
            return
        self._leave(waiting, tenant)
        matching.done(matching)

    def _leave(self, waiting: deque[Matching], tenant: str) -> None:
        matching = waiting.popleft()
        if waiting:
            self._waiting[tenant] = waiting
            self._events[tenant] -= len(matching.drafts)
            self._bytes[tenant] -= _size(matching)
        else:
            del self._events[tenant], self._bytes[tenant]

    def _slice(self, matching: Matching) -> bool:
        """Run one slice; True if the publish is matched now."""
        try:
            if matching.slices is None:
                matching.slices = self._match_all(matching)
                next(matching.slices)
            else:
                matching.slices.send(SLICE_STEPS)
        except StopIteration:
            matching.slices = None
            return True
        return False

    def _match_all(self, matching: Matching) -> Generator[None, int, None]:
        left = SLICE_STEPS
        for place, draft in enumerate(matching.drafts):
            if self._payload_fields and matching.fields[place] is None:
                reading = self._payload_fields.reading(draft.data, left)
                matching.fields[place], left = yield from reading
            matched = matching.matched[place]
            if matched is not None and self._catalog.changed(draft.tenant) <= matched.version:
                continue
            if left <= 0:
                left = yield
            matching.matched[place], left = yield from self._match(draft, matched, left)

    def _match(
        self, draft: EventDraft, before: Matched | None, steps: int
    ) -> Generator[None, int, tuple[Matched, int]]:
        catalog = self._catalog
        version, found = catalog.version, catalog.of_type(draft.tenant, draft.type)
        known: set[int] = set()
        asked = found
        if before is not None:
            known = {one.id for one in before.subscriptions}
            asked = [one for one in found if one.version > before.version]
        picked, left = yield from picking(
            asked,
            catalog.wants(draft.tenant) or _NO_WANTS,
            draft.data,
            now=self._clock.now(),
            steps=steps,
        )
        if before is not None:
            known -= {one.id for one in asked}
            known |= {one.id for one in picked}
            picked = [one for one in found if one.id in known]
        return Matched(picked, version), left - 1 - len(found) // 8


def _size(matching: Matching) -> int:
    return sum(len(draft.data) for draft in matching.drafts)


def _is_over(subscription: Subscription, now: int) -> bool:
    own = subscription.workfront
    return own is not None and own.until is not None and now >= own.until
