"""Overview: how all is, and what needs a person."""

from __future__ import annotations

from collections.abc import Sequence

from homing.model import State
from homing.ports import Ledger
from homing.ports.board import HOUR_MS, EndpointSort, Rollup
from homing.web.answer import Answer
from homing.web.dashboard.figures import SPANS, percentile_ms, steps, total
from homing.web.dashboard.visit import Page, Right, Shown, Visit

COUNT_MOST = 10_000
ATTENTION_SHOWN = 5
EXPIRING_WITHIN_MS = 6 * HOUR_MS
EXPIRING_LOOK = 2_000


async def overview(visit: Visit) -> Shown:
    views, tenant, now = visit.parts.views, visit.tenant(), visit.now
    hour = await views.rollups(endpoint_id=None, tenant=tenant, since=now - HOUR_MS, until=now + 1)
    last = total(hour)
    held = {}
    for state in (State.FROZEN, State.DISABLED):
        held[state], _ = await views.find_endpoints(
            tenant=tenant,
            state=state,
            text="",
            sort=EndpointSort.SUCCESS,
            offset=0,
            limit=ATTENTION_SHOWN,
        )
    return visit.show(
        "overview.html",
        ledger=_sum(await views.ledger(tenant=tenant, look=1)),
        crowd=await views.crowd(tenant=tenant, limit=COUNT_MOST),
        last=last,
        p50=percentile_ms(last.took, 0.5),
        p99=percentile_ms(last.took, 0.99),
        frozen=held[State.FROZEN],
        disabled=held[State.DISABLED],
        expiring=await views.expiring(
            tenant=tenant, before=now + EXPIRING_WITHIN_MS, limit=EXPIRING_LOOK
        ),
        pulse=visit.parts.engine.pulse() if visit.who.may(Right.ADMIN) else None,
        span=span_of(visit),
        spans=SPANS,
    )


def span_of(visit: Visit) -> str:
    """The length of time that a chart shows, as the address names it."""
    asked = visit.query.text("span")
    return asked if asked in SPANS else "1h"


def chart(rollups: Sequence[Rollup], *, span: str, now: int) -> dict[str, list[float | None]]:
    """The numbers of a chart, step by step; the page draws them."""
    _, length, step = SPANS[span]
    since = now - length
    parts = steps(rollups, since=since, until=now + 1, step_ms=step)
    return {
        "at": [it.at / 1000 for it in parts],
        "delivered": [it.delivered for it in parts],
        "failed": [it.failed for it in parts],
        "ours": [it.ours for it in parts],
        "dropped": [it.dropped for it in parts],
        "p50": [percentile_ms(it.took, 0.5) for it in parts],
        "p99": [percentile_ms(it.took, 0.99) for it in parts],
    }


async def overview_chart(visit: Visit) -> Answer:
    span, now = span_of(visit), visit.now
    rollups = await visit.parts.views.rollups(
        endpoint_id=None, tenant=visit.tenant(), since=now - SPANS[span][1], until=now + 1
    )
    return visit.json(chart(rollups, span=span, now=now))


def _sum(ledgers: Sequence[Ledger]) -> Ledger:
    return Ledger(
        tenant="",
        accepted=sum(it.accepted for it in ledgers),
        delivered=sum(it.delivered for it in ledgers),
        pending=sum(it.pending for it in ledgers),
        dropped=sum(it.dropped for it in ledgers),
        cancelled=sum(it.cancelled for it in ledgers),
        counted=all(it.counted for it in ledgers),
    )


PAGES = (
    Page(path="/", handler=overview),
    Page(path="/chart.json", handler=overview_chart),
)
