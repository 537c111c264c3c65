"""A network between the sender and all receivers, and the ways in which it fails."""

from __future__ import annotations

from typing import Any

from engine.world import SECOND, Hit, Reply, World, balanced
from homing.engine.options import EngineOptions
from homing.model import Failure, State, Status
from homing.policy.health import HealthRules

URLS = [f"https://host{n % 12}.example/{n}" for n in range(24)]
STRICT = EngineOptions(health=HealthRules(rate_after_attempts=1, consecutive_disable=2))

OUTAGES = {
    "no route": Reply(code=None, failure=Failure.SENDER_NETWORK),
    "dead name servers": Reply(
        code=None, failure=Failure.SENDER_DNS, latency_ms=4_900, dialled=False
    ),
    "no such name, for all": Reply(code=None, failure=Failure.DNS, dialled=False),
    "connects dropped": Reply(code=None, failure=Failure.CONNECT_TIMEOUT, latency_ms=4_900),
    "all refused": Reply(code=None, failure=Failure.REFUSED),
    "out of descriptors": Reply(code=None, failure=Failure.SENDER_LIMITS),
    "proxy away": Reply(code=None, failure=Failure.SENDER_PROXY),
    "proxy cut off": Reply(code=None, failure=Failure.SENDER_TUNNEL, proxied=True),
    "old connections silent": Reply(
        code=None, failure=Failure.TIMEOUT, latency_ms=4_900, dialled=False
    ),
}


class Net:
    """The network between the sender and all receivers: it works, or it has failed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.out: Reply | None = None
        self.own: dict[str, Reply] = {}
        self.reply = Reply()

    def script(self, hit: Hit) -> Reply:
        if self.out is not None:
            return self.out
        return self.own.get(hit.url, self.reply)

    async def connect(self, urls: list[str] = URLS, **more: Any) -> None:
        for url in urls:
            self.world.sender.scripts[url] = self.script
            await self.world.subscribe(url, **more)
        await self.world.publish()
        await self.world.wait(SECOND)

    async def unharmed(self, *, urls: list[str] = URLS) -> None:
        """Check that no endpoint changed, no retry was used and everything was delivered."""
        for row in await self.world.deliveries():
            assert row.status is Status.DELIVERED
            assert row.delivery.retry == 0
            assert row.delivery.t0 is None
        for url in urls:
            endpoint = await self.world.endpoint(url)
            assert endpoint.health.state is State.ENABLED
            assert endpoint.health.failures == 0
        await balanced(self.world)
