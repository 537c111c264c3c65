"""People who erase: single events, and all that have a value at a payload field."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from random import Random

from homing.engine.engine import Engine
from homing.errors import HomingError, NotFound
from homing.ports.erasures import Erasure
from simulation.lives import Crashed
from simulation.machine import Machine, pick
from simulation.mix import Mix
from simulation.reference import Fact, Reference, value_at

AGAIN = 0.1  # of the erasures of an event, those of one that is erased already
FIELD_TRIES = 20  # until an event with a payload field is found
NEW = 4  # the events that were published last


class Erasing:
    """Erases now and then; from the response on nothing of it may be sent."""

    def __init__(
        self,
        machines: Sequence[Machine],
        mix: Mix,
        rng: Random,
        reference: Reference,
        fire: Callable[[str], None],
    ) -> None:
        self._machines, self._mix, self._rng = machines, mix, rng
        self._reference, self._fire = reference, fire
        self.over = False

    async def act(self) -> None:
        """One erasure after the other, until it is over."""
        rate = self._mix.erasures_per_hour
        while rate and not self.over:
            await asyncio.sleep(self._rng.expovariate(rate) * 3600)
            if not self.over:
                await (self._event if self._rng.random() < 0.7 else self._field)()

    async def _event(self) -> None:
        event = self._some()
        if event is not None:
            tenant, key = event[1].tenant, event[1].key or ""
            await self._erase(
                "event", {event[0]}, lambda engine: engine.erasures.erase_event(tenant, key)
            )

    async def _field(self) -> None:
        paths = self._mix.options.payload_fields.paths
        for _ in range(FIELD_TRIES if paths else 0):
            event, path = self._some(), self._rng.choice(paths)
            value = None if event is None else value_at(event[1].data, path)
            if event is not None and value is not None:
                await self._value(event[1].tenant, path, value)
                return

    async def _value(self, tenant: str, path: str, value: str | int) -> None:
        covered = {
            number
            for number, fact in self._reference.facts.items()
            if fact.tenant == tenant and value_at(fact.data, path) == value
        }
        text = value if isinstance(value, str) else json.dumps(value)
        await self._erase(
            "field", covered, lambda engine: engine.erasures.erase_field(tenant, path, text)
        )

    def _some(self) -> tuple[int, Fact] | None:
        """An event that is stored, or one that was; often one that was just published."""
        gone, erased = self._rng.random() < AGAIN, self._reference.erased_events
        events = [it for it in self._reference.facts if (it in erased) == gone]
        if not events:
            return None
        number = self._rng.choice(events[-NEW:] if self._rng.random() < 0.5 else events)
        return number, self._reference.facts[number]

    async def _erase(
        self,
        what: str,
        covered: set[int],
        erase: Callable[[Engine], Coroutine[None, None, Erasure]],
    ) -> None:
        reference = self._reference
        reference.say(f"person: erases {len(covered)} events by {what}")
        try:
            async with asyncio.timeout(self._mix.response_within_ms / 1000):
                await pick(self._machines, self._rng).ask(erase)
        except NotFound:
            reference.violated("erase", f"an event that was published is not found: {covered}")
            return
        except (HomingError, Crashed):
            reference.say("person: the erasure was not answered well")
            return
        except TimeoutError:
            reference.violated("L6", f"a person waits for ever: erase by {what}")
            return
        self._fire(f"person_erase_{what}")
        for number in sorted(covered):
            change = reference.erased_events.get(number)
            if change is None:
                reference.violated("erase", f"an erasure by {what} was answered and not done")
                return
            change.answered = True
