"""Overview: the state of all endpoints and deliveries, and problems that need a person."""

from __future__ import annotations

from collections.abc import Sequence

from homing.app.access import ADMINS
from homing.app.figures import Figures
from homing.ports import Ledger
from homing.ports.views import Rollup
from homing.web.dashboard.figures import SPANS, percentile_ms, steps, total
from homing.web.dashboard.first_steps import first_steps
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.response import Response


async def overview(request: PageRequest) -> Shown:
    found = await request.app.figures.overview(request.caller, tenant=request.query.tenant())
    last = total(found.hour)
    is_admin = request.caller.may(ADMINS)
    return request.show(
        "overview.html",
        ledger=_sum(found.ledgers),
        counts=found.counts,
        last=last,
        p50=percentile_ms(last.took, 0.5),
        p99=percentile_ms(last.took, 0.99),
        frozen=found.frozen,
        disabled=found.disabled,
        causes=found.causes,
        failing=found.failing,
        expiring=found.expiring,
        pulse=request.app.status.pulse(request.caller) if is_admin else None,
        refused=await request.app.endpoints.refused(request.caller) if is_admin else (),
        kept_policies=request.app.status.kept_policies(request.caller),
        certificates=request.app.status.certificates(request.caller),
        span=span_of(request),
        spans=SPANS,
        steps=await first_steps(request, _sum(found.ledgers).accepted),
    )


def span_of(request: PageRequest) -> str:
    """The time range of a chart, from the query of the request; by default one hour."""
    asked = request.query.text("span")
    return asked if asked in SPANS else "1h"


def chart(rollups: Sequence[Rollup], *, span: str, now: int) -> dict[str, list[float | None]]:
    """The values of a chart, one per time step; the page draws them."""
    _, length, step = SPANS[span]
    since = now - length
    parts = steps(rollups, since=since, until=now + 1, step_ms=step)
    return {
        "at": [it.at / 1000 for it in parts],
        "delivered": [it.delivered for it in parts],
        "failed": [it.failed for it in parts],
        "sender_errors": [it.sender_errors for it in parts],
        "dropped": [it.dropped for it in parts],
        "p50": [percentile_ms(it.took, 0.5) for it in parts],
        "p99": [percentile_ms(it.took, 0.99) for it in parts],
    }


async def overview_chart(request: PageRequest) -> Response:
    span, now = span_of(request), request.now
    rollups = await request.app.figures.rollups(
        request.caller,
        tenant=request.query.tenant(),
        endpoint_id=None,
        span_ms=SPANS[span][1],
    )
    return request.json(chart(rollups, span=span, now=now))


def _sum(ledgers: Sequence[Ledger]) -> Ledger:
    return Ledger(
        tenant="",
        accepted=sum(it.accepted for it in ledgers),
        delivered=sum(it.delivered for it in ledgers),
        pending=sum(it.pending for it in ledgers),
        dropped=sum(it.dropped for it in ledgers),
        cancelled=sum(it.cancelled for it in ledgers),
        superseded=sum(it.superseded for it in ledgers),
        counted=all(it.counted for it in ledgers),
    )


PAGES = (
    Page(path="/", handler=overview, use_case=Figures.overview),
    Page(path="/chart.json", handler=overview_chart, use_case=Figures.rollups),
)
