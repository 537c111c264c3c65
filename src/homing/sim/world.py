"""A world on virtual time: the real engine and SQLite store, and receivers that are functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

import msgspec
from msgspec import Struct

from homing.engine.engine import Engine, NoticeParts
from homing.engine.options import EngineOptions
from homing.model import Endpoint, Failure, Format, Phases, Subscription, Transition
from homing.policy.admission import SubscriptionDraft
from homing.policy.audit import AuditDraft
from homing.ports import (
    AdminStore,
    FlowStore,
    Request,
    Response,
    Sender,
    SettleBatch,
    SettleResult,
    ViewStore,
)
from homing.sim.loop import VirtualClock
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.sqlite import SqliteDb
from homing.store.views import Views

_ADDRESS = "192.0.2.1:443"
_NOT_DIALLED = frozenset({Failure.FORBIDDEN_ADDRESS, Failure.DNS, Failure.SENDER_DNS})


class Hit(Struct):
    """A request to a receiver."""

    at: int  # by the engine's clock
    url: str
    header_block: bytes
    body: bytes
    deadline_ms: int
    wall: int = 0  # the receiver's own clock, which is right
    life: int = 0  # the start of the process that sends it
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
    excerpt: bytes = b""  # of its body


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
    """A sender whose receivers are functions."""

    def __init__(self, world: World, clock: VirtualClock) -> None:
        self._world, self._clock = world, clock

    def send(self, request: Request, done: Callable[[Response], None]) -> None:
        self.ask(self.begin(request), done)

    def begin(self, request: Request, *, life: int = 0) -> Hit:
        """Start a request."""
        target, clock = request.target, self._clock
        url = f"{target.scheme}://{target.authority}{target.path}"
        block, body = request.header_block, request.body
        hit = Hit(clock.now(), url, block, body, request.deadline_ms, clock.wall(), life)
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
        failure = reply.failure if in_time else late()
        response = Response(
            code=reply.code if in_time else None,
            failure=failure,
            detail="",
            address=None if failure in _NOT_DIALLED else _ADDRESS,
            phases=Phases(
                connect_us=0 if reply.dialled else None, total_us=(used_ms + latency_ms) * 1000
            ),
            retry_after=reply.retry_after if in_time else None,
            excerpt=reply.excerpt if in_time else b"",
        )
        asyncio.get_running_loop().call_later(latency_ms / 1000, self.finish, hit, response, done)

    def finish(self, hit: Hit, response: Response, done: Callable[[Response], None]) -> None:
        """End a request."""
        self._world.watch.responded(hit, response)
        done(response)

    async def close(self) -> None: ...


class WatchedFlow(Flow):
    """Reports every settle to the world's watch."""

    def __init__(self, db: SqliteDb, world: World) -> None:
        super().__init__(db)
        self._world = world

    async def settle(self, batch: SettleBatch) -> SettleResult:
        result = await super().settle(batch)
        self._world.watch.settled(batch, result.gone)
        return result


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
        audit: AuditDraft | None = None,
    ) -> Endpoint:
        written = await super().set_endpoint(
            endpoint,
            seen=seen,
            transition=transition,
            notices=notices,
            for_people=for_people,
            audit=audit,
        )
        self._world.watch.commanded(written, transition)
        return written


class World:
    """An engine with everything around it. Made by ``World.make``."""

    def __init__(self, db: SqliteDb, options: EngineOptions, watch: Watch) -> None:
        self.db, self.options, self.watch = db, options, watch
        self.scripts: dict[str, Script] = {}
        self.otherwise: Script = lambda _: Reply()
        self.notices: NoticeParts | None = None  # None: no notices to people
        self.clock: VirtualClock
        self.engine: Engine

    @classmethod
    async def make(
        cls, options: EngineOptions | None = None, *, watch: Watch | None = None
    ) -> Self:
        """Open a store and start an engine on it."""
        world = cls(await SqliteDb.open(":memory:"), options or EngineOptions(), watch or Watch())
        await world.start()
        return world

    async def start(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.engine = await self.start_engine()

    async def start_engine(self) -> Engine:
        flow, admin, views = self.stores()
        return await Engine.start(
            flow=flow,
            admin=admin,
            views=views,
            sender=self.sender(),
            clock=self.clock,
            options=self.options,
            notices=self.notices,
        )

    def stores(self) -> tuple[FlowStore, AdminStore, ViewStore]:
        """The stores of the engine."""
        return WatchedFlow(self.db, self), WatchedAdmin(self.db, self), Views(self.db)

    def sender(self) -> Sender:
        return ScriptedSender(self, self.clock)

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
        return await self.engine.subscribe(draft)
