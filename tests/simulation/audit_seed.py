"""The audit log from a seed: changes by use cases, a store that fails anywhere, kills, clock jumps.

What is true is read from the tables that were changed, never from the audit log: how often the
catalog was raised, which deliveries were cancelled or replayed, which keys exist, how each
subscription looks. A call that failed may have been committed or not; either way its entry must
have shared its fate. At the end the log must verify, and no secret may be in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from engine.world import LOG_KEY, Reply, World
from homing.app.access import Caller
from homing.app.app import App
from homing.app.subscriptions import Drafted
from homing.engine.audit import AuditKeeper, AuditParts
from homing.errors import HomingError, StoreUnavailable
from homing.model import Subscription, show_id
from homing.policy.admission import draft_of
from homing.policy.audit import AuditEntry
from homing.policy.keys import Role
from homing.ports import DeliveryFilter, ReplayFilter
from homing.ports.audit import AuditFilter
from homing.sim.loop import VirtualClock, run_virtual
from homing.store.sqlite import SqliteDb
from homing.store.tx import Mark, Row, Tx
from web.house import use_cases

T = TypeVar("T")

STEPS = 80
DAY = 86_400_000
RETENTION = 20 * DAY
CANARY = "canary-4c1d"
ADMIN = Caller("ada", Role.ADMIN, None, address="192.0.2.1")
FAULTS = ("before", "middle", "after")


class FailingTx:
    """A transaction that fails at one of its statements."""

    def __init__(self, tx: Tx, left: int) -> None:
        self._tx, self._left = tx, left

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise StoreUnavailable("planned")

    async def all(self, name: str, /, **params: Any) -> list[Row]:
        self._count()
        return await self._tx.all(name, **params)

    async def one(self, name: str, /, **params: Any) -> Row | None:
        self._count()
        return await self._tx.one(name, **params)

    async def many(self, name: str, rows: Any, /) -> list[Row]:
        self._count()
        return await self._tx.many(name, rows)

    async def insert(self, table: str, rows: Any, /) -> None:
        self._count()
        await self._tx.insert(table, rows)

    async def write(self, writes: Any, /) -> None:
        self._count()
        await self._tx.write(writes)


class FailingDb:
    """A database whose commits fail: before they begin, at a statement, or after they are made."""

    def __init__(self, db: SqliteDb, chance: Random) -> None:
        self._db, self._chance = db, chance
        self.rate = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    async def run(
        self,
        operation: Callable[[Tx], Awaitable[T]],
        *,
        mark: Mark | None = None,
        read_only: bool = False,
        view: bool = False,
    ) -> T:
        del mark
        fault = self._chance.choice(FAULTS) if self._chance.random() < self.rate else ""
        if fault == "before":
            raise StoreUnavailable("planned")
        left = self._chance.randrange(8) if fault == "middle" else 1_000_000

        async def failing(tx: Tx) -> T:
            return await operation(FailingTx(tx, left))

        result = await self._db.run(failing, read_only=read_only, view=view)
        if fault == "after":
            raise StoreUnavailable("planned")
        return result


class Person:
    """Makes changes at random through the use cases."""

    def __init__(self, world: World, chance: Random) -> None:
        self.world, self._chance = world, chance
        self.app: App
        self.made = 0
        self.start()

    def start(self) -> None:
        self.app = use_cases(self.world)

    async def act(self) -> None:
        acts = (self.create, self.change, self.rotate, self.delete, self.freeze, self.enable)
        more = (self.cancel, self.replay, self.replay_many, self.key, self.revoke, self.publish)
        try:
            await self._chance.choice((*acts, *more))()
        except HomingError:
            return  # Made or not: the tables say.

    async def _some(self) -> Subscription | None:
        found, _ = await self.app.subscriptions.page(ADMIN, tenant=None, before_id=None, limit=50)
        return self._chance.choice(found) if found else None

    async def create(self) -> None:
        self.made += 1
        draft = self.world.draft(f"https://{self.made % 5}.example/", token=CANARY)
        await self.app.subscriptions.create(ADMIN, Drafted(draft))

    async def change(self) -> None:
        if (it := await self._some()) is not None:
            text = f"text {self._chance.randrange(1_000_000)}"

            def drafted(before: Subscription) -> Drafted:
                return Drafted(
                    replace(draft_of(before), description=text, token=f"{CANARY}-{len(text)}")
                )

            await self.app.subscriptions.change(ADMIN, it.id, drafted)

    async def rotate(self) -> None:
        if (it := await self._some()) is not None:
            await self.app.subscriptions.rotate(ADMIN, it.id)

    async def delete(self) -> None:
        if (it := await self._some()) is not None:
            await self.app.subscriptions.delete(ADMIN, it.id)

    async def freeze(self) -> None:
        if (it := await self._some()) is not None:
            await self.app.endpoints.freeze(ADMIN, it.endpoint_id)

    async def enable(self) -> None:
        if (it := await self._some()) is not None:
            await self.app.endpoints.enable(ADMIN, it.endpoint_id)

    async def _delivery(self) -> int | None:
        found, _ = await self.app.deliveries.page(ADMIN, DeliveryFilter(), before_id=None, limit=50)
        return self._chance.choice(found).delivery.id if found else None

    async def cancel(self) -> None:
        if (number := await self._delivery()) is not None:
            await self.app.deliveries.cancel(ADMIN, number)

    async def replay(self) -> None:
        if (number := await self._delivery()) is not None:
            await self.app.deliveries.replay(ADMIN, number)

    async def replay_many(self) -> None:
        job = await self.app.replays.start(ADMIN, ReplayFilter(subscription_id=1))
        await self.world.wait(self._chance.choice((0, 60_000)))  # It may have ended meanwhile.
        await self.app.replays.cancel(ADMIN, job.id)

    async def key(self) -> None:
        await self.app.keys.create(ADMIN, "k", Role.VIEWER, tenant="acme", expires=None)

    async def revoke(self) -> None:
        found, _ = await self.app.keys.page(ADMIN, tenant=None, before_id=None, limit=50)
        if found:
            await self.app.keys.revoke(ADMIN, self._chance.choice(found).id)

    async def publish(self) -> None:
        await self.world.publish()


async def _run(seed: int) -> list[str]:
    chance = Random(f"audit {seed}")
    world = await World.make()
    failing = FailingDb(world.db, chance)
    world.db = cast("SqliteDb", failing)
    await world.crash()
    for number in range(5):
        world.sender.scripts[f"https://{number}.example/"] = lambda _: Reply(
            code=chance.choice((200, 200, 500))
        )
    person, keeper = Person(world, chance), _keeper(world)
    failing.rate = 0.15
    kept: list[AuditEntry] = []
    for _ in range(STEPS):
        await person.act()
        await world.wait(chance.choice((0, 10, 60_000)))
        if chance.random() < 0.3:
            with suppress(HomingError):
                await keeper.keep()
        if chance.random() < 0.1:
            failing.rate = 0.0  # A start that fails is tried again until it succeeds.
            await world.wait(10)
            await world.crash()
            failing.rate = 0.15
            person.start()
            keeper = _keeper(world)
    failing.rate = 0.0
    kept = await _entries(world)
    said = await _judge(world, kept)
    await keeper.keep()
    said += await _verify(person.app, len(kept))
    await world.wait(RETENTION + DAY)
    await person.create()
    await keeper.keep()
    said += await _verify(person.app, 1)
    return said


def _keeper(world: World) -> AuditKeeper:
    clock: VirtualClock = world.clock
    parts = AuditParts(world.audit, LOG_KEY, RETENTION)
    return AuditKeeper(parts, clock, world.engine._core.ownership)


async def _entries(world: World) -> list[AuditEntry]:
    found, _ = await world.audit.entries(AuditFilter(), before_id=None, limit=1_000_000)
    return found[::-1]


async def _sql(world: World, text: str) -> list[Row]:
    found: list[Row] = await cast("Any", world.db).raw(lambda run: run(text))
    return found


async def _judge(world: World, entries: list[AuditEntry]) -> list[str]:
    """What differs between the tables and the log."""
    said: list[str] = []
    count = Counter(it.action for it in entries)

    async def same(what: str, sql: str, *actions: str) -> None:
        true, logged = (await _sql(world, sql))[0][0], sum(count[it] for it in actions)
        if true != logged:
            said.append(f"{what}: {true} in the tables, {logged} in the log")

    subscriptions = ("create", "change", "rotate", "delete")
    await same(
        "changes of subscriptions",
        "SELECT version FROM catalog WHERE id = 1",
        *(f"subscriptions.{it}" for it in subscriptions),
    )
    await same("subscriptions", "SELECT count(*) FROM subscription", "subscriptions.create")
    await same(
        "deleted ones",
        "SELECT count(*) FROM subscription WHERE deleted_at IS NOT NULL",
        "subscriptions.delete",
    )
    await same(
        "cancelled deliveries",
        "SELECT count(*) FROM history WHERE reason = 'by_person'",
        "deliveries.cancel",
    )
    await same("keys", "SELECT count(*) FROM api_key", "keys.create")
    revoked = "SELECT count(*) FROM api_key WHERE revoked_at IS NOT NULL"
    await same("revoked keys", revoked, "keys.revoke")
    await same("replay jobs", "SELECT count(*) FROM replay_job", "replays.start")
    stopped = "SELECT count(*) FROM replay_job WHERE state = 'cancelled'"
    await same("stopped jobs", stopped, "replays.cancel")
    replays = "SELECT count(*) FROM replay_link"
    await same("replays", replays, "deliveries.replay")
    said += await _judge_values(world, entries)
    for row in await _sql(world, "SELECT * FROM audit_entry"):
        if any(CANARY in str(value) or "whsec_" in str(value) for value in row):
            said.append("a secret is in the log")
    return said


async def _judge_values(world: World, entries: list[AuditEntry]) -> list[str]:
    """The last values in the log are those in the tables; each change begins where one ended."""
    said: list[str] = []
    texts: dict[str, str] = {}
    states: dict[str, str] = {}
    for it in entries:
        before, after = (json.loads(text) if text else {} for text in (it.before, it.after))
        if it.action in {"subscriptions.create", "subscriptions.change"}:
            known = texts.get(it.object)
            if known is not None and before.get("description", known) != known:
                said.append(f"{it.object} was {known}, and the log says {before}")
            texts[it.object] = after.get("description", known or "")
        elif it.action.startswith("endpoints.") and "state" in after:
            states[it.object] = after["state"]
    for number, text in await _sql(world, "SELECT id, description FROM subscription"):
        if texts.get(show_id("sub", number)) != text:
            said.append(
                f"{number} is {text!r}, and the log says {texts.get(show_id('sub', number))!r}"
            )
    frozen = {show_id("ep", row[0]) for row in await _sql(world, _FROZEN)}
    logged = {name for name, state in states.items() if state == "frozen"}
    if frozen != logged:
        said.append(f"frozen: {frozen}, and the log says {logged}")
    return said


_FROZEN = "SELECT id FROM endpoint WHERE state = 'frozen'"


async def _verify(app: App, entries: int) -> list[str]:
    said: list[str] = []
    count, after = 0, None
    while True:
        page = await app.audit.verify(ADMIN, after=after)
        said += [*page.problems, *(text for it in page.segments for text in it.problems)]
        count += sum(it.entries for it in page.segments)
        after = page.after
        if after is None:
            break
    if count != entries:
        said.append(f"{entries} entries, {count} of them in segments")
    return said


def run_audit_seed(seed: int) -> list[str]:
    """What does not hold; empty if all does."""
    return run_virtual(_run(seed))
