"""Publishers: single events and batches, ids that come again, and responses that never came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from homing.errors import EventConflict, HomingError
from homing.policy.admission import EventDraft
from simulation.checker import Checker
from simulation.lives import Crashed
from simulation.machine import Machine, pick
from simulation.mix import Mix
from simulation.reference import EARLIER, LATER, Fact

TYPES = ("order.created", "order.paid", "order.item.added", "user.made", "order")


class Publishers:
    """All publishers of a run; what they are told goes to the checker."""

    def __init__(
        self,
        machines: Sequence[Machine],
        mix: Mix,
        rng: Random,
        checker: Checker,
        fire: Callable[[str], None],
    ) -> None:
        self._machines, self._mix, self._rng = machines, mix, rng
        self._checker, self._fire = checker, fire
        self._keys = Random(f"keys of {mix.seed}")
        self._count = 0
        self.over = False

    async def publish_all(self, events: int) -> None:
        """Spread over most of the run, until enough deliveries were made."""
        mix, rng, reference = self._mix, self._rng, self._checker.reference
        at_once = rng.randint(5, 15) if mix.bursts else 1
        mean_s = 0.8 * mix.run_for_ms / 1000 * at_once * mix.publishers / max(events, 1)
        while not self.over and reference.counts["deliveries"] < mix.deliveries:
            await asyncio.sleep(min(rng.expovariate(1 / mean_s), 5 * mean_s))
            if not self.over:
                await asyncio.gather(*(self.publish_something() for _ in range(at_once)))

    async def meanwhile(self) -> None:
        """At the very time of something else, or a little later."""
        await asyncio.sleep(self._rng.choice((0, 0, 0.001, 0.01, 0.03)))
        if not self.over and self._checker.reference.counts["deliveries"] < self._mix.deliveries:
            await self.publish_something()

    async def round(self, tenants: tuple[str, ...] = ()) -> None:
        """Something for everybody, or for these: it matches all that people subscribe for."""
        for tenant in tenants or self._mix.tenants:
            draft = msgspec.structs.replace(self._draft(), tenant=tenant, type=TYPES[0])
            await self._until_told([draft])

    async def publish(self, draft: EventDraft) -> None:
        """Publish this one, again and again until it is answered, or given up."""
        await self._until_told([draft])

    async def about(self, fact: Fact) -> None:
        """Publish another event of a key, of the same type."""
        draft = msgspec.structs.replace(self._draft(), tenant=fact.tenant, type=fact.type)
        await self._until_told([msgspec.structs.replace(draft, order_key=fact.about)])

    async def publish_batch(self, drafts: list[EventDraft]) -> None:
        """The same with several."""
        await self._until_told(drafts)

    async def publish_something(self) -> None:
        rng = self._rng
        drafts = [self._draft() for _ in range(rng.choice((1, 1, 1, 2, 5)))]
        tenant = rng.choice(self._mix.tenants)
        drafts = [msgspec.structs.replace(draft, tenant=tenant) for draft in drafts]
        if len(drafts) > 1:
            self._fire("publish_batch")
            if rng.random() < 0.2 and drafts[0].key is not None:
                self._fire("publish_twice_in_batch")
                drafts.append(drafts[0])
        await self._until_told(drafts)
        with_id = [draft for draft in drafts if draft.key is not None]
        if not with_id or self.over:
            return
        if rng.random() < 0.15:
            self._fire("publish_again_equal")
            await self._publish(with_id)
        if rng.random() < 0.1:
            await self._publish([self._different(with_id[0])])
        if rng.random() < 0.03:
            self._fire("publish_twins_that_differ")
            new = msgspec.structs.replace(self._draft(), tenant=tenant)
            new = msgspec.structs.replace(new, key=f"twin-{self._count}")
            await self._publish([new, self._different(new)])
        if rng.random() < 0.05 and len(self._mix.tenants) > 1:
            self._fire("publish_id_of_another_tenant")
            other = rng.choice([it for it in self._mix.tenants if it != tenant])
            draft = msgspec.structs.replace(self._draft(), tenant=other, key=with_id[0].key)
            await self._until_told([draft])

    def _different(self, draft: EventDraft) -> EventDraft:
        """The same id with another content, in one of the three that make it."""
        what = self._rng.choice(("data", "type", "time"))
        if self._mix.keys and self._keys.random() < 0.3:
            self._fire("publish_again_other_key")
            return msgspec.structs.replace(draft, order_key="another object")
        self._fire(f"publish_again_other_{what}")
        match what:
            case "data":
                other = msgspec.structs.replace(self._draft(), tenant=draft.tenant)
                return msgspec.structs.replace(other, key=draft.key)
            case "type":
                other_type = next(it for it in TYPES if it != draft.type)
                return msgspec.structs.replace(draft, type=other_type)
            case _:
                given = None if draft.time is not None and self._rng.random() < 0.5 else LATER
                return msgspec.structs.replace(draft, time=given)

    def _draft(self) -> EventDraft:
        self._count += 1
        rng, n = self._rng, self._count
        data = rng.choice(
            (
                '{"n": %d}',
                '{"text":"\\u00e9 \\/", "n":%d}',
                '{"x": 1.10e2 ,"x":[ ] , "n":%d}',
                '["\U0001f980",-0.0,%d ]',
            )
        )
        return EventDraft(
            tenant="",
            type=rng.choice(TYPES),
            data=(data % n).encode(),
            key=f"key-{n}" if rng.random() < 0.7 else None,
            time=EARLIER if rng.random() < 0.3 else None,
            order_key=self._key(),
        )

    def _key(self) -> str | None:
        """One of few keys, in a run that has keys."""
        keys = self._mix.keys
        if not keys or self._keys.random() < self._mix.unkeyed:
            return None
        return f"object {self._keys.randint(1, keys)}"

    async def _until_told(self, drafts: list[EventDraft]) -> None:
        """With ids of our own we publish again until there is a response; without, once."""
        rng = self._rng
        while not await self._publish(drafts):
            if any(draft.key is None for draft in drafts) or rng.random() < 0.1:
                return
            await asyncio.sleep(rng.choice((0.1, 3, 60)))
            self._fire("publish_again_unanswered")

    async def _publish(self, drafts: list[EventDraft]) -> bool:
        """Whether there was a response."""
        self._checker.offer(drafts)
        try:
            async with asyncio.timeout(self._mix.response_within_ms / 1000):
                machine = pick(self._machines, self._rng)
                receipts = await machine.ask(lambda engine: engine.publish(drafts))
        except EventConflict:
            self._checker.conflict(drafts)
            return True
        except (HomingError, Crashed):
            return False
        except TimeoutError:
            self._checker.reference.violated("L6", "a publisher waits for ever")
            return True
        self._checker.receipts(drafts, receipts)
        return True
