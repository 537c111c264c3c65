"""People: they subscribe, change their minds, and press every button in the middle of it all."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from random import Random

import msgspec

from homing.errors import HomingError
from homing.model import Format, Status, Subscription
from homing.policy.admission import SubscriptionDraft, draft_of
from homing.ports import ReplayFilter
from homing.sim.world import Crashed
from simulation.accounts import ENABLES, FREEZES, Accounts
from simulation.books import FILTERS, Sub
from simulation.faults import FaultyWorld
from simulation.health_model import DeliveryModel
from simulation.mix import Mix

PATTERNS = (("*",), ("order.*",), ("order.created", "user.made"), ("order.*", "homing.*"))
MANY_MAX = 3  # bulk replays in one run
MANY_DELIVERIES_MAX = 500  # in one of them
RESPONSE_WITHIN_S = 900


@dataclass(frozen=True)
class Job:
    """A bulk replay, and what it must at least take: finished when it began."""

    id: int
    status: str
    tenant: str
    finished: tuple[DeliveryModel, ...]


class People:
    """All operators of a run."""

    def __init__(
        self,
        world: FaultyWorld,
        mix: Mix,
        rng: Random,
        accounts: Accounts,
        fire: Callable[[str], None],
    ) -> None:
        self._world, self._mix, self._rng = world, mix, rng
        self._accounts, self._books, self._fire = accounts, accounts.books, fire
        self._many = 0
        self.jobs: list[Job] = []
        self.over = False
        self.meanwhile: Callable[[], Coroutine[None, None, None]]  # what publishers do then

    # --- subscriptions -----------------------------------------------------------------------

    async def set_up(self) -> None:
        for tenant in self._mix.tenants:
            await self._subscribe(tenant, PATTERNS[0])
            for _ in range(self._mix.subscriptions_each - 1):
                await self._subscribe(tenant)

    def _url(self, tenant: str) -> str:
        """One of few: subscriptions of a tenant share endpoints, tenants share URLs."""
        n = self._rng.randint(1, self._mix.urls_each)
        owner = tenant if self._rng.random() < 0.8 else "all"
        host = f"{owner}-{n}" if self._mix.cuts else owner
        return f"https://{host}.example/{n}"

    async def _subscribe(self, tenant: str, types: tuple[str, ...] = ()) -> None:
        rng = self._rng
        draft = SubscriptionDraft(
            tenant=tenant,
            url=self._url(tenant),
            types=types or rng.choice(PATTERNS),
            format=rng.choice((Format.STANDARD, Format.STANDARD, Format.RAW, Format.CLOUDEVENTS)),
            token=rng.choice((None, "t0ken")),
            secret="whsec_" + base64.b64encode(rng.randbytes(24)).decode(),
            policy=rng.choice((None, None, None, *sorted(self._mix.tables))),
            deadline_ms=rng.choice((None, None, 1_000, 30_000)),
            filters=FILTERS if not types and rng.random() < 0.2 else "[]",
        )
        await self._world.ask(lambda engine: engine.subscribe(draft))
        if draft.filters == FILTERS:
            self._fire("person_filters")

    async def _change(self, subscription: Subscription, **changes: object) -> None:
        changed = msgspec.structs.replace(draft_of(subscription), **changes)
        await self._world.ask(lambda engine: engine.change(subscription.id, lambda _: changed))

    def _living(self) -> Sub | None:
        subs = [sub for sub in self._books.subs.values() if not sub.deleted]
        return self._rng.choice(subs) if subs else None

    # --- actions -----------------------------------------------------------------------------

    async def act(self) -> None:
        """One thing after the other, until it is over."""
        rate = self._mix.actions_per_hour
        while rate and not self.over:
            await asyncio.sleep(self._rng.expovariate(rate) * 3600)
            if not self.over:
                await self._do(self._rng.choice(self._mix.actions))

    async def _do(self, action: str) -> None:
        do: Callable[[], Awaitable[bool]] = getattr(self, f"_{action}")
        self._books.say(f"person: {action}")
        others = [asyncio.ensure_future(self.meanwhile()) for _ in range(self._rng.randint(0, 2))]
        try:
            async with asyncio.timeout(RESPONSE_WITHIN_S):
                if await do():
                    self._fire(f"person_{action}")
        except (HomingError, Crashed):
            self._books.say(f"person: {action} was not answered well")
        except TimeoutError:
            self._books.violated("L6", f"a person waits for ever: {action}")
        if others:
            await asyncio.wait(others)

    async def _enable(self) -> bool:
        number = self._rng.choice(list(self._books.endpoints))
        await self._world.ask(lambda engine: engine.enable(number, by=ENABLES))
        return True

    async def _freeze(self) -> bool:
        busy = sorted({it.endpoint_id for it in self._books.flights.values()})
        number = self._rng.choice(busy or list(self._books.endpoints))
        await self._world.ask(lambda engine: engine.freeze(number, by=FREEZES))
        return True

    def _some(self, status: str) -> DeliveryModel | None:
        deliveries = list(self._books.deliveries.values())
        for _ in range(10):
            one = self._rng.choice(deliveries) if deliveries else None
            if one is not None and (one.status == "pending") == (status == "pending"):
                return one
        return None

    async def _cancel(self) -> bool:
        one = self._some("pending")
        if one is None:
            return False
        await self._world.ask(lambda engine: engine.cancel(one.id))
        right = one.status == "cancelled"
        self._books.must(right, "S1", lambda: "a cancel was answered and not done")
        return True

    async def _cancel_in_flight(self) -> bool:
        flights = sorted(self._books.flights)
        for _ in range(100):
            if flights or self.over:
                break
            await asyncio.sleep(0.5)
            flights = sorted(self._books.flights)
        if not flights:
            return False
        number = self._rng.choice(flights)
        await self._world.ask(lambda engine: engine.cancel(number))
        return True

    async def _replay(self) -> bool:
        one = self._some("finished")
        if one is None:
            return False
        new = await self._world.ask(lambda engine: engine.replay(one.id))
        right = new.id in self._books.deliveries
        self._books.must(right, "S4", lambda: "a replay was answered and not done")
        return True

    async def _replay_many(self) -> bool:
        if self._many >= MANY_MAX:
            return False
        self._many += 1
        tenant = self._rng.choice(self._mix.tenants)
        status = self._rng.choice((Status.DROPPED, Status.DROPPED, Status.CANCELLED))
        finished = tuple(
            it
            for it in self._books.deliveries.values()
            if it.status == status.value and it.tenant == tenant
        )
        if len(finished) > MANY_DELIVERIES_MAX:
            return False
        asked = ReplayFilter(tenant=tenant, status=status)
        job = await self._world.ask(lambda engine: engine.start_replay(asked))
        self.jobs.append(Job(job.id, status.value, tenant, finished))
        return True

    async def _change_url(self) -> bool:
        sub = self._living()
        if sub is None:
            return False
        await self._change(sub.now, url=self._url(sub.tenant))
        return True

    async def _change_back(self) -> bool:
        """Twice in a row: away and back again, or to a third place."""
        sub = self._living()
        if sub is None:
            return False
        home = sub.now
        await self._change(home, url=self._url(sub.tenant))
        await self._change(sub.now, url=home.url)
        return True

    async def _deactivate(self) -> bool:
        sub = self._living()
        if sub is None:
            return False
        await self._change(sub.now, active=not sub.now.active)
        return True

    async def _delete(self) -> bool:
        busy = {self._books.deliveries[it].subscription_id for it in self._books.flights}
        subs = [self._books.subs[it] for it in sorted(busy) if not self._books.subs[it].deleted]
        sub = self._rng.choice(subs) if subs else self._living()
        if sub is None or "*" in sub.now.types:
            return False
        await self._world.ask(lambda engine: engine.unsubscribe(sub.id))
        right = sub.deleted and sub.deleted_told
        self._books.must(right, "S1", lambda: "a delete was answered and not done")
        return True

    async def _recreate(self) -> bool:
        tenant = self._rng.choice(self._mix.tenants)
        living = [it for it in self._books.subs.values() if it.tenant == tenant and not it.deleted]
        if len(living) > self._mix.subscriptions_each:
            return False  # Enough: every notice goes to all of them.
        await self._subscribe(tenant)
        return True

    async def _test_send(self) -> bool:
        sub = self._living()
        if sub is None:
            return False
        await self._world.ask(lambda engine: engine.test_send(sub.id))
        return True
