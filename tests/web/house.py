"""The whole house for a test: the app on the real engine and store, on virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from secrets import token_bytes
from typing import Any, cast

from engine.world import LOG_KEY, World
from engine.world import live as live_world
from homing.app.app import App
from homing.app.audit import AuditLog
from homing.app.options import AppOptions
from homing.app.pull import PullParts
from homing.engine.keys import ApiKeys
from homing.engine.options import EngineOptions
from homing.engine.portal import Portal
from homing.policy.pull import Cursors
from homing.policy.reach import Reach
from homing.store.audited import Audited
from homing.store.keys import Keys
from homing.store.portal import Portal as PortalTable
from homing.store.pull import Pulls
from homing.web.asgi import asgi_app
from web.asgi import KEY, Client

URL = "https://receiver.example/hook"


def use_cases(world: World, api_keys: ApiKeys | None = None, **options: Any) -> App:
    """The use cases on this world; without options nothing is limited or refused."""
    given: dict[str, Any] = {
        "policies": frozenset(),
        "refuses": lambda _: "",
        "has_receiver": True,
        "admin_key": KEY,
        "hash_keys": (LOG_KEY,),
        **options,
    }
    keys = api_keys or api_keys_of(world)
    return App(
        world.engine,
        world.views,
        keys,
        AppOptions(now=world.clock.now, **given),
        AuditLog(world.audit, world.audit, LOG_KEY, world.auditor.take_id),
        PullParts(
            cast("Pulls", Audited(world.pulls, world.auditor)), world.pulls, Cursors((LOG_KEY,))
        ),
        Portal(
            cast("PortalTable", Audited(PortalTable(world.db), world.auditor)),
            keys,
            world.clock,
            token_bytes,
        ),
    )


def api_keys_of(world: World) -> ApiKeys:
    """The API keys; their changes are in the audit log."""
    return ApiKeys(cast("Keys", Audited(Keys(world.db), world.auditor)), world.clock)


class House:
    """A world with its front door."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.api_keys = api_keys_of(world)
        self.use_cases = use_cases(
            world,
            self.api_keys,
            policies=frozenset(world.options.schedules),
            refuses=Reach().refuses,
            egress=("203.0.113.7/32", "2001:db8::/64"),
        )
        self.app = asgi_app(self.use_cases)
        self.client = Client(self.app)

    async def subscribe(self, url: str = URL, **more: Any) -> dict[str, Any]:
        """A subscription, as its creation was answered."""
        got = await self.client.post("/v1/subscriptions", {"url": url, "types": ["*"], **more})
        assert got.status == 201, got.body
        response: dict[str, Any] = got.json
        return response

    async def publish(self, **more: Any) -> str:
        """The id of an event."""
        got = await self.client.post("/v1/events", {"type": "a.b", "data": 1, **more})
        assert got.status == 202, got.body
        return str(got.json["events"][0]["id"])

    async def deliveries(self, query: str = "") -> list[dict[str, Any]]:
        """The first page, without those of our own events."""
        got = await self.client.get(f"/v1/deliveries{query}")
        assert got.status == 200, got.body
        return [one for one in got.json["items"] if not one["type"].startswith("homing.")]

    async def settled(self) -> None:
        """Until what goes at once has gone."""
        await self.world.wait(1_000)


Story = Callable[[House], Awaitable[None]]


def live(story: Story, options: EngineOptions | None = None) -> None:
    """Live a story on virtual time."""

    async def told(world: World) -> None:
        await story(House(world))

    live_world(told, options)
