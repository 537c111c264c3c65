"""The audit log: who changed what and when, with a form to search it and an export."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from homing.app.audit import Audit
from homing.policy.audit import AuditEntry
from homing.ports.audit import AuditFilter
from homing.web.api.audit import NDJSON, export_lines, values_of
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.query import show_cursor
from homing.web.response import Response

SHOWN = 50
_FIELDS = ("tenant", "who", "action", "object", "since", "until")
_OBJECTS = {
    "sub": "/subscriptions/",
    "ep": "/endpoints/",
    "dlv": "/deliveries/",
    "rpl": "/replays/",
}


async def show(request: PageRequest) -> Shown:
    before_id = request.query.cursor()
    entries, after = await request.app.audit.page(
        request.caller, _filter(request), before_id=before_id, limit=SHOWN
    )
    given = {name: text for name in _FIELDS if (text := request.query.text(name))}
    older = {**given, "cursor": show_cursor(after) or ""}
    return request.show(
        "audit.html",
        entries=entries,
        changes=[changes_of(it) for it in entries],
        links=[_link(it) for it in entries],
        given=given,
        query=urlencode(given),
        older="" if after is None else f"?{urlencode(older)}",
        first=before_id is None,
    )


async def export(request: PageRequest) -> Response:
    pages = await request.app.audit.export(request.caller, _filter(request))
    name = (b"content-disposition", b'attachment; filename="homing-audit.ndjson"')
    return Response(200, content_type=NDJSON, headers=(name,), stream=export_lines(pages))


def _filter(request: PageRequest) -> AuditFilter:
    query, now = request.query, request.now
    return AuditFilter(
        tenant=query.tenant() or None if query.text("tenant") else None,
        who=query.text("who") or None,
        action=query.text("action") or None,
        object=query.text("object") or None,
        since=query.since("since", now=now) if query.text("since") else None,
        until=query.since("until", now=now) if query.text("until") else None,
    )


def changes_of(entry: AuditEntry) -> list[tuple[str, Any, Any]]:
    """The name of each value, and the value before and after; None: there was none."""
    before, after = values_of(entry.before), values_of(entry.after)
    old = before if isinstance(before, dict) else {}
    new = after if isinstance(after, dict) else {}
    names = [name for name in {**old, **new} if old.get(name) or new.get(name)]
    return [(name, old.get(name), new.get(name)) for name in names]


def _link(entry: AuditEntry) -> str:
    """The page of the object, if it has one and may still exist."""
    page = _OBJECTS.get(entry.object.partition("_")[0])
    is_gone = entry.action.endswith(".delete")
    return "" if page is None or is_gone else f"{page}{entry.object}"


PAGES = (
    Page(path="/audit", handler=show, use_case=Audit.page),
    Page(path="/audit/export", handler=export, use_case=Audit.export),
)
