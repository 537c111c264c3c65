"""Events: search, show which subscriptions each event matched, publish a test event."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from homing.app.events import Events
from homing.app.exports import Exports
from homing.app.publishing import Publishing
from homing.errors import FieldProblem, Invalid, NotFound
from homing.languages.sentences import many, say
from homing.policy.admission import EventDraft, is_type
from homing.policy.cloudevents import context_of
from homing.ports import EventRow
from homing.web.api.publish import read_drafts
from homing.web.dashboard.export import export_pages, export_response
from homing.web.dashboard.forms import EVENT_FORM_BYTES_MAX
from homing.web.dashboard.pages.deliveries import BYTES, data_path, pretty
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.query import show_cursor
from homing.web.response import Response
from homing.web.schemas import EventView
from homing.web.show import event_view

ROWS = 50
NO_TYPE = say("This is not an event type. A type looks like invoice.paid.")
REPEATED = say("This id was published before: nothing new is sent.")


async def events(request: PageRequest) -> Shown:
    text = request.query.text("q")
    problem = "" if not text or is_type(text) else NO_TYPE
    before_id = request.query.cursor()
    found: tuple[list[EventRow], int | None] = [], None
    if not problem:
        found = await request.app.events.page(
            request.caller,
            tenant=request.query.tenant(),
            event_type=text or None,
            before_id=before_id,
            limit=ROWS,
        )
    rows, after = found
    cursor = show_cursor(after)
    return request.show(
        "events.html",
        text=text,
        problem=problem,
        rows=rows,
        first=before_id is None,
        older="" if cursor is None else "?" + urlencode({"q": text, "cursor": cursor}),
        address=path,
    )


async def export(request: PageRequest, form: str) -> Response:
    text = request.query.text("q")
    if text and not is_type(text):
        raise Invalid(problems=(FieldProblem("q", NO_TYPE),))
    pages = await request.app.exports.events(
        request.caller, tenant=request.query.tenant(), event_type=text or None
    )
    return export_response("events", form, pages, event_view, EventView)


def path(tenant: str, key: str) -> str:
    """The address of an event."""
    return f"/events/{quote(tenant)}/{quote(key, safe='')}"


async def event(request: PageRequest) -> Shown:
    tenant = request.part("tenant")
    found = await request.app.events.get(request.caller, request.key(), tenant=tenant)
    return request.show(
        "event.html",
        it=found.event,
        rows=found.deliveries,
        more=found.more,
        unmatched=found.unmatched,
        context=context_of(found.event),
        pretty=pretty(found.event.data),
        data_path=data_path(tenant, request.key()),
    )


async def event_data(request: PageRequest) -> Response:
    """The data of an event, byte for byte, as a file."""
    data = await request.app.events.data(
        request.caller, request.key(), tenant=request.part("tenant")
    )
    if data is None:
        raise NotFound(say("The tenant has no such event, or it is past retention."))
    name = b'attachment; filename="event-data.json"'
    return Response(200, data, BYTES, ((b"content-disposition", name),))


async def publish(request: PageRequest) -> Response:
    """Publishes a test event, with the same checks as any other event."""
    tenant = request.caller.tenant_or_default(request.field("tenant") or None)
    event_type, data = request.field("type"), request.field("data") or "{}"
    body = b'{"type":"","data":%b}' % data.encode()
    draft = read_drafts(body, tenant, lines=False)[0]
    key = request.field("id") or request.once_id()
    draft = EventDraft(tenant=tenant, type=event_type, data=draft.data, key=key)
    try:
        receipt = (await request.app.publishing.publish(request.caller, [draft]))[0]
    except Invalid as error:
        raise Invalid(
            problems=tuple(
                FieldProblem(it.field.rpartition(".")[2], it.reason) for it in error.problems
            )
        ) from None
    message = REPEATED
    if receipt.new:
        message = many(
            "Published: {count} delivery.", "Published: {count} deliveries.", receipt.deliveries
        )
    if receipt.warning:
        message = say("{message} Warning: {reason}.", message=message, reason=receipt.warning)
    return request.done(message, to=path(tenant, receipt.key))


PAGES = (
    Page(path="/events", handler=events, use_case=Events.page),
    Page(
        path="/events",
        handler=publish,
        method="POST",
        use_case=Publishing.publish,
        form_bytes=EVENT_FORM_BYTES_MAX,
    ),
    *export_pages("/events", export, Exports.events),
    Page(path="/events/{tenant}/{id:path}", handler=event, use_case=Events.get),
    Page(path="/event-data/{tenant}/{id:path}", handler=event_data, use_case=Events.data),
)
