"""Readers of subscriptions without a URL: they read, acknowledge, die and begin again.

The log of a stream is kept here as it was committed. Every page is compared with it: its events
are the next ones, in that order, without gaps; only erased ones may be missing. What a reader has
acknowledged, and was told so, never comes again.

Readers reach the store on a line of their own with its own dice, so that the faults of everything
else are where they would be without readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar, cast

from homing.app.access import Caller
from homing.app.counted_calls import CountedCalls
from homing.app.pull import Pull, Pulled, PullParts
from homing.errors import Conflict, HomingError, Invalid
from homing.model import Format
from homing.policy.admission import SubscriptionDraft
from homing.policy.audit import AuditEntry
from homing.policy.keys import Role
from homing.policy.pull import Cursors
from homing.ports import NewEvent, ViewStore
from homing.ports.audit import AuditStore
from homing.ports.pull import PullStore
from homing.store.pull import Pulls
from homing.store.views import Views
from simulation.faults import Faults, Line
from simulation.lives import Crashed
from simulation.machine import Machine, pick
from simulation.mix import Mix
from simulation.reference import Reference, Sub

T = TypeVar("T")

STREAMS = (("*",), ("order.*",))  # the events of the streams
TIMES = 40  # that each reader does something in a run
LIMITS = (1, 2, 5, 1_000)  # events on a page
WAIT_MS = 20_000
AT_END = 10_000  # pages that a reader may need at the end
CURSORS = Cursors((b"the key of the cursors",))
CALLER = Caller("reader", Role.ADMIN, None)
READER_KINDS = (
    "read",
    "waits",
    "acks",
    "acks_again",
    "begins_again",
    "foreign_cursor",
    "cursor_ahead",
)


class Streams:
    """The logs of all streams: what was committed, in that order."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self.subs: dict[int, Sub] = {}
        self.logs: dict[int, list[int]] = {}  # ids of events; the first has position 1

    def created(self, sub: Sub) -> None:
        self.subs[sub.id] = sub
        self.logs[sub.id] = []

    def committed(self, new: NewEvent) -> None:
        """An event was stored: the streams that match have it as their newest."""
        for number in new.pulled:
            self.logs[number].append(new.event.id)


@dataclass
class Reader:
    """A program outside: it knows how far it has read, and forgets that when it dies."""

    name: str
    stream: int
    read_upto: int | None = None  # where its own cursor is; None: it asks for the server's
    acked: int = 0  # a response has said so
    maybe_acked: set[int] = field(default_factory=set)  # without a response: perhaps written
    seen: set[int] = field(default_factory=set)


class NoLog:
    """An audit log for use cases whose callers do not look at it."""

    async def add_counted(self, entries: Sequence[AuditEntry]) -> None: ...


