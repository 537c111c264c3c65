"""Commands on event types: create, change, delete. Each returns when all processes know of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from homing.engine.core import Core
from homing.errors import NotFound, StaleCatalog, Unavailable
from homing.languages.sentences import say
from homing.policy.event_types import EventType, TypePlace, TypeSummary

CHANGES_MAX = 5


class EventTypes:
    """The event types of all tenants."""

    def __init__(self, core: Core) -> None:
        self._core, self._admin = core, core.admin

    async def create(self, draft: EventType) -> EventType:
        """Raises Conflict if the tenant has this type, or too many."""
        now = self._core.clock.now()
        made = await self._admin.create_event_type(
            replace(draft, created_at=now, updated_at=now, version=0)
        )
        await self._core.grace.changed(made.version)
        return made

    async def change(
        self, tenant: str, name: str, changed: Callable[[EventType], Awaitable[EventType]]
    ) -> EventType:
        """Read, change, write; start again if another change came first. Raises NotFound."""
        for _ in range(CHANGES_MAX):
            draft = await changed(await self.get(tenant, name))
            new = replace(draft, updated_at=self._core.clock.now())
            try:
                stored = await self._admin.change_event_type(new)
            except StaleCatalog:
                continue
            await self._core.grace.changed(stored.version)
            return stored
        raise Unavailable(say("Other changes of this event type came first each time; try again."))

    async def delete(self, tenant: str, name: str) -> None:
        """Raises NotFound."""
        await self._core.grace.changed(await self._admin.delete_event_type(tenant, name))

    async def get(self, tenant: str, name: str) -> EventType:
        found = await self._admin.event_type(tenant, name)
        if found is None:
            raise NotFound
        return found

    async def page(
        self, *, tenant: str | None, after: TypePlace | None, limit: int
    ) -> tuple[list[TypeSummary], TypePlace | None]:
        """A page by tenant and name, and the place to continue after."""
        return await self._admin.event_types(tenant=tenant, after=after, limit=limit)

    async def whole(self, tenant: str) -> list[EventType]:
        """All types of a tenant, by name."""
        return await self._admin.event_types_whole(tenant)
