"""Tenants that move to or from another installation, as one process sees them.

``homing move --tenant`` marks the tenant in the database and raises the version of the catalog. A
process that reads the mark refuses the events of this tenant and starts nothing for it. Once its
attempts in flight are settled, and no step of retention is running, it records that it is
ready; the move waits for all processes. When the mark is gone, the process goes on.
"""

from __future__ import annotations

import asyncio

import structlog

from homing.engine.core import Core
from homing.engine.dispatch import Dispatcher
from homing.engine.maintenance import Maintenance
from homing.engine.settle import Settler
from homing.errors import HomingError
from homing.ports.tenant_moves import TenantMove

log = structlog.get_logger("homing.tenant_moves")

CHECK_EVERY_MS = 20
AGAIN_MS = 500


class TenantMoves:
    """Acts on the moves that the catalog has read; ``process`` is None without a fleet."""

    def __init__(
        self,
        core: Core,
        dispatcher: Dispatcher,
        settler: Settler,
        maintenance: Maintenance,
        *,
        process: int | None,
    ) -> None:
        self._admin, self._catalog = core.admin, core.catalog
        self._dispatcher, self._settler, self._maintenance = dispatcher, settler, maintenance
        self._process, self._grace = process, core.grace
        self._tasks: set[asyncio.Task[None]] = set()
        core.catalog.on_move = self._changed

    def _changed(self, tenant: str) -> None:
        move = self._catalog.moves.get(tenant)
        self._dispatcher.tenant_moves(tenant)
        if move is None:
            log.info("a tenant is served here again, or from now on", tenant=tenant)
            return
        log.info("a tenant moves between installations", tenant=tenant, step=move.step)
        if not move.is_gone and self._process is not None:
            task = asyncio.get_running_loop().create_task(self._become_ready(move, self._process))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _become_ready(self, move: TenantMove, process: int) -> None:
        while self._catalog.moves.get(move.tenant) == move:
            await self._grace.here(self._catalog.version)  # Events that were accepted before.
            if self._dispatcher.is_tenant_busy(move.tenant):
                await asyncio.sleep(CHECK_EVERY_MS / 1000)
                continue
            try:
                async with self._settler.lock, self._maintenance.lock:
                    await self._admin.tenant_move_ready(move.id, process)
            except HomingError as error:
                log.warning("a move of a tenant waits for the store", error=str(error))
                await asyncio.sleep(AGAIN_MS / 1000)
            else:
                return

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
