"""People: they subscribe, change their minds, and press every button, at any of the processes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

import msgspec

from homing.engine.engine import Engine
from homing.errors import HomingError
from homing.model import Format, Order, Status, Subscription, Verification
from homing.policy.admission import SubscriptionDraft, draft_of
from homing.ports import ReplayFilter
from simulation.checker import ENABLES, FREEZES, Checker
from simulation.guard_settings import private_url
from simulation.health_model import DeliveryModel
from simulation.lives import Crashed
from simulation.machine import Machine, pick
from simulation.mix import Mix
from simulation.reference import FILTERS, Sub
from simulation.tokens import CLIENT

T = TypeVar("T")

BUSY_MIN = 4  # deliveries that wait at a URL which is frozen before a 410
MANY_MAX = 3  # bulk replays in one run
BACKFILLS_MAX = 12  # in one run
MANY_DELIVERIES_MAX = 500  # in one of them
OVERLAPS_MS = (0, 20_000, 600_000, 3_600_000)  # of rotations
AGED_MS = 1_000  # of a fleet, what was published so long ago is known to the process that did it


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
        machines: Sequence[Machine],
        mix: Mix,
        rng: Random,
        checker: Checker,
        fire: Callable[[str], None],
    ) -> None:
        self._machines, self._mix, self._rng = machines, mix, rng
        self._checker, self._reference, self._fire = checker, checker.reference, fire
        self._signing = Random(f"signatures {mix.seed}")
        self._proofs = Random(f"proofs {mix.seed}")
        self._pauses = Random(f"pauses {mix.seed}")
        self._many = self._backfills = 0
        self._orders = Random(f"orders {mix.seed}")
        self._quiet = Random(f"quiet {mix.seed}")
        self._asked = 0
        self.jobs: list[Job] = []
        self.over = False
        self.allows_private: Callable[[], bool] = lambda: False  # private addresses in URLs
        self.meanwhile: Callable[[], Coroutine[None, None, None]]  # what publishers do then

    async def _ask(
        self, what: Callable[[Engine], Coroutine[Any, Any, T]], rng: Random | None = None
    ) -> T:
        """Ask one of the processes; ``_asked`` is the life that responded."""
        machine = pick(self._machines, rng or self._rng)
        life = machine.life.number
        response = await machine.ask(what)
        self._asked = life
        return response

    # --- subscriptions -----------------------------------------------------------------------

    async def set_up(self) -> None:
        for tenant in self._mix.tenants:
            await self._subscribe(tenant, self._mix.patterns[0])
            for _ in range(self._mix.subscriptions_each - 1):
                await self._subscribe(tenant)

    def _url(self, tenant: str) -> str:
        """One of few: subscriptions of a tenant share endpoints, tenants share URLs."""
        n = self._rng.randint(1, self._mix.urls_each)
        owner = tenant if self._rng.random() < 0.8 else "all"
        if owner == "all" and self.allows_private():
            return private_url(n)
        host = f"{owner}-{n}" if self._mix.own_hosts else owner
        return f"https://{host}.example/{n}"

    async def _subscribe(self, tenant: str, types: tuple[str, ...] = ()) -> None:
        rng = self._rng
        draft = SubscriptionDraft(
            tenant=tenant,
            url=self._url(tenant),
            types=types or rng.choice(self._mix.patterns),
            format=rng.choice((Format.STANDARD, Format.STANDARD, Format.RAW, Format.CLOUDEVENTS)),
            token=rng.choice((None, "t0ken")),
            secret="whsec_" + base64.b64encode(rng.randbytes(24)).decode(),
            policy=rng.choice((None, None, None, *sorted(self._mix.tables))),
            deadline_ms=rng.choice(self._mix.deadlines_ms),
            signature=self._signing.choice(self._mix.signatures),
            filters=FILTERS if not types and rng.random() < 0.2 else "[]",
        )
        if self._mix.oauth and rng.random() < self._mix.oauth:
            draft = msgspec.structs.replace(draft, token=None, **CLIENT)
        if not types and self._proofs.random() < self._mix.challenged:
            draft = msgspec.structs.replace(draft, verification=Verification.CHALLENGE)
        if self._orders.random() < self._mix.ordered:
            draft = msgspec.structs.replace(draft, **self._order())
        created = await self._ask(lambda engine: engine.subscribe(draft))
        self._known(created.id)
        if draft.filters == FILTERS:
            self._fire("person_filters")

    async def _change(
        self, subscription: Subscription, rng: Random | None = None, **changes: object
    ) -> None:
        changed = msgspec.structs.replace(draft_of(subscription), **changes)
        await self._ask(lambda engine: engine.change(subscription.id, lambda _: changed), rng)
        self._known(subscription.id)

    def _known(self, subscription_id: int) -> None:
        """What was answered is acted on from then on, by all."""
        sub = self._reference.subs[subscription_id]
        told = self._reference.lives[self._asked].catalog[subscription_id]
        if told != sub.now and sub.now.version == sub.by_receiver:
            sub.answered = told.version  # A 410 has changed it since; nobody was told of that.
            return
        sub.responded, sub.answered = True, sub.now.version
        self._reference.must(
            told == sub.now,
            "S9",
            lambda: f"a change was answered, and is not known: {told}, not {sub.now}",
        )

    def _living(self) -> Sub | None:
        subs = [sub for sub in self._reference.subs.values() if not sub.deleted]
        return self._rng.choice(subs) if subs else None

    # --- actions -----------------------------------------------------------------------------

    async def act(self) -> None:
        """One thing after the other, until it is over."""
        rate = self._mix.actions_per_hour
        while rate and not self.over:
            await asyncio.sleep(self._rng.expovariate(rate) * 3600)
            if not self.over:
                await self._do(self._rng.choice(self._mix.actions), self._rng)
            if not self.over and self._quiet.random() < self._mix.quiet_changes:
                await self._do("change_quiet", self._quiet)

    async def _do(self, action: str, rng: Random) -> None:
        do: Callable[[], Awaitable[bool]] = getattr(self, f"_{action}")
        self._reference.say(f"person: {action}")
        others = [
            asyncio.ensure_future(self.meanwhile())
            for _ in range(rng.randint(0, self._mix.meanwhile_max))
        ]
        try:
            async with asyncio.timeout(self._mix.response_within_ms / 1000):
                if await do():
                    self._fire(f"person_{action}")
        except (HomingError, Crashed):
            self._reference.say(f"person: {action} was not answered well")
        except TimeoutError:
            self._reference.violated("L6", f"a person waits for ever: {action}")
        if others:
            await asyncio.wait(others)

    async def _enable(self) -> bool:
        endpoints = self._reference.endpoints
        frozen = [it for it, model in endpoints.items() if model.state == "frozen"]
        if self._reference.alone:
            frozen = []  # In a fleet a run is short: enabling what is frozen keeps traffic up.
        number = self._rng.choice(frozen or list(endpoints))
        await self._ask(lambda engine: engine.enable(number, by=ENABLES))
        return True

    async def _freeze(self) -> bool:
        busy = sorted({it.endpoint_id for it in self._reference.flights.values()})
        if not self._reference.alone:
            busy = []  # Settling an attempt in flight would tell its owner of the freeze.
        number = self._rng.choice(busy or list(self._reference.endpoints))
        await self._ask(lambda engine: engine.freeze(number, by=FREEZES))
        return True

    def _some(self, status: str) -> DeliveryModel | None:
        deliveries = list(self._reference.deliveries.values())
        for _ in range(10):
            one = self._rng.choice(deliveries) if deliveries else None
            if one is None or not self._is_aged(one):
                continue
            if (one.status == "pending") == (status == "pending"):
                return one
        return None

    def _is_aged(self, delivery: DeliveryModel) -> bool:
        return self._reference.alone or delivery.accepted_at < self._reference.clock() - AGED_MS

    async def _cancel(self) -> bool:
        one = self._some("pending")
        if one is None:
            return False
        await self._ask(lambda engine: engine.cancel(one.id))
        right = one.status == "cancelled"
        self._reference.must(right, "S1", lambda: "a cancel was answered and not done")
        return True

    async def _cancel_in_flight(self) -> bool:
        flights = sorted(self._reference.flights)
        for _ in range(100):
            if flights or self.over:
                break
            await asyncio.sleep(0.5)
            flights = sorted(self._reference.flights)
        if not flights:
            return False
        number = self._rng.choice(flights)
        await self._ask(lambda engine: engine.cancel(number))
        return True

    async def _replay(self) -> bool:
        one = self._some("finished")
        if one is None:
            return False
        new = await self._ask(lambda engine: engine.replay(one.id))
        right = new.id in self._reference.deliveries
        self._reference.must(right, "S4", lambda: "a replay was answered and not done")
        return True

    async def _replay_many(self) -> bool:
        if self._many >= MANY_MAX:
            return False
        self._many += 1
        tenant = self._rng.choice(self._mix.tenants)
        status = self._rng.choice((Status.DROPPED, Status.DROPPED, Status.CANCELLED))
        finished = tuple(
            it
            for it in self._reference.deliveries.values()
            if it.status == status.value and it.tenant == tenant
        )
        if len(finished) > MANY_DELIVERIES_MAX:
            return False
        asked = ReplayFilter(tenant=tenant, status=status)
        job = await self._ask(lambda engine: engine.start_replay(asked))
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

    async def _change_order(self) -> bool:
        sub = self._living()
        if sub is None or not self._mix.keys:
            return False
        order: dict[str, object] = {"order": Order.NONE, "quiet_ms": None, "max_wait_ms": None}
        if sub.now.order is Order.NONE or self._orders.random() < 0.3:
            order |= self._order()
        elif self._orders.random() < 0.3:
            order["url"] = self._url(sub.tenant)
        await self._change(sub.now, None, **order)
        return True

    def _order(self) -> dict[str, object]:
        rng = self._orders
        if rng.random() >= self._mix.latest:
            return {"order": Order.KEY}
        quiet_ms = rng.choice((None, None, 2_000, 60_000))
        longest = None if quiet_ms is None else rng.choice((None, 3 * quiet_ms))
        return {"order": Order.LATEST, "quiet_ms": quiet_ms, "max_wait_ms": longest}

    async def _change_quiet(self) -> bool:
        """Another quiet time, or none, while deliveries wait for the end of the one before."""
        rng, subs = self._quiet, self._reference.subs.values()
        newest = [it for it in subs if not it.deleted and it.now.order is Order.LATEST]
        if not newest:
            return False
        quiet_ms = rng.choice((None, 2_000, 60_000, 20 * 60_000))
        longest = None if quiet_ms is None else rng.choice((None, quiet_ms, 3 * quiet_ms))
        sub = rng.choice(newest)
        await self._change(sub.now, rng, quiet_ms=quiet_ms, max_wait_ms=longest)
        return True

    async def _rotate_secret(self) -> bool:
        sub, overlap_ms = self._living(), self._rng.choice(OVERLAPS_MS)
        if sub is None:
            return False
        await self._ask(lambda engine: engine.rotate(sub.id, None, overlap_ms=overlap_ms))
        self._known(sub.id)
        return True

    async def _rotate_keys(self) -> bool:
        tenant, overlap_ms = self._rng.choice(self._mix.tenants), self._rng.choice(OVERLAPS_MS)
        await self._ask(lambda engine: engine.rotate_signing_keys(tenant, overlap_ms=overlap_ms))
        signing = self._reference.signing[tenant]
        signing.responded = True
        told = self._reference.lives[self._asked].signing[tenant]
        self._reference.must(
            told == signing.now, "S9", lambda: "a rotation was answered, and is not known"
        )
        return True

    async def _change_signature(self) -> bool:
        sub = self._living()
        if sub is None:
            return False
        await self._change(sub.now, signature=self._signing.choice(self._mix.signatures))
        return True

    async def _delete(self) -> bool:
        busy = {self._reference.deliveries[it].subscription_id for it in self._reference.flights}
        subs = [
            self._reference.subs[it] for it in sorted(busy) if not self._reference.subs[it].deleted
        ]
        sub = self._rng.choice(subs) if subs else self._living()
        if sub is None or "*" in sub.now.types:
            return False
        await self._ask(lambda engine: engine.unsubscribe(sub.id))
        self._reference.must(sub.deleted, "S1", lambda: "a delete was answered and not done")
        self._known(sub.id)
        return True

    async def _recreate(self) -> bool:
        tenant = self._rng.choice(self._mix.tenants)
        living = [
            it for it in self._reference.subs.values() if it.tenant == tenant and not it.deleted
        ]
        if len(living) > self._mix.subscriptions_each:
            return False  # Enough: every notice goes to all of them.
        await self._subscribe(tenant)
        return True

    async def _describe(self) -> bool:
        """Change a subscription with an attempt in flight, and nothing that matters for it.

        Best just before a 410.
        """
        reference = self._reference
        for _ in range(1_000):
            if any(map(reference.gets_410, reference.flights.values())) or self.over:
                break
            await asyncio.sleep(0.1)
        flights = [it for it, flight in reference.flights.items() if reference.gets_410(flight)]
        flights = sorted(flights or reference.flights)
        deliveries = (self._reference.deliveries[it] for it in flights)
        for number in sorted({it.subscription_id for it in deliveries})[:5]:
            sub = self._reference.subs[number]
            if not sub.deleted:
                await self._change(sub.now, description=f"by a person, {len(flights)}")
        return bool(flights)

    async def _reactivate(self) -> bool:
        """Activate a subscription as soon as its receiver says that it is gone.

        A busy URL is frozen before that, so that many deliveries are left to be cancelled.
        """
        reference, frozen = self._reference, 0
        for _ in range(1_000):
            gone = [it for it in reference.subs.values() if it.gone and not it.deleted]
            if gone:
                sub = max(gone, key=lambda it: it.changed.at)
                await self._change(sub.now, active=True)
                if frozen:
                    await self._ask(partial(Engine.enable, endpoint_id=frozen, by=ENABLES))
                return True
            if self.over:
                break
            busy = {it.endpoint_id for it in reference.flights.values()}
            busy = {it for it in busy if len(reference.waiting.get(it, ())) >= BUSY_MIN}
            if busy and not frozen:
                frozen = min(busy)
                await self._ask(partial(Engine.freeze, endpoint_id=frozen, by=FREEZES))
            await asyncio.sleep(0.1)
        return False

    async def _activate(self) -> bool:
        """Activate all whose receivers have said that they are gone."""
        gone = [it for it in self._reference.subs.values() if it.gone and not it.deleted]
        for sub in gone:
            await self._change(sub.now, active=True)
        return bool(gone)

    async def _verify(self) -> bool:
        unproved = [it for it in self._reference.subs.values() if it.unproved and not it.deleted]
        if not unproved:
            return False
        sub = self._proofs.choice(unproved)
        await self._ask(lambda engine: engine.verify(sub.id))
        self._known(sub.id)
        return True

    async def _pause(self) -> bool:
        """Pause one, if possible one with an attempt in flight."""
        flying = [self._reference.deliveries[it].subscription_id for it in self._reference.flights]
        subs = [it for it in self._reference.subs.values() if not it.deleted]
        subs = [it for it in subs if it.paused_since is None]
        busy = [it for it in subs if it.id in flying]
        if not subs:
            return False
        sub = self._pauses.choice(busy or subs)
        await self._ask(lambda engine: engine.pause(sub.id))
        self._known(sub.id)
        return True

    async def _resume(self) -> bool:
        paused = [it for it in self._reference.subs.values() if it.paused_since is not None]
        paused = [it for it in paused if not it.deleted]
        if not paused:
            return False
        sub = self._pauses.choice(paused)
        await self._ask(lambda engine: engine.resume(sub.id))
        self._known(sub.id)
        return True

    async def _backfill(self) -> bool:
        """Give one the past: all of it, or of a while; the newest has the most to get."""
        subs = [it for it in self._reference.subs.values() if not it.deleted and it.now.active]
        subs = [it for it in subs if it.now.url and not it.unproved]
        if not subs or self._backfills >= BACKFILLS_MAX:
            return False
        self._backfills += 1
        sub = self._pauses.choice((subs[-1], self._pauses.choice(subs)))
        back_ms = self._pauses.choice((1_000, 60_000, 3_600_000, self._mix.run_for_ms))
        asked = ReplayFilter(
            tenant=sub.tenant,
            subscription_id=sub.id,
            since=max(self._reference.clock() - back_ms, 0),
            backfill=True,
            per_second=self._pauses.choice((5, 50, 1_000)),
        )
        await self._ask(lambda engine: engine.start_backfill(asked))
        return True

    async def _test_send(self) -> bool:
        sub = self._living()
        if sub is None:
            return False
        await self._ask(lambda engine: engine.test_send(sub.id))
        return True
