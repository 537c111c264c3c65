"""Machines on one store and one virtual time: a process each, killed, stopped and started again.

A process that is stopped (as by SIGSTOP) does nothing at all: what would run in it is kept back
and runs when it goes on, late. Several processes share the buckets of the store by leases and
notify each other through the network, which may be cut; a single process needs neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from functools import partial
from random import Random
from typing import Any, TypeVar, cast

from homing.engine.engine import Engine
from homing.engine.fleet.membership import FleetParts
from homing.engine.options import EngineOptions
from homing.ports import AdminStore, FleetStore, FlowStore, Sender, ViewStore
from homing.sim.loop import VirtualLoop
from homing.sim.world import Watch
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.leases import Leases
from homing.store.sqlite import SqliteDb
from homing.store.views import Views
from simulation.checker import LEASE_MS
from simulation.faults import Faults, Line
from simulation.lives import LIFE, Crashed, Life, LifeSender, MortalWorld
from simulation.set_clocks import SetClocks

T = TypeVar("T")


class FleetLoop(VirtualLoop):
    """Keeps back what belongs to a process that is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: dict[Life, list[tuple[Callable[..., object], tuple[Any, ...], Context]]] = {}

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        life = context.get(LIFE)
        if life is None:
            return super().call_soon(callback, *args, context=context)
        return super().call_soon(self._run, life, callback, args, context, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        life = context.get(LIFE)
        if life is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, self._run, life, callback, args, context, context=context)

    def _run(self, life: Life, callback: Any, args: tuple[Any, ...], context: Context) -> None:
        if life in self.stopped:
            self.stopped[life].append((callback, args, context))
        else:
            callback(*args)

    def stop_life(self, life: Life) -> None:
        self.stopped[life] = []

    def go_on(self, life: Life) -> None:
        for callback, args, context in self.stopped.pop(life, ()):
            if life.alive:
                self.call_soon(callback, *args, context=context)


class Network:
    """Carries the messages of a fleet: each reaches all processes, unless the network is cut."""

    def __init__(self) -> None:
        self.listeners: dict[LocalBus, Callable[[str], None]] = {}
        self.cut = False
        self.messages = 0  # that were sent


class LocalBus:
    """The connection of one life to the network."""

    def __init__(self, network: Network) -> None:
        self._network = network

    @property
    def live(self) -> bool:
        return not self._network.cut

    async def send(self, texts: Sequence[str]) -> None:
        self._network.messages += len(texts)
        if self._network.cut:
            return
        loop = asyncio.get_running_loop()
        for listener in self._network.listeners.values():
            for text in texts:
                loop.call_later(0.001, listener, text, context=Context())

    def listen(self, on_message: Callable[[str], None], gap: Callable[[], None]) -> None:
        loop, context = asyncio.get_running_loop(), copy_context()

        def listener(text: str) -> None:
            loop.call_soon(on_message, text, context=context)

        self._network.listeners[self] = listener
        gap()

    async def close(self) -> None:
        self._network.listeners.pop(self, None)


class Machine(MortalWorld):
    """A machine with one process, from start to start; its lines to the store are faulty."""

    def __init__(
        self,
        number: int,
        db: SqliteDb,
        options: EngineOptions,
        watch: Watch,
        network: Network | None = None,
    ) -> None:
        super().__init__(db, options, watch)
        self.number, self._network = number, network
        self.lives = 1_000 * number
        self.is_up = asyncio.Event()
        self._bus: LocalBus | None = None
        self.make_sender: Callable[[Life], Sender] = partial(LifeSender, self)
        self.set_clocks: SetClocks | None = None
        self.faults: Faults
        self.on_life: Callable[[Machine], None]

    def _line(self, store: object) -> Any:
        return Line(store, self.faults, self.life)

    def stores(self, *, node: int = 0) -> tuple[FlowStore, AdminStore, ViewStore]:
        return (
            cast(
                "FlowStore", self._line(Flow(self.db, node=node, shared=self._network is not None))
            ),
            cast("AdminStore", self._line(Admin(self.db, node=node))),
            cast("ViewStore", self._line(Views(self.db))),
        )

    def sender(self) -> Sender:
        return self.make_sender(self.life)

    async def start_engine(self) -> Engine:
        if self.set_clocks is not None:
            await self.set_clocks.begin(self)
            self.set_clocks.keep()
        self.on_life(self)
        if self._network is None:
            return await super().start_engine()
        return await self._join(self._network)

    async def _join(self, network: Network) -> Engine:
        """Become a member of the fleet; its engine takes a share of the buckets."""
        life = self.life
        leases = cast("FleetStore", self._line(Leases(self.db, life.clock.now)))
        name = f"machine{self.number}:{life.number}"
        me = await leases.join(name=name, role="both", delivers=True, lease_ms=LEASE_MS)
        self._bus = LocalBus(network)
        flow, admin, views = self.stores(node=me.node)
        return await Engine.start(
            flow=flow,
            admin=admin,
            views=views,
            sender=self.sender(),
            clock=life.clock,
            options=self.options,
            fleet=FleetParts(store=leases, bus=self._bus, me=me, lease_ms=LEASE_MS),
        )

    async def ask(self, what: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Ask the engine for something; Crashed if it is down, or dies before it responds."""
        if not self.up:
            raise Crashed
        return await self.call(what(self.engine))

    @property
    def up(self) -> bool:
        return self.is_up.is_set()

    def die(self) -> None:
        self.is_up.clear()
        if self._network is not None and self._bus is not None:
            self._network.listeners.pop(self._bus, None)
        loop = asyncio.get_running_loop()
        if isinstance(loop, FleetLoop):
            loop.stopped.pop(self.life, None)
        super().die()


def pick(machines: Sequence[Machine], rng: Random) -> Machine:
    """One that is up, if any; where there is only one, nothing is drawn."""
    up = [it for it in machines if it.up] or machines
    return machines[0] if len(machines) == 1 else rng.choice(up)
