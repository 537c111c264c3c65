"""A tenant whose names resolve slowly or never, and a bounded number of look-ups at a time.

The queue, the shares, the deadlines and the memory of look-ups are the real ones
(``net/resolver``), on virtual time: only the system's own look-up is a function here. So is what a
deadline is called that passes (``net/flight``). Two things are checked beside them: a tenant whose
names resolve at once never waits for anybody but itself, and a timeout after a wait in our own
queue is the sender's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

from homing.model import Failure, Phases
from homing.net.flight import HELD_UP_S, Flight, Stage, deadline_failure
from homing.net.resolver import Address, Found, Question, Resolver
from homing.net.trouble import Trouble
from homing.ports import Request, Response
from homing.sim.world import Hit, World
from simulation.lives import Life, LifeSender
from simulation.mix import Mix
from simulation.reference import Reference

QUICK_S = 0.002
NEVER_S = 15.0  # The C library gives up then.
SLOW_S = (0.2, 1.0, 4.0, 8.0)
SLACK_S = 0.001
_FOUND = (Address(2, "192.0.2.1", ("192.0.2.1", 443)),)
_SILENT = Trouble(Failure.SENDER_DNS, "the name servers gave no response")


class SlowNames:
    """Which look-ups take how long; ``healed`` ends all trouble."""

    def __init__(
        self, mix: Mix, rng: Random, *, reference: Reference, fire: Callable[[str], None]
    ) -> None:
        assert mix.slow_names is not None
        self.mix, self.reference, self._rng, self._fire = mix, reference, rng, fire
        self.tenant, self.threads = mix.tenants[0], mix.slow_names.threads
        self._never = mix.slow_names.never
        self.healed = False

    def takes(self, tenant: str) -> tuple[float, Found]:
        """How long one look-up takes, and what it finds."""
        if tenant != self.tenant or self.healed:
            return QUICK_S, _FOUND
        if self._rng.random() < self._never:
            self._fire("look_up_never")
            return NEVER_S, _SILENT
        self._fire("look_up_slow")
        return self._rng.choice(SLOW_S), _FOUND


class _Resolver(Resolver):
    """The real one, with look-ups that are timers."""

    def __init__(self, names: SlowNames) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(threads_max=names.threads, monotonic=loop.time)
        self._names = names

    def begin(self, question: Question, done: Callable[[Found], None]) -> None:
        tenant = question[0].partition(" ")[0]
        takes_s, found = self._names.takes(tenant)
        asyncio.get_running_loop().call_later(takes_s, done, found)


class ResolvingSender(LifeSender):
    """A sender that looks names up first; each URL has a name of its own."""

    def __init__(self, names: SlowNames, world: World, life: Life) -> None:
        super().__init__(world, life)
        self._names, self._resolver = names, _Resolver(names)
        self._looking: Counter[str] = Counter()  # look-ups under way, by tenant

    def send(self, request: Request, done: Callable[[Response], None]) -> None:
        if not self._life.alive:
            return
        hit = self.begin(request)
        loop = asyncio.get_running_loop()
        now = loop.time()
        flight = Flight(request, done, now, now + request.deadline_ms / 1000, now, Stage.QUEUE)
        flight.task = loop.create_task(self._fly(flight, hit))
        loop.call_later(request.deadline_ms / 1000, self._expire, flight, hit)

    async def _fly(self, flight: Flight, hit: Hit) -> None:
        loop, request = asyncio.get_running_loop(), flight.request
        tenant, begun_at = request.tenant, flight.started_at
        ahead = self._looking[tenant]
        self._looking[tenant] += 1

        def started() -> None:
            flight.stage, flight.queued_s = Stage.LOOK_UP, loop.time() - begun_at
            self._check_wait(tenant, ahead, flight.queued_s)

        try:
            name = f"{tenant} {hit.url}"
            found = await self._resolver.resolve(name, 443, tenant=tenant, started=started)
        finally:
            self._looking[tenant] -= 1
        flight.task = None  # The deadline is the receiver's from here on.
        flight.stage = Stage.RESPONSE
        used_ms = round((loop.time() - begun_at) * 1000)
        if isinstance(found, Trouble):
            self.finish(hit, _no_response(found.failure, used_ms), flight.done)
        else:
            self.ask(hit, flight.done, used_ms=used_ms, late=lambda: self._why_late(flight))

    def _expire(self, flight: Flight, hit: Hit) -> None:
        """The deadline passes; a look-up that has not ended is given up."""
        if flight.task is not None:
            flight.task.cancel()
            failure = self._why_late(flight)
            self.finish(hit, _no_response(failure, hit.deadline_ms), flight.done)

    def _why_late(self, flight: Flight) -> Failure:
        failure = deadline_failure(flight).failure
        queued = flight.stage is Stage.QUEUE or flight.queued_s > HELD_UP_S
        self._names.reference.must(
            not queued or failure.value.startswith("sender_"),
            "S10",
            lambda: f"{failure.value} after {flight.queued_s:.3f} s in our own queue of look-ups",
        )
        return failure

    def _check_wait(self, tenant: str, ahead: int, queued_s: float) -> None:
        """Of a tenant whose names resolve at once, only its own look-ups may be waited for."""
        names = self._names
        names.reference.must(
            tenant == names.tenant or queued_s <= (ahead + 1) * QUICK_S + SLACK_S,
            "L5",
            lambda: f"{tenant} waited {queued_s:.3f} s for a look-up behind {names.tenant}",
        )


def _no_response(failure: Failure, used_ms: int) -> Response:
    return Response(None, failure, "", None, Phases(total_us=used_ms * 1000))
