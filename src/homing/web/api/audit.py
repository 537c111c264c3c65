"""The audit log: list it, export it as NDJSON, verify it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from homing.app.audit import EXPORT_MAX, Audit, SegmentCheck
from homing.errors import Invalid, TooMany
from homing.model import show_id
from homing.policy.audit import AuditEntry
from homing.ports.audit import AuditFilter
from homing.web.operation import PAGE, TENANT, Call, Operation, Param
from homing.web.query import show_cursor
from homing.web.response import Response, json_response
from homing.web.schemas import Cursor, Time
from homing.web.show import time_text

ENTRY, KEY = "aud", "key"
NDJSON = b"application/x-ndjson"
_VALUES = "Secrets are ****; long values are cut."


class AuditWho(Struct, frozen=True):
    """The caller of a change."""

    name: Annotated[str, Meta(description="The name of the key.")]
    key: Annotated[str | None, Meta(description="The id of the key; null: the admin key, or none.")]
    person: Annotated[str, Meta(description="As the authenticating proxy named the person.")]
    address: Annotated[str, Meta(description="The address of the connection.")]


class AuditEntryView(Struct, frozen=True, kw_only=True):
    """One change, or calls of one minute: refused ones, and frequent changes."""

    id: str
    at: Time
    tenant: Annotated[str | None, Meta(description="Whose object it is; null: the installation.")]
    who: AuditWho
    action: Annotated[str, Meta(description="The use case, like subscriptions.create.")]
    object: Annotated[str, Meta(description="The id of the object, like sub_…")]
    before: Annotated[Any, Meta(description=f"The values before; null: no object. {_VALUES}")]
    after: Annotated[Any, Meta(description=f"The values after; null: no object. {_VALUES}")]
    refused: Annotated[str, Meta(description="Why the calls were refused; empty: it was done.")]
    count: Annotated[int, Meta(description="How many calls of a minute it counts.")]
    segment: Annotated[int | None, Meta(description="Its hashed segment; null: in none yet.")]


class AuditPage(Struct, frozen=True):
    """Newest first."""

    items: list[AuditEntryView]
    next_cursor: Cursor


class AuditSegmentView(Struct, frozen=True):
    """A segment that was verified."""

    number: int
    entries: int
    first_at: Time
    last_at: Time
    hash: str
    problems: Annotated[list[str], Meta(description="What is wrong with it; empty: nothing.")]


class AuditVerified(Struct, frozen=True):
    """Segments that were verified, in order."""

    segments: list[AuditSegmentView]
    problems: Annotated[list[str], Meta(description="What is wrong with the log as a whole.")]
    removed_segments: Annotated[int, Meta(description="How many segments retention has removed.")]
    removed_entries: int
    next_after: Annotated[int | None, Meta(description="Go on with this `after`; null: the end.")]


def entry_view(it: AuditEntry) -> AuditEntryView:
    who = it.who
    key = None if who.key_id is None else show_id(KEY, who.key_id)
    return AuditEntryView(
        id=show_id(ENTRY, it.id),
        at=time_text(it.at),
        tenant=it.tenant,
        who=AuditWho(who.name, key, who.person, who.address),
        action=it.action,
        object=it.object,
        before=values_of(it.before),
        after=values_of(it.after),
        refused=it.refused,
        count=it.count,
        segment=it.segment or None,
    )


def values_of(text: str) -> Any:
    """The values of an entry; their text if somebody has changed it so that it is no JSON."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def audit_filter(call: Call) -> AuditFilter:
    query = call.query
    return AuditFilter(
        tenant=query.tenant(),
        who=query.text("who") or None,
        action=query.text("action") or None,
        object=query.text("object") or None,
        since=query.since("since", now=call.now),
        until=query.since("until", now=call.now),
    )


async def list_entries(call: Call) -> Response:
    found, after = await call.app.audit.page(
        call.caller, audit_filter(call), before_id=call.query.cursor(), limit=call.query.limit()
    )
    return json_response(AuditPage([entry_view(it) for it in found], show_cursor(after)))


async def export(call: Call) -> Response:
    pages = await call.app.audit.export(call.caller, audit_filter(call))
    return Response(200, content_type=NDJSON, stream=export_lines(pages))


async def export_lines(pages: AsyncIterator[list[AuditEntry]]) -> AsyncIterator[bytes]:
    async for page in pages:
        yield b"".join(msgspec.json.encode(entry_view(it)) + b"\n" for it in page)


async def verify(call: Call) -> Response:
    after = call.query.number("after")
    found = await call.app.audit.verify(call.caller, after=after)
    return json_response(
        AuditVerified(
            [_segment_view(it) for it in found.segments],
            list(found.problems),
            found.removed,
            found.removed_entries,
            found.after,
        )
    )


def _segment_view(it: SegmentCheck) -> AuditSegmentView:
    return AuditSegmentView(
        it.number,
        it.entries,
        time_text(it.first_at),
        time_text(it.last_at),
        it.hash.hex(),
        list(it.problems),
    )


_CONDITIONS = (
    TENANT,
    Param("who", "Only by this key (its name or id) or person."),
    Param("action", "Only this use case, like subscriptions.create, or all of subscriptions."),
    Param("object", "Only changes of the object with this id."),
    Param("since", "Only from this time on: RFC 3339, or a duration ago like 2h."),
    Param("until", "Only before this time: RFC 3339, or a duration ago like 2h."),
)

OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/audit",
        id="listAuditEntries",
        use_case=Audit.page,
        summary="The audit log: who changed what and when, newest first.",
        handler=list_entries,
        response=AuditPage,
        params=(*_CONDITIONS, *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path="/v1/audit/export",
        id="exportAuditEntries",
        use_case=Audit.export,
        summary=f"The same as NDJSON, one entry per line; at most {EXPORT_MAX:,} entries.",
        handler=export,
        response=AuditEntryView,
        response_type=NDJSON.decode(),
        params=_CONDITIONS,
        errors=(Invalid, TooMany),
    ),
    Operation(
        method="GET",
        path="/v1/audit/verify",
        id="verifyAuditLog",
        use_case=Audit.verify,
        summary="Verify a few segments of the audit log: removed and changed entries are noticed.",
        handler=verify,
        response=AuditVerified,
        params=(Param("after", "Go on after the segment with this number.", {"type": "integer"}),),
        errors=(Invalid,),
    ),
)
