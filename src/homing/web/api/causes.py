"""Causes: why endpoints fail, since when, and how often."""

from __future__ import annotations

from msgspec.structs import asdict

from homing.app.causes import Causes, CauseShown
from homing.errors import Invalid
from homing.model import show_id
from homing.policy.explain import explain_cause
from homing.web.operation import PAGE, TENANT, Call, Operation, Param
from homing.web.query import show_cursor
from homing.web.response import Response, json_response
from homing.web.schemas import CausePage, CauseView
from homing.web.show import (
    DELIVERY,
    ENDPOINT,
    attempt_view,
    cause_summary,
    sentence_parts,
)

WAITING_MAX = 10_000


async def list_causes(call: Call) -> Response:
    query = call.query
    rows, after = await call.app.causes.page(
        call.caller,
        tenant=query.tenant(),
        endpoint_id=query.id("endpoint", ENDPOINT),
        is_open=query.flag("open"),
        before_id=query.cursor(),
        limit=query.limit(),
        waiting_max=WAITING_MAX + 1,
    )
    return json_response(CausePage([_view(it) for it in rows], show_cursor(after)))


def _view(shown: CauseShown) -> CauseView:
    row, cause = shown.row, shown.row.cause
    sentence = explain_cause(cause, attempts_in_all=shown.attempts_in_all)
    return CauseView(
        **asdict(cause_summary(cause)),
        tenant=cause.tenant,
        endpoint=show_id(ENDPOINT, cause.endpoint_id),
        url=row.url,
        state=row.state,
        attempts_in_all=shown.attempts_in_all,
        sentence=str(sentence),
        sentence_parts=sentence_parts(sentence),
        waiting=min(shown.waiting, WAITING_MAX),
        waiting_more=shown.waiting > WAITING_MAX,
        example_delivery=show_id(DELIVERY, cause.example_id),
        example=None if shown.example is None else attempt_view(shown.example),
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/causes",
        id="listCauses",
        use_case=Causes.page,
        summary="Causes: why endpoints fail, since when, and how often; the newest first.",
        handler=list_causes,
        response=CausePage,
        params=(
            TENANT,
            Param("endpoint", "Only causes of this endpoint."),
            Param(
                "open",
                "true: only open causes; false: only closed ones.",
                {"type": "boolean"},
            ),
            *PAGE,
        ),
        errors=(Invalid,),
    ),
)
