"""A world whose process dies and starts again on the same store.

A world lives through several *lives*: one for each start of the process. What an engine starts
(tasks, timers, requests) belongs to its life and ends with it, so a crash drops all memory and
keeps the store, wherever the engine was waiting at that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from homing.engine.options import EngineOptions
from homing.model import Endpoint, Subscription
from homing.policy.admission import EventDraft
from homing.ports import DeliveryFilter, DeliveryRow, Receipt, Request, Response, Sender, ViewStore
from homing.sim.loop import START_MS, VirtualClock
from homing.sim.world import Hit, ScriptedSender, Watch, World
from homing.store.sqlite import SqliteDb
from homing.store.views import Views

T = TypeVar("T")

LIFE: ContextVar[Life | None] = ContextVar("life", default=None)
ENDING_TURNS = 20


class Crashed(Exception):
    """The process died before it responded."""


class Life(Struct, eq=False):
    """One run of the process."""

    number: int
    clock: VirtualClock
    context: Context
    alive: bool = True
    tasks: dict[asyncio.Task[Any], None] = msgspec.field(default_factory=dict)  # in order


class LifeSender(ScriptedSender):
    """The sender of one life: it sends nothing more when that has ended."""

    def __init__(self, world: World, life: Life) -> None:
        super().__init__(world, life.clock)
        self._life = life

    def send(self, request: Request, done: Callable[[Response], None]) -> None:
        if self._life.alive:
            self.ask(self.begin(request), done)

    def begin(self, request: Request, *, life: int = 0) -> Hit:
        return super().begin(request, life=life or self._life.number)


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None
) -> asyncio.Task[Any]:
    """Make a task that belongs to the present life."""
    task = asyncio.Task(work, loop=loop, context=context)
    life = LIFE.get() if context is None else context.get(LIFE)
    if life is not None:
        life.tasks[task] = None
        task.add_done_callback(life.tasks.pop)
    return task


class MortalWorld(World):
    """A world whose process may die; it can be looked at in any life and between two."""

    def __init__(self, db: SqliteDb, options: EngineOptions, watch: Watch) -> None:
        super().__init__(db, options, watch)
        self.views: ViewStore = Views(db)
        self.lives = 0
        self.life: Life

    def sender(self) -> Sender:
        return LifeSender(self, self.life)

    # --- lives -------------------------------------------------------------------------------

    async def start(self, *, clock_offset_ms: int = 0) -> None:
        """Begin a life; its clock may differ from the last one's, as after a reboot."""
        asyncio.get_running_loop().set_task_factory(_make_task)
        self.lives += 1
        clock = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + clock_offset_ms)
        context = copy_context()
        self.life, self.clock = Life(self.lives, clock, context), clock
        context.run(LIFE.set, self.life)
        self.engine = await self.call(self.start_engine())

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the process; raises Crashed if the process dies first."""
        life = self.life
        if not life.alive:
            work.close()
            raise Crashed
        task = asyncio.get_running_loop().create_task(work, context=life.context)
        try:
            return await task
        except asyncio.CancelledError:
            if life.alive:
                raise
            raise Crashed from None

    def die(self) -> None:
        """Kill the process now: all memory is lost."""
        self.life.alive = False
        self._end_tasks(self.life, ENDING_TURNS)

    def _end_tasks(self, life: Life, turns: int) -> None:
        """End the tasks and timers of a life; several times, as ending tasks may set timers."""
        loop = asyncio.get_running_loop()
        for task in list(life.tasks):
            if task is not asyncio.current_task():
                task.cancel()
        for timer in list(loop._scheduled):  # type: ignore[attr-defined]
            if timer._context.get(LIFE) is life:
                timer.cancel()
        if turns:
            loop.call_soon(self._end_tasks, life, turns - 1, context=Context())

    async def crash(self, *, clock_offset_ms: int = 0) -> None:
        """Die and start again on the same store."""
        self.die()
        await asyncio.sleep(0)
        await self.start(clock_offset_ms=clock_offset_ms)

    # --- commands ----------------------------------------------------------------------------

    async def subscribe(self, url: str, *types: str, **more: Any) -> Subscription:
        return await self.call(super().subscribe(url, *types, **more))

    async def publish(self, event_type: str = "a.b", **more: Any) -> Receipt:
        draft = EventDraft(
            tenant=more.get("tenant", "default"),
            type=event_type,
            data=msgspec.json.encode(more.get("data", {"n": 1})),
            key=more.get("key"),
        )
        (receipt,) = await self.call(self.engine.publish([draft]))
        return receipt

    async def wait(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    # --- reads -------------------------------------------------------------------------------

    async def deliveries(self, **conditions: Any) -> list[DeliveryRow]:
        """All there are, oldest first."""
        rows: list[DeliveryRow] = []
        before: int | None = None
        while True:
            page, before = await self.views.deliveries(
                DeliveryFilter(**conditions), before_id=before, limit=500
            )
            rows.extend(page)
            if before is None:
                return rows[::-1]

    async def endpoints(self) -> list[Endpoint]:
        """All there are, oldest first."""
        found: list[Endpoint] = []
        before: int | None = None
        while True:
            page, before = await self.views.endpoints(
                tenant=None, state=None, before_id=before, limit=500
            )
            found.extend(page)
            if before is None:
                return found[::-1]
