"""Notices to people: their targets, a test notice, and the records of what was sent."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from homing.app.notice_targets import NoticeTargets
from homing.errors import (
    BadRequest,
    Conflict,
    FieldProblem,
    Forbidden,
    Invalid,
    NotFound,
    StoreUnavailable,
    TooMany,
)
from homing.languages.language import ENGLISH, LANGUAGES
from homing.model import read_id, show_id
from homing.policy.notice_text import sentence
from homing.policy.notices import (
    NoticeKind,
    NoticeRecord,
    NoticeStatus,
    NoticeTarget,
    TargetDraft,
    TargetKind,
    masked_address,
)
from homing.web.operation import PAGE, TENANT, Call, Operation, Param
from homing.web.query import show_cursor
from homing.web.response import Response, json_response
from homing.web.schemas import Cursor, Time, silent
from homing.web.show import ENDPOINT, time_or_none, time_text

TARGET, NOTICE, MESSAGE = "tgt", "ntc", "msg"

_KINDS = Meta(description="Only notices of these kinds; empty: all.")
_QUIET = Meta(
    description="Notices wait during these hours, like 22:00-07:00, and come in one message then."
)
_ZONE = Meta(description="The time zone of the quiet hours: UTC, or a name like Europe/Berlin.")
_LANGUAGE = Meta(
    description="The language of the messages to it.",
    extra_json_schema={"enum": list(LANGUAGES)},
)


class NoticeTargetIn(Struct, frozen=True, forbid_unknown_fields=True):
    """A target to create."""

    kind: TargetKind
    address: Annotated[
        str,
        Meta(
            description="An e-mail address, or the URL of an incoming webhook of Slack or Teams, or"
            " of a webhook of your own."
        ),
    ]
    name: Annotated[str, Meta(description="What it is: at most 100 characters.")] = ""
    tenant: Annotated[
        str | None, Meta(description="Its tenant; default: the key's tenant, or `default`.")
    ] = None
    operator: Annotated[
        bool,
        Meta(
            description="Whether it belongs to the operator instead of a tenant: it gets the"
            " notices of all tenants, and of outages of the sender. Needs an admin key."
        ),
    ] = False
    notices: Annotated[list[NoticeKind], _KINDS] = []
    quiet_hours: Annotated[str, _QUIET] = ""
    time_zone: Annotated[str, _ZONE] = "UTC"
    language: Annotated[str, _LANGUAGE] = ENGLISH.code
    __repr__ = silent


class NoticeTargetPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields to change. For another address, create another target."""

    name: str | UnsetType = UNSET
    notices: Annotated[list[NoticeKind] | UnsetType, _KINDS] = UNSET
    quiet_hours: Annotated[str | UnsetType, _QUIET] = UNSET
    time_zone: Annotated[str | UnsetType, _ZONE] = UNSET
    language: Annotated[str | UnsetType, _LANGUAGE] = UNSET


class NoticeTargetView(Struct, frozen=True, kw_only=True):
    """A target; of a URL only the host is shown."""

    id: str
    tenant: Annotated[str | None, Meta(description="null: the operator.")]
    kind: TargetKind
    name: str
    address: str
    notices: list[NoticeKind]
    quiet_hours: str
    time_zone: str
    language: Annotated[str, _LANGUAGE]
    created_at: Time
    confirmed_at: Annotated[
        Time | None, Meta(description="It gets the notices since then; null: not confirmed.")
    ]
    sent_at: Annotated[Time | None, Meta(description="When a message last arrived.")]
    failures: Annotated[int, Meta(description="Failed attempts in a row.")]
    error: Annotated[str, Meta(description="Why the last attempt failed.")]


class NoticeTargetCreated(NoticeTargetView, frozen=True, kw_only=True):
    """A target that is new or has a new secret; of a webhook, its secret is shown only here."""

    secret: str | None
    __repr__ = silent


class NoticeTargetPage(Struct, frozen=True):
    """Newest first."""

    items: list[NoticeTargetView]
    next_cursor: Cursor


class NoticeTested(Struct, frozen=True):
    """The result of a test notice."""

    arrived: bool
    error: Annotated[str, Meta(description="Why it did not arrive.")]


class NoticeView(Struct, frozen=True, kw_only=True):
    """A notice for one target."""

    id: str
    target: str
    kind: NoticeKind
    at: Time
    tenant: Annotated[str | None, Meta(description="The tenant of the endpoint.")]
    endpoint: str | None
    url: str | None
    text: str
    status: NoticeStatus
    reason: Annotated[str, Meta(description="Why it is skipped.")]
    message: Annotated[
        str | None, Meta(description="The message that carries it, with its Message-ID.")
    ]
    sent_at: Time | None


class NoticePage(Struct, frozen=True):
    """Newest first."""

    items: list[NoticeView]
    next_cursor: Cursor


def target_view(it: NoticeTarget) -> NoticeTargetView:
    return NoticeTargetView(
        id=show_id(TARGET, it.id),
        tenant=it.tenant or None,
        kind=it.kind,
        name=it.name,
        address=masked_address(it),
        notices=list(it.kinds),
        quiet_hours=it.quiet_hours,
        time_zone=it.time_zone,
        language=it.language,
        created_at=time_text(it.created_at),
        confirmed_at=time_or_none(it.confirmed_at),
        sent_at=time_or_none(it.sent_at),
        failures=it.attempts,
        error=it.error,
    )


