"""Figures: the ledger, and the numbers of the dashboard's charts and overview."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from homing.app.access import READERS, Caller, use_case
from homing.errors import NotFound
from homing.languages.sentences import say
from homing.model import Cause, Endpoint, State
from homing.ports import CauseRow, Ledger, ViewStore
from homing.ports.views import HOUR_MS, Counts, EndpointSort, Expiring, Rollup

COUNT_MAX = 10_000
ATTENTION_MAX = 5
FAILING_MAX = 200  # open causes of enabled endpoints; an endpoint may have several
EXPIRING_WITHIN_MS = 6 * HOUR_MS
EXPIRING_MAX = 2_000


class Overview(Struct, frozen=True):
    """The numbers of the dashboard's overview page."""

    hour: list[Rollup]  # the minutes of the last hour
    frozen: list[Endpoint]
    disabled: list[Endpoint]
    causes: dict[int, list[Cause]]  # open ones of frozen and disabled endpoints, by endpoint
    failing: list[CauseRow]  # open causes of enabled endpoints, one of each endpoint
    ledgers: list[Ledger]
    counts: Counts
    expiring: list[Expiring]


class Figures:
    """Sums and counts over many deliveries."""

    def __init__(self, views: ViewStore, now: Callable[[], int]) -> None:
        self._views, self._now = views, now

    @use_case(READERS)
    async def ledger(self, caller: Caller, *, tenant: str | None) -> list[Ledger]:
        """Per tenant: accepted = delivered + pending + dropped + cancelled + superseded."""
        return await self._views.ledger(tenant=caller.scope(tenant))

    @use_case(READERS)
    async def rollups(
        self, caller: Caller, *, tenant: str | None, endpoint_id: int | None, span_ms: int
    ) -> list[Rollup]:
        """Rollups per minute or hour, of one endpoint or of all; raises NotFound."""
        tenant, now = caller.scope(tenant), self._now()
        if endpoint_id is not None:
            endpoint = await self._views.endpoint(endpoint_id)
            if endpoint is None or not caller.sees(endpoint.tenant):
                raise NotFound(say("There is no such endpoint."))
            tenant = None
        return await self._views.rollups(
            endpoint_id=endpoint_id, tenant=tenant, since=now - span_ms, until=now + 1
        )

    @use_case(READERS)
    async def overview(self, caller: Caller, *, tenant: str | None) -> Overview:
        """The overview of one tenant, or of all tenants that the caller may see."""
        views, now, tenant = self._views, self._now(), caller.scope(tenant)
        hour = await views.rollups(
            endpoint_id=None, tenant=tenant, since=now - HOUR_MS, until=now + 1
        )
        frozen = await self._held(State.FROZEN, tenant)
        disabled = await self._held(State.DISABLED, tenant)
        return Overview(
            hour=hour,
            frozen=frozen,
            disabled=disabled,
            causes=await views.open_causes([it.id for it in (*frozen, *disabled)]),
            failing=await self._failing(tenant),
            ledgers=await views.ledger(tenant=tenant, scan_limit=1),
            counts=await views.counts(tenant=tenant, limit=COUNT_MAX),
            expiring=await views.expiring(
                tenant=tenant, before=now + EXPIRING_WITHIN_MS, limit=EXPIRING_MAX
            ),
        )

    async def _failing(self, tenant: str | None) -> list[CauseRow]:
        found = await self._views.failing(tenant=tenant, limit=FAILING_MAX)
        newest: dict[int, CauseRow] = {}
        for row in found:
            newest.setdefault(row.cause.endpoint_id, row)
        return list(newest.values())[:ATTENTION_MAX]

    async def _held(self, state: State, tenant: str | None) -> list[Endpoint]:
        found, _ = await self._views.find_endpoints(
            tenant=tenant,
            state=state,
            text="",
            sort=EndpointSort.SUCCESS,
            offset=0,
            limit=ATTENTION_MAX,
        )
        return found
