"""The two buttons of the first steps: add the built-in receiver, and send it a test event."""

from __future__ import annotations

from msgspec.json import encode

from homing.app.publishing import Publishing
from homing.app.subscriptions import Drafted, Subscriptions
from homing.errors import Conflict, NotFound
from homing.policy.admission import EventDraft, SubscriptionDraft
from homing.web.dashboard.first_steps import EVENT_TYPE
from homing.web.dashboard.request import Page, PageRequest
from homing.web.response import Response


async def add_receiver(request: PageRequest) -> Response:
    app, caller = request.app, request.caller
    if not app.built_in_receiver.available:
        raise NotFound("This process has no built-in receiver.")
    tenant = caller.tenant_or_default(request.field("tenant") or None)
    if await app.built_in_receiver.only_subscription(caller, tenant=tenant) is not None:
        raise Conflict("The tenant has the built-in receiver already.")
    draft = SubscriptionDraft(
        tenant=tenant,
        url=app.built_in_receiver.url(tenant),
        types=("*",),
        description="The built-in receiver",
    )
    await app.subscriptions.create(caller, Drafted(draft))
    return request.done("The built-in receiver is ready.", to="/")


async def send_event(request: PageRequest) -> Response:
    tenant = request.caller.tenant_or_default(request.field("tenant") or None)
    data = {"message": "Hello from Homing", "sent_by": request.caller.by}
    draft = EventDraft(tenant=tenant, type=EVENT_TYPE, data=encode(data))
    await request.app.publishing.publish(request.caller, [draft])
    return request.done("Test event sent.", to="/")


PAGES = (
    Page(
        path="/first-steps/receiver",
        handler=add_receiver,
        method="POST",
        use_case=Subscriptions.create,
    ),
    Page(path="/first-steps/event", handler=send_event, method="POST", use_case=Publishing.publish),
)
