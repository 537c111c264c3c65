"""A bulk edit of one person at a slow URL, and single events of others: these must not wait for it.

The seeds with bulk edits have fair groups. A tenant of their own publishes many events of one
person at once, and a little later one event of each of two others. How many attempts of the bulk
edit start before theirs is counted: as many as may be queued at the endpoint and in flight, at the
most, whatever happens to the store and the process meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from random import Random

from homing.engine.queue import FAIR_MIN
from homing.errors import HomingError
from homing.policy.admission import EventDraft, SubscriptionDraft
from homing.sim.world import Hit
from simulation.faults import Faults
from simulation.lives import Crashed
from simulation.machine import Machine
from simulation.mix import BULK, BULK_DEADLINE_MS, BULK_URL, Mix
from simulation.overdue import is_sender_fault
from simulation.publishers import Publishers
from simulation.reference import Reference

EVENTS = 100  # of the bulk edit
OTHERS = ("ben", "cleo")
WAIT_S = 600


class BulkEdits:
    """Makes bulk edits some times in a run; ``over`` ends it."""

    def __init__(
        self,
        mix: Mix,
        rng: Random,
        *,
        world: Machine,
        reference: Reference,
        faults: Faults,
        publishers: Publishers,
    ) -> None:
        self._mix, self._rng, self._world = mix, rng, world
        self._reference, self._faults, self._publishers = reference, faults, publishers
        self._started: list[str] = []  # the persons of first attempts, in order
        self._count = 0
        self.over = False

    def sent(self, hit: Hit) -> None:
        """Note a request to the slow URL."""
        if hit.number == 1:
            self._started.append(json.loads(hit.body)["data"].get("who", ""))

    async def set_up(self) -> None:
        if not self._mix.bulk_edits:
            return
        draft = SubscriptionDraft(
            tenant=BULK,
            url=BULK_URL,
            types=("bulk",),
            secret="whsec_" + base64.b64encode(self._rng.randbytes(24)).decode(),
            deadline_ms=BULK_DEADLINE_MS,
        )
        await self._world.ask(lambda engine: engine.subscribe(draft))

    async def act(self) -> None:
        every_s = self._mix.run_for_ms / 1000 / (self._mix.bulk_edits + 1)
        for _ in range(self._mix.bulk_edits):
            await asyncio.sleep(self._rng.uniform(0.3, 0.8) * every_s)
            if not self.over:
                await self._edit()

    async def _edit(self) -> None:
        self._count += 1
        await self._publish([f"anna-{self._count}"] * EVENTS)
        await self._until(lambda: self._begun() > 2)
        for who in OTHERS:
            before, troubles = len(self._started), self._troubles()
            name = f"{who}-{self._count}"
            if self.over or not await self._publish([name]):
                return
            before = min(before, len(self._started))
            await self._until(lambda it=name: it in self._started)  # type: ignore[misc]
            if self.over or name not in self._started:
                return
            self._faults.fire("publish_bulk_edit")
            self._check(name, before, self._troubles() - troubles)

    def _check(self, name: str, before: int, troubles: int) -> None:
        if troubles:
            return  # Its publish may have been repeated, or what was in flight is sent again.
        slots = self._mix.options.endpoint_slots
        waited = self._started.index(name) - before
        # A process with little memory reads the rows of another person when it has sent its own.
        queued = max(2 * slots, FAIR_MIN) if self._mix.options.ready_max < EVENTS else 2
        allowed = queued + 2 * slots
        self._reference.must(
            waited <= allowed,
            "L5",
            lambda: f"{name} waited for {waited} attempts of a bulk edit, and {allowed} are fair",
        )

    async def _publish(self, people: list[str]) -> bool:
        drafts = [
            EventDraft(
                tenant=BULK,
                type="bulk",
                data=json.dumps({"who": who}).encode(),
                key=f"{who}-{number}",
            )
            for number, who in enumerate(people)
        ]
        try:
            await self._publishers.publish_batch(drafts)
        except (HomingError, Crashed):
            return False
        return True

    async def _until(self, reached: Callable[[], bool]) -> None:
        for _ in range(WAIT_S):
            if self.over or reached():
                return
            await asyncio.sleep(1)

    def _begun(self) -> int:
        return self._started.count(f"anna-{self._count}")

    def _troubles(self) -> int:
        return sum(count for kind, count in self._faults.fired.items() if is_sender_fault(kind))
