"""Erasures: after the response, erased data is hidden and not sent; it is removed in steps.

Events are erased before the response: their rows are removed, pending deliveries with them. Then
the version of the catalog is raised. Every process that reads the new version drops the deliveries
of the tenant from its memory and reads them again from the store. Attempts in flight are not
cancelled, but their outcomes are not written. To erase a tenant, little is written before the
response: one row hides all its objects, and the events that were accepted before it in the order of
acceptance. No object of the tenant can be made before the erasure is done. The maintenance leader
removes the rows, and on SQLite empties the write-ahead log. Interrupted jobs are continued.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from homing.engine.core import Core
from homing.engine.load import AGAIN_MS
from homing.errors import HomingError, NotFound
from homing.languages.sentences import say
from homing.model import NOT_BOUND, show_id
from homing.policy.erasure import ErasedIds
from homing.ports.erasures import Erasable, Erasure, ErasureKind

log = structlog.get_logger("homing.erase")

EVENTS_MAX = 10_000  # erased before a response
RUNNING_MAX = 1_000  # unfinished erasures that are read at a time
STEP_WAIT_S = 0.01  # between two steps, so that other work can run
AGAIN_MAX_MS = 60_000  # between two tries to remove rows that cannot be removed yet


class Eraser:
    """Erases, and runs the jobs that erasures leave behind."""

    def __init__(self, core: Core) -> None:
        self._admin, self._catalog, self._clock = core.admin, core.catalog, core.clock
        self._ids, self._options, self._ownership = core.ids, core.options, core.ownership
        self._hashes: ErasedIds = core.options.erased_ids
        self._grace = core.grace
        self._task: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()  # ``take_up`` was called since the jobs were last read

    async def erase_event(self, tenant: str, key: str) -> Erasure:
        """Erase an event; raises NotFound. If it is erased already, returns that erasure."""
        hashes = [it.hash for it in self._hashes.of(tenant, key)]
        new = self._new(tenant, ErasureKind.EVENT, subject=hashes[0])
        return await self._erase(new, key=key, earlier=hashes)

    async def erase_field(self, tenant: str, path: str, value: str) -> Erasure:
        """Erase up to EVENTS_MAX events that have this value; ``more``: others have it, too."""
        subject = b"".join(self._options.payload_fields.wanted(path, value))
        return await self._erase(self._new(tenant, ErasureKind.FIELD, path=path, subject=subject))

    async def erase_tenant(self, tenant: str) -> Erasure:
        """Erase everything that a tenant has now; what it makes later is not part of the erasure.

        If the tenant is being erased already, that erasure covers what was accepted meanwhile, too.
        """
        return await self._erase(self._new(tenant, ErasureKind.TENANT))

    async def get(self, erasure_id: int) -> Erasure:
        erasure = await self._admin.erasure(erasure_id)
        if erasure is None:
            raise NotFound(say("There is no such erasure."))
        return erasure

    async def page(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Erasure], int | None]:
        """A page, newest first, and the next ``before_id``."""
        return await self._admin.erasures(tenant=tenant, before_id=before_id, limit=limit)

    def _new(
        self, tenant: str, kind: ErasureKind, *, path: str = "", subject: bytes = b""
    ) -> Erasure:
        now = self._clock.now()
        return Erasure(self._ids.take(now), tenant, kind, path, subject, now)

    async def _erase(
        self, new: Erasure, *, key: str | None = None, earlier: list[bytes] | None = None
    ) -> Erasure:
        try:
            erasure = await self._admin.begin_erasure(new, key=key, earlier=earlier or [])
            if erasure.finished_at is not None:
                return erasure
            await self._catalog.refresh()
            await self._grace.changed(self._catalog.version)
            erasure = await self._bound(erasure)
            if not erasure.version:
                more = await self._erase_some(erasure)
                version = await self._admin.hide_erased(erasure.id, more=more)
                await self._catalog.refresh()
                await self._grace.changed(version)
        finally:  # A failed call may have been committed: then the job finishes the erasure.
            self._ownership.notify_peers("erasures")
            self.take_up()
        return await self.get(erasure.id)

    async def _bound(self, erasure: Erasure) -> Erasure:
        """The erasure with the last position that it is about: what is accepted later stays.

        Every process acts on it: an event that repeats an erased id is recognised.
        """
        if erasure.upto_position != NOT_BOUND:
            return erasure
        return await self._admin.bound_erasure(erasure.id)

    async def _erase_some(self, erasure: Erasure) -> bool:
        """Erase up to ``EVENTS_MAX`` events; returns whether others match."""
        left = EVENTS_MAX
        while True:
            events, _ = await self._admin.erasable(
                erasure, after_key="", limit=self._options.step_rows
            )
            if not events or not left:
                return bool(events)
            left -= await self._erase_step(erasure, events[:left])

    async def _erase_step(self, erasure: Erasure, events: list[Erasable]) -> int:
        """Erase the first of these events, no more than a step takes; returns how many."""
        limit = self._options.step_rows
        step, rows = 0, 0
        for event in events:
            rows += 1 + event.deliveries
            if step and rows > limit:
                break
            step += 1
        hashed = [(it, self._hashes.of(it.tenant, it.key)[0]) for it in events[:step]]
        done = False
        while not done:
            done = await self._admin.erase_events(erasure.id, hashed, limit=limit)
            await asyncio.sleep(STEP_WAIT_S)
        return step

    # --- jobs --------------------------------------------------------------------------------

    def take_up(self) -> None:
        """Begin, or continue, the jobs of erasures, without waiting for them."""
        self._asked.set()
        if self._ownership.is_maintenance_leader and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            tries = 0
            while self._ownership.is_maintenance_leader:
                self._asked.clear()  # Before the read: a request during it is not lost.
                try:
                    left = await self._run_all()
                    tries = tries + 1 if left else 0
                except HomingError as error:
                    log.warning("an erasure waits for the store", error=str(error))
                    left, tries = True, 1
                if left:
                    await self._wait_ms(min(AGAIN_MS << min(tries - 1, 10), AGAIN_MAX_MS))
                elif not self._asked.is_set():
                    return
        finally:
            self._task = None

    async def _wait_ms(self, ms: int) -> None:
        """Wait this long; a call of ``take_up`` ends the wait after its first second."""
        await asyncio.sleep(AGAIN_MS / 1000)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((ms - AGAIN_MS) / 1000):
                await self._asked.wait()

    async def _run_all(self) -> bool:
        """Remove the rows that the erasures have left; returns True if some must be tried again."""
        running = await self._admin.running_erasures(limit=RUNNING_MAX)
        if not running:
            return False
        await self._catalog.refresh()
        await self._grace.everywhere(self._catalog.version)
        running = [await self._bound(it) for it in running]
        removed = list(running)
        for erasure in running:
            if erasure.kind is ErasureKind.TENANT:
                if not await self._remove_tenant(erasure):
                    removed.remove(erasure)
            elif not erasure.version:  # Its process has ended, or is still at work.
                more = await self._erase_some(erasure)
                await self._admin.hide_erased(erasure.id, more=more)
                await self._catalog.refresh()
                self._ownership.notify_peers("catalog")
        # Later commits put no erased data into the log.
        if not await self._admin.empty_log():
            return True
        now = self._clock.now()
        finished = [it for it in removed if await self._admin.finish_erasure(it, now=now)]
        for erasure in finished:
            log.info("an erasure is finished", erasure=show_id("era", erasure.id))
        if any(it.kind is ErasureKind.TENANT for it in finished):  # Its endpoints are forgotten.
            await self._catalog.refresh()
            self._ownership.notify_peers("catalog")
        return len(finished) < len(running)

    async def _remove_tenant(self, erasure: Erasure) -> bool:
        """Remove what a tenant has; False if some of it cannot be removed yet.

        An endpoint stays as long as a delivery of an event that is not erased is pending there.
        """
        # A settle that began before the erasure may write a notice meanwhile: so once more, until
        # nothing is found. Without an endpoint there is nothing to write about.
        while True:
            removed, done = await self._remove_events(erasure), False
            while not done:
                step = await self._admin.erase_rest_of_tenant(
                    erasure, limit=self._options.step_rows
                )
                if not step.done and not step.touched:
                    return False
                removed, done = removed or step.touched > 0, step.done
                await asyncio.sleep(STEP_WAIT_S)
            if not removed:
                return True

    async def _remove_events(self, erasure: Erasure) -> bool:
        """Remove the events of a tenant that are covered; returns whether there were any."""
        removed, after_key = False, ""
        while True:
            events, on_after = await self._admin.erasable(
                erasure, after_key=after_key, limit=self._options.step_rows
            )
            removed = removed or bool(events)
            while events:
                del events[: await self._erase_step(erasure, events)]
            if on_after is None:
                return removed
            after_key = on_after

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
