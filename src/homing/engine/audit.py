"""Keeps the audit log: puts new entries into hashed segments, and removes segments past retention.

Only the maintenance leader does it. Writers of entries never wait for it: an entry that is
committed during a step is part of a later segment, whatever its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog
from msgspec import Struct
from msgspec.structs import replace

from homing.engine.fleet.ownership import BucketOwnership
from homing.errors import HomingError
from homing.policy.audit import (
    AuditEntry,
    Head,
    Segment,
    head_mac,
    is_genuine,
    is_signed,
    segment_hash,
)
from homing.ports import Clock
from homing.ports.audit import AuditStore

log = structlog.get_logger("homing.audit")

EVERY_S = 60
ENTRIES_MAX = 500  # in a segment
AT_ONCE = 20  # entries whose digests are checked in one turn of the event loop
ENTRIES_READ = 100
SEGMENTS_READ = 100  # per step of retention
RETENTION_MS = 365 * 86_400_000


class AuditParts(Struct, frozen=True):
    """The store, the key and the retention of the audit log."""

    store: AuditStore
    key: bytes  # of the digests
    retention_ms: int = RETENTION_MS

    def __repr__(self) -> str:
        return "AuditParts(****)"


class Checked(Struct, frozen=True):
    """The entries that a segment has in truth, read from the store."""

    count: int
    forged: tuple[int, ...]  # the ids of those that Homing did not write in this form
    first_at: int
    last_at: int
    hash: bytes  # that the segment must have

    def is_whole(self, segment: Segment) -> bool:
        """Whether the segment has exactly the entries with which it was made."""
        same = (self.count, self.hash) == (segment.entries, segment.hash)
        return same and not self.forged


async def check_segment(
    store: AuditStore, key: bytes, segment: Segment, previous: bytes
) -> Checked:
    """Read the entries of a segment; ``previous`` is the hash of the segment before."""
    digests: list[bytes] = []
    times: list[int] = []
    forged: list[int] = []
    after_id = -1
    while len(digests) <= segment.entries:  # One more than there should be: some were added.
        found = await store.entries_of(segment.number, after_id=after_id, limit=ENTRIES_READ)
        digests += [it.digest for it in found]
        times += [it.at for it in found]
        forged += await forged_among(key, found)
        if len(found) < ENTRIES_READ:
            break
        after_id = found[-1].id
    return Checked(
        len(digests),
        tuple(forged),
        min(times, default=0),
        max(times, default=0),
        segment_hash(key, segment.number, previous, digests),
    )


async def forged_among(key: bytes, entries: Sequence[AuditEntry]) -> list[int]:
    """The ids of the entries whose digests do not fit."""
    forged = []
    for place, entry in enumerate(entries):
        if place % AT_ONCE == 0:
            await asyncio.sleep(0)
        if not is_genuine(key, entry):
            forged.append(entry.id)
    return forged


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
        for number in await forged_among(self._key, entries):
            log.warning("an audit entry was not written by Homing, or was changed", id=number)
        seen = await self._head()
        if seen is None:
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

    async def _head(self) -> Head | None:
        """The head; None if it was removed or changed: nothing is built upon it then."""
        seen = await self._store.head()
        if seen is None:
            log.error("the head of the audit log was removed: restore it from a backup")
        elif not is_signed(self._key, seen):
            log.error("the head of the audit log was changed: restore it from a backup")
            return None
        return seen

    async def _remove(self) -> bool:
        """Remove the oldest segment if it is past retention; False: it is not, or there is none.

        Only the dates in signed entries decide. Entries from a time when the clock was ahead do not
        delay retention for years: a segment is also past retention if a later one is. The head
        counts the segments that were missing or changed, so that removing them hides nothing.
        """
        before = self._clock.now() - self._retention_ms
        seen = await self._head()
        if seen is None:
            return False
        found = await self._store.segments(after=seen.removed, limit=SEGMENTS_READ)
        hints = [n for n, it in enumerate(found) if it.last_at < before]
        if not hints:
            return False
        oldest, oldest_at = found[0], await self._last_at(found, 0, seen)
        if oldest_at is None or oldest_at >= before:
            for place in hints:
                at = await self._last_at(found, place, seen)
                if at is not None and at < before:
                    break
            else:
                return False
        damaged = oldest.number - seen.removed - 1 + (1 if oldest_at is None else 0)
        if damaged:
            log.error("segments of the audit log were missing or changed", count=damaged)
        head = self._signed(
            replace(
                seen,
                removed=oldest.number,
                removed_hash=oldest.hash,
                removed_entries=seen.removed_entries + oldest.entries,
                damaged=seen.damaged + damaged,
            )
        )
        removed = await self._store.remove_segment(
            oldest.number, head=head, seen=seen, epoch=self._ownership.fence(0)
        )
        if removed:
            log.info("audit segment past retention removed", number=oldest.number)
        return removed

    async def _last_at(self, found: Sequence[Segment], place: int, seen: Head) -> int | None:
        """The time of the last entry of a segment, by its entries; None if it was changed."""
        segment = found[place]
        if segment.number == seen.removed + 1:
            previous = seen.removed_hash
        elif place and found[place - 1].number == segment.number - 1:
            previous = found[place - 1].hash
        else:
            return None  # The one before is missing.
        checked = await check_segment(self._store, self._key, segment, previous)
        return checked.last_at if checked.is_whole(segment) else None

    def _signed(self, head: Head) -> Head:
        return replace(head, mac=head_mac(self._key, head))
