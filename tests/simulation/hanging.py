"""A tenant whose URLs all hang, beside the others: their first attempts must not wait for it.

Now and then that tenant publishes for all of its URLs, and each attempt hangs until its deadline.
Meanwhile every other tenant publishes something, all of its receivers respond, and a few seconds
later nothing of theirs may still wait at an endpoint that is open.
"""

from __future__ import annotations

import asyncio
import base64
from random import Random

from homing.errors import HomingError
from homing.policy.admission import EventDraft, SubscriptionDraft
from simulation.faults import Faults
from simulation.lives import Crashed
from simulation.machine import Machine
from simulation.mix import HUSH, HUSH_DEADLINE_MS, HUSH_URL, Mix
from simulation.overdue import is_open, is_sender_fault
from simulation.publishers import Publishers
from simulation.receivers import Receivers
from simulation.reference import Reference

CALM_S = 150  # before it: what was in flight has come back
WITHIN_MS = 10_000  # a third of the deadline: who waits for a slot to come back waits longer


class Hanging:
    """Makes the tenant hang some times in a run; ``over`` ends it."""

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
        self._mix, self._rng, self._world = mix, rng, world
        self._reference, self._faults = reference, faults
        self._receivers, self._publishers = receivers, publishers
        self._count = 0
        self.over = False

    async def set_up(self) -> None:
        """Subscribe the URLs that will hang: more of them than a lane has slots."""
        if not self._mix.hangs:
            return
        for number in range(2 * self._mix.options.fresh_slots):
            draft = SubscriptionDraft(
                tenant=HUSH,
                url=f"{HUSH_URL}{number}",
                types=("hush",),
                secret="whsec_" + base64.b64encode(self._rng.randbytes(24)).decode(),
                deadline_ms=HUSH_DEADLINE_MS,
            )
            await self._world.ask(lambda engine, it=draft: engine.subscribe(it))  # type: ignore[misc]

    async def act(self) -> None:
        every_s = self._mix.run_for_ms / 1000 / (self._mix.hangs + 1)
        for _ in range(self._mix.hangs):
            await asyncio.sleep(self._rng.uniform(0.3, 1.0) * every_s)
            if self.over:
                return
            self._receivers.calm = True
            await asyncio.sleep(CALM_S)
            if not self.over:
                await self._hang()
            self._receivers.calm = False

    async def _hang(self) -> None:
        """Let all URLs of the tenant hang, and look whether the others go on."""
        before = self._troubles()
        await self._publish()
        await asyncio.sleep(0.5)
        others = asyncio.ensure_future(self._publishers.round())
        await asyncio.sleep(WITHIN_MS / 1000 + 2)
        if self._hung() >= self._mix.options.fresh_slots // 2:
            self._faults.fire("tenant_hangs")
            if self._troubles() == before and self._world.up and not self.over:
                self._check()
        await asyncio.wait([others])

    async def _publish(self) -> None:
        self._count += 1
        data = b'{"hush": %d}' % self._count
        draft = EventDraft(tenant=HUSH, type="hush", data=data, key=f"hush-{self._count}")
        try:
            await self._publishers.publish(draft)
        except (HomingError, Crashed):
            return

    def _hung(self) -> int:
        reference = self._reference
        ids = (it.endpoint_id for it in reference.flights.values() if it.lane == "fresh")
        return sum(reference.endpoints[it].tenant == HUSH for it in ids)

    def _troubles(self) -> int:
        return sum(count for kind, count in self._faults.fired.items() if is_sender_fault(kind))

    def _check(self) -> None:
        reference, now = self._reference, self._reference.clock()
        busy = {it.endpoint_id for it in reference.flights.values()}
        for endpoint in reference.endpoints.values():
            if endpoint.tenant == HUSH or endpoint.id in busy:
                continue
            if not is_open(reference, endpoint, now, since_ms=WITHIN_MS):
                continue
            late = [
                it
                for it in reference.waiting.get(endpoint.id, {}).values()
                if not it.blocked
                and it.attempts == 0
                and reference.due_of(it, now) + WITHIN_MS < now
                if it.sender_errors == 0 and not it.moved
            ]
            reference.must(
                not late,
                "L5",
                lambda it=endpoint, of=late: (  # type: ignore[misc]
                    f"{it.url} of {it.tenant} waits with {len(of)} behind a tenant that hangs"
                ),
            )
