"""The whole: ledger, health, readiness, metrics."""

from __future__ import annotations

from homing.errors import Invalid, ShuttingDown, StoreUnavailable, Unavailable
from homing.web.answer import Answer, json_answer
from homing.web.api.status import well
from homing.web.auth import ONLY_ADMINS, READERS
from homing.web.metrics import CONTENT_TYPE, metrics_text
from homing.web.operation import TENANT, Call, Operation
from homing.web.schemas import LedgerPage
from homing.web.schemas_status import Well
from homing.web.show import ledger_view, time_text

STUCK_AFTER_MS = 60_000


async def ledger(call: Call) -> Answer:
    rows = await call.parts.views.ledger(tenant=call.query.tenant())
    return json_answer(LedgerPage([ledger_view(row) for row in rows]))


async def healthz(call: Call) -> Answer:
    """Not well: something is due, a slot is free, and for a minute nothing came of it."""
    pulse = call.parts.engine.pulse()
    due_since = pulse.due_since
    if due_since is not None and call.now - due_since >= STUCK_AFTER_MS:
        at = time_text(due_since)
        raise Unavailable(f"Something has been due since {at} although a slot is free.")
    return json_answer(well(pulse.outage, pulse.clock, now=call.now))


async def readyz(call: Call) -> Answer:
    """A closed gate or a stepped clock is told and is no reason to refuse.

    What is published meanwhile waits safely here, is signed with the true time and goes by its
    schedule; and a clock is often stepped on all machines at once, which would then all be away.
    """
    pulse = call.parts.engine.pulse()
    if pulse.draining:
        raise ShuttingDown
    if pulse.silent_since is not None:
        at = time_text(pulse.silent_since)
        raise StoreUnavailable(f"A commit has not been answered since {at}.")
    if not pulse.store_ok:
        raise StoreUnavailable("The last commit failed.")
    await call.parts.ping(call.parts.views)
    return json_answer(well(pulse.outage, pulse.clock, now=call.now))


async def metrics(call: Call) -> Answer:
    text = metrics_text(call.parts.engine, now=call.now, more=call.parts.options.more_metrics)
    return Answer(200, text, CONTENT_TYPE.encode())


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/ledger",
        id="getLedger",
        roles=READERS,
        summary="Per tenant: accepted = delivered + pending + dropped + cancelled.",
        handler=ledger,
        answer=LedgerPage,
        params=(TENANT,),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path="/healthz",
        id="healthz",
        summary="Whether what is due goes; 503 when it has not for a minute.",
        handler=healthz,
        answer=Well,
        errors=(Unavailable,),
        open=True,
    ),
    Operation(
        method="GET",
        path="/readyz",
        id="readyz",
        summary="Whether it takes requests; 503 while it stops or the store does not answer.",
        handler=readyz,
        answer=Well,
        errors=(Unavailable,),
        open=True,
    ),
    Operation(
        method="GET",
        path="/metrics",
        id="metrics",
        roles=ONLY_ADMINS,
        summary="Metrics in the text format of Prometheus.",
        handler=metrics,
        answer_type=CONTENT_TYPE,
    ),
)
