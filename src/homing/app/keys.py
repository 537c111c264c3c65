"""API keys: create, list and revoke."""

from __future__ import annotations

from homing.app.access import ADMINS, Caller, use_case
from homing.engine.keys import ApiKeys
from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import say
from homing.policy.admission import DEFAULT_TENANT, read_time, tenant_problem
from homing.policy.keys import NAME_LENGTH_MAX, ApiKey, Role
from homing.policy.moments import TIME_MAX, read_duration

_WITHOUT_TENANT = frozenset({Role.ADMIN, Role.METRICS})


class Keys:
    """The keys of all tenants."""

    def __init__(self, api_keys: ApiKeys) -> None:
        self._api_keys = api_keys

    @use_case(ADMINS, changes=True)
    async def create(
        self, _caller: Caller, name: str, role: Role, *, tenant: str | None, expires: str | None
    ) -> tuple[ApiKey, str]:
        """A new key and its text, which is not stored; raises Invalid or Conflict."""
        problems: list[FieldProblem] = []
        if not (1 <= len(name) <= NAME_LENGTH_MAX and name.isprintable()):
            reason = say("must be 1 to {limit} printable characters", limit=NAME_LENGTH_MAX)
            problems.append(FieldProblem("name", reason))
        if tenant is not None:
            if role in _WITHOUT_TENANT:
                reason = say(
                    "must not be given: a key with the role {role} has no tenant", role=role.value
                )
                problems.append(FieldProblem("tenant", reason))
            problems.extend(tenant_problem(tenant))
        expires_at = None
        if expires is not None:
            expires_at = self._expiry(expires)
            if expires_at is None:
                reason = say("must be a future RFC 3339 time, or a duration from now like 90d")
                problems.append(FieldProblem("expires", reason))
        if problems:
            raise Invalid(problems=tuple(problems))
        owner = None if role in _WITHOUT_TENANT else tenant or DEFAULT_TENANT
        return await self._api_keys.create(name, role, owner, expires_at)

    def _expiry(self, text: str) -> int | None:
        """The time by the wall clock, as the person who sets it counts; None if it is invalid."""
        now, ahead = self._api_keys.wall(), read_duration(text)
        at = read_time(text) if ahead is None else now + ahead
        return at if at is not None and now < at <= TIME_MAX else None

    @use_case(ADMINS)
    async def page(
        self, caller: Caller, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[ApiKey], int | None]:
        """A page, newest first, including revoked keys, and the next ``before_id``."""
        return await self._api_keys.page(
            tenant=caller.scope(tenant), before_id=before_id, limit=limit
        )

    @use_case(ADMINS, changes=True)
    async def revoke(self, _caller: Caller, key_id: int) -> None:
        """Revokes a key; it no longer works when this returns. Raises NotFound."""
        await self._api_keys.revoke(key_id)
