"""Processes and leases: plain rows, by the database's clock, without session locks.

A lease is valid while its owner's heartbeat is recent. A process that takes a bucket over locks the
old owner's row: a heartbeat at the same moment waits, and then sees which buckets were lost. Every
write under a lease locks the lease's row, so that the bucket cannot be taken before the commit, and
checks its epoch: a late writer is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from homing.errors import LostLeases, Unavailable
from homing.model import NODES
from homing.ports import Acting, DatabaseTime, FleetState, Lease, Member
from homing.store import acceptance
from homing.store.catalog_versions import raise_catalog_above
from homing.store.tx import Db, Row, Tx, transaction

TIME_READS = 3

LEASE_MAX_MS = 120_000  # No setting allows a longer one.
NODE_REST_MS = (
    60_000  # after a process's lease has ended, until another process may use its node number
)


Fence = tuple[int, int]  # bucket, epoch


async def hold(tx: Tx, fences: Sequence[Fence]) -> None:
    """Keep these buckets from being taken until the commit; raises LostLeases if one was."""
    if not fences:
        return
    held = {row[0] for row in await tx.many("lease_fence", fences)}
    if lost := frozenset(bucket for bucket, _ in fences if bucket not in held):
        raise LostLeases(lost)


async def raise_topic(tx: Tx, topic: str) -> None:
    """Record with this commit that the topic has changed."""
    await tx.all("topic_raise", topic=topic)


def bucket_topic(bucket: int) -> str:
    """The topic that a command raises when it changes something in this bucket."""
    return f"bucket.{bucket}"


def member(row: Row) -> Member:
    number, node, name, role, delivers, started_at, expires_at = row
    return Member(number, node, name, role, delivers > 0, started_at, expires_at)


class Leases:
    """``FleetStore`` on a database.

    ``monotonic_ns`` tells when the database's clock was read; ``clock`` stands in for that clock in
    tests.
    """

    def __init__(
        self,
        db: Db,
        clock: Callable[[], int] | None = None,
        *,
        monotonic_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._db = db
        self._clock, self._monotonic_ns = clock, monotonic_ns

    async def _now(self, tx: Tx) -> int:
        return (await self._time(tx)).ms

    async def _time(self, tx: Tx) -> DatabaseTime:
        asked = self._monotonic_ns()
        if self._clock is not None:
            return DatabaseTime(self._clock(), asked, 0)
        row = await tx.one("database_now")
        assert row is not None
        round_ns = self._monotonic_ns() - asked
        return DatabaseTime(int(row[0]), asked + round_ns // 2, round_ns, row[1] > 0)

    @transaction(read_only=True)
    async def time(self, tx: Tx) -> DatabaseTime:
        # The first statement on a connection takes longer one way than the other.
        times = [await self._time(tx) for _ in range(TIME_READS)]
        return min(times, key=lambda it: it.round_ns)

    @transaction()
    async def join(
        self,
        tx: Tx,
        *,
        name: str,
        role: str,
        delivers: bool,
        lease_ms: int,
        nodes: Sequence[int] = range(NODES),
    ) -> Member:
        await tx.one("join_hold")
        now = await self._now(tx)
        known = [member(row) for row in await tx.all("processes")]
        number = max((it.id for it in known), default=0) + 1
        node = _free_node(known, now, nodes)
        new = Member(number, node, name, role, delivers, now, now + lease_ms)
        await tx.all("process_replace", node=node)
        await _raise_fence(tx, node)  # What an earlier process still writes is refused.
        row = (new.id, node, name, role, int(delivers), new.started_at, new.expires_at)
        await tx.insert("process", [row])
        return new

    @transaction()
    async def renew(
        self, tx: Tx, member_id: int, *, delivers: bool, lease_ms: int
    ) -> FleetState | None:
        time = await self._time(tx)
        now = time.ms
        renewed = await tx.one(
            "process_renew", id=member_id, delivers=int(delivers), expires_at=now + lease_ms
        )
        if renewed is None:
            return None
        members = [member(row) for row in await tx.all("processes")]
        if any(it.expires_at > now + LEASE_MAX_MS for it in members):
            # After the database's clock was set back, ended processes would keep their leases.
            await tx.all(
                "processes_shorten", max_expires_at=now + LEASE_MAX_MS, until=now + lease_ms
            )
        leases = tuple(Lease(*row) for row in await tx.all("leases"))
        living = tuple(it for it in members if it.expires_at > now)
        return FleetState(time, living, leases, acts=renewed[1] is not None)

    @transaction()
    async def take(self, tx: Tx, member_id: int, wanted: Mapping[int, int]) -> dict[int, int]:
        now = await self._now(tx)
        if await tx.one("process_hold", id=member_id) is None:
            return {}
        held = await tx.all("leases_hold", buckets=sorted(wanted))
        held = [row for row in held if wanted[row[0]] == row[2]]
        owners = sorted({row[1] for row in held if row[1] is not None})
        gone = await _gone(tx, owners, now) if owners else set()
        free = [row[0] for row in held if row[1] is None or row[1] in gone]
        if not free:
            return {}
        taken = await tx.all("leases_take", owner=member_id, now=now, buckets=free)
        return dict(taken)

    @transaction()
    async def give(self, tx: Tx, member_id: int, buckets: Sequence[int]) -> None:
        await tx.all("leases_give", owner=member_id, buckets=sorted(buckets))
        await raise_topic(tx, "leases")

    @transaction()
    async def leave(self, tx: Tx, member_id: int) -> None:
        # In this order: a concurrent ``take`` of this process is waited for and undone.
        left = await tx.one("process_leave", id=member_id, now=await self._now(tx))
        if left is not None:
            await _raise_fence(tx, left[0])
        await tx.all("leases_leave", owner=member_id)
        await raise_topic(tx, "leases")

    @transaction()
    async def heal(
        self, tx: Tx, member_id: int, *, epochs: Mapping[int, int], catalog: int
    ) -> None:
        await acceptance.raise_above(tx)
        await tx.many("leases_heal", [(it[1], it[0], member_id) for it in sorted(epochs.items())])
        await raise_topic(tx, "leases")
        await raise_catalog_above(tx, catalog)

    @transaction(read_only=True)
    async def recent(
        self, tx: Tx, buckets: Sequence[int], *, from_id: int, upto_id: int
    ) -> list[tuple[int, int, int]]:
        found = await tx.all("recent_work", from_id=from_id, upto_id=upto_id, buckets=list(buckets))
        return [(bucket, endpoint_id, position) for bucket, endpoint_id, position in found]

    @transaction(read_only=True)
    async def versions(self, tx: Tx) -> dict[str, int]:
        return dict(await tx.all("topic_versions"))

    @transaction()
    async def knows(self, tx: Tx, member_id: int, version: int) -> None:
        await tx.all("process_knows", id=member_id, version=version)

    @transaction()
    async def act(self, tx: Tx, member_id: int) -> int | None:
        row = await tx.one("process_acts", id=member_id, now=await self._now(tx))
        return None if row is None else await _raise_fence(tx, row[0])

    @transaction(read_only=True)
    async def acting(self, tx: Tx, *, but: int) -> list[Acting]:
        now = await self._now(tx)
        found = await tx.all("processes_acting", but=but)
        return [Acting(number, name, version, now >= ends) for number, name, version, ends in found]

    @transaction()
    async def fence_ended(self, tx: Tx, *, late: int = 0) -> list[int]:
        found = await tx.all("processes_ended", now=await self._now(tx), late=late)
        for number, node in found:
            await tx.all("process_fenced", id=number)
            await _raise_fence(tx, node)
        return [number for number, _ in found]

    @transaction(read_only=True)
    async def oldest_snapshot(self, tx: Tx) -> tuple[int, str]:
        row = await tx.one("oldest_snapshot")
        assert row is not None
        return int(row[0]), str(row[1])

    @transaction()
    async def raise_topic(self, tx: Tx, topic: str) -> None:
        await raise_topic(tx, topic)


async def _raise_fence(tx: Tx, node: int) -> int:
    """Wait for the batches that this node is writing, and refuse those with an older fence."""
    row = await tx.one("fence_raise", node=node)
    assert row is not None
    return int(row[0])


def _free_node(known: Sequence[Member], now: int, nodes: Sequence[int]) -> int:
    """The lowest of these numbers that no process has had in the last minute.

    Each number has rows of its own in the ledger, so no more of them are used than needed.
    """
    taken = {it.node for it in known if it.expires_at > now - NODE_REST_MS}
    free = next((it for it in nodes if it not in taken), None)
    if free is None:
        raise Unavailable(
            f"All {len(nodes)} node numbers are in use, or were a minute ago: stop a process first."
        )
    return free


async def _gone(tx: Tx, owners: Sequence[int], now: int) -> set[int]:
    """The owners whose heartbeat has stopped, with their rows locked."""
    held = await tx.all("owners_hold", ids=owners)
    known = {row[0] for row in await tx.all("owners_known", ids=owners)}
    return {row[0] for row in held if row[1] <= now} | (set(owners) - known)
