"""Event types: the list, one type with its schema and sample, and the form to describe one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from homing.app.event_types import EventTypes
from homing.errors import Conflict, FieldProblem, FormOutdated, Invalid
from homing.languages.sentences import say
from homing.policy.event_check_rules import Check, CheckRules
from homing.policy.event_types import DESCRIPTION_CHARS_MAX, EventType, TypePlace
from homing.web.dashboard.forms import outdated
from homing.web.dashboard.pages.deliveries import pretty
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.dashboard.words import word
from homing.web.event_openapi import event_openapi
from homing.web.query import show_place
from homing.web.response import Response

ROWS = 50
_HERE = "/event-types"
_FIELDS = ("tenant", "name", "description", "schema", "sample", "check")


async def types(request: PageRequest) -> Shown:
    after = request.query.place(TypePlace)
    found, last = await request.app.event_types.page(
        request.caller, tenant=request.query.tenant(), after=after, limit=ROWS
    )
    cursor = show_place(last)
    return request.show(
        "event_types.html",
        rows=found,
        tenants=sorted({it.tenant for it in found}),
        address=path,
        check=lambda it: check_word(it.check, request.app.event_types.rules_of(it.tenant)),
        older="" if cursor is None else f"?cursor={cursor}",
        first=after is None,
    )


def path(tenant: str, name: str) -> str:
    """The address of an event type."""
    return f"{_HERE}/{quote(tenant)}/{quote(name, safe='')}"


def check_word(check: Check | None, rules: CheckRules) -> str:
    """How the events of a type are checked, in a word."""
    return word(check) if check is not None else say("{check} (default)", check=word(rules.check))


async def show(request: PageRequest) -> Shown:
    found = await _found(request)
    return request.show(
        "event_type.html",
        it=found,
        at=path(found.tenant, found.name),
        check=check_word(found.check, request.app.event_types.rules_of(found.tenant)),
        schema=pretty(found.schema.encode()),
        sample=pretty(found.sample.encode()),
    )


async def export(request: PageRequest) -> Response:
    tenant, found = await request.app.event_types.of_tenant(
        request.caller, tenant=request.query.tenant()
    )
    return request.json(await event_openapi(tenant, found))


async def new(request: PageRequest) -> Shown:
    return _form(request, None, {})


async def create(request: PageRequest) -> Response | Shown:
    texts = request.form()
    try:
        draft = EventType(tenant="", **_values(request), name=request.field("name"))
        made = await request.app.event_types.create(
            request.caller, draft, tenant=request.field("tenant") or None
        )
    except (Invalid, Conflict) as error:
        return _refused(request, None, texts, error)
    return request.done(say("{name} created.", name=made.name), to=path(made.tenant, made.name))


async def edit(request: PageRequest) -> Shown:
    found = await _found(request)
    return _form(request, found, _texts(found))


def _texts(found: EventType) -> dict[str, str]:
    return {
        "description": found.description,
        "schema": pretty(found.schema.encode()),
        "sample": pretty(found.sample.encode()),
        "check": found.check or "",
    }


async def change(request: PageRequest) -> Response | Shown:
    found = await _found(request)
    try:
        request.refuse_changed(found, found.name)
        changed = await request.app.event_types.change(
            request.caller, found.name, _values(request), tenant=found.tenant
        )
    except FormOutdated as error:
        found = await _found(request)
        texts, problems = outdated(request.form(), error, _texts(found))
        return _form(request, found, texts, problems=problems, status=error.http_status)
    except (Invalid, Conflict) as error:
        return _refused(request, found, request.form(), error)
    return request.done(
        say("{name} changed.", name=changed.name), to=path(changed.tenant, changed.name)
    )


async def delete(request: PageRequest) -> Response:
    found = await _found(request)
    await request.app.event_types.delete(request.caller, found.name, tenant=found.tenant)
    return request.done(say("{name} deleted.", name=found.name), to=_HERE)


async def _found(request: PageRequest) -> EventType:
    return await request.app.event_types.get(
        request.caller, request.key(), tenant=request.part("tenant")
    )


def _values(request: PageRequest) -> dict[str, Any]:
    """The fields of the form that can be changed later; raises Invalid."""
    check = request.field("check")
    if check and check not in set(Check):
        reason = say("must be one of {names}", names=", ".join(Check))
        raise Invalid(problems=(FieldProblem("check", reason),))
    return {
        "description": request.field("description").replace("\r\n", "\n"),
        "schema": request.field("schema"),
        "sample": request.field("sample"),
        "check": Check(check) if check else None,
    }


def _refused(
    request: PageRequest,
    before: EventType | None,
    texts: Mapping[str, str],
    error: Invalid | Conflict,
) -> Shown:
    """The form again, with the reason at each field."""
    problems = {it.field: it.reason for it in error.problems if it.field in _FIELDS}
    if not problems:
        problems = {"name" if before is None else "schema": error.detail}
    return _form(request, before, texts, problems=problems, status=error.http_status)


def _form(
    request: PageRequest,
    before: EventType | None,
    texts: Mapping[str, str],
    *,
    problems: Mapping[str, str] | None = None,
    status: int = 200,
) -> Shown:
    return request.show(
        "event_type_form.html",
        status=status,
        before=before,
        at=_HERE if before is None else path(before.tenant, before.name),
        texts=texts,
        problems=problems or {},
        description_max=DESCRIPTION_CHARS_MAX,
    )


PAGES = (
    Page(path=_HERE, handler=types, use_case=EventTypes.page),
    Page(path=_HERE, handler=create, method="POST", use_case=EventTypes.create),
    Page(path=f"{_HERE}/openapi.json", handler=export, use_case=EventTypes.of_tenant),
    Page(path=f"{_HERE}/new", handler=new, use_case=EventTypes.create),
    Page(path=f"{_HERE}/{{tenant}}/{{id}}", handler=show, use_case=EventTypes.get),
    Page(
        path=f"{_HERE}/{{tenant}}/{{id}}", handler=change, method="POST", use_case=EventTypes.change
    ),
    Page(path=f"{_HERE}/{{tenant}}/{{id}}/edit", handler=edit, use_case=EventTypes.change),
    Page(
        path=f"{_HERE}/{{tenant}}/{{id}}/delete",
        handler=delete,
        method="POST",
        use_case=EventTypes.delete,
    ),
)
