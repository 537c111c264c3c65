"""What the demo runs: a server, three receivers and traffic, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from enum import Enum

from homing.cli.receiver import ReceivedRequest, receiver
from homing.model import Attempt, Endpoint, Outcome, State, Transition, read_id
from homing.policy.explain import explain_change
from homing.policy.health import HealthRules
from homing.ports import Ledger
from homing.server.wiring import Running
from homing_client import AsyncHoming, HomingClientError

HOST = "127.0.0.1"
TYPES = ("order.placed", "order.paid", "order.packed", "order.sent")
EVENTS_PER_SECOND = 12
RECENT = 200
SHAKY_SHARE = 0.3
WAITING_MAX = 100_000


class Mood(Enum):
    """How a receiver responds."""

    GOOD = "responds with 204"
    SHAKY = "responds with 503 to three requests in ten"
    DOWN = "responds with 503 to every request"
    DEAD = "no server listens"


class Url:
    """One receiver and the latest data of its endpoint."""

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

    async def open(self, random_source: random.Random) -> None:
        """Listen, on the same port as before if there was one."""

        async def respond(_: ReceivedRequest) -> int:
            if self.mood is Mood.SHAKY and random_source.random() < SHAKY_SHARE:
                return 503
            return 503 if self.mood is Mood.DOWN else 204

        self.port = await self.opened.enter_async_context(
            receiver(respond, host=HOST, port=self.port)
        )

    async def close(self) -> None:
        await self.opened.aclose()


Report = Callable[[str, str], None]  # the name of a URL ("" for all), a sentence


class World:
    """Everything that the demo shows."""

    def __init__(
        self, running: Running, client: AsyncHoming, rules: HealthRules, report: Report
    ) -> None:
        self._running, self.client, self.rules, self.report = running, client, rules, report
        self.random = random.Random(1)  # noqa: S311 - every run of the demo is the same
        self.urls = (Url("healthy", Mood.GOOD), Url("flaky", Mood.SHAKY), Url("dead", Mood.DEAD))
        self.healthy, self.flaky, self.dead = self.urls
        self.published = 0
        self.ledger: Ledger | None = None
        self._cursor: int | None = None
        self.rate = 0.0  # events per second
        self._refreshed = asyncio.Event()

    @property
    def now(self) -> int:
        return self._running.clock.now()

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator[World]:
        """Start the receivers, subscribe them, and publish events in the background."""
        for url in self.urls:
            await url.open(self.random)
            if url.mood is Mood.DEAD:
                await url.close()  # Its port is known now, and nothing listens on it.
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
            data = {"order": 1000 + number // 4, "cents": self.random.randrange(500, 50_000)}
            with contextlib.suppress(HomingClientError):
                await self.client.publish(TYPES[number % 4], data)
                self.published = number

    async def refresh(self) -> None:
        """Read the data that is shown."""
        views = self._running.stores.views
        for url in self.urls:
            await self._report_changes(
                url
            )  # First: it shows how many deliveries waited until then.
            url.endpoint = await views.endpoint(url.endpoint_id)
            url.waiting = await views.waiting(url.endpoint_id, limit=WAITING_MAX)
        seen = self._running.engine.recent(self._cursor, limit=1_000)
        self._cursor = seen.last
        for attempt in seen.attempts:
            self._count(attempt)
        found = await views.ledger(tenant=None)
        self.ledger = found[0] if found else None
        self._refreshed.set()

    async def refreshed(self) -> None:
        """Wait for the next refresh."""
        self._refreshed.clear()
        await self._refreshed.wait()

    async def _report_changes(self, url: Url) -> None:
        changes, _ = await self._running.stores.views.transitions(
            url.endpoint_id, before_id=None, limit=10
        )
        known = {change.id for change in url.transitions}
        for change in reversed(changes):
            if change.id not in known:
                url.transitions.append(change)
                sentence = explain_change(
                    change.before, change.after, change.rule, change.numbers, change.by
                )
                self.report(url.name, f"{sentence} {self._consequence(url, change)}".strip())

    def _consequence(self, url: Url, change: Transition) -> str:
        """What a state change means for the deliveries."""
        match change.after:
            case State.DISABLED:
                return f"One probe every {self.rules.probe_every_ms} ms (10 min) from now on."
            case State.FROZEN:
                return "(In production: 2,000 and 72 h.) Only a person can enable it again."
            case State.ENABLED:
                return (
                    f"Waiting deliveries ({url.waiting:,}) are sent with a slow start: one at a "
                    "time, then 2, 4, 8, 16."
                )

    def _count(self, attempt: Attempt) -> None:
        for url in self.urls:
            if url.endpoint_id == attempt.endpoint_id:
                url.recent.append(attempt)
                url.delivered += attempt.outcome is Outcome.DELIVERED


def _number(shown: str) -> int:
    number = read_id("ep", shown)
    assert number is not None
    return number
