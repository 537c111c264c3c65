"""API keys: a list with their scope and last use; create and revoke."""

from __future__ import annotations

from homing.app.keys import Keys
from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import say
from homing.policy.keys import NAME_LENGTH_MAX, Role
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.query import show_cursor
from homing.web.response import Response

KEY = "key"
SHOWN = 50
_HERE = "/keys"


async def show(request: PageRequest) -> Shown:
    before_id = request.query.cursor()
    keys, after = await request.app.keys.page(
        request.caller, tenant=None, before_id=before_id, limit=SHOWN
    )
    secret, headers = request.one_time_secret()
    return request.show(
        "keys.html",
        headers=headers,
        secret=secret,
        keys=keys,
        roles=list(Role),
        name_max=NAME_LENGTH_MAX,
        older="" if after is None else f"?cursor={show_cursor(after)}",
        first=before_id is None,
    )


async def create(request: PageRequest) -> Response:
    role = request.field("role")
    if role not in set(Role):
        reason = say("must be one of {names}", names=", ".join(Role))
        raise Invalid(problems=(FieldProblem("role", reason),))
    has_tenant = role not in {Role.ADMIN, Role.METRICS}
    _, text = await request.app.keys.create(
        request.caller,
        request.field("name"),
        Role(role),
        tenant=(request.field("tenant") or None) if has_tenant else None,
        expires=request.field("expires") or None,
    )
    return request.done(say("Key created."), to=_HERE, secret=text)


async def revoke(request: PageRequest) -> Response:
    await request.app.keys.revoke(request.caller, request.number(KEY))
    return request.done(say("Key revoked: it no longer works."), to=_HERE)


PAGES = (
    Page(path=_HERE, handler=show, use_case=Keys.page),
    Page(path=_HERE, handler=create, method="POST", use_case=Keys.create),
    Page(path=f"{_HERE}/{{id}}/revoke", handler=revoke, method="POST", use_case=Keys.revoke),
)
