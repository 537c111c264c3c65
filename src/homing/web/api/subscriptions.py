"""Subscriptions: create, list, show, change, delete, send a test event."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import asdict

from homing.app.subscriptions import Backfill, Drafted, Subscriptions
from homing.errors import BadRequest, Conflict, Invalid, NotFound, NotVerified, StoreUnavailable
from homing.model import show_id
from homing.policy.admission import SubscriptionDraft, patched, sent_by
from homing.policy.backfill import past_start
from homing.web.operation import PAGE, TENANT, Call, Operation
from homing.web.query import show_cursor
from homing.web.response import Response, json_response
from homing.web.schemas import (
    AttemptView,
    BackfillStarted,
    SubscriptionCreated,
    SubscriptionIn,
    SubscriptionPage,
    SubscriptionPatch,
    SubscriptionView,
    read_spec,
)
from homing.web.show import REPLAY, SUBSCRIPTION, attempt_view, subscription_view


async def create(call: Call) -> Response:
    given = call.content(SubscriptionIn)
    tenant = call.caller.tenant_or_default(None if given.tenant is UNSET else given.tenant)
    draft = SubscriptionDraft(tenant=tenant, secret=given.secret, **read_spec(given))
    past, problems = past_start(given.since, given.per_second, now=call.now)
    made, backfill = await call.app.subscriptions.create(
        call.caller, Drafted(draft, problems, past)
    )
    created = SubscriptionCreated(
        **asdict(subscription_view(made, call.app.signing_keys.published)),
        secret=made.secrets[0].value,
        backfill=None if backfill is None else _started(backfill),
    )
    location = f"/v1/subscriptions/{created.id}".encode()
    return json_response(created, status=201, headers=((b"location", location),))


def _started(it: Backfill) -> BackfillStarted:
    return BackfillStarted(show_id(REPLAY, it.job.id), it.count, it.exact)


async def list_subscriptions(call: Call) -> Response:
    query = call.query
    rows, after = await call.app.subscriptions.page(
        call.caller, tenant=query.tenant(), before_id=query.cursor(), limit=query.limit()
    )
    keys_of = call.app.signing_keys.published
    return json_response(
        SubscriptionPage(
            [subscription_view(row, keys_of, in_list=True) for row in rows], show_cursor(after)
        )
    )


async def get(call: Call) -> Response:
    found = await call.app.subscriptions.get(call.caller, call.number(SUBSCRIPTION))
    return json_response(subscription_view(found, call.app.signing_keys.published))


async def change(call: Call) -> Response:
    given = call.content(SubscriptionPatch)
    secret, changes = None if given.secret is UNSET else given.secret, read_spec(given)
    after = await call.app.subscriptions.change(
        call.caller,
        call.number(SUBSCRIPTION),
        lambda before: Drafted(patched(before, changes, secret=secret), sent=sent_by(changes)),
    )
    return json_response(subscription_view(after, call.app.signing_keys.published))


async def delete(call: Call) -> Response:
    await call.app.subscriptions.delete(call.caller, call.number(SUBSCRIPTION))
    return Response(204)


async def verify(call: Call) -> Response:
    after = await call.app.subscriptions.verify(call.caller, call.number(SUBSCRIPTION))
    return json_response(subscription_view(after, call.app.signing_keys.published))


async def pause(call: Call) -> Response:
    after = await call.app.subscriptions.pause(call.caller, call.number(SUBSCRIPTION))
    return json_response(subscription_view(after, call.app.signing_keys.published))


async def resume(call: Call) -> Response:
    after = await call.app.subscriptions.resume(call.caller, call.number(SUBSCRIPTION))
    return json_response(subscription_view(after, call.app.signing_keys.published))


async def test(call: Call) -> Response:
    attempt = await call.app.subscriptions.test(call.caller, call.number(SUBSCRIPTION))
    return json_response(attempt_view(attempt))


_ONE = "/v1/subscriptions/{id}"

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/subscriptions",
        id="createSubscription",
        use_case=Subscriptions.create,
        summary=(
            "Create a subscription; its secret is shown in this response and never again. With "
            "from, a job that delivers past events is created with it."
        ),
        handler=create,
        status=201,
        request=SubscriptionIn,
        response=SubscriptionCreated,
        errors=(BadRequest, Invalid, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path="/v1/subscriptions",
        id="listSubscriptions",
        use_case=Subscriptions.page,
        summary="Subscriptions, newest first.",
        handler=list_subscriptions,
        response=SubscriptionPage,
        params=(TENANT, *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path=_ONE,
        id="getSubscription",
        use_case=Subscriptions.get,
        summary="One subscription.",
        handler=get,
        response=SubscriptionView,
        errors=(NotFound,),
    ),
    Operation(
        method="PATCH",
        path=_ONE,
        id="changeSubscription",
        use_case=Subscriptions.change,
        summary=(
            "Change the given fields; pending deliveries use the new values. A URL at another "
            "origin needs the token, password, client key and headers again, or null for them."
        ),
        handler=change,
        request=SubscriptionPatch,
        response=SubscriptionView,
        errors=(BadRequest, Conflict, NotFound, Invalid, StoreUnavailable),
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        id="deleteSubscription",
        use_case=Subscriptions.delete,
        summary="Delete a subscription; pending deliveries are cancelled, no new attempt starts.",
        handler=delete,
        status=204,
        errors=(NotFound, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/verify",
        id="verifySubscription",
        use_case=Subscriptions.verify,
        summary="Ask the receiver now to prove that it owns the URL, as its `verification` says.",
        handler=verify,
        response=SubscriptionView,
        errors=(NotFound, Conflict, NotVerified, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/pause",
        id="pauseSubscription",
        use_case=Subscriptions.pause,
        summary="Pause it: events are accepted and wait, windows do not run, no attempt starts.",
        handler=pause,
        response=SubscriptionView,
        errors=(NotFound, Conflict, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/resume",
        id="resumeSubscription",
        use_case=Subscriptions.resume,
        summary="End a pause: due times and windows have moved by its length.",
        handler=resume,
        response=SubscriptionView,
        errors=(NotFound, Conflict, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/test",
        id="testSubscription",
        use_case=Subscriptions.test,
        summary="Send a test event now, in any state of the endpoint; its health is not affected.",
        handler=test,
        response=AttemptView,
        errors=(NotFound, Conflict, StoreUnavailable),
    ),
)
