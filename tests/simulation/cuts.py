"""Cuts us off: for a while nothing that we send gets through, whatever the receivers would say."""

from __future__ import annotations

import asyncio
from random import Random

from simulation.check_outages import OutageChecks
from simulation.faults import Faults
from simulation.health_model import MINUTE
from simulation.mix import Mix
from simulation.publishers import Publishers
from simulation.receivers import Receivers
from simulation.reference import Reference

CALM_MS = 150_000  # before it: no suspected outage is left from earlier troubles
ROUND_MS = 20_000  # in which every endpoint gets something, and responds


class Cuts:
    """Makes sender outages, each after a time in which all was well."""

    def __init__(
        self,
        mix: Mix,
        rng: Random,
        *,
        reference: Reference,
        faults: Faults,
        receivers: Receivers,
        publishers: Publishers,
        watch: OutageChecks,
    ) -> None:
        self._mix, self._rng, self._reference, self._faults = mix, rng, reference, faults
        self._receivers, self._publishers, self._watch = receivers, publishers, watch
        self.over = False

    async def act(self) -> None:
        every_ms = self._mix.run_for_ms / (self._mix.cuts + 1)
        for _ in range(self._mix.cuts):
            await asyncio.sleep(self._rng.uniform(0.3, 1.0) * every_ms / 1000)
            if self.over:
                return
            await self._cut(self._rng.choice(self._mix.cut_kinds))

    async def _cut(self, kind: str) -> None:
        receivers, watch, reference = self._receivers, self._watch, self._reference
        receivers.calm = True
        await asyncio.sleep(CALM_MS / 1000)
        life, round_at = reference.first.life, reference.clock()
        rounds = [asyncio.ensure_future(self._publishers.round())]
        await asyncio.sleep(ROUND_MS / 1000)
        if not self.over:
            self._faults.fire(f"cut_{kind}")
            watch.begin(round_at, life)
            receivers.cut = kind
            rounds.append(asyncio.ensure_future(self._publishers.round()))
            await asyncio.sleep(self._rng.choice((20_000, 2 * MINUTE, 15 * MINUTE)) / 1000)
            if self._rng.random() < 0.5:
                rounds.append(asyncio.ensure_future(self._publishers.round()))
                await asyncio.sleep(MINUTE / 1000)
        receivers.cut, receivers.calm = None, False
        watch.end()
        await asyncio.wait(rounds)
