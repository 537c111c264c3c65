"""A small world on virtual time: the real engine and SQLite store, and receivers by script."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from homing.engine.engine import Engine, NoticeParts
from homing.engine.notice_sender import NoticeOptions
from homing.engine.options import EngineOptions
from homing.engine.settle import SOON_MS
from homing.model import (
    Endpoint,
    Failure,
    Format,
    Ids,
    Phases,
    SigningKeys,
    Subscription,
    Transition,
)
from homing.net.oauth import OAuthSender
from homing.policy.admission import EventDraft, SubscriptionDraft, draft_of
from homing.policy.audit import AuditDraft, Head, head_mac
from homing.policy.encryption import KeyRing
from homing.ports import DeliveryFilter, DeliveryRow, Mail, Receipt, Request, Response
from homing.ports.audit import present_act
from homing.ports.tracing import SpanExporter
from homing.sim.loop import VirtualClock, run_virtual
from homing.store.admin import Admin
from homing.store.audit import Audit
from homing.store.audited import Audited, Auditor
from homing.store.encryption import (
    EncryptedAdmin,
    EncryptedNotices,
    EncryptedViews,
    FieldCipher,
)
from homing.store.flow import Flow
from homing.store.notices import Notices
from homing.store.pull import Pulls
from homing.store.sqlite import SqliteDb
from homing.store.views import Views
from referee import accepted_by_both, accepted_v1a, clock_at

HITS_CHECKED = 20
LOG_KEY = b"k" * 32  # of the audit log
FIELDS = FieldCipher(KeyRing((b"e" * 32,)))  # as in every server, the store has only ciphertext
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@dataclass
class Hit:
    """A request as the receiver saw it."""

    at: int
    url: str
    headers: dict[str, str]
    body: bytes
    wall: int  # the receiver's own clock, which is right
    method: str = "POST"

    @property
    def delivery(self) -> str:
        return self.headers["homing-delivery"]


@dataclass
class Reply:
    """The reaction of a receiver to a request."""

    code: int | None = 200
    failure: Failure | None = None
    latency_ms: int = 0
    retry_after: str | None = None
    excerpt: bytes = b""
    headers: bytes = b""
    dialled: bool = True  # on a new connection
    remembered: bool = False  # to an address that was known from before
    proxied: bool = False


Script = Callable[[Hit], Reply]


class ScriptedSender:
    """A sender whose receivers are functions."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.scripts: dict[str, Script] = {}
        self.hits: list[Hit] = []
        self.flying = 0
        self.most_flying: dict[str, int] = {}
        self._flying_at: dict[str, int] = {}

    def send(self, request: Request, done: Callable[[Response], None]) -> None:
        target = request.target
        url = f"{target.scheme}://{target.authority}{target.path}"
        lines = request.header_block.decode().split("\r\n")[:-1]
        headers = dict(line.split(": ", 1) for line in lines)
        now, wall = self._clock.now(), self._clock.wall()
        hit = Hit(now, url, headers, request.body, wall, request.method.decode())
        self.hits.append(hit)
        script = self.scripts.get(url)
        reply = Reply() if script is None else script(hit)
        latency = min(reply.latency_ms, request.deadline_ms)
        response = Response(
            code=reply.code,
            failure=reply.failure,
            detail="",
            address=None if reply.failure is Failure.FORBIDDEN_ADDRESS else "192.0.2.1:443",
            phases=Phases(connect_us=0 if reply.dialled else None, total_us=latency * 1000),
            retry_after=reply.retry_after,
            excerpt=reply.excerpt,
            headers=reply.headers,
            remembered=reply.remembered,
            proxied=reply.proxied,
        )
        if reply.latency_ms > request.deadline_ms:
            response = msgspec.structs.replace(response, code=None, failure=Failure.TIMEOUT)
        self._flying_at[url] = self._flying_at.get(url, 0) + 1
        self.most_flying[url] = max(self.most_flying.get(url, 0), self._flying_at[url])

        def land() -> None:
            self._flying_at[url] -= 1
            done(response)

        asyncio.get_running_loop().call_later(latency / 1000, land)

    async def close(self) -> None: ...


class ScriptedMailer:
    """A mailer whose server is a function: what it returns is the reason of a refusal."""

    def __init__(self) -> None:
        self.sent: list[Mail] = []
        self.script: Callable[[Mail], str] = lambda _: ""
        self.latency_s = 0.0

    async def send(self, mail: Mail) -> str:
        self.sent.append(mail)
        await asyncio.sleep(self.latency_s)
        return self.script(mail)

    async def close(self) -> None: ...


