"""The world of the demo: a server, three receivers and traffic, all over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from enum import Enum

from homing.cli.receiver import Arrived, receiving
from homing.client import AsyncHoming
from homing.client.errors import HomingClientError
from homing.model import Attempt, Endpoint, Outcome, State, Transition, read_id
from homing.policy.explain import explain_change
from homing.policy.health import HealthRules
from homing.ports import Ledger
from homing.server.wiring import Running

HOST = "127.0.0.1"
TYPES = ("order.placed", "order.paid", "order.packed", "order.sent")
EVENTS_A_SECOND = 12
RECENT = 200
SHAKY_PART = 0.3
WAITING_MOST = 100_000


class Mood(Enum):
    """How a receiver answers."""

    WELL = "answers 204"
    SHAKY = "answers 503 to three requests in ten"
    DOWN = "answers 503 to every request"
    DEAD = "nobody listens there"


class Url:
    """One receiver, and what is known of its endpoint."""

    def __init__(self, name: str, mood: Mood) -> None:
        self.name, self.mood = name, mood
        self.port = 0
        self.address = ""
        self.endpoint_id = 0
        self.endpoint: Endpoint | None = None
        self.waiting = 0
        self.delivered = 0
        self.recent: deque[Attempt] = deque(maxlen=RECENT)
        self.transitions: list[Transition] = []
        self.opened: contextlib.AsyncExitStack = contextlib.AsyncExitStack()

    async def open(self, chance: random.Random) -> None:
        """Listen; on the same port as before, if there was one."""

        async def answer(_: Arrived) -> int:
            if self.mood is Mood.SHAKY and chance.random() < SHAKY_PART:
                return 503
            return 503 if self.mood is Mood.DOWN else 204

        self.port = await self.opened.enter_async_context(
            receiving(answer, host=HOST, port=self.port)
        )

    async def close(self) -> None:
        await self.opened.aclose()


Say = Callable[[str, str], None]  # whom it is about ("" for all), a sentence


class World:
    """Everything that is shown."""

    def __init__(self, house: Running, client: AsyncHoming, rules: HealthRules, say: Say) -> None:
        self._house, self.client, self.rules, self.say = house, client, rules, say
        self.chance = random.Random(1)  # noqa: S311 - a demo that can be told again
        self.urls = (Url("healthy", Mood.WELL), Url("flaky", Mood.SHAKY), Url("dead", Mood.DEAD))
        self.healthy, self.flaky, self.dead = self.urls
        self.published = 0
        self.ledger: Ledger | None = None
        self._cursor: int | None = None
        self.rate = 0.0  # events a second
        self._looked = asyncio.Event()

    @property
    def now(self) -> int:
        return self._house.clock.now()

    @contextlib.asynccontextmanager
    async def inhabited(self) -> AsyncIterator[World]:
        """Receivers listen, are subscribed, and traffic goes to them."""
        for url in self.urls:
            await url.open(self.chance)
            if url.mood is Mood.DEAD:
                await url.close()  # Its port is known now, and nobody is there.
            url.address = f"http://{HOST}:{url.port}/{url.name}"
            await self.client.subscribe(url.address, ["order.*"], description=url.name)
        async for endpoint in self.client.endpoints():
            for url in self.urls:
                if url.address == endpoint.url:
                    url.endpoint_id = _number(endpoint.id)
        traffic = asyncio.create_task(self._traffic())
        try:
            yield self
        finally:
            traffic.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await traffic
            for url in self.urls:
                await url.close()

    async def _traffic(self) -> None:
        while True:
            await asyncio.sleep(1 / self.rate if self.rate else 0.05)
            if not self.rate:
                continue
            number = self.published + 1
            data = {"order": 1000 + number // 4, "cents": self.chance.randrange(500, 50_000)}
            with contextlib.suppress(HomingClientError):
                await self.client.publish(TYPES[number % 4], data)
                self.published = number

    # --- looking -----------------------------------------------------------------------------

    async def look(self) -> None:
        """Read anew what is shown."""
        views = self._house.stores.views
        for url in self.urls:
            await self._look_at_changes(url)  # First: it tells how many waited until then.
            url.endpoint = await views.endpoint(url.endpoint_id)
            url.waiting = await views.waiting(url.endpoint_id, limit=WAITING_MOST)
        seen = self._house.engine.recent(self._cursor, limit=1_000)
        self._cursor = seen.last
        for attempt in seen.attempts:
            self._seen(attempt)
        found = await views.ledger(tenant=None)
        self.ledger = found[0] if found else None
        self._looked.set()

    async def looked(self) -> None:
        """Until it was looked again."""
        self._looked.clear()
        await self._looked.wait()

    async def _look_at_changes(self, url: Url) -> None:
        changes, _ = await self._house.stores.views.transitions(
            url.endpoint_id, before_id=None, limit=10
        )
        known = {change.id for change in url.transitions}
        for change in reversed(changes):
            if change.id not in known:
                url.transitions.append(change)
                sentence = explain_change(
                    change.before, change.after, change.rule, change.numbers, change.by
                )
                self.say(url.name, f"{sentence} {self._aside(url, change)}".strip())

    def _aside(self, url: Url, change: Transition) -> str:
        """What follows from a change."""
        match change.after:
            case State.DISABLED:
                return f"One probe every {self.rules.probe_every_ms} ms (10 min) from now on."
            case State.FROZEN:
                return "(In production: 2,000 and 72 h.) Only a person ends this."
            case State.ENABLED:
                return (
                    f"{url.waiting:,} deliveries have waited; they go with slow start: one at a "
                    "time, then 2, 4, 8, 16."
                )

    def _seen(self, attempt: Attempt) -> None:
        for url in self.urls:
            if url.endpoint_id == attempt.endpoint_id:
                url.recent.append(attempt)
                url.delivered += attempt.outcome is Outcome.DELIVERED


def _number(shown: str) -> int:
    number = read_id("ep", shown)
    assert number is not None
    return number
