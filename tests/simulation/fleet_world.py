"""Several processes on one store and one virtual time: each can be killed, or stopped for a while.

A process that is stopped (as by SIGSTOP) does nothing at all: what would run in it is kept back
and runs when it goes on, late. Words go from process to process through the air, which may be cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any, cast

from homing.engine.engine import Engine
from homing.engine.fleet.membership import FleetParts
from homing.engine.options import EngineOptions
from homing.ports import AdminStore, FleetStore, FlowStore, Member, ViewStore
from homing.sim.loop import VirtualLoop
from homing.sim.world import LIFE, Life, ScriptedSender, Watch
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.leases import Leases
from homing.store.sqlite import SqliteDb
from homing.store.views import Views
from simulation.faults import FaultyWorld, Line

LEASE_MS = 9_000


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


class Air:
    """What carries words: all hear all, unless it is cut."""

    def __init__(self) -> None:
        self.ears: dict[LocalBus, Callable[[str], None]] = {}
        self.cut = False
        self.words = 0  # that were told


class LocalBus:
    """``NotificationBus`` of one life."""

    def __init__(self, air: Air) -> None:
        self._air = air

    @property
    def live(self) -> bool:
        return not self._air.cut

    async def send(self, texts: Sequence[str]) -> None:
        self._air.words += len(texts)
        if self._air.cut:
            return
        loop = asyncio.get_running_loop()
        for ear in self._air.ears.values():
            for text in texts:
                loop.call_later(0.001, ear, text, context=Context())

    def listen(self, on_message: Callable[[str], None], gap: Callable[[], None]) -> None:
        loop, context = asyncio.get_running_loop(), copy_context()

        def ear(text: str) -> None:
            loop.call_soon(on_message, text, context=context)

        self._air.ears[self] = ear
        gap()

    async def close(self) -> None:
        self._air.ears.pop(self, None)


class Machine(FaultyWorld):
    """One process of the fleet, from start to start."""

    def __init__(
        self, number: int, db: SqliteDb, options: EngineOptions, watch: Watch, air: Air
    ) -> None:
        super().__init__(db, options, watch)
        self.number, self._air = number, air
        self.lives = 1_000 * number
        self.me: Member | None = None
        self._bus: LocalBus | None = None
        self.on_member: Callable[[Machine, Member], None]

    async def begin(self) -> Engine:
        """Join, and take a share."""

        def line(store: object) -> Any:
            return Line(store, self.faults, life)

        life = self.life
        self.on_life(life.number)
        leases = cast("FleetStore", line(Leases(self.db, life.clock.now)))
        name = f"machine{self.number}:{life.number}"
        me = await leases.join(name=name, role="both", delivers=True, lease_ms=LEASE_MS)
        self.me, self._bus = me, LocalBus(self._air)
        self.on_member(self, me)
        return await Engine.start(
            flow=cast("FlowStore", line(Flow(self.db, node=me.node))),
            admin=cast("AdminStore", line(Admin(self.db, node=me.node))),
            views=cast("ViewStore", line(Views(self.db))),
            sender=ScriptedSender(self, life),
            clock=life.clock,
            options=self.options,
            fleet=FleetParts(store=leases, bus=self._bus, me=me, lease_ms=LEASE_MS),
        )

    def die(self) -> None:
        if self._bus is not None:
            self._air.ears.pop(self._bus, None)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, FleetLoop)
        loop.stopped.pop(self.life, None)
        super().die()