class Readers:
    """All readers of a run."""

    def __init__(
        self,
        machines: Sequence[Machine],
        mix: Mix,
        rng: Random,
        reference: Reference,
        fire: Callable[[str], None],
    ) -> None:
        self._machines, self._mix, self._rng = machines, mix, rng
        self._reference, self._streams, self._fire = reference, reference.streams, fire
        rates = replace(mix.rates, crash=0, crashes_max=0)
        self.faults = Faults(rates, rng, machines[0].faults.witness)
        self.faults.fired = machines[0].faults.fired
        self._readers: list[Reader] = []
        self.over = False

    async def set_up(self) -> None:
        for n in range(self._mix.readers):
            if n < len(STREAMS):
                tenant = self._mix.tenants[n % len(self._mix.tenants)]
                draft = SubscriptionDraft(
                    tenant=tenant, url="", types=STREAMS[n], format=Format.STANDARD
                )
                await self._machines[0].ask(lambda engine, it=draft: engine.subscribe(it))  # type: ignore[misc]
            stream = sorted(self._streams.subs)[n % len(self._streams.subs)]
            self._readers.append(Reader(f"reader-{n}", stream))

    async def act(self) -> None:
        await asyncio.gather(*map(self._live, self._readers))

    async def _live(self, reader: Reader) -> None:
        mean_s = self._mix.run_for_ms / 1000 / TIMES
        while not self.over:
            await asyncio.sleep(self._rng.expovariate(1 / mean_s))
            if not self.over:
                await self._try(reader, self._rng.choice(READER_KINDS))

    async def _try(self, reader: Reader, what: str) -> None:
        do = getattr(self, f"_{what}")
        try:
            async with asyncio.timeout(self._mix.response_within_ms / 1000):
                if await do(reader):
                    self._fire(f"reader_{what}")
        except (HomingError, Crashed) as error:
            text = f"{reader.name}: {what} was not answered well: {error!r}"
            self._reference.say(text)
            right = isinstance(error, Crashed) or error.http_status >= 500
            self._reference.must(right, "pull", lambda: text)
        except TimeoutError:
            self._reference.violated("L6", f"{reader.name} waits for ever: {what}")

    # --- what readers do -----------------------------------------------------------------------

    async def _ask(self, what: Callable[[Pull], Coroutine[Any, Any, T]]) -> T:
        machine = pick(self._machines, self._rng)
        if not machine.up:
            raise Crashed

        def line(store: object) -> Any:
            return Line(store, self.faults, machine.life)

        pulls = cast("PullStore", line(Pulls(machine.db)))
        views = cast("ViewStore", line(Views(machine.db)))
        parts = PullParts(pulls, pulls, CURSORS)
        now = machine.life.clock.now
        counted = CountedCalls(cast("AuditStore", NoLog()), b"k" * 32, lambda: (now(), now()))
        return await machine.call(what(Pull(machine.engine, views, parts, counted, now=now)))

    async def _read(self, reader: Reader, *, wait_ms: int = 0) -> bool:
        asked, limit = reader.read_upto, self._rng.choice(LIMITS)
        after = None if asked is None else CURSORS.show(reader.stream, asked)
        erased = {it for it, change in self._reference.erased_events.items() if change.answered}
        page = await self._ask(
            lambda pull: pull.read(
                CALLER,
                reader.stream,
                reader=reader.name,
                after=after,
                limit=limit,
                wait_ms=wait_ms,
            )
        )
        self._check(reader, asked, page, erased)
        return bool(page.events)

    async def _waits(self, reader: Reader) -> bool:
        return await self._read(reader, wait_ms=WAIT_MS)

    def _check(self, reader: Reader, asked: int | None, page: Pulled, erased: set[int]) -> None:
        reference, log = self._reference, self._streams.logs[reader.stream]
        upto = CURSORS.read(reader.stream, page.cursor)
        ids = [it.event.id for it in page.events]
        reference.say(f"{reader.name} reads {len(ids)} events after {asked} up to {upto}")
        assert upto is not None
        places = [CURSORS.read(reader.stream, it.cursor) for it in page.events]
        right = [log[it - 1] if it and it <= len(log) else None for it in places] == ids
        reference.must(right, "pull", lambda: f"{reader.name} gets cursors of other events")
        # Without a cursor the server decides: after what was acknowledged.
        begins = {reader.acked, *reader.maybe_acked} if asked is None else {asked}
        right = any(
            ids == [it for it in log[at:upto] if it in ids or it not in reference.erased_events]
            for at in begins
        )
        reference.must(
            right and min(begins) <= upto <= len(log),
            "pull",
            lambda: f"{reader.name} gets {ids} after {sorted(begins)} up to {upto} of {log}",
        )
        reference.must(
            not erased & set(ids), "erase", lambda: f"{reader.name} gets an erased event"
        )
        reader.read_upto = upto
        reader.seen.update(ids)

    async def _acks(self, reader: Reader) -> bool:
        if reader.read_upto is None or reader.read_upto == reader.acked:
            return False
        return await self._ack(reader, self._rng.randint(reader.acked, reader.read_upto))

    async def _acks_again(self, reader: Reader) -> bool:
        """Of something that it has acknowledged before: nothing changes."""
        return bool(reader.acked) and await self._ack(reader, self._rng.randint(0, reader.acked))

    async def _ack(self, reader: Reader, place: int) -> bool:
        cursor = CURSORS.show(reader.stream, place)
        may_be = {max(it, place) for it in (reader.acked, *reader.maybe_acked)}
        reader.maybe_acked |= may_be
        shown = await self._ask(
            lambda pull: pull.ack(CALLER, reader.stream, reader=reader.name, cursor=cursor)
        )
        now = CURSORS.read(reader.stream, shown.cursor) or 0
        self._reference.must(
            now in may_be, "pull", lambda: f"{reader.name} acknowledges {place} and is at {now}"
        )
        reader.acked, reader.maybe_acked = now, set()
        return True

    async def _begins_again(self, reader: Reader) -> bool:
        """It dies, with all that it had not acknowledged."""
        reader.read_upto = None
        return await self._read(reader)

    async def _foreign_cursor(self, reader: Reader) -> bool:
        others = [it for it in self._streams.subs if it != reader.stream]
        if not others:
            return False
        cursor = CURSORS.show(self._rng.choice(others), 1)
        try:
            await self._ask(
                lambda pull: pull.ack(CALLER, reader.stream, reader=reader.name, cursor=cursor)
            )
        except Invalid:
            return True
        self._reference.violated("pull", f"{reader.name} acknowledges the cursor of another stream")
        return False

    async def _cursor_ahead(self, reader: Reader) -> bool:
        """As after a failover that lost commits."""
        ahead = len(self._streams.logs[reader.stream]) + 1_000_000
        cursor = CURSORS.show(reader.stream, ahead)
        try:
            if self._rng.random() < 0.5:
                await self._ask(
                    lambda pull: pull.ack(CALLER, reader.stream, reader=reader.name, cursor=cursor)
                )
            else:
                await self._ask(
                    lambda pull: pull.read(
                        CALLER, reader.stream, reader=reader.name, after=cursor, limit=1
                    )
                )
        except Conflict:
            return True
        self._reference.violated("pull", f"{reader.name} is ahead of the store, and is not told")
        return False

    # --- the end -------------------------------------------------------------------------------

    async def finish(self) -> None:
        """All heals: every reader reads to the end, and has seen everything that is not erased."""
        for reader in self._readers:
            reader.read_upto = None
            log = self._streams.logs[reader.stream]
            for _ in range(AT_END):
                if self._reference.violations or reader.read_upto == len(log):
                    break
                await self._read(reader)
            kept = set(log) - self._reference.erased_events.keys()
            missed = kept - reader.seen
            self._reference.must(
                not missed,
                "pull",
                lambda it=reader, n=missed: f"{it.name} missed {n}",  # type: ignore[misc]
            )
