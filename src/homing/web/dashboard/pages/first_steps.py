"""The two buttons of the first steps: add the built-in receiver, and send it a test event."""

from __future__ import annotations

from msgspec.json import encode

from homing.app.built_in_receiver import BuiltInReceiver
from homing.app.publishing import Publishing
from homing.languages.sentences import say
from homing.policy.admission import EventDraft
from homing.web.dashboard.first_steps import EVENT_TYPE
from homing.web.dashboard.request import Page, PageRequest
from homing.web.response import Response


async def add_receiver(request: PageRequest) -> Response:
    tenant = request.field("tenant") or None
    await request.app.built_in_receiver.add(request.caller, tenant=tenant)
    return request.done(say("The built-in receiver is ready."), to="/")


async def send_event(request: PageRequest) -> Response:
    tenant = request.caller.tenant_or_default(request.field("tenant") or None)
    data = {"message": "Hello from Homing", "sent_by": request.caller.by}
    draft = EventDraft(tenant=tenant, type=EVENT_TYPE, data=encode(data), key=request.once_id())
    await request.app.publishing.publish(request.caller, [draft])
    return request.done(say("Test event sent."), to="/")


PAGES = (
    Page(
        path="/first-steps/receiver",
        handler=add_receiver,
        method="POST",
        use_case=BuiltInReceiver.add,
    ),
    Page(path="/first-steps/event", handler=send_event, method="POST", use_case=Publishing.publish),
)