class Witness(EncryptedAdmin):
    """The admin store; it remembers every secret and key that was ever used to sign."""

    def __init__(self, store: Any, secrets: set[str]) -> None:
        super().__init__(store, FIELDS)
        self._seen = secrets

    async def create_subscription(
        self, subscription: Subscription, *, endpoint: Endpoint | None, **more: Any
    ) -> Subscription:
        self._seen.update(one.value for one in subscription.secrets)
        return await super().create_subscription(subscription, endpoint=endpoint, **more)

    async def change_subscription(
        self, subscription: Subscription, *, endpoint: Endpoint, cleanup_job_id: int
    ) -> Subscription:
        self._seen.update(one.value for one in subscription.secrets)
        return await super().change_subscription(
            subscription, endpoint=endpoint, cleanup_job_id=cleanup_job_id
        )

    async def change_pair(
        self,
        subscription: Subscription,
        twin: Subscription,
        *,
        endpoint: Endpoint,
        cleanup_job_ids: tuple[int, int],
    ) -> Subscription:
        self._seen.update(one.value for it in (subscription, twin) for one in it.secrets)
        return await super().change_pair(
            subscription, twin, endpoint=endpoint, cleanup_job_ids=cleanup_job_ids
        )

    async def set_signing_keys(self, keys: SigningKeys) -> SigningKeys:
        self._seen.update(one.value for one in keys.keys)
        return await super().set_signing_keys(keys)


class LaxAuditor(Auditor):
    """An auditor that also lets the tests of the engine make changes: by nobody, without entry."""

    def draft(self) -> AuditDraft:
        return super().draft() if present_act() is not None else cast("AuditDraft", None)


def changed(**changes: Any) -> Callable[[Subscription], SubscriptionDraft]:
    """A function that makes the draft of a subscription with these changes."""
    return lambda before: msgspec.structs.replace(draft_of(before), **changes)


