"""What happens to a process: kills, stops, pauses, an absent store, a wall clock that is set.

A supervisor starts it again after a while, as systemd would; a start can be interrupted, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random

from homing.errors import HomingError
from simulation.checker import LEASE_MS
from simulation.faults import Faults
from simulation.health_model import HOUR, MINUTE
from simulation.lives import Crashed
from simulation.machine import FleetLoop, Machine
from simulation.mix import Mix
from simulation.reference import Fact, Flight, Reference

_DAY = 24 * HOUR
STEPS_MS = (-_DAY, -HOUR, -10 * MINUTE, -2 * MINUTE, 2 * MINUTE, 10 * MINUTE, HOUR, _DAY)


class Process:
    """The life of the process from outside."""

    def __init__(
        self, world: Machine, faults: Faults, reference: Reference, mix: Mix, rng: Random
    ) -> None:
        self._world, self._faults, self._reference = world, faults, reference
        self._mix, self._rng = mix, rng
        self._offset_ms = 0
        self._steps = Random(f"steps {mix.seed}")
        self._paused = False
        self._publishes: list[asyncio.Future[None]] = []
        self.over = False
        self.publish_about: Callable[[Fact], Coroutine[None, None, None]]  # about the same key

    async def start(self) -> None:
        """Try until it runs."""
        faults = self._faults
        while True:
            faults.died.clear()
            faults.starting = True
            try:
                clocks = self._world.set_clocks
                offset_ms = self._offset_ms if clocks is None else clocks.offset_ms
                await self._world.start(clock_offset_ms=offset_ms)
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
                self._reference.clock_jumped = True
            if not self._faults.healed and self._world.set_clocks is not None:
                self._world.set_clocks.set()
            self._reference.say("starts")
            await self.start()

    def _downtime_ms(self) -> int:
        return self._rng.choice(self._mix.downtimes_ms)

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
                if not self._paused:
                    self._faults.fire("kill")
                    self._faults.die()

    async def stops(self) -> None:
        while await self._at_rate(self._mix.rates.stops_per_hour):
            if self._world.up and not self._paused:
                await self.stop()

    async def stop(self) -> None:
        """Stop it in good order, unless it is being stopped; the supervisor starts it again."""
        memory = self._reference.memories[self._world.number]
        if memory.stopping:
            return
        self._faults.fire("stop")
        memory.stopping = True
        life, began = self._world.life, self._reference.clock()
        try:
            await self._world.ask(lambda engine: engine.stop(grace_ms=self._mix.grace_ms))
        except Crashed:
            return
        if self._world.life is not life or not life.alive:
            return
        in_time = self._reference.clock() - began < self._mix.grace_ms
        if in_time and any(self._reference.is_current(it) for it in memory.flights.values()):
            self._reference.violated("stop", "an orderly stop left attempts unsettled")
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
                self._reference.memories[self._world.number].stepped_at = self._reference.clock()

    async def pauses(self) -> None:
        """As by SIGSTOP: for a moment, or beyond its lease."""
        while await self._at_rate(self._mix.rates.pauses_per_hour):
            long = self._rng.random() < 0.7 if self._world.up else False
            if long and (self._mix.gone or self._mix.keys):
                await self._worst_moment()
            if not self._world.up:
                continue
            loop, life = asyncio.get_running_loop(), self._world.life
            assert isinstance(loop, FleetLoop)
            self._faults.fire("long_pause" if long else "pause")
            self._paused = True
            loop.stop_life(life)
            if long and self._mix.keys:
                self._publish_more()
            await asyncio.sleep(self._rng.uniform(1, 3) * LEASE_MS / 1000 if long else 1)
            self._reference.say(f"machine {self._world.number} goes on")
            self._reference.lives[life.number].resumed_at = self._reference.clock()
            self._paused = False
            loop.go_on(life)

    async def _worst_moment(self) -> None:
        """Until it has an attempt in flight that may do harm if it goes on late; not for long."""
        for _ in range(200):
            if self._harmful() or self.over:
                return
            await asyncio.sleep(0.1)

    def _harmful(self) -> list[Flight]:
        """Attempts in flight whose response is a 410, or whose key is kept in order."""
        reference = self._reference
        flights = reference.memories[self._world.number].flights.values()
        return [
            it
            for it in flights
            if reference.gets_410(it)
            or (it.finished_at is None and reference.deliveries[it.delivery_id].ordered)
        ]

    def _publish_more(self) -> None:
        """Another process may take these keys over, and must not go on with them too soon."""
        deliveries = [self._reference.deliveries[it.delivery_id] for it in self._harmful()]
        facts = [self._reference.facts[it.event_id] for it in deliveries if it.ordered]
        self._publishes += [asyncio.ensure_future(self.publish_about(it)) for it in facts]
