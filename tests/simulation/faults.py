"""Faults between the engine and its store, and the end of a process at any of its steps.

Every call of the store goes over a *line*. On the line it may take time, be refused, be done and
seem to have failed (the reply of a commit was lost), or be the last thing the process ever did:
before the commit, or after it and before anybody was told.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, Protocol

from homing.errors import StoreUnavailable
from simulation.lives import Life
from simulation.mix import Rates

# What people do is rare beside the flow: its replies are lost more often, to be lost at all.
RARE_TIMES = 6
RARE = frozenset(
    {
        "begin_erasure",
        "cancel_delivery",
        "change_subscription",
        "create_subscription",
        "delete_subscription",
        "erase_events",
        "hide_erased",
        "release_keys",
        "run_cleanup_job",
        "replay",
        "replay_step",
        "save_backfill",
        "save_replay_job",
        "set_endpoint",
        "set_signing_keys",
        "take_probe",
    }
)


class Witness(Protocol):
    """Who sees what goes over the lines."""

    def called(self, op: str, args: Sequence[Any], more: dict[str, Any]) -> None:
        """The engine asks for it."""

    def committed(self, op: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        """The store has done it; the engine does not know yet."""

    def told(self, op: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        """The engine has its response."""

    def fault(self, kind: str) -> None:
        """A fault has happened."""


class Faults:
    """Throws the dice for every operation; after ``heal`` nothing goes wrong any more."""

    def __init__(self, rates: Rates, rng: Random, witness: Witness) -> None:
        self.rates, self.rng, self.witness = rates, rng, witness
        self.fired: Counter[str] = Counter()
        self.healed = False
        self.store_down = False
        self.breaks = 0  # so often all connections to the store were lost
        self.crashes_left = rates.crashes_max
        self.operations = 0
        self.died = asyncio.Event()
        self.starting = False
        self.kill: Callable[[], None]

    def fire(self, kind: str) -> None:
        self.fired[kind] += 1
        self.witness.fault(kind)

    def heal(self) -> None:
        self.healed, self.store_down = True, False

    def break_connections(self) -> None:
        """No call that is under way gets its reply, whether it is committed or not."""
        self.breaks += 1

    async def before(self, op: str) -> None:
        """On the way to the store."""
        self.operations += 1
        await self._takes_time()
        if self.store_down:
            raise StoreUnavailable("The store is down.")
        if self.healed:
            return
        self._may_crash("crash_before_commit")
        cleanup = self.rates.cleanup_refused if op == "run_cleanup_job" else 0
        if self._happens(self.rates.refused) or self._happens(cleanup):
            self.fire("store_refused")
            raise StoreUnavailable("Refused.")

    async def after(self, op: str) -> None:
        """On the way back."""
        if self.healed:
            return
        self._may_crash("crash_after_commit")
        await self._takes_time()
        rate = self.rates.reply_lost * (RARE_TIMES if op in RARE else 1)
        if self._happens(rate):
            self.fire("reply_lost")
            raise StoreUnavailable("The reply was lost.")

    def _happens(self, rate: float) -> bool:
        return rate > 0 and self.rng.random() < rate

    async def _takes_time(self) -> None:
        if not self.healed and self._happens(self.rates.slow):
            await asyncio.sleep(self.rng.choice((0, 0.001, 0.005, 0.03)))

    def _may_crash(self, kind: str) -> None:
        if self.crashes_left and self._happens(self.rates.crash):
            self.crashes_left -= 1
            self.fire("crash_in_recovery" if self.starting else kind)
            self.die()
            raise asyncio.CancelledError

    def die(self) -> None:
        """All memory is gone."""
        self.kill()
        self.died.set()


class Line:
    """A store as the engine of one life reaches it."""

    def __init__(self, store: object, faults: Faults, life: Life) -> None:
        self._store, self._faults, self._life = store, faults, life

    def __getattr__(self, op: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, op)
        faults, life = self._faults, self._life
        # Publishes go on a line of their own, one after the other.
        turn = asyncio.Lock() if op == "publish" else contextlib.nullcontext()

        async def call(*args: Any, **more: Any) -> Any:
            faults.witness.called(op, args, more)
            async with turn:
                return await through(*args, **more)

        async def through(*args: Any, **more: Any) -> Any:
            if not life.alive:
                raise asyncio.CancelledError
            breaks = faults.breaks
            await faults.before(op)
            if faults.breaks != breaks:
                raise StoreUnavailable("The connection broke before the commit.")
            result = await method(*args, **more)
            faults.witness.committed(op, args, more, result)
            await faults.after(op)
            if faults.breaks != breaks:
                raise StoreUnavailable("The connection broke after the commit.")
            faults.witness.told(op, args, more, result)
            return result

        setattr(self, op, call)
        return call
