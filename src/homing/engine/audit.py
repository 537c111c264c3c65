"""Keeps the audit log: puts new entries into hashed segments, and removes segments past retention.

Only the maintenance leader does it. Writers of entries never wait for it: an entry that is
committed during a step is part of a later segment, whatever its id.
"""

from __future__ import annotations

import asyncio

import structlog
from msgspec import Struct
from msgspec.structs import replace

from homing.engine.fleet.ownership import BucketOwnership
from homing.errors import HomingError
from homing.policy.audit import Head, Segment, head_mac, is_genuine, segment_hash
from homing.ports import Clock
from homing.ports.audit import AuditStore

log = structlog.get_logger("homing.audit")

EVERY_S = 60
ENTRIES_MAX = 500  # in a segment
AT_ONCE = 20  # entries whose digests are checked in one turn of the event loop
SEGMENTS_READ = 100  # per step of retention
RETENTION_MS = 365 * 86_400_000


class AuditParts(Struct, frozen=True):
    """The store, the key and the retention of the audit log."""

    store: AuditStore
    key: bytes  # of the digests
    retention_ms: int = RETENTION_MS

    def __repr__(self) -> str:
        return "AuditParts(****)"


class AuditKeeper:
    """Seals entries in segments every minute, and removes old segments."""

    def __init__(self, parts: AuditParts, clock: Clock, ownership: BucketOwnership) -> None:
        self._store, self._key, self._retention_ms = parts.store, parts.key, parts.retention_ms
        self._clock, self._ownership = clock, ownership
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.keep()
            except HomingError as error:
                log.warning("the audit log waits for the store", error=str(error))

    async def keep(self) -> None:
        """Seal all entries that are in no segment, and remove segments past retention."""
        while self._ownership.is_maintenance_leader and await self._seal():
            pass
        while self._ownership.is_maintenance_leader and await self._remove():
            pass

    async def _seal(self) -> bool:
        """Make one segment; False: no entries are left."""
        entries = await self._store.loose_entries(limit=ENTRIES_MAX)
        if not entries:
            return False
        for place, entry in enumerate(entries):
            if not is_genuine(self._key, entry):
                log.warning("an audit entry was not written by Homing, or was changed", id=entry.id)
            if place % AT_ONCE == 0:
                await asyncio.sleep(0)
        seen = await self._store.head()
        if seen is None:
            log.error("the head of the audit log was removed: restore it from a backup")
            return False
        number = seen.last + 1
        segment = Segment(
            number,
            len(entries),
            min(it.at for it in entries),
            max(it.at for it in entries),
            segment_hash(self._key, number, seen.last_hash, (it.digest for it in entries)),
        )
        head = self._signed(replace(seen, last=number, last_hash=segment.hash))
        ids = [it.id for it in entries]
        sealed = await self._store.add_segment(
            segment, ids=ids, head=head, seen=seen, epoch=self._ownership.fence(0)
        )
        if sealed:
            log.info("audit segment", number=number, entries=len(ids), hash=segment.hash.hex())
        return sealed

    async def _remove(self) -> bool:
        """Remove the oldest segment if it is past retention; False: it is not, or there is none.

        Entries from a time when the clock was ahead do not delay retention for years: a segment is
        also past retention if a later one is.
        """
        before = self._clock.now() - self._retention_ms
        seen = await self._store.head()
        if seen is None:
            return False
        found = await self._store.segments(after=seen.removed, limit=SEGMENTS_READ)
        if not any(it.last_at < before for it in found):
            return False
        oldest = found[0]
        head = self._signed(
            replace(
                seen,
                removed=oldest.number,
                removed_hash=oldest.hash,
                removed_entries=seen.removed_entries + oldest.entries,
            )
        )
        removed = await self._store.remove_segment(
            oldest.number, head=head, seen=seen, epoch=self._ownership.fence(0)
        )
        if removed:
            log.info("audit segment past retention removed", number=oldest.number)
        return removed

    def _signed(self, head: Head) -> Head:
        return replace(head, mac=head_mac(self._key, head))
