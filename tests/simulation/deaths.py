"""Tenants whose hosts all die at once, beside others whose hosts are well.

No delivery to a host that is well may wait more than a minute for that, whatever the sender makes
of the failures (L7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from simulation.faults import Faults
from simulation.machine import Machine
from simulation.mix import Mix
from simulation.publishers import Publishers
from simulation.receivers import Receivers
from simulation.reference import Reference

CALM_MS = 150_000  # before it: no suspected outage is left from earlier troubles
ROUND_MS = 20_000  # in which every endpoint gets something, and responds
WAIT_MAX_MS = 60_000
KINDS = ("refused", "unreachable", "dns", "silence")


class Deaths:
    """Makes the hosts of some tenants die, and looks at the deliveries of the others."""

    def __init__(
        self,
        mix: Mix,
        rng: Random,
        *,
        world: Machine,
        reference: Reference,
        faults: Faults,
        receivers: Receivers,
        publishers: Publishers,
    ) -> None:
        self._mix, self._rng, self._reference = mix, rng, reference
        self._world, self._faults = world, faults
        self._receivers, self._publishers = receivers, publishers
        self.over: Callable[[], bool]

    async def act(self) -> None:
        for _ in range(self._mix.deaths):
            await asyncio.sleep(self._rng.uniform(10, 300))
            if not self.over():
                await self._die()

    async def _die(self) -> None:
        rng, receivers, tenants = self._rng, self._receivers, self._mix.tenants
        receivers.calm = True
        await asyncio.sleep(CALM_MS / 1000)
        rounds = [asyncio.ensure_future(self._publishers.round(tenants))]
        await asyncio.sleep(ROUND_MS / 1000)
        dead = tuple(rng.sample(tenants, rng.randint(1, len(tenants) - 1)))
        well = tuple(it for it in tenants if it not in dead)
        for number in range(rng.randint(2, 4)):
            if self.over():
                break
            if number == 0:
                self._faults.fire("tenants_die")
                receivers.dead, receivers.dead_kind = frozenset(dead), rng.choice(KINDS)
            rounds.append(asyncio.ensure_future(self._publishers.round(dead)))
            await asyncio.sleep(rng.choice((15, 30, 70)))
            before = self._troubles()
            rounds.append(asyncio.ensure_future(self._publishers.round(well)))
            await asyncio.sleep((WAIT_MAX_MS + 5_000) / 1000)
            if before is not None and before == self._troubles() and not self.over():
                self._nobody_waits(well)
        receivers.dead, receivers.calm = frozenset(), False
        await asyncio.wait(rounds)

    def _troubles(self) -> tuple[int, int] | None:
        """Of the store and of the process, which delay deliveries too; None: it is down."""
        if not self._world.up or self._faults.store_down:
            return None
        fired = self._faults.fired
        sender_faults = sum(
            count
            for kind, count in fired.items()
            if not kind.startswith(("receiver_", "publish_", "person_"))
        )
        return self._reference.first.life, sender_faults

    def _nobody_waits(self, tenants: tuple[str, ...]) -> None:
        reference = self._reference
        since = reference.clock() - WAIT_MAX_MS
        for endpoint in reference.endpoints.values():
            known = reference.first.known[endpoint.id]
            states = {endpoint.state, known.state}
            held = max(endpoint.hold_until, known.hold_until, endpoint.enabled_since)
            if endpoint.tenant not in tenants or states != {"enabled"} or held > since:
                continue
            late = [
                it
                for it in reference.waiting.get(endpoint.id, {}).values()
                if not it.blocked
                and reference.due_of(it, reference.clock()) <= since
                and not it.moved
                and not reference.subs[it.subscription_id].deleted
                and it.id not in reference.flights
                and it.id not in reference.first.on_their_way
            ]
            reference.must(
                not late,
                "L7",
                lambda it=endpoint, of=late: f"{it.url} works, and {len(of)} wait for a minute",  # type: ignore[misc]
            )
