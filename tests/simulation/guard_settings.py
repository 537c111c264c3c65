"""Guard settings that change with a start, and names that begin to lead to private addresses.

Some names always lead to a private address, some never, some now and then; and there are URLs that
have one in them. An operator starts the process again with settings that allow private addresses,
or without that permission, and gives it back later. Whoever is refused was refused by the operator
if the URL has passed under other settings before, and by its own name in all other cases: that is
decided in ``health_model`` from what was dialled, not from what is stored.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import msgspec

from homing.model import Failure
from homing.sim.world import Hit, Reply
from simulation.mix import GUARDS, Mix

if TYPE_CHECKING:
    from simulation.faults import Faults
    from simulation.machine import Machine
    from simulation.process import Process
    from simulation.publishers import Publishers
    from simulation.receivers import Receivers
    from simulation.reference import Reference

_PRIVATE = "https://10.0.0."
SPELLS_MS = (5 * 60_000, 30 * 60_000, 90 * 60_000)  # in which a name leads to one address


def private_url(number: int) -> str:
    """A URL with a private address in it."""
    return f"{_PRIVATE}{number}/{number}"


def is_address(url: str) -> bool:
    """Whether the URL has an address in it: it passed the guard when it was subscribed."""
    return url.startswith(_PRIVATE)


class GuardSettings:
    """The guard in front of the receivers, and the operator who changes it; ``over`` ends both."""

    def __init__(
        self,
        mix: Mix,
        rng: Random,
        *,
        world: Machine,
        process: Process,
        reference: Reference,
        faults: Faults,
        receivers: Receivers,
        publishers: Publishers,
    ) -> None:
        self._mix, self._rng, self._world, self._process = mix, rng, world, process
        self._reference, self._faults = reference, faults
        self._receivers, self._publishers = receivers, publishers
        self._names: dict[str, list[tuple[int, bool]]] = {}  # until when, and whether private
        self.over = False

    def reply(self, hit: Hit) -> Reply:
        allowed = self.over or GUARDS[self._reference.lives[hit.life].guard]
        if allowed or not self._is_private(hit.url):
            return self._receivers.reply(hit)
        self._faults.fire("receiver_private_address")
        return Reply(None, Failure.FORBIDDEN_ADDRESS, latency_ms=self._rng.choice((0, 3, 40)))

    def _is_private(self, url: str) -> bool:
        if is_address(url):
            return True
        now = round(asyncio.get_running_loop().time() * 1000)
        diary = self._names.setdefault(url, [])
        while not diary or diary[-1][0] <= now:
            if not diary and self._rng.random() < 0.5:  # For ever.
                diary.append((1 << 62, self._rng.random() < 0.6))
            else:
                private = not diary[-1][1] if diary else False
                diary.append(((diary[-1][0] if diary else 0) + self._spell_ms(), private))
        return next(private for until, private in diary if until > now)

    def _spell_ms(self) -> int:
        return self._rng.choice(SPELLS_MS)

    async def act(self) -> None:
        """Change the settings some times, each time with something to send before and after it."""
        rng, every_ms = self._rng, self._mix.run_for_ms / (self._mix.guard_changes + 1)
        for _ in range(self._mix.guard_changes):
            await asyncio.sleep(rng.uniform(0.5, 1.0) * every_ms / 1000)
            if self.over:
                return
            rounds = [asyncio.ensure_future(self._publishers.round())]
            await asyncio.sleep(rng.choice((0.001, 1, 60)))
            await self._change()
            await asyncio.sleep(rng.choice((1, 60, 600)))
            rounds.append(asyncio.ensure_future(self._publishers.round()))
            await asyncio.wait(rounds)

    async def _change(self) -> None:
        """Start the process again with other settings."""
        world, rng = self._world, self._rng
        guard = rng.choice([it for it in sorted(GUARDS) if it != world.options.guard])
        self._faults.fire("settings_changed")
        self._reference.say(f"settings of the guard: {guard}")
        world.options = msgspec.structs.replace(world.options, guard=guard)
        if world.up and rng.random() < 0.5:
            await self._process.stop()
        elif world.up:
            self._faults.die()
