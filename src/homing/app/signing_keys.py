"""The signing keys of tenants: show the public keys, rotate."""

from __future__ import annotations

from homing.app.access import MANAGERS, READERS, Caller, use_case
from homing.app.subscriptions import check_overlap
from homing.engine.engine import Engine
from homing.errors import Invalid
from homing.policy.admission import tenant_problem
from homing.policy.rotation import OVERLAP_MS
from homing.policy.signature import PublicKey
from homing.ports.audit import note_changed


class SigningKeys:
    """The Ed25519 keys with which requests of a tenant are signed. Private keys are never shown."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @use_case(READERS)
    async def get(self, caller: Caller, *, tenant: str | None) -> tuple[str, tuple[PublicKey, ...]]:
        """The tenant, and its public keys, newest first; none before the first is needed."""
        owner = caller.scope_one(tenant)
        return owner, self._engine.public_keys(owner)

    @use_case(MANAGERS, changes=True)
    async def rotate(
        self, caller: Caller, *, tenant: str | None, overlap_ms: int = OVERLAP_MS
    ) -> tuple[str, tuple[PublicKey, ...]]:
        """Signs with a new key, the first one if there was none; old ones also sign for a while."""
        check_overlap(overlap_ms)
        owner = caller.tenant_or_default(tenant)
        if problems := tenant_problem(owner):
            raise Invalid(problems=problems)
        caller.must_write(owner)
        note_changed("keys")
        await self._engine.rotate_signing_keys(owner, overlap_ms=overlap_ms)
        return owner, self._engine.public_keys(owner)

    def published(self, tenant: str) -> tuple[PublicKey, ...]:
        """The public keys for anybody. An unknown tenant looks like one without keys."""
        return self._engine.public_keys(tenant)
