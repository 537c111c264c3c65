"""Erasures from a seed: the real engine and store, with crashes, slow and lost replies.

Every event has a token of its own in its id and data. From the response to an erasure on, no
request may have the token of an event that it covers. At the end no table has such a token, no row
belongs to an event that is gone, the ledger balances, and events that nobody erased are delivered:
also those of a tenant that is erased, and used again from the response on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import msgspec

from homing.engine.options import EngineOptions
from homing.errors import EventConflict, HomingError, NotFound, StoreUnavailable
from homing.policy.health import HealthRules
from homing.policy.payload_fields import PayloadFields
from homing.ports import AdminStore, FlowStore, ReplayFilter, ViewStore
from homing.ports.erasures import Erasure
from homing.sim.loop import run_virtual
from homing.sim.world import Hit, Reply, Watch
from homing.store.migrate import Execute
from homing.store.sqlite import SqliteDb
from simulation.lives import Crashed, MortalWorld

MINUTE, HOUR = 60_000, 3_600_000
TENANTS = ("a", "b")
CUSTOMERS = ("ada", "bob", "cem")
URLS = 3
STEPS = 40
TRIES = 500  # to find the end of an erasure
SLOW = {"publish", "due", "take_probe", "settle", "replay_step", "candidates", "erase_events"}
LATE = {"publish", "take_probe", "candidates"}


class Model(Watch):
    """What was published, what was erased, and what was sent."""

    def __init__(self) -> None:
        self.published: dict[str, tuple[str, str]] = {}  # token → tenant and customer, answered
        self.matched: set[str] = set()  # of these, those that have deliveries
        self.erased: set[str] = set()
        self.unsure: set[str] = set()  # tokens of an erasure without a response
        self.sent_tokens: Counter[str] = Counter()
        self.wrong: list[str] = []

    def sent(self, hit: Hit) -> None:
        token = msgspec.json.decode(hit.body).get("data", {}).get("token")
        if token is None:
            return  # a notice of Homing
        self.sent_tokens[token] += 1
        if token in self.erased:
            self.wrong.append(f"{token} was sent after it was erased")

    def of(self, tenant: str, customer: str | None = None) -> set[str]:
        """The tokens that an erasure of a tenant, or of a customer's events, covers."""
        return {
            token
            for token, (whose, who) in self.published.items()
            if whose == tenant and customer in {None, who}
        }


class SlowStore:
    """A store whose replies are late or lost now and then."""

    def __init__(self, store: Any, chance: Random, late: Random) -> None:
        self._store, self._chance, self._late = store, chance, late
        self.calm = False
        self.on_late: Callable[[str], None] = lambda _: None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in SLOW:
            return method

        async def call(*args: Any, **given: Any) -> Any:
            if not self.calm and self._chance.random() < 0.02:
                raise StoreUnavailable
            result = await method(*args, **given)
            if not self.calm:
                await asyncio.sleep(self._chance.choice((0, 0, 0, 0.001, 0.02, 0.4)))
                if name in LATE and self._late.random() < 0.2:
                    self.on_late(name)
                    await asyncio.sleep(2)  # An erasure may begin and end meanwhile.
                if name != "settle" and self._chance.random() < 0.02:
                    raise StoreUnavailable  # It was written, and the reply is lost.
            return result

        return call


class ErasureWorld(MortalWorld):
    """A world on slow stores."""

    chance: Random
    late: Random
    calm = False

    def on_late(self, name: str) -> None:
        """A reply of the store is late."""

    def stores(self) -> tuple[FlowStore, AdminStore, ViewStore]:
        flow, admin, views = super().stores()
        self.slow = [SlowStore(it, self.chance, self.late) for it in (flow, admin)]
        for it in self.slow:
            it.calm, it.on_late = self.calm, self.on_late
        return self.slow[0], self.slow[1], views

    def calm_down(self) -> None:
        self.calm = True
        for it in self.slow:
            it.calm = True


def options() -> EngineOptions:
    return EngineOptions(
        step_rows=3,
        health=HealthRules(consecutive_disable=3, consecutive_freeze=1_000_000),
        payload_fields=PayloadFields(("data.customer",), (b"k" * 16,)),
    )


