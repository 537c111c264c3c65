"""Event types: what a tenant says about its events, for publishers, receivers and the checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from homing.app.access import MANAGERS, NO_TENANT, READERS, Caller, use_case
from homing.engine.engine import Engine
from homing.errors import FieldProblem, Invalid, NotFound
from homing.languages.sentences import say
from homing.policy.admission import is_type
from homing.policy.event_check_rules import CheckRules
from homing.policy.event_schema import BadSchema, compile_schema
from homing.policy.event_types import EventType, TypePlace, TypeSummary, type_problems


class EventTypes:
    """The event types of all tenants."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @use_case(MANAGERS, changes=True)
    async def create(self, caller: Caller, draft: EventType, *, tenant: str | None) -> EventType:
        """Describes a type of a tenant's events; raises Invalid, Forbidden or Conflict."""
        owner = caller.tenant_or_default(tenant)
        caller.must_write(owner)
        return await self._engine.event_types.create(
            await self._checked(replace(draft, tenant=owner))
        )

    @use_case(READERS)
    async def page(
        self, caller: Caller, *, tenant: str | None, after: TypePlace | None, limit: int
    ) -> tuple[list[TypeSummary], TypePlace | None]:
        """A page by tenant and name, and the place to continue after."""
        return await self._engine.event_types.page(
            tenant=caller.scope(tenant), after=after, limit=limit
        )

    @use_case(READERS)
    async def get(self, caller: Caller, name: str, *, tenant: str | None) -> EventType:
        """The type with its schema and sample; raises NotFound."""
        return await self._visible(caller, name, tenant)

    @use_case(READERS)
    async def of_tenant(self, caller: Caller, *, tenant: str | None) -> tuple[str, list[EventType]]:
        """The tenant, and all its types with their schemas and samples, by name.

        Raises NotFound for a tenant that the caller does not see.
        """
        owner = caller.scope_one(tenant)
        if owner == NO_TENANT:
            raise NotFound(say("There is no such tenant."))
        return owner, await self._engine.event_types.whole(owner)

    @use_case(MANAGERS, changes=True)
    async def change(
        self, caller: Caller, name: str, changes: Mapping[str, Any], *, tenant: str | None
    ) -> EventType:
        """Changes the description, schema, sample or check of a type; raises NotFound or Invalid.

        Events that were accepted before are not checked again.
        """
        found = await self._visible(caller, name, tenant)
        caller.must_write(found.tenant)
        return await self._engine.event_types.change(
            found.tenant,
            found.name,
            lambda before: self._checked(replace(before, **changes)),
        )

    @use_case(MANAGERS, changes=True)
    async def delete(self, caller: Caller, name: str, *, tenant: str | None) -> None:
        """Deletes a type; its later events are published unchecked, or refused as unknown."""
        found = await self._visible(caller, name, tenant)
        await self._engine.event_types.delete(found.tenant, found.name)

    def rules_of(self, tenant: str) -> CheckRules:
        """The checks of events whose type has no setting of its own, or is unknown."""
        return self._engine.event_check.rules_of(tenant)

    async def _checked(self, draft: EventType) -> EventType:
        """The type as it is stored; raises Invalid with every problem.

        To compile the schema and to check the sample are pieces of work of the tenant.
        """
        problems = type_problems(draft)
        if draft.schema and not any(it.field in {"schema", "sample"} for it in problems):
            try:
                async with self._engine.work.turn(draft.tenant):
                    schema = compile_schema(draft.schema)
                if draft.sample:
                    async with self._engine.work.turn(draft.tenant):
                        reason = schema.problem(draft.sample.encode())
                    if reason:
                        why = say("must match the schema: {reason}", reason=reason)
                        problems.append(FieldProblem("sample", why))
            except BadSchema as error:
                problems.append(FieldProblem("schema", error.reason))
        if problems:
            raise Invalid(problems=tuple(problems))
        return draft

    async def _visible(self, caller: Caller, name: str, tenant: str | None) -> EventType:
        owner = caller.scope_one(tenant)
        try:
            if is_type(name):
                return await self._engine.event_types.get(owner, name)
        except NotFound:
            pass
        raise NotFound(say("The tenant has no such event type."))
