"""A world on virtual time: the real engine and SQLite store, and receivers that are functions.

A world has several *lives*: one for each start of the process. The tasks, timers and requests of an
engine belong to its life and end with it, so a crash drops all memory and keeps the store, wherever
the engine was waiting at that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from homing.engine.engine import Engine, NoticeParts
from homing.engine.options import EngineOptions
from homing.model import Endpoint, Failure, Format, Phases, Subscription, Transition
from homing.policy.admission import EventDraft, SubscriptionDraft
from homing.ports import (
    AdminStore,
    DeliveryFilter,
    DeliveryRow,
    FlowStore,
    Receipt,
    Request,
    Response,
    Sender,
    SettleBatch,
    ViewStore,
)
from homing.sim.loop import START_MS, VirtualClock
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.sqlite import SqliteDb
from homing.store.views import Views

T = TypeVar("T")

LIFE: ContextVar[Life | None] = ContextVar("life", default=None)
_ADDRESS = "192.0.2.1:443"
ENDING_TURNS = 20


class Crashed(Exception):
    """The process died before it responded."""


class Hit(Struct):
    """A request to a receiver."""

    at: int  # by the engine's clock
    url: str
    header_block: bytes
    body: bytes
    deadline_ms: int
    life: int
    wall: int = 0  # the receiver's own clock, which is right
    _headers: dict[str, str] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers, parsed at the first use: most receivers do not need them."""
        if self._headers is None:
            lines = self.header_block.decode().split("\r\n")[:-1]
            self._headers = dict(line.split(": ", 1) for line in lines)
        return self._headers

    @property
    def delivery(self) -> str:
        return self.headers["homing-delivery"]

    @property
    def number(self) -> int:
        return int(self.headers["homing-attempt"])


class Reply(Struct, frozen=True):
    """The reply of a receiver: a code or a failure; after the deadline it is a timeout."""

    code: int | None = 200
    failure: Failure | None = None
    latency_ms: int = 0
    retry_after: str | None = None
    dialled: bool = False  # a connection was made for it, or tried


Script = Callable[[Hit], Reply]


class Watch:
    """The events of a world; a subclass overrides the methods that it needs."""

    def sent(self, hit: Hit) -> None:
        """A request starts."""

    def responded(self, hit: Hit, response: Response) -> None:
        """A request has its response; it is not settled yet."""

    def settled(self, batch: SettleBatch, gone: frozenset[int]) -> None:
        """A batch of outcomes was committed."""

    def commanded(self, endpoint: Endpoint, transition: Transition | None) -> None:
        """A person's enable or freeze was committed."""


class ScriptedSender:
    """The sender of one life, whose receivers are functions."""

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life = world, life

    def send(self, request: Request, done: Callable[[Response], None]) -> None:
        if not self._life.alive:
            return
        hit = self._hit(request)
        self.ask(hit, done)

    def _hit(self, request: Request) -> Hit:
        """Start a request."""
        target, life = request.target, self._life
        url = f"{target.scheme}://{target.authority}{target.path}"
        block, body = request.header_block, request.body
        now, wall = life.clock.now(), life.clock.wall()
        hit = Hit(now, url, block, body, request.deadline_ms, life.number, wall)
        self._world.watch.sent(hit)
        return hit

    def ask(
        self,
        hit: Hit,
        done: Callable[[Response], None],
        *,
        used_ms: int = 0,
        late: Callable[[], Failure] = lambda: Failure.TIMEOUT,
    ) -> None:
        """Ask the receiver, after so much of the deadline."""
        world, left_ms = self._world, hit.deadline_ms - used_ms
        seen = hit
        if used_ms:
            seen = msgspec.structs.replace(hit, at=hit.at + used_ms, deadline_ms=left_ms)
        reply = world.scripts.get(hit.url, world.otherwise)(seen)
        in_time = reply.latency_ms <= left_ms
        latency_ms = min(reply.latency_ms, left_ms)
        response = Response(
            code=reply.code if in_time else None,
            failure=reply.failure if in_time else late(),
            detail="",
            address=_ADDRESS,
            phases=Phases(
                connect_us=0 if reply.dialled else None, total_us=(used_ms + latency_ms) * 1000
            ),
            retry_after=reply.retry_after if in_time else None,
        )
        asyncio.get_running_loop().call_later(latency_ms / 1000, self.finish, hit, response, done)

    def finish(self, hit: Hit, response: Response, done: Callable[[Response], None]) -> None:
        """End a request."""
        self._world.watch.responded(hit, response)
        done(response)

    async def close(self) -> None: ...


