"""A fleet of several engines on one store, in one process and on one virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from engine.world import SECOND, ScriptedSender, World
from homing.engine.engine import Engine, NoticeParts
from homing.engine.fleet.membership import FleetParts
from homing.engine.options import EngineOptions
from homing.errors import StoreUnavailable
from homing.model import Endpoint
from homing.ports import FleetState, Member
from homing.sim.loop import START_MS, VirtualClock, run_virtual
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.leases import Leases
from homing.store.notices import Notices
from homing.store.sqlite import SqliteDb
from homing.store.views import Views
from simulation.machine import LocalBus, Network

LEASE_MS = 9_000
URL = "https://a.example/"


class Beats(Leases):
    """Heartbeats that can be made to fail."""

    silent = False

    async def renew(self, member_id: int, *, delivers: bool, lease_ms: int) -> FleetState | None:
        if self.silent:
            raise StoreUnavailable
        return await super().renew(member_id, delivers=delivers, lease_ms=lease_ms)


@dataclass
class Machine:
    """One process of the fleet."""

    engine: Engine
    me: Member
    sender: ScriptedSender
    beats: Beats
    bus: LocalBus

    @property
    def buckets(self) -> set[int]:
        held = self.engine._core.ownership
        return {it for it, epoch in enumerate(held.mine) if epoch}

    def hits(self, url: str) -> list[str]:
        return [hit.delivery for hit in self.sender.hits if hit.url == url]


@dataclass
class FleetWorld(World):
    """A fleet; ``engine`` is the engine that publishers and people use."""

    machines: list[Machine] = field(default_factory=list)
    air: Network = field(default_factory=Network)

    @classmethod
    async def begin(cls, options: EngineOptions | None = None) -> FleetWorld:
        clock = VirtualClock(asyncio.get_running_loop())
        db = await SqliteDb.open(":memory:")
        return cls(clock, db, ScriptedSender(clock), options or EngineOptions(), clock.now())

    async def join(self, *, delivers: bool = True, ahead_ms: int = 0) -> Machine:
        """Start another process, whose clock is ahead of the database's by so much."""
        number = len(self.machines) + 1
        loop = asyncio.get_running_loop()
        clock = VirtualClock(loop, start_ms=START_MS + ahead_ms) if ahead_ms else self.clock
        beats = Beats(self.db, self.clock.now)
        role = "both" if delivers else "api"
        me = await beats.join(
            name=f"here:{number}", role=role, delivers=delivers, lease_ms=LEASE_MS
        )
        sender, bus = ScriptedSender(clock), LocalBus(self.air)
        sender.scripts = self.sender.scripts
        self.views = Views(self.db)
        engine = await Engine.start(
            flow=Flow(self.db, node=me.node, shared=True),
            admin=Admin(self.db, node=me.node),
            views=self.views,
            sender=sender,
            clock=clock,
            options=self.options,
            fleet=FleetParts(store=beats, bus=bus, me=me, lease_ms=LEASE_MS),
            notices=NoticeParts(Notices(self.db, node=me.node)),
        )
        machine = Machine(engine, me, sender, beats, bus)
        self.machines.append(machine)
        if number == 1:
            self.engine = engine
        return machine

    def owner_of(self, bucket: int) -> Machine:
        (owner,) = [it for it in self.machines if bucket in it.buckets]
        return owner

    def other_than(self, machine: Machine) -> Machine:
        return next(it for it in self.machines if it is not machine)

    def all_hits(self, url: str) -> list[str]:
        return [delivery for machine in self.machines for delivery in machine.hits(url)]


async def two(world: FleetWorld) -> tuple[Machine, Machine]:
    one, other = await world.join(), await world.join()
    await world.wait(5 * SECOND)
    return one, other


async def at(world: FleetWorld, url: str = URL) -> tuple[Machine, Machine, Endpoint]:
    """The machine that owns this URL, another machine, and the endpoint."""
    await world.subscribe(url)
    await world.wait(2 * SECOND)
    endpoint = await world.endpoint(url)
    owner = world.owner_of(endpoint.bucket)
    return owner, world.other_than(owner), endpoint


def fleet(story: Callable[[FleetWorld], Awaitable[None]]) -> None:
    """Run a test on virtual time."""

    async def run() -> None:
        await story(await FleetWorld.begin())

    run_virtual(run())
