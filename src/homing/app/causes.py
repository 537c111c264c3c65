"""Causes: which endpoints fail, why, since when, how often, and how many deliveries wait."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from homing.app.access import READERS, Caller, use_case
from homing.app.deliveries import visible_endpoint_id
from homing.engine.engine import Engine
from homing.languages.sentences import Sentence
from homing.model import Attempt, Endpoint
from homing.policy.incidents import explain_incident
from homing.ports import CauseRow, ViewStore
from homing.ports.views import HOUR_MS

ENDED_WITHIN_MS = 24 * HOUR_MS


class CauseShown(Struct, frozen=True):
    """A cause with its endpoint, and the latest failed attempt as its example."""

    row: CauseRow
    attempts_in_all: int  # of all open causes of its endpoint; of a closed cause only its own
    waiting: int  # pending deliveries of its endpoint, counted up to a limit
    example: Attempt | None  # None: the attempt is past retention

    @property
    def percent(self) -> int:
        """Its share of ``attempts_in_all``."""
        return round(100 * self.row.cause.attempts / max(self.attempts_in_all, 1))


class Incident(Struct, frozen=True):
    """An open cause with its endpoint and a text about it for people."""

    shown: CauseShown
    endpoint: Endpoint
    sentence: Sentence


class Incidents(Struct, frozen=True):
    """A page of open causes, newest first; the first page also has the causes that ended last."""

    open: list[Incident]
    after: int | None  # the next ``before_id``
    ended: list[CauseRow]


class Causes:
    """The causes of all tenants, open and closed."""

    def __init__(self, engine: Engine, views: ViewStore, now: Callable[[], int]) -> None:
        self._engine, self._views, self._now = engine, views, now

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

    @use_case(READERS)
    async def incidents(
        self,
        caller: Caller,
        *,
        tenant: str | None,
        before_id: int | None,
        limit: int,
        ended_max: int,
        waiting_max: int,
    ) -> Incidents:
        """The open causes, and those that ended within a day."""
        views, tenant = self._views, caller.scope(tenant)
        rows, after = await views.causes(
            tenant=tenant, endpoint_id=None, is_open=True, before_id=before_id, limit=limit
        )
        shown = await self._shown(rows, waiting_max + 1)
        ids = sorted({it.cause.endpoint_id for it in rows})
        endpoints = await views.endpoints_by_id(ids)
        expiries = await views.first_expiry_of(ids)
        ended: list[CauseRow] = []
        if before_id is None:
            since = self._now() - ENDED_WITHIN_MS
            ended = await views.ended_causes(tenant=tenant, since=since, limit=ended_max)
        found = [
            Incident(
                it,
                endpoint,
                explain_incident(
                    it.row.cause,
                    endpoint,
                    self._engine.rules_of(endpoint.tenant),
                    attempts_in_all=it.attempts_in_all,
                    waiting=it.waiting,
                    waiting_max=waiting_max,
                    first_expiry=expiries.get(endpoint.id),
                ),
            )
            for it in shown
            if (endpoint := endpoints.get(it.row.cause.endpoint_id)) is not None
        ]
        return Incidents(found, after, ended)

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