def notice_view(record: NoticeRecord) -> NoticeView:
    notice = record.notice
    return NoticeView(
        id=show_id(NOTICE, record.id),
        target=show_id(TARGET, record.target_id),
        kind=notice.kind,
        at=time_text(notice.at),
        tenant=notice.tenant or None,
        endpoint=show_id(ENDPOINT, notice.endpoint_id) if notice.endpoint_id else None,
        url=notice.url or None,
        text=str(sentence(notice)),
        status=record.status,
        reason=record.reason,
        message=show_id(MESSAGE, record.message_id) if record.message_id else None,
        sent_at=time_or_none(record.sent_at),
    )


async def create(call: Call) -> Response:
    given = call.content(NoticeTargetIn)
    draft = TargetDraft(
        kind=given.kind,
        address=given.address,
        name=given.name,
        kinds=tuple(given.notices),
        quiet_hours=given.quiet_hours,
        time_zone=given.time_zone,
        language=given.language,
    )
    made = await call.app.notice_targets.create(
        call.caller, draft, tenant=given.tenant, operator=given.operator
    )
    return json_response(_created(made), status=201)


def _created(made: NoticeTarget) -> NoticeTargetCreated:
    secret = made.secret if made.kind is TargetKind.WEBHOOK else None
    return NoticeTargetCreated(**asdict(target_view(made)), secret=secret)


async def list_targets(call: Call) -> Response:
    query = call.query
    found, after = await call.app.notice_targets.page(
        call.caller, tenant=query.tenant(), before_id=query.cursor(), limit=query.limit()
    )
    return json_response(NoticeTargetPage([target_view(it) for it in found], show_cursor(after)))


async def get(call: Call) -> Response:
    return json_response(
        target_view(await call.app.notice_targets.get(call.caller, call.number(TARGET)))
    )


async def change(call: Call) -> Response:
    given = asdict(call.content(NoticeTargetPatch))
    changes = {name: value for name, value in given.items() if value is not UNSET}
    if "notices" in changes:
        changes["kinds"] = tuple(changes.pop("notices"))
    changed = await call.app.notice_targets.change(call.caller, call.number(TARGET), changes)
    return json_response(target_view(changed))


async def rotate(call: Call) -> Response:
    return json_response(
        _created(await call.app.notice_targets.rotate(call.caller, call.number(TARGET)))
    )


async def send_link(call: Call) -> Response:
    return json_response(
        target_view(await call.app.notice_targets.send_link(call.caller, call.number(TARGET)))
    )


async def delete(call: Call) -> Response:
    await call.app.notice_targets.delete(call.caller, call.number(TARGET))
    return Response(204)


async def test(call: Call) -> Response:
    _, error = await call.app.notice_targets.test(call.caller, call.number(TARGET))
    return json_response(NoticeTested(arrived=not error, error=str(error)))


async def list_notices(call: Call) -> Response:
    query = call.query
    target_id, text = None, query.text("target")
    if text:
        target_id = read_id(TARGET, text)
        if target_id is None:
            raise Invalid(problems=(FieldProblem("target", f"must begin with {TARGET}_"),))
    found, after = await call.app.notice_targets.records(
        call.caller,
        tenant=query.tenant(),
        target_id=target_id,
        before_id=query.cursor(),
        limit=query.limit(),
    )
    return json_response(NoticePage([notice_view(it) for it in found], show_cursor(after)))


_ONE = "/v1/notice-targets/{id}"

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/notice-targets",
        id="createNoticeTarget",
        use_case=NoticeTargets.create,
        summary="Create a target: an e-mail address, Slack, Teams, or a webhook that gets notices.",
        handler=create,
        status=201,
        request=NoticeTargetIn,
        response=NoticeTargetCreated,
        errors=(BadRequest, Forbidden, Invalid, TooMany, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path="/v1/notice-targets",
        id="listNoticeTargets",
        use_case=NoticeTargets.page,
        summary="Targets of notices, newest first.",
        handler=list_targets,
        response=NoticeTargetPage,
        params=(TENANT, *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path=_ONE,
        id="getNoticeTarget",
        use_case=NoticeTargets.get,
        summary="A target, with the error of its last attempt.",
        handler=get,
        response=NoticeTargetView,
        errors=(NotFound,),
    ),
    Operation(
        method="PATCH",
        path=_ONE,
        id="changeNoticeTarget",
        use_case=NoticeTargets.change,
        summary="Change the name, kinds of notices, quiet hours or language of a target.",
        handler=change,
        request=NoticeTargetPatch,
        response=NoticeTargetView,
        errors=(BadRequest, Invalid, NotFound, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/secret/rotate",
        id="rotateNoticeTargetSecret",
        use_case=NoticeTargets.rotate,
        summary="Sign the notices to a webhook with a new secret from now on; the old one ends.",
        handler=rotate,
        response=NoticeTargetCreated,
        errors=(Conflict, NotFound, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/link",
        id="sendNoticeTargetLink",
        use_case=NoticeTargets.send_link,
        summary="Send the link that confirms an e-mail address again; at most one in five minutes.",
        handler=send_link,
        response=NoticeTargetView,
        errors=(Conflict, NotFound, TooMany, StoreUnavailable),
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        id="deleteNoticeTarget",
        use_case=NoticeTargets.delete,
        summary="Delete a target with its address; notices that wait for it are skipped.",
        handler=delete,
        status=204,
        errors=(NotFound, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/test",
        id="testNoticeTarget",
        use_case=NoticeTargets.test,
        summary="Send a test notice now; at most one in ten seconds.",
        handler=test,
        response=NoticeTested,
        errors=(Conflict, NotFound, TooMany),
    ),
    Operation(
        method="GET",
        path="/v1/notices",
        id="listNotices",
        use_case=NoticeTargets.records,
        summary="Notices to people with their status, one for each target, newest first.",
        handler=list_notices,
        response=NoticePage,
        params=(TENANT, Param("target", "Only of this target."), *PAGE),
        errors=(Invalid,),
    ),
)
