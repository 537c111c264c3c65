"""Erasures: erase an event, the events with a value at a payload field, or a whole tenant."""

from __future__ import annotations

from msgspec import Struct

from homing.app.access import ADMINS, MANAGERS, READERS, Caller, use_case
from homing.engine.engine import Engine
from homing.engine.keys import ApiKeys
from homing.engine.portal import Portal
from homing.errors import FieldProblem, Invalid, NotFound
from homing.languages.sentences import say
from homing.policy.admission import KEY_RULE, is_key, tenant_problem
from homing.policy.payload_fields import VALUE_CHARS_MAX
from homing.ports.erasures import Erasure

KEYS_AT_ONCE = 100


class ErasureDraft(Struct, frozen=True):
    """What to erase: an event, the events with a value at a payload field, or a whole tenant."""

    event: str | None = None
    field: str | None = None
    value: str | None = None
    everything: bool = False
    tenant: str | None = None


class Erasures:
    """What was erased, and how far its removal is."""

    def __init__(self, engine: Engine, api_keys: ApiKeys, portal: Portal) -> None:
        self._engine, self._erasures, self._keys = engine, engine.erasures, api_keys
        self._portal = portal

    @property
    def fields(self) -> tuple[str, ...]:
        """The payload fields by which events can be erased."""
        return self._engine.payload_fields.paths

    @use_case(MANAGERS, changes=True)
    async def erase(self, caller: Caller, draft: ErasureDraft) -> Erasure:
        """Erases; after this returns, no erased data is shown or sent. Raises NotFound or Invalid.

        For an event that is erased already, returns the same erasure. Only a caller of all tenants
        with the role admin may erase a tenant.
        """
        if problems := self._problems(draft):
            raise Invalid(problems=problems)
        tenant = caller.tenant_or_default(draft.tenant)
        caller.must_write(tenant)
        if draft.event is not None:
            return await self._erasures.erase_event(tenant, draft.event)
        if draft.field is not None and draft.value is not None:
            return await self._erasures.erase_field(tenant, draft.field, draft.value)
        caller.must_be(ADMINS)
        await self._revoke_keys(tenant)
        await self._portal.revoke_all(tenant)
        erasure = await self._erasures.erase_tenant(tenant)
        # Its commit has revoked what was made since the last lines.
        await self._keys.read_again()
        self._portal.forget()
        return erasure

    def _problems(self, draft: ErasureDraft) -> tuple[FieldProblem, ...]:
        kinds = {"event": draft.event, "field": draft.field, "everything": draft.everything or None}
        given = [name for name, value in kinds.items() if value is not None]
        if len(given) != 1:
            reason = say("give exactly one of event, field and everything")
            return tuple(FieldProblem(name, reason) for name in given[1:] or ("event",))
        problems = list(tenant_problem(draft.tenant, "tenant")) if draft.tenant is not None else []
        if draft.event is not None and not is_key(draft.event):
            problems.append(FieldProblem("event", KEY_RULE))
        if draft.field is not None and draft.field not in self.fields:
            reason = (
                say(
                    "must be one of the payload fields that are indexed ({setting}: {names})",
                    setting="search_fields",
                    names=", ".join(self.fields),
                )
                if self.fields
                else say(
                    "must be one of the payload fields that are indexed ({setting}: none is set)",
                    setting="search_fields",
                )
            )
            problems.append(FieldProblem("field", reason))
        if draft.field is not None and not 0 < len(draft.value or "") <= VALUE_CHARS_MAX:
            reason = say(
                "must have 1 to {limit} characters: other values are not indexed",
                limit=VALUE_CHARS_MAX,
            )
            problems.append(FieldProblem("value", reason))
        if draft.field is None and draft.value is not None:
            problems.append(
                FieldProblem("value", say("must be given together with {field}", field="field"))
            )
        if draft.everything and draft.tenant is None:
            problems.append(FieldProblem("tenant", say("must name the tenant that is erased")))
        return tuple(problems)

    async def _revoke_keys(self, tenant: str) -> None:
        before_id: int | None = None
        while True:
            page, before_id = await self._keys.page(
                tenant=tenant, before_id=before_id, limit=KEYS_AT_ONCE
            )
            for key in page:
                if key.revoked_at is None:
                    await self._keys.revoke(key.id)
            if before_id is None:
                return

    @use_case(READERS)
    async def get(self, caller: Caller, erasure_id: int) -> Erasure:
        """The erasure; raises NotFound."""
        erasure = await self._erasures.get(erasure_id)
        if not caller.sees(erasure.tenant):
            raise NotFound(say("There is no such erasure."))
        return erasure

    @use_case(READERS)
    async def page(
        self, caller: Caller, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Erasure], int | None]:
        """A page, newest first, and the next ``before_id``."""
        return await self._erasures.page(
            tenant=caller.scope(tenant), before_id=before_id, limit=limit
        )
