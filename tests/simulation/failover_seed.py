"""Failovers from a seed: a fleet whose database goes on as its standby has it, complete or not.

The model is what publishers were told and what the database has at the end. An acknowledged event
is there, or a process has said that events of that time may be missing; so is a new subscription.
What is there was delivered and is settled. Nothing is said where nothing was lost. No epoch of a
bucket is given twice, all processes know the same subscriptions as the database, changes of
subscriptions work again within seconds, and where publishes are held none is acknowledged before a
person confirms.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

import msgspec

from engine.fleet_world import FleetWorld, Machine
from engine.world import Hit, Reply
from homing.engine.options import EngineOptions
from homing.errors import CommitsLost, HomingError, NotFound
from homing.policy.admission import EventDraft
from homing.policy.commit_loss import CommitLoss
from homing.sim.loop import run_virtual
from homing.store.admin import Admin
from rollback import Standby

SECOND = 1_000
STEPS = 60
URLS = 6
CHANGE_TRIES, CHANGE_PAUSE_MS = 5, 3 * SECOND
END_MS = 120 * SECOND
SLACK_MS = 50  # between a commit and its acknowledgement


class Seed:
    """One run."""

    def __init__(self, seed: int, world: FleetWorld, rng: Random) -> None:
        self.world, self.rng = world, rng
        self.lossy = seed % 3 != 0  # Every third seed has only failovers that lose nothing.
        self.acked: dict[str, int] = {}  # by event id: when
        self.created: dict[int, int] = {}  # by id of a subscription: when
        self.wrong: list[str] = []
        self.given: set[tuple[int, int]] = set()  # bucket, epoch
        self.fired: Counter[str] = Counter()
        self.losses: dict[int, CommitLoss] = {}
        self.count = 0
        self.standby: Standby
        self.failed_over_at = 0

    async def run(self) -> None:
        world, rng = self.world, self.rng
        for _ in range(rng.randint(2, 3)):
            machine = await world.join()
            self._watch(machine)
        await world.wait(10 * SECOND)
        for number in range(URLS):
            await world.subscribe(self._url(number), f"t.{number}")
        await world.wait(2 * SECOND)
        self.standby = Standby(world.db)
        publishes: set[asyncio.Task[None]] = set()
        for _ in range(STEPS):
            for _ in range(rng.randrange(4)):
                publishes.add(asyncio.ensure_future(self._publish()))
            await self._act()
            await world.wait(rng.choice((0, 1, 20, 300, 2 * SECOND, 12 * SECOND)))
            self._note_losses()
        await asyncio.gather(*publishes)
        for _ in range(3):  # Until nothing new is noticed.
            await world.wait(END_MS // 3)
            self._note_losses()
            await self._confirm()
        await self._judge()

    def _url(self, number: int) -> str:
        return f"https://{number}.example/"

    def _watch(self, machine: Machine) -> None:
        """Note the epochs that it is given."""
        honest = machine.beats.take

        async def take(member_id: int, wanted: Mapping[int, int]) -> dict[int, int]:
            taken = await honest(member_id, wanted)
            for one in taken.items():
                if one in self.given:
                    self.wrong.append(f"the epoch {one[1]} of bucket {one[0]} is given twice")
                self.given.add(one)
            return taken

        machine.beats.take = take  # type: ignore[method-assign]

    def _note_losses(self) -> None:
        for machine in self.world.machines:
            self.losses.update((it.id, it) for it in machine.engine.losses.unconfirmed)

    async def _act(self) -> None:
        draw = self.rng.random()
        if draw < 0.3:
            self.standby.receive()
        elif draw < 0.5:
            await self._fail_over()
        elif draw < 0.7:
            await self._change()
        elif draw < 0.8:
            await self._confirm()

    async def _fail_over(self) -> None:
        lose = self.lossy and self.rng.random() < 0.6
        if not lose:
            self.standby.receive()
        self.fired["failover that lost commits" if lose else "failover"] += 1
        self.standby.promote()
        self.failed_over_at = self.world.clock.now()

    async def _publish(self) -> None:
        self.count += 1
        number, key = self.rng.randrange(URLS), f"e-{self.count}"
        machine = self.rng.choice(self.world.machines)
        data = msgspec.json.encode({"n": self.count})
        draft = EventDraft(tenant="default", type=f"t.{number}", data=data, key=key)
        held = machine.engine.losses.holding
        try:
            await machine.engine.publish([draft])
        except CommitsLost:
            self.fired["held"] += 1
        except HomingError:
            self.fired["refused"] += 1
        else:
            self.acked[key] = self.world.clock.now()
            if held:
                self.wrong.append(f"{key} was acknowledged while publishes are held")

    async def _change(self) -> None:
        """A person creates or deletes a subscription; that works again soon after a failover."""
        machine = self.rng.choice(self.world.machines)
        number = self.rng.randrange(URLS)
        for _ in range(CHANGE_TRIES):
            try:
                if self.rng.random() < 0.6:
                    draft = self.world.draft(f"https://{number}.example/more", f"t.{number}")
                    new = await machine.engine.subscribe(draft)
                    self.created[new.id] = self.world.clock.now()
                else:
                    known = list(machine.engine._core.catalog._by_id.values())
                    spare = [it for it in known if it.url.endswith("/more")]
                    if spare:
                        await machine.engine.unsubscribe(self.rng.choice(spare).id)
            except NotFound:
                return  # Its creation was lost.
            except HomingError:
                await self.world.wait(CHANGE_PAUSE_MS)
            else:
                self.fired["change"] += 1
                return
        self.wrong.append("a change of a subscription is refused again and again")

    async def _confirm(self) -> None:
        machine = self.rng.choice(self.world.machines)
        self._note_losses()
        if await machine.engine.losses.confirm():
            self.fired["confirmed"] += 1

    # --- the end -----------------------------------------------------------------------------

    async def _judge(self) -> None:
        await self._judge_events()
        await self._judge_changes()
        await self._judge_memory()
        if not self.lossy and self.losses:
            self.wrong.append(f"nothing was lost, and it is said: {self.losses}")
        for machine in self.world.machines:
            if machine.engine.losses.unconfirmed:
                self.wrong.append("a loss is shown although it was confirmed")

    async def _rows(self, text: str) -> list[tuple[Any, ...]]:
        db: Any = self.world.db
        found: list[tuple[Any, ...]] = await db.raw(lambda run: run(text))
        return found

    async def _judge_events(self) -> None:
        there = {key for (key,) in await self._rows("SELECT key FROM event")}
        told = [it for it in self.losses.values() if it.kind == "publish"]
        for key, at in self.acked.items():
            if key not in there:
                self.fired["event lost"] += 1
                if not any(_covers(it, at) for it in told):
                    self.wrong.append(f"{key}, acknowledged at {at}, is missing and nobody said so")
        ((pending,),) = await self._rows("SELECT count(*) FROM pending")
        if pending:
            self.wrong.append(f"{pending} deliveries are still pending")
        hits = Counter(hit.delivery for it in self.world.machines for hit in it.sender.hits)
        failovers = self.fired["failover"] + self.fired["failover that lost commits"]
        if any(count > 1 + failovers for count in hits.values()):
            self.wrong.append("a delivery was sent more often than there were failovers")
        if not self.lossy and any(count > 1 for count in hits.values()):
            self.wrong.append("nothing was lost, and a delivery was sent twice")

    async def _judge_changes(self) -> None:
        there = {row[0] for row in await self._rows("SELECT id FROM subscription")}
        told = [it for it in self.losses.values() if it.kind == "catalog"]
        for created, at in self.created.items():
            if created not in there:
                self.fired["change lost"] += 1
                if not any(at <= it.upto_at for it in told):
                    self.wrong.append(f"the subscription {created} is missing and nobody said so")

    async def _judge_memory(self) -> None:
        version = await Admin(self.world.db).catalog_version()
        stored = {
            row[0]
            for row in await self._rows("SELECT id FROM subscription WHERE deleted_at IS NULL")
        }
        for machine in self.world.machines:
            catalog = machine.engine._core.catalog
            if catalog.version != version or set(catalog._by_id) != stored:
                self.wrong.append(f"{machine.me.name} does not know the subscriptions of the store")
        held = [bucket for it in self.world.machines for bucket in it.buckets]
        if sorted(held) != list(range(256)):
            self.wrong.append(f"{256 - len(set(held))} buckets have no owner, {len(held)} are held")


def _covers(loss: CommitLoss, at: int) -> bool:
    """Whether the times of a loss include this acknowledgement."""
    return (loss.from_at or 0) - SLACK_MS <= at <= loss.upto_at + SLACK_MS


def _reply(reply: Reply, _hit: Hit) -> Reply:
    return reply


def run_failover_seed(seed: int) -> tuple[list[str], Counter[str]]:
    """What does not hold, and what happened."""

    async def main() -> Seed:
        rng = Random(f"failover {seed}")
        options = EngineOptions(hold_after_lost_commits=rng.random() < 0.4)
        world = await FleetWorld.begin(options)
        for number in range(URLS):
            for path in ("", "more"):
                latency_ms = rng.choice((0, 5, 400))
                reply = Reply(latency_ms=latency_ms)
                world.sender.scripts[f"https://{number}.example/{path}"] = partial(_reply, reply)
        run = Seed(seed, world, rng)
        await run.run()
        return run

    run = run_virtual(main())
    return run.wrong, run.fired
