"""Monitoring: ledger, health, readiness, metrics."""

from __future__ import annotations

from homing.app.figures import Figures
from homing.app.status import Status
from homing.errors import Invalid, Unavailable
from homing.web.api.status import well
from homing.web.metrics import (
    CONTENT_TYPE,
    metrics_text,
    of_all_processes,
    process_metrics,
    store_metrics,
)
from homing.web.operation import TENANT, Call, Operation
from homing.web.response import Response, json_response
from homing.web.schemas import LedgerPage, Well
from homing.web.show import ledger_view


async def ledger(call: Call) -> Response:
    rows = await call.app.figures.ledger(call.caller, tenant=call.query.tenant())
    return json_response(LedgerPage([ledger_view(row) for row in rows]))


async def healthz(call: Call) -> Response:
    return json_response(well(call.app.status.health(), now=call.now))


async def readyz(call: Call) -> Response:
    return json_response(well(await call.app.status.ready(), now=call.now))


async def metrics(call: Call) -> Response:
    pulse, figures = await call.app.status.metrics(call.caller)
    found = process_metrics(pulse, now=call.now, more=call.options.more_metrics)
    if (others := call.options.other_processes) is not None:
        found = of_all_processes(others.name, found, await others.others())
    text = metrics_text([*found, *store_metrics(figures)])
    return Response(200, text, CONTENT_TYPE.encode())


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/ledger",
        id="getLedger",
        use_case=Figures.ledger,
        summary="Per tenant: accepted = delivered + pending + dropped + cancelled + superseded.",
        handler=ledger,
        response=LedgerPage,
        params=(TENANT,),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path="/healthz",
        id="healthz",
        summary="Whether due deliveries are being sent; 503 if one has been stuck for a minute.",
        handler=healthz,
        response=Well,
        errors=(Unavailable,),
        open=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        id="readyz",
        summary="Whether requests are accepted; 503 while stopping or without a working database.",
        handler=readyz,
        response=Well,
        errors=(Unavailable,),
        open=True,
    ),
    Operation(
        method="GET",
        path="/metrics",
        id="metrics",
        use_case=Status.metrics,
        by_address=True,
        summary="Metrics in the text format of Prometheus.",
        handler=metrics,
        response_type=CONTENT_TYPE,
    ),
)
