"""The marks of tenants that move to or from another installation, as transactions see them."""

from __future__ import annotations

from homing.ports.tenant_moves import MoveStep, TenantMove, refusal
from homing.store.tx import Tx


async def all_moves(tx: Tx) -> list[TenantMove]:
    """The moves of tenants that are not served here, or not now."""
    return [
        TenantMove(tenant, move_id, MoveStep(step), url)
        for tenant, move_id, step, url in await tx.all("tenant_moves")
    ]


async def hold(tx: Tx, tenant: str) -> None:
    """Let no move of this tenant begin until the commit; raises TenantMoving or TenantMoved."""
    row = await tx.one("tenant_hold", tenant=tenant)
    if row is not None:
        raise refusal(tenant, row[0], row[1])
