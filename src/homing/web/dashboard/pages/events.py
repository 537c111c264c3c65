"""Events: what was published, where it went and where not, and a test event of one's own."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from homing.errors import FieldProblem, Invalid, NotFound
from homing.policy.admission import DEFAULT_TENANT, EventDraft, check_events, is_key, is_type
from homing.ports import EventRow
from homing.web import commands
from homing.web.answer import Answer
from homing.web.api.publish import read_drafts
from homing.web.dashboard.forms import EVENT_FORM_BYTES_MOST
from homing.web.dashboard.pages.deliveries import pretty
from homing.web.dashboard.visit import Page, Right, Shown, Visit
from homing.web.describe import unmatched
from homing.web.query import LIMIT_MOST, show_cursor

ROWS = 50


async def events(visit: Visit) -> Shown:
    text = visit.query.text("q")
    problem = "" if not text or is_type(text) else "This is no type of an event."
    before_id = visit.query.cursor()
    found: tuple[list[EventRow], int | None] = [], None
    if not problem:
        found = await visit.parts.views.events(
            tenant=visit.tenant(), event_type=text or None, before_id=before_id, limit=ROWS
        )
    rows, after = found
    cursor = show_cursor(after)
    return visit.show(
        "events.html",
        text=text,
        problem=problem,
        rows=rows,
        first=before_id is None,
        older="" if cursor is None else "?" + urlencode({"q": text, "cursor": cursor}),
        address=path,
    )


def path(tenant: str, key: str) -> str:
    """The address of an event."""
    return f"/events/{quote(tenant)}/{quote(key, safe='')}"


async def event(visit: Visit) -> Shown:
    tenant, key = visit.part("tenant"), visit.key()
    visit.sees(tenant)
    row = await visit.parts.views.event(key, tenant=tenant) if is_key(key) else None
    if row is None:
        raise NotFound("The tenant has no such event, or it is past retention.")
    rows = await visit.parts.views.event_deliveries(row.event.id, limit=LIMIT_MOST + 1)
    others, _ = await unmatched(visit.parts, row.event, rows, now=visit.now)
    return visit.show(
        "event.html",
        it=row.event,
        rows=rows[:LIMIT_MOST],
        more=len(rows) > LIMIT_MOST,
        unmatched=others,
        pretty=pretty(row.event.data),
        raw=row.event.data.decode("utf-8", "replace"),
    )


async def publish(visit: Visit) -> Answer:
    """A test event: the same door as every other, the same checks."""
    tenant = visit.who.tenant or visit.field("tenant") or DEFAULT_TENANT
    event_type, data = visit.field("type"), visit.field("data") or "{}"
    body = b'{"type":"","data":%b}' % data.encode()
    draft = read_drafts(body, tenant, lines=False)[0]
    key = visit.field("id") or None
    draft = EventDraft(tenant=tenant, type=event_type, data=draft.data, key=key)
    try:
        check_events([draft])
    except Invalid as error:
        raise Invalid(
            problems=tuple(
                FieldProblem(it.field.rpartition(".")[2], it.reason) for it in error.problems
            )
        ) from None
    receipt = (await commands.publish(visit.parts, visit.who.caller, [draft]))[0]
    many = "1 delivery" if receipt.deliveries == 1 else f"{receipt.deliveries:,} deliveries"
    said = f"Published: {many}." if receipt.new else "Published before: nothing new is sent."
    return visit.done(said, to=path(tenant, receipt.key))


PAGES = (
    Page(path="/events", handler=events),
    Page(
        path="/events",
        handler=publish,
        method="POST",
        right=Right.PUBLISH,
        form_bytes=EVENT_FORM_BYTES_MOST,
    ),
    Page(path="/events/{tenant}/{id:path}", handler=event),
)
