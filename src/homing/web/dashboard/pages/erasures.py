"""Erasures: erase an event, events by a value or a tenant, after a confirmation; the progress."""

from __future__ import annotations

from homing.app.erasures import ErasureDraft, Erasures
from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import Sentence, many, say
from homing.ports.erasures import Erasure
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.query import show_cursor
from homing.web.response import Response

ROWS = 50
CONFIRMED = "erase"
_HERE = "/erasures"


async def show(request: PageRequest) -> Shown:
    before_id = request.query.cursor()
    page, after = await request.app.erasures.page(
        request.caller, tenant=None, before_id=before_id, limit=ROWS
    )
    return request.show(
        "erasures.html",
        erasures=page,
        fields=request.app.erasures.fields,
        confirmed=CONFIRMED,
        older="" if after is None else f"?cursor={show_cursor(after)}",
        first=before_id is None,
    )


async def erase(request: PageRequest) -> Response:
    draft = ErasureDraft(
        event=request.field("event") or None,
        field=request.field("field") or None,
        value=request.field("value") or None,
        everything=request.field("everything") == "on",
        tenant=request.field("tenant") or None,
    )
    wanted = (draft.tenant or "") if draft.everything else CONFIRMED
    if request.field("confirm").strip() != wanted:
        reason = (
            say("type {word} to confirm that it is erased for good", word=wanted)
            if wanted
            else say("type the name of the tenant to confirm that it is erased for good")
        )
        raise Invalid(problems=(FieldProblem("confirm", reason),))
    return request.done(_said(await request.app.erasures.erase(request.caller, draft)), to=_HERE)


def _said(erasure: Erasure) -> Sentence:
    if erasure.finished_at is None and not erasure.events:
        return say("Nothing of it is shown or sent any more; its removal has begun.")
    if erasure.more:
        return many(
            "{count} event erased. Others match, too: erase again.",
            "{count} events erased. Others match, too: erase again.",
            erasure.events,
        )
    return many("{count} event erased.", "{count} events erased.", erasure.events)


PAGES = (
    Page(path=_HERE, handler=show, use_case=Erasures.page),
    Page(path=_HERE, handler=erase, method="POST", use_case=Erasures.erase),
)
