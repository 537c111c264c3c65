"""Causes: which endpoints fail, why, since when, how often, and how much waits for them."""

from __future__ import annotations

from msgspec import Struct

from homing.app.access import READERS, Caller, use_case
from homing.app.deliveries import visible_endpoint_id
from homing.model import Attempt
from homing.ports import CauseRow, ViewStore


class CauseShown(Struct, frozen=True):
    """A cause with its endpoint, and the latest failed attempt as its example."""

    row: CauseRow
    attempts_in_all: int  # of all open causes of its endpoint; of a closed cause, its own
    waiting: int  # pending deliveries of its endpoint, counted up to a limit
    example: Attempt | None  # None: it is past retention

    @property
    def percent(self) -> int:
        """Its share of the failed attempts of its endpoint's open causes."""
        return round(100 * self.row.cause.attempts / max(self.attempts_in_all, 1))


class Causes:
    """The causes of all tenants, open and closed."""

    def __init__(self, views: ViewStore) -> None:
        self._views = views

    @use_case(READERS)
    async def page(
        self,
        caller: Caller,
        *,
        tenant: str | None,
        endpoint_id: int | None,
        is_open: bool | None,
        before_id: int | None,
        limit: int,
        waiting_max: int,
    ) -> tuple[list[CauseShown], int | None]:
        """A page, the newest cause first, and the next ``before_id``."""
        rows, after = await self._views.causes(
            tenant=caller.scope(tenant),
            endpoint_id=await visible_endpoint_id(self._views, caller, endpoint_id),
            is_open=is_open,
            before_id=before_id,
            limit=limit,
        )
        return await self._shown(rows, waiting_max), after

    async def _shown(self, rows: list[CauseRow], waiting_max: int) -> list[CauseShown]:
        ids = sorted({it.cause.endpoint_id for it in rows})
        waiting = await self._views.waiting_of(ids, limit=waiting_max)
        in_all = {
            endpoint_id: sum(it.attempts for it in found)
            for endpoint_id, found in (await self._views.open_causes(ids)).items()
        }
        examples = await self._views.attempts_by_number(
            [(it.cause.example_id, it.cause.example_number) for it in rows]
        )
        return [
            CauseShown(
                row=it,
                attempts_in_all=in_all.get(it.cause.endpoint_id, 0)
                if it.cause.closed_at is None
                else it.cause.attempts,
                waiting=waiting.get(it.cause.endpoint_id, 0),
                example=examples.get((it.cause.example_id, it.cause.example_number)),
            )
            for it in rows
        ]
