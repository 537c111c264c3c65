"""Search: what a text names."""

from __future__ import annotations

from homing.app.search import Search
from homing.errors import Invalid
from homing.policy.search import QUERY_CHARS_MAX
from homing.web.operation import TENANT, Call, Operation, Param
from homing.web.response import Response, json_response
from homing.web.schemas import SearchExample, SearchHit, SearchResult
from homing.web.show import time_or_none


async def search(call: Call) -> Response:
    query = call.query
    found = await call.app.search.find(call.caller, query.text("q"), tenant=query.tenant())
    return json_response(
        SearchResult(
            items=[
                SearchHit(
                    kind=it.kind,
                    id=it.id,
                    tenant=it.tenant,
                    title=str(it.title),
                    status=it.status,
                    at=time_or_none(it.at),
                )
                for it in found.hits
            ],
            more=found.more,
            notes=[str(it) for it in found.notes],
            examples=[SearchExample(it.text, str(it.finds)) for it in found.examples],
        )
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/search",
        id="search",
        use_case=Search.find,
        summary="Find a delivery, event, subscription or endpoint by its id, an event by the id "
        "that its publisher gave it or by a payload field, an endpoint by its URL or a part of it, "
        "or an event type.",
        handler=search,
        response=SearchResult,
        params=(
            Param(
                "q",
                "An id (`dlv_…`, `sub_…`, `ep_…`, an event id, a webhook-id), a URL or a part of "
                "it, an event type, or `data.invoice.id:4711` for a payload field of the setting "
                "`search_fields`. `event:`, `url:` and `type:` before the text search for this "
                "only.",
                {"type": "string", "minLength": 1, "maxLength": QUERY_CHARS_MAX},
            ),
            TENANT,
        ),
        errors=(Invalid,),
    ),
)
