"""Keeps steady time beside the engine: across restarts, and when the wall clock is stepped.

The engine uses steady time and needs no timer for the clock; this module runs one beside it. A step
of the wall clock is logged within a second, even while there is nothing to do. Steady time and
what the machine's clocks show are marked in the store, so that the next start can tell how far
steady time has come (``policy/restart``). It begins there, or moves stored times, before anything
is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from homing.errors import HomingError
from homing.policy.restart import resume
from homing.ports import Clock, ClockMark, ClockStore, FleetStore, Member, Move

log = structlog.get_logger("homing.clock")

CHECK_EVERY_S = 1.0
MARK_EVERY_CHECKS = 300  # A clock that was set during a downtime is noticed with this precision.
MARK_WITHIN_S = 1.0  # A stop does not wait longer for a store that does not reply.
MOVE_ROWS = 500  # in one transaction
NEAR_MS = 1_000  # With a smaller difference it does not matter whether other processes run.


class Timekeeper:
    """Fits stored times to the clock at a start, then checks the clock once a second."""

    def __init__(self, clock: Clock, store: ClockStore) -> None:
        self._clock, self._store = clock, store
        self._steps, self._checks = clock.state().steps, 0
        self._due = False  # a mark that must be written, and could not be

    async def begin(self, *, others: Callable[[], Awaitable[bool]] | None = None) -> int:
        """Make stored times fit; returns how far ahead of the clock steady time must begin.

        Where the difference is large, stored times are moved instead, unless ``others`` returns
        that other processes run on this store: they use the steady time of the stored times, and so
        must this process.
        """
        while True:
            while moved := await self._store.move_times(limit=MOVE_ROWS):
                log.info("stored times were moved", rows=moved)
            seen, newest = await self._store.clock_mark()
            now = self._clock.read()
            fit = resume(
                mark=None if seen is None else seen.reading,
                since_ms=0 if seen is None else seen.since_ms,
                newest_ms=newest,
                now=now,
            )
            if abs(fit.ahead_ms) > NEAR_MS and others is not None and await others():
                return fit.beside_ms
            if not fit.is_told and abs(fit.ahead_ms) > NEAR_MS:
                log.warning(
                    "how long no process ran is not known: the machine was restarted or is another "
                    "one, and its clock is not synchronised; every wait goes on as if no time had "
                    "passed",
                    clock_ahead_s=-fit.ahead_ms / 1000,
                )
            move, ahead = None, fit.ahead_ms
            if fit.move_by_ms:
                ahead = 0
                move = Move(fit.move_by_ms, fit.move_from_ms)
                log.warning(
                    "the clock was set since the times in the store were written; due times, "
                    "windows, probes and holds are moved, so that every wait stays as it was",
                    move_by_s=fit.move_by_ms / 1000,
                )
            reading = msgspec.structs.replace(now, steady_ms=now.steady_ms + ahead)
            mark = ClockMark(reading, fit.since_ms)
            if await self._store.begin_clock(mark, move, seen=seen) and move is None:
                return ahead  # Otherwise times must be moved, or another process began meanwhile.

    async def run(self) -> None:
        """Check the clock once a second, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            self._checks += 1
            if self.check() or self._due or self._checks % MARK_EVERY_CHECKS == 0:
                await self.mark()

    def check(self) -> bool:
        """Log the steps since the last check; True if there was one."""
        state = self._clock.state()
        if state.steps == self._steps:
            return False
        self._steps = state.steps
        log.warning(
            "the wall clock was stepped; signatures carry the new time, retries keep their "
            "schedule, and nothing expires for an hour",
            stepped_by_s=state.stepped_by_ms / 1000,
            ahead_of_schedules_s=state.ahead_ms / 1000,
            steps=state.steps,
        )
        return True

    async def mark(self) -> None:
        """Store what the clocks show; if that fails, the next check tries again."""
        try:
            async with asyncio.timeout(MARK_WITHIN_S):
                await self._store.mark_clock(self._clock.read())
        except (HomingError, TimeoutError) as error:
            self._due = True
            log.warning("the clock mark could not be stored; trying again", error=str(error))
        else:
            self._due = False


async def others_run(store: FleetStore, me: Member, lease_ms: int) -> bool:
    """Whether another process renews its lease.

    The database's clock was set, so an expired lease may seem valid and a valid one expired: only a
    lease that changes between two reads is proof. A heartbeat comes every third of a lease.
    """
    seen: list[dict[int, int]] = []
    for rest_ms in (lease_ms // 2, 0):
        standing = await store.renew(me.id, delivers=me.delivers, lease_ms=lease_ms)
        members = () if standing is None else standing.members
        seen.append({it.id: it.expires_at for it in members if it.id != me.id})
        await asyncio.sleep(rest_ms / 1000)
    before, after = seen
    return any(before.get(member) != expires_at for member, expires_at in after.items())