@dataclass
class World:
    """An engine and a store on virtual time, with everything that a test needs."""

    clock: VirtualClock
    db: SqliteDb
    sender: ScriptedSender
    options: EngineOptions
    start_ms: int
    engine: Engine = field(init=False)
    secrets: set[str] = field(default_factory=set)  # all that ever signed
    mailer: ScriptedMailer = field(default_factory=ScriptedMailer)
    exporter: SpanExporter | None = None

    @classmethod
    async def make(cls, options: EngineOptions | None = None) -> World:
        clock = VirtualClock(asyncio.get_running_loop())
        db = await SqliteDb.open(":memory:")
        world = cls(clock, db, ScriptedSender(clock), options or EngineOptions(), clock.now())
        await world.start()
        return world

    async def start(self) -> None:
        self.flow = Flow(self.db)
        self.views = cast("Views", EncryptedViews(Views(self.db), FIELDS))
        self.pulls = Pulls(self.db)
        self.audit = Audit(self.db)
        if await self.audit.log_key() is None:
            await self.audit.set_log_key("", before=None, mac=head_mac(LOG_KEY, Head()))
        self.auditor = LaxAuditor(LOG_KEY, Ids(after=await self.audit.last_id()))
        self.auditor.now = self.clock.now
        self.admin = cast("Admin", Witness(Audited(Admin(self.db), self.auditor), self.secrets))
        self.engine = await Engine.start(
            flow=self.flow,
            admin=self.admin,
            views=self.views,
            sender=OAuthSender(self.sender, monotonic=asyncio.get_running_loop().time),
            clock=self.clock,
            options=self.options,
            notices=NoticeParts(
                cast("Notices", EncryptedNotices(Audited(Notices(self.db), self.auditor), FIELDS)),
                self.mailer,
                NoticeOptions("https://homing.example", "m.example"),
            ),
            exporter=self.exporter,
            pull=self.pulls,
        )

    async def crash(self) -> None:
        """Drop all memory and start again on the same store."""
        await self.kill()
        await self.start()

    async def kill(self) -> None:
        """Drop all memory."""
        me = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not me:
                task.cancel()
        dead = self.engine
        dead._dispatcher.stop()
        dead._dispatcher.on_completed = lambda _: None
        await asyncio.sleep(0)

    # --- doing -------------------------------------------------------------------------------

    def draft(self, url: str, *types: str, **more: Any) -> SubscriptionDraft:
        return SubscriptionDraft(
            tenant=more.pop("tenant", "default"),
            url=url,
            types=types or ("*",),
            format=more.pop("format", Format.STANDARD),
            token=more.pop("token", None),
            headers=(),
            secret=None,
            policy=more.pop("policy", None),
            deadline_ms=more.pop("deadline_ms", None),
            rate_per_second=more.pop("rate_per_second", None),
            active=True,
            description="",
            **more,
        )

    async def subscribe(self, url: str, *types: str, **more: Any) -> Subscription:
        return await self.engine.subscribe(self.draft(url, *types, **more))

    async def publish(self, event_type: str = "a.b", **more: Any) -> Receipt:
        draft = EventDraft(
            tenant=more.get("tenant", "default"),
            type=event_type,
            data=msgspec.json.encode(more.get("data", {"n": 1})),
            key=more.get("key"),
            trace=more.get("trace", ""),
            order_key=more.get("order_key"),
        )
        (receipt,) = await self.engine.publish([draft])
        return receipt

    async def wait(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    async def settled(self) -> None:
        """Wait until everything has run that needs no time."""
        for _ in range(200):
            await asyncio.sleep(0)

    async def written(self) -> None:
        """Wait until successes are written, too, which wait for others before that."""
        await self.wait(SOON_MS + 1)

    # --- looking -----------------------------------------------------------------------------

    def since_start(self) -> int:
        return self.clock.now() - self.start_ms

    def hits(self, url: str | None = None) -> list[int]:
        """When requests came, in milliseconds since the start."""
        return [hit.at - self.start_ms for hit in self.sender.hits if url in (None, hit.url)]

    async def deliveries(self, **conditions: Any) -> list[DeliveryRow]:
        rows: list[DeliveryRow] = []
        before: int | None = None
        while True:
            page, before = await self.views.deliveries(
                DeliveryFilter(**conditions), before_id=before, limit=200
            )
            rows.extend(page)
            if before is None:
                return rows[::-1]

    async def only_delivery(self) -> DeliveryRow:
        (row,) = [
            row for row in await self.deliveries() if not row.event_type.startswith("homing.")
        ]
        return row

    async def endpoint(self, url: str) -> Endpoint:
        found, _ = await self.views.endpoints(tenant=None, state=None, before_id=None, limit=200)
        (endpoint,) = [one for one in found if one.url == url]
        return endpoint

    async def transitions(self, url: str) -> list[Transition]:
        endpoint = await self.endpoint(url)
        rows, _ = await self.views.transitions(endpoint.id, before_id=None, limit=200)
        return rows[::-1]

    async def event_types(self) -> list[str]:
        rows, _ = await self.views.events(tenant=None, event_type=None, before_id=None, limit=200)
        return [row.event.type for row in rows][::-1]


def live(story: Callable[[World], Awaitable[None]], options: EngineOptions | None = None) -> None:
    """Run a test on virtual time."""

    async def run() -> None:
        world = await World.make(options)
        await story(world)
        check_signatures(world)

    run_virtual(run())


def check_signatures(world: World) -> None:
    """Check sent requests with other libraries; of very many, only the first and the last."""
    hits = [hit for hit in world.sender.hits if "homing-delivery" in hit.headers]
    hits = [hit for hit in hits if not hit.headers["content-type"].startswith("image/")]  # no text
    for hit in (*hits[:HITS_CHECKED], *hits[HITS_CHECKED:][-HITS_CHECKED:]):
        versions = {it.partition(",")[0] for it in hit.headers["webhook-signature"].split(" ")}
        accepts = {"v1": _accepted_v1, "v1a": _accepted_v1a}
        for version in versions:
            signed = any(accepts[version](hit, one) for one in world.secrets)
            assert signed, f"{version} of {hit.delivery} is by none of {len(world.secrets)} secrets"


def _accepted_v1(hit: Hit, secret: str) -> bool:
    with clock_at(hit.wall):
        return secret.startswith("whsec_") and accepted_by_both(hit.headers, hit.body, secret)


def _accepted_v1a(hit: Hit, key: str) -> bool:
    """The second half of a private key is the public key."""
    if not key.startswith("whsk_"):
        return False
    public = b64encode(b64decode(key.removeprefix("whsk_"))[32:]).decode()
    return accepted_v1a(hit.headers, hit.body, f"whpk_{public}")


def always(code: int, **more: Any) -> Script:
    return lambda _: Reply(code=code, **more)


def failing_with(failure: Failure, **more: Any) -> Script:
    return lambda _: Reply(code=None, failure=failure, **more)


async def balanced(world: World) -> None:
    for ledger in await world.views.ledger(tenant=None):
        assert ledger.counted
        assert ledger.accepted == (
            ledger.delivered
            + ledger.pending
            + ledger.dropped
            + ledger.cancelled
            + ledger.superseded
        )