class Life(Struct, eq=False):
    """One run of the process."""

    number: int
    clock: VirtualClock
    context: Context
    alive: bool = True
    tasks: dict[asyncio.Task[Any], None] = msgspec.field(default_factory=dict)  # in order


class WatchedFlow(Flow):
    """Reports every settle to the world's watch."""

    def __init__(self, db: SqliteDb, world: World) -> None:
        super().__init__(db)
        self._world = world

    async def settle(self, batch: SettleBatch) -> frozenset[int]:
        gone = await super().settle(batch)
        self._world.watch.settled(batch, gone)
        return gone


class WatchedAdmin(Admin):
    """Reports every enable and freeze to the world's watch."""

    def __init__(self, db: SqliteDb, world: World) -> None:
        super().__init__(db)
        self._world = world

    async def set_endpoint(
        self,
        endpoint: Endpoint,
        *,
        seen: Endpoint,
        transition: Transition | None,
        notices: Any,
        for_people: Any = (),
    ) -> Endpoint:
        written = await super().set_endpoint(
            endpoint, seen=seen, transition=transition, notices=notices, for_people=for_people
        )
        self._world.watch.commanded(written, transition)
        return written


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


class World:
    """An engine with everything around it. Made by ``World.make``."""

    def __init__(self, db: SqliteDb, options: EngineOptions, watch: Watch) -> None:
        self.db, self.options, self.watch = db, options, watch
        self.scripts: dict[str, Script] = {}
        self.otherwise: Script = lambda _: Reply()
        self.make_sender: Callable[[Life], Sender] = partial(ScriptedSender, self)
        self.notices: NoticeParts | None = None  # None: no notices to people
        self.views: ViewStore = Views(db)  # for tests, in any life and between two
        self.lives = 0
        self.life: Life
        self.engine: Engine

    @classmethod
    async def make(
        cls, options: EngineOptions | None = None, *, watch: Watch | None = None
    ) -> World:
        """Open a store and start an engine on it."""
        world = cls(await SqliteDb.open(":memory:"), options or EngineOptions(), watch or Watch())
        world.install()
        await world.start()
        return world

    def install(self) -> None:
        """Let the loop add every task to its life."""
        asyncio.get_running_loop().set_task_factory(_make_task)

    def stores(self) -> tuple[FlowStore, AdminStore, ViewStore]:
        """The stores of the engine of a new life."""
        return WatchedFlow(self.db, self), WatchedAdmin(self.db, self), Views(self.db)

    # --- lives -------------------------------------------------------------------------------

    async def start(self, *, clock_offset_ms: int = 0) -> None:
        """Begin a life; its clock may differ from the last one's, as after a reboot."""
        self.lives += 1
        clock = VirtualClock(asyncio.get_running_loop(), start_ms=START_MS + clock_offset_ms)
        context = copy_context()
        self.life = Life(self.lives, clock, context)
        context.run(LIFE.set, self.life)
        self.engine = await self.call(self.begin())

    async def begin(self) -> Engine:
        """Start the engine of a new life."""
        flow, admin, views = self.stores()
        return await Engine.start(
            flow=flow,
            admin=admin,
            views=views,
            sender=self.make_sender(self.life),
            clock=self.life.clock,
            options=self.options,
            notices=self.notices,
        )

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

    @property
    def clock(self) -> VirtualClock:
        return self.life.clock

    # --- commands ----------------------------------------------------------------------------

    async def subscribe(self, url: str, *types: str, **more: Any) -> Subscription:
        draft = SubscriptionDraft(
            tenant=more.get("tenant", "default"),
            url=url,
            types=types or ("*",),
            format=more.get("format", Format.STANDARD),
            token=more.get("token"),
            headers=(),
            secret=more.get("secret"),
            policy=more.get("policy"),
            deadline_ms=more.get("deadline_ms"),
            active=more.get("active", True),
            description="",
        )
        return await self.call(self.engine.subscribe(draft))

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
        """All deliveries of these conditions, oldest first."""
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
        """All endpoints, oldest first."""
        found: list[Endpoint] = []
        before: int | None = None
        while True:
            page, before = await self.views.endpoints(
                tenant=None, state=None, before_id=before, limit=500
            )
            found.extend(page)
            if before is None:
                return found[::-1]