class Run:
    """One run of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.chance = seed, Random(f"erasures {seed}")
        self.reuse = Random(f"erased tenants that are used again {seed}")
        self.model = Model()
        self.count = 0
        self.bad: set[str] = set()
        self.publishing: dict[str, str] = {}  # tokens without an answer, and their tenants
        self.tasks: set[asyncio.Task[None]] = set()
        self.erasing = 0  # erasures that have no response yet
        self.subscribed: dict[str, int] = {}  # tenants that nobody erases, and since which event

    def receiver(self, hit: Hit) -> Reply:
        return Reply(code=500 if hit.url in self.bad else 200, latency_ms=30)

    async def run(self) -> list[str]:
        world = self.world = ErasureWorld(await SqliteDb.open(":memory:"), options(), self.model)
        world.on_late = self._late  # type: ignore[method-assign]
        world.chance, world.late = self.chance, Random(f"late replies {self.seed}")
        await world.start()
        world.otherwise = self.receiver
        self.urls = [f"https://{n}.example/" for n in range(URLS)]
        for tenant in TENANTS:
            await self._subscribe(tenant)
        for _ in range(STEPS):
            if self.chance.random() < 0.4:
                self.bad ^= {self.chance.choice(self.urls)}
            await asyncio.gather(*(self._try(it) for it in self._acts()))
            await world.wait(self.chance.choice((1, 10, 300, 3_000, 11 * MINUTE)))
            if self.chance.random() < 0.2:
                world.die()
                await world.start()
        self.bad.clear()
        world.calm_down()
        await world.wait(1_000)
        for endpoint in await world.endpoints():
            await world.call(world.engine.enable(endpoint.id, by="ada"))
        await world.wait(2 * MINUTE)
        if running := await world.stores()[1].running_erasures(limit=100):
            return [*self.model.wrong, f"erasures never end: {running}"]
        await world.wait(60 * HOUR)
        return [*self.model.wrong, *await self._judge()]

    async def _subscribe(self, tenant: str) -> None:
        for n, url in enumerate(self.urls):
            await self.world.subscribe(url, f"t.{n}", tenant=tenant)
        self.subscribed[tenant] = self.count

    async def _try(self, act: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(Crashed, HomingError):
            await act

    def _acts(self) -> list[Coroutine[Any, Any, None]]:
        """What people do at the same time."""
        acts = [self._publish() for _ in range(self.chance.randrange(6))]
        chosen = self.chance.random()
        if chosen < 0.35:
            acts.append(self._erase_event())
        elif chosen < 0.5:
            acts.append(self._erase_field())
        elif chosen < 0.53:
            acts.append(self._erase_tenant())
        elif chosen < 0.63:
            acts.append(self._replay())
        elif chosen < 0.73:
            acts.append(self._publish_again())
        self.chance.shuffle(acts)
        return acts

    async def _publish(self) -> None:
        await self._publish_of(self.chance.choice(TENANTS), self.chance.choice(CUSTOMERS))

    async def _publish_of(self, tenant: str, who: str) -> None:
        self.count += 1
        token = f"tok{self.count:05}x"
        data, since = {"token": token, "customer": who}, self.subscribed.get(tenant)
        if self.erasing:
            self.model.unsure.add(token)
        self.publishing[token] = tenant
        try:
            receipt = await self.world.publish(
                self.kinds(token), tenant=tenant, key=token, data=data
            )
        finally:
            del self.publishing[token]
        self.model.published[token] = (tenant, who)
        if receipt.deliveries:
            self.model.matched.add(token)
        elif since is not None and self.subscribed.get(tenant) == since:
            self.model.wrong.append(f"{token} matches no subscription of {tenant}")
        row = await self.world.views.event(token, tenant=tenant)
        if row is None and token not in self.model.unsure:
            self.model.wrong.append(f"{token} was accepted and is hidden")

    def _late(self, name: str) -> None:
        """Now and then somebody erases while what was read is on its way."""
        if name != "publish" and self.reuse.random() < 0.3:
            task = asyncio.get_running_loop().create_task(self._try(self._erase_field()))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _erase_event(self) -> None:
        number = max(1, self.count + 1 - self.chance.choice((0, 0, 1, 2, 5, 20)))
        token = f"tok{number:05}x"
        tenant = self.model.published.get(token, (self.chance.choice(TENANTS), ""))[0]
        if self.reuse.random() < 0.5:  # One that is stored, and has no answer yet.
            await self.world.wait(300)
            if self.publishing:
                token, tenant = self.reuse.choice(sorted(self.publishing.items()))
        self.model.unsure.add(token)
        try:
            await self._call(self.world.engine.erasures.erase_event(tenant, token))
        except NotFound:
            return
        self.model.erased.add(token)

    async def _erase_field(self) -> None:
        tenant, who = self.chance.choice(TENANTS), self.chance.choice(CUSTOMERS)
        erase = self.world.engine.erasures.erase_field(tenant, "data.customer", who)
        await self._erase(tenant, who, erase)

    async def _erase_tenant(self) -> None:
        tenant = self.chance.choice(TENANTS)
        self.subscribed.pop(tenant, None)
        erasure = await self._erase(tenant, None, self.world.engine.erasures.erase_tenant(tenant))
        while self.reuse.random() < 0.5:  # It is used at once, and erased again.
            for _ in range(self.reuse.randrange(5)):
                await self._publish_of(tenant, self.reuse.choice(CUSTOMERS))
            if self.reuse.random() < 0.5:
                again = self.world.engine.erasures.erase_tenant(tenant)
                erasure = await self._erase(tenant, None, again)
        for _ in range(TRIES):
            if erasure.finished_at is not None:
                break
            await self.world.wait(self.reuse.choice((1, 30, 1_000)))
            if self.reuse.random() < 0.1:
                self.world.die()
                await self.world.start()
            erasure = await self._call(self.world.engine.erasures.get(erasure.id))
        else:
            self.model.wrong.append(f"an erasure does not end: {erasure}")
            return
        await self._subscribe(tenant)
        for _ in range(self.reuse.randrange(5)):
            await self._publish_of(tenant, self.reuse.choice(CUSTOMERS))

    async def _erase(
        self, tenant: str, who: str | None, erase: Coroutine[Any, Any, Erasure]
    ) -> Erasure:
        """Erase; what is being published meanwhile may be covered, and what comes later is not."""
        covered = self.model.of(tenant, who)
        self.model.unsure |= covered | self.publishing.keys()
        self.erasing += 1
        try:
            erasure = await self._call(erase)
        finally:
            self.erasing -= 1
        self.model.erased |= covered
        return erasure

    async def _call(self, work: Coroutine[Any, Any, Erasure]) -> Erasure:
        return await self.world.call(work)

    async def _replay(self) -> None:
        if not self.model.published:
            return
        token = self.chance.choice(sorted(self.model.published))
        tenant = self.model.published[token][0]
        row = await self.world.views.event(token, tenant=tenant)
        if row is not None:
            asked = ReplayFilter(tenant=tenant, event_id=row.event.id, event_key=token)
            await self.world.call(self.world.engine.start_replay(asked))

    async def _publish_again(self) -> None:
        """An erased id that is published again is a duplicate, or a conflict."""
        known = sorted(self.model.erased & self.model.published.keys())
        if not known:
            return
        token = self.chance.choice(known)
        tenant, who = self.model.published[token]
        other = self.chance.random() < 0.3
        data = {"token": token, "customer": "eve" if other else who}
        try:
            kind = "t.9" if other else self.kinds(token)
            receipt = await self.world.publish(kind, tenant=tenant, key=token, data=data)
        except EventConflict:
            return  # Its type may have been another one, too.
        if receipt.new:
            self.model.wrong.append(f"{token} was accepted again after it was erased")

    def kinds(self, token: str) -> str:
        return f"t.{int(token[3:8]) % URLS}"

    async def _judge(self) -> list[str]:
        world, model, said = self.world, self.model, list[str]()
        content = await world.db.raw(_everything)
        said += [
            f"{it} is in {table}" for it in sorted(model.erased) for table in _with(content, it)
        ]
        said += await world.db.raw(_orphans)
        if running := await world.stores()[1].running_erasures(limit=100):
            said.append(f"erasures never end: {running}")
        for row in await world.views.ledger(tenant=None):
            parts = row.delivered + row.dropped + row.cancelled
            if row.accepted != parts + row.pending or row.pending:
                said.append(f"the ledger does not balance, or something waits: {row}")
        for token in sorted(model.published.keys() - model.erased - model.unsure):
            tenant, _ = model.published[token]
            if token in model.matched and not model.sent_tokens[token]:
                said.append(f"{token} was not erased and never sent")
            if await world.views.event(token, tenant=tenant) is None:
                said.append(f"{token} was erased by nobody and is gone")
        if not model.erased:
            said.append("nothing was erased")
        return said


async def _everything(run: Execute) -> dict[str, str]:
    tables = await run("SELECT name FROM sqlite_schema WHERE type = 'table'")
    return {table: repr(await run(f"SELECT * FROM {table}")) for (table,) in tables}


async def _orphans(run: Execute) -> list[str]:
    """Rows that belong to an event, or a delivery, that is gone."""
    found = []
    for table in ("pending", "history", "event_field", "event_key", "replay_link"):
        rows = await run(
            f"SELECT count(*) FROM {table} t WHERE NOT EXISTS"
            " (SELECT 1 FROM event e WHERE e.id = t.event_id)"
        )
        if rows[0][0]:
            found.append(f"{rows[0][0]} rows of {table} have no event")
    rows = await run(
        "SELECT count(*) FROM attempt a WHERE NOT EXISTS"
        " (SELECT 1 FROM history h WHERE h.id = a.delivery_id)"
        " AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.id = a.delivery_id)"
    )
    if rows[0][0]:
        found.append(f"{rows[0][0]} attempts have no delivery")
    return found


def _with(content: dict[str, str], token: str) -> list[str]:
    return [table for table, rows in content.items() if token in rows]


def run_erasure_seed(seed: int) -> list[str]:
    """What does not hold; empty if all does."""
    return run_virtual(Run(seed).run())
