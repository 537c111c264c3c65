"""What befalls the process: kills, orderly stops, an absent store, a wall clock that is set.

A supervisor starts it again after a while, as systemd would; a start can be interrupted, too.
"""

from __future__ import annotations

import asyncio
from random import Random

from homing.errors import HomingError
from homing.sim.world import Crashed
from simulation.books import Books
from simulation.faults import Faults, FaultyWorld
from simulation.health_model import HOUR, MINUTE
from simulation.mix import Mix

GRACE_MS = 30_000
_DAY = 24 * HOUR
STEPS_MS = (-_DAY, -HOUR, -10 * MINUTE, -2 * MINUTE, 2 * MINUTE, 10 * MINUTE, HOUR, _DAY)


class Process:
    """The life of the process from outside."""

    def __init__(
        self, world: FaultyWorld, faults: Faults, books: Books, mix: Mix, rng: Random
    ) -> None:
        self._world, self._faults, self._books = world, faults, books
        self._mix, self._rng = mix, rng
        self._offset_ms = 0
        self._steps = Random(f"steps {mix.seed}")
        self.over = False

    async def start(self) -> None:
        """Try until it runs."""
        faults = self._faults
        while True:
            faults.died.clear()
            faults.starting = True
            try:
                await self._world.start(clock_offset_ms=self._offset_ms)
            except Crashed:
                await asyncio.sleep(1)
            except HomingError:
                self._world.die()
                await asyncio.sleep(1)
            else:
                if self._world.life.alive:  # Else it died in its first moment.
                    self._world.is_up.set()
                    return
                await asyncio.sleep(1)
            finally:
                faults.starting = False

    async def supervise(self) -> None:
        while True:
            await self._faults.died.wait()
            await asyncio.sleep(self._downtime_ms() / 1000)
            if not self._faults.healed and self._rng.random() < self._mix.rates.clock_jumps:
                self._faults.fire("clock_jump")
                self._offset_ms += self._rng.choice(
                    (-_DAY, -HOUR, -MINUTE, -1_000, 1_000, MINUTE, HOUR, _DAY)
                )
                self._books.clock_jumped = True
            self._books.say("starts")
            await self.start()

    def _downtime_ms(self) -> int:
        long = int(0.2 * self._mix.run_for_ms)
        return self._rng.choice((20, 5_000, 5_000, 10 * MINUTE, long))

    async def _at_rate(self, per_hour: float) -> bool:
        """Until the next time; False: never."""
        if per_hour <= 0:
            return False
        await asyncio.sleep(self._rng.expovariate(per_hour) * 3600)
        return not self.over

    async def kills(self) -> None:
        while await self._at_rate(self._mix.rates.kills_per_hour):
            if self._world.up:
                for _ in range(self._rng.randint(0, 5)):
                    await asyncio.sleep(0)
                self._faults.fire("kill")
                self._faults.die()

    async def stops(self) -> None:
        while await self._at_rate(self._mix.rates.stops_per_hour):
            if not self._world.up:
                continue
            self._faults.fire("stop")
            self._books.stopping = True
            life, began = self._world.life, self._books.clock()
            try:
                await self._world.ask(lambda engine: engine.stop(grace_ms=GRACE_MS))
            except Crashed:
                continue
            if self._world.life is not life or not life.alive:
                continue
            in_time = self._books.clock() - began < GRACE_MS
            if in_time and self._books.flights:
                self._books.violated("stop", "an orderly stop left attempts unsettled")
            self._faults.die()

    async def outages(self) -> None:
        while await self._at_rate(self._mix.rates.outages_per_hour):
            self._faults.fire("store_outage")
            self._faults.store_down = True
            await asyncio.sleep(self._rng.choice((0.5, 20, 300)))
            self._faults.store_down = False

    async def steps(self) -> None:
        while await self._at_rate(self._mix.rates.steps_per_hour):
            if self._world.up:
                self._faults.fire("clock_step")
                self._world.clock.step(self._steps.choice(STEPS_MS))
                self._books.stepped_at = self._books.clock()
