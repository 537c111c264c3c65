"""Notices: the targets where people get them, a test notice, and the latest notices."""

from __future__ import annotations

from typing import Any

from homing.app.notice_targets import NoticeTargets
from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import Sentence, say
from homing.model import show_id
from homing.policy.notice_text import headline, sentence
from homing.policy.notices import (
    OPERATOR,
    TARGETS_MAX,
    NoticeKind,
    NoticeTarget,
    TargetDraft,
    TargetKind,
    masked_address,
    stored_text,
)
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.query import show_cursor
from homing.web.response import Response

TARGET = "tgt"
TARGETS_SHOWN = 100
NOTICES_SHOWN = 50
_HERE = "/notices"


async def show(request: PageRequest) -> Shown:
    caller, query = request.caller, request.query
    targets, more = await request.app.notice_targets.page(
        caller, tenant=None, before_id=None, limit=TARGETS_SHOWN
    )
    before_id = query.cursor()
    records, after = await request.app.notice_targets.records(
        caller, tenant=None, target_id=None, before_id=before_id, limit=NOTICES_SHOWN
    )
    secret, headers = request.one_time_secret()
    return request.show(
        "notices.html",
        headers=headers,
        secret=secret,
        targets=targets,
        more_targets=more is not None,
        names={it.id: it.name or masked_address(it) for it in targets},
        masked=masked_address,
        kinds=list(TargetKind),
        notice_kinds=list(NoticeKind),
        targets_max=TARGETS_MAX,
        records=records,
        headline=headline,
        sentence=sentence,
        stored_text=stored_text,
        older="" if after is None else f"?cursor={show_cursor(after)}",
        first=before_id is None,
    )


async def create(request: PageRequest) -> Response:
    operator = request.field("operator") == "on"
    draft = TargetDraft(
        kind=_kind(request.field("kind")),
        address=request.field("address"),
        **{"language": request.language.code, **_fields(request)},
    )
    tenant = request.field("tenant") or None
    made = await request.app.notice_targets.create(
        request.caller, draft, tenant=tenant, operator=operator
    )
    if made.kind is TargetKind.EMAIL and made.tenant != OPERATOR:
        return request.done(_link_sent(made), to=_HERE)
    secret = made.secret if made.kind is TargetKind.WEBHOOK else ""
    return request.done(say("Target created."), to=_HERE, secret=secret)


def _fields(request: PageRequest) -> dict[str, Any]:
    """The fields that can be changed later."""
    chosen = [kind for kind in NoticeKind if request.field(f"notice-{kind.value}") == "on"]
    fields: dict[str, Any] = {
        "name": request.field("name"),
        "kinds": tuple(chosen),
        "quiet_hours": request.field("quiet_hours"),
        "time_zone": request.field("time_zone") or "UTC",
    }
    if language := request.field("language"):
        fields["language"] = language
    return fields


def _link_sent(target: NoticeTarget) -> Sentence:
    return say(
        "An e-mail with a link is on its way to {address}: open it to confirm.",
        address=target.address,
    )


async def change(request: PageRequest) -> Response:
    targets, number = request.app.notice_targets, request.number(TARGET)
    found = await targets.get(request.caller, number)
    request.refuse_changed(found, show_id(TARGET, number))
    await targets.change(request.caller, number, _fields(request))
    return request.done(say("Target changed."), to=_HERE)


async def rotate(request: PageRequest) -> Response:
    target = await request.app.notice_targets.rotate(request.caller, request.number(TARGET))
    return request.done(say("Secret rotated."), to=_HERE, secret=target.secret)


async def send_link(request: PageRequest) -> Response:
    target = await request.app.notice_targets.send_link(request.caller, request.number(TARGET))
    return request.done(_link_sent(target), to=_HERE)


async def test(request: PageRequest) -> Response:
    target, error = await request.app.notice_targets.test(request.caller, request.number(TARGET))
    name = target.name or masked_address(target)
    said = say("Test notice to {name}: arrived.", name=name)
    if error:
        said = say("Test notice to {name}: not arrived: {error}.", name=name, error=error)
    return request.done(said, to=_HERE)


async def delete(request: PageRequest) -> Response:
    await request.app.notice_targets.delete(request.caller, request.number(TARGET))
    return request.done(say("Target deleted."), to=_HERE)


def _kind(text: str) -> TargetKind:
    if text not in set(TargetKind):
        reason = say("must be one of {names}", names=", ".join(TargetKind))
        raise Invalid(problems=(FieldProblem("kind", reason),))
    return TargetKind(text)


PAGES = (
    Page(path=_HERE, handler=show, use_case=NoticeTargets.records),
    Page(path=f"{_HERE}/targets", handler=create, method="POST", use_case=NoticeTargets.create),
    Page(
        path=f"{_HERE}/targets/{{id}}",
        handler=change,
        method="POST",
        use_case=NoticeTargets.change,
    ),
    Page(
        path=f"{_HERE}/targets/{{id}}/rotate",
        handler=rotate,
        method="POST",
        use_case=NoticeTargets.rotate,
    ),
    Page(
        path=f"{_HERE}/targets/{{id}}/link",
        handler=send_link,
        method="POST",
        use_case=NoticeTargets.send_link,
    ),
    Page(
        path=f"{_HERE}/targets/{{id}}/test",
        handler=test,
        method="POST",
        use_case=NoticeTargets.test,
    ),
    Page(
        path=f"{_HERE}/targets/{{id}}/delete",
        handler=delete,
        method="POST",
        use_case=NoticeTargets.delete,
    ),
)
