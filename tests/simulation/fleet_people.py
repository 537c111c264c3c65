"""People at a fleet: they enable, freeze, cancel, replay and change, each at whatever machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

from homing.engine.engine import Engine
from homing.errors import HomingError
from homing.policy.admission import SubscriptionDraft
from homing.sim.world import Crashed, Life
from simulation.fleet_books import ENABLES, FREEZES, Duty, FleetBooks, Sub
from simulation.fleet_world import Machine

T = TypeVar("T")

URLS = 8
HEAR_ALL = 4  # of these hear what Homing tells
EVERY_S = 8.0  # one of them does something so often
RESPONSE_WITHIN_S = 180
AGED_MS = 1_000  # what was published so long ago is known to who published it
ACTIONS = ("enable", "freeze", "cancel", "replay", "change_url", "delete", "recreate")
TIMES = {"enable": 4, "freeze": 3, "cancel": 2}  # as often as the others


class FleetPeople:
    """All operators of a fleet."""

    def __init__(self, machines: Sequence[Machine], books: FleetBooks, rng: Random) -> None:
        self._machines, self._books, self._rng = machines, books, rng
        self._actions = [it for it in ACTIONS for _ in range(TIMES.get(it, 1))]
        self.over = False
        self.fire: Callable[[str, Machine], None]

    async def set_up(self) -> None:
        for number in range(URLS):
            await self._subscribe(self._machines[0], number)

    async def _subscribe(self, machine: Machine, number: int) -> Life:
        types = ("*",) if number < HEAR_ALL else ("a.*",)
        draft = SubscriptionDraft(tenant="acme", url=_url(number), types=types)
        return (await self._ask(machine, lambda engine: engine.subscribe(draft)))[0]

    async def act(self) -> None:
        """One thing after the other, until it is over."""
        while not self.over:
            await asyncio.sleep(self._rng.expovariate(1 / EVERY_S))
            up = [it for it in self._machines if it.up]
            if self.over or not up:
                continue
            action, machine = self._rng.choice(self._actions), self._rng.choice(up)
            self._books.say(f"person at machine {machine.number}: {action}")
            try:
                if await getattr(self, f"_{action}")(machine):
                    self.fire(f"fleet_{action}", machine)
            except (HomingError, Crashed):
                self._books.say(f"person: {action} was not answered well")

    async def enable_all(self) -> None:
        """What a person froze, a person must enable."""
        for number, place in list(self._books.places.items()):
            if place.model.state == "frozen":
                await self._set_enabled(self._rng.choice(self._machines), number)

    async def _ask(
        self, machine: Machine, what: Callable[[Engine], Coroutine[Any, Any, T]]
    ) -> tuple[Life, T]:
        """The response, and whose it is."""
        life = machine.life
        asked = asyncio.ensure_future(machine.ask(what))
        await asyncio.wait([asked], timeout=RESPONSE_WITHIN_S)
        if not asked.done():
            self._books.violated("L6", f"a person waits for ever at machine {machine.number}")
            raise Crashed
        return life, asked.result()

    # --- actions -----------------------------------------------------------------------------

    async def _enable(self, machine: Machine) -> bool:
        places = self._books.places
        frozen = [it for it, place in places.items() if place.model.state == "frozen"]
        number = self._rng.choice(frozen or list(places))
        await self._set_enabled(machine, number)
        return True

    async def _set_enabled(self, machine: Machine, number: int) -> None:
        await self._ask(machine, lambda engine: engine.enable(number, by=ENABLES))

    async def _freeze(self, machine: Machine) -> bool:
        number = self._rng.choice(list(self._books.places))
        await self._ask(machine, lambda engine: engine.freeze(number, by=FREEZES))
        return True

    def _some(self, wanted: Callable[[Duty], bool]) -> Duty | None:
        aged = self._books.clock() - AGED_MS
        found = [it for it in self._books.duties.values() if it.accepted_at < aged and wanted(it)]
        return self._rng.choice(found) if found else None

    async def _cancel(self, machine: Machine) -> bool:
        duty = self._some(lambda it: it.status == "pending")
        if duty is None:
            return False
        await self._ask(machine, lambda engine: engine.cancel(duty.id))
        right = duty.status == "cancelled"
        self._books.must(right, "S1", lambda: "a cancel was answered and not done")
        return True

    async def _replay(self, machine: Machine) -> bool:
        duty = self._some(lambda it: it.status != "pending")
        if duty is None:
            return False
        _, new = await self._ask(machine, lambda engine: engine.replay(duty.id))
        right = new.id in self._books.duties
        self._books.must(right, "S4", lambda: "a replay was answered and not done")
        return True

    def _living(self) -> list[Sub]:
        return [it for it in self._books.subs.values() if not it.deleted]

    async def _change_url(self, machine: Machine) -> bool:
        sub, url = self._rng.choice(self._living()).now, _url(self._rng.randrange(URLS + 2))
        draft = SubscriptionDraft(tenant=sub.tenant, url=url, types=sub.types)
        life, _ = await self._ask(machine, lambda engine: engine.change(sub.id, lambda _: draft))
        self._known(life, sub.id)
        return True

    async def _delete(self, machine: Machine) -> bool:
        living = self._living()
        if len(living) < URLS - 1:
            return False
        sub = self._rng.choice(living).now
        life, _ = await self._ask(machine, lambda engine: engine.unsubscribe(sub.id))
        self._known(life, sub.id)
        return True

    async def _recreate(self, machine: Machine) -> bool:
        if len(self._living()) > URLS:
            return False
        await self._subscribe(machine, self._rng.randrange(URLS))
        return True

    def _known(self, life: Life, subscription_id: int) -> None:
        """What was answered is acted on from then on, by all."""
        sub = self._books.subs[subscription_id]
        now, sub.responded = sub.now, True
        told = self._books.catalogs[life.number][subscription_id]
        self._books.must(
            told.version >= now.version or now.updated_at > told.updated_at,
            "S9",
            lambda: f"a change was answered, and is not known: {told}, not {now}",
        )


def _url(number: int) -> str:
    return f"https://host{number}.example/"
