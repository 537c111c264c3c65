"""Tenants: a caller of all tenants chooses one, whose lists the pages then show."""

from __future__ import annotations

from homing.app.tenants import Tenants
from homing.errors import Invalid
from homing.policy.admission import tenant_problem
from homing.web.dashboard.request import HTML, TENANT_COOKIE, Page, PageRequest, Shown, is_secure
from homing.web.response import Response

SHOWN_MAX = 200
LIFE_S = 12 * 3_600


async def tenants(request: PageRequest) -> Shown:
    text = request.query.text("q")[:64]
    found = await request.app.tenants.page(request.caller, text=text)
    return request.show(
        "tenants.html", rows=found[:SHOWN_MAX], more=max(len(found) - SHOWN_MAX, 0), text=text
    )


async def choose(request: PageRequest) -> Response:
    """Keeps the choice in a cookie; it limits what is shown, not what the caller may do."""
    tenant = request.field("tenant")
    if tenant and (problems := tuple(tenant_problem(tenant))):
        raise Invalid(problems=problems)
    life, secure = LIFE_S if tenant else 0, "; Secure" if is_secure(request.headers) else ""
    cookie = f"{TENANT_COOKIE}={tenant}; Path=/; Max-Age={life}; HttpOnly; SameSite=Strict{secure}"
    headers = ((b"location", b"/"), (b"set-cookie", cookie.encode()))
    return Response(303, b"", HTML, headers)


PAGES = (
    Page(path="/tenants", handler=tenants, use_case=Tenants.page),
    Page(path="/tenants", handler=choose, method="POST", use_case=Tenants.page, any_tenant=True),
)
