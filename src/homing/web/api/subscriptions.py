"""Subscriptions: create, look at, change, delete, and send a test."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import asdict

from homing.errors import BadRequest, Conflict, Invalid, NotFound, StoreUnavailable
from homing.model import Subscription
from homing.policy.admission import (
    DEFAULT_TENANT,
    SubscriptionDraft,
    check_subscription,
    patched,
)
from homing.web import commands
from homing.web.answer import Answer, json_answer
from homing.web.auth import MANAGERS, READERS
from homing.web.operation import PAGE, TENANT, Call, Operation
from homing.web.query import show_cursor
from homing.web.schemas import (
    AttemptView,
    SubscriptionCreated,
    SubscriptionIn,
    SubscriptionPage,
    SubscriptionPatch,
    SubscriptionView,
    read_spec,
)
from homing.web.show import SUBSCRIPTION, attempt_view, subscription_view


async def create(call: Call) -> Answer:
    given = call.content(SubscriptionIn)
    tenant = call.who.tenant or DEFAULT_TENANT if given.tenant is UNSET else given.tenant
    draft = SubscriptionDraft(tenant=tenant, secret=given.secret, **read_spec(given))
    options = call.parts.options
    draft = check_subscription(draft, policies=options.policies, refuses=options.refuses)
    subscription = await commands.subscribe(call.parts, call.who, draft)
    view = subscription_view(subscription)
    created = SubscriptionCreated(**asdict(view), secret=subscription.secrets[0].value)
    location = f"/v1/subscriptions/{view.id}".encode()
    return json_answer(created, status=201, headers=((b"location", location),))


async def list_subscriptions(call: Call) -> Answer:
    query = call.query
    rows, after = await call.parts.views.subscriptions(
        tenant=query.tenant(), before_id=query.cursor(), limit=query.limit()
    )
    return json_answer(
        SubscriptionPage([subscription_view(row) for row in rows], show_cursor(after))
    )


async def get(call: Call) -> Answer:
    return json_answer(subscription_view(await there(call)))


async def change(call: Call) -> Answer:
    given = call.content(SubscriptionPatch)
    options = call.parts.options
    changes = read_spec(given)
    refuses = options.refuses if "url" in changes else None

    def draft(before: Subscription) -> SubscriptionDraft:
        secret = None if given.secret is UNSET else given.secret
        wanted = patched(before, changes, secret=secret)
        return check_subscription(wanted, policies=options.policies, refuses=refuses, before=before)

    after = await call.parts.engine.change((await there(call)).id, draft)
    return json_answer(subscription_view(after))


async def delete(call: Call) -> Answer:
    await call.parts.engine.unsubscribe((await there(call)).id)
    return Answer(204)


async def test(call: Call) -> Answer:
    attempt = await call.parts.engine.test_send((await there(call)).id)
    return json_answer(attempt_view(attempt))


async def there(call: Call) -> Subscription:
    """The one that the path names, if this caller may see it; raises NotFound."""
    subscription = await call.parts.views.subscription(call.number(SUBSCRIPTION))
    if (
        subscription is None
        or subscription.deleted_at is not None
        or not call.who.sees(subscription.tenant)
    ):
        raise NotFound("There is no such subscription.")
    return subscription


_ONE = "/v1/subscriptions/{id}"

OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/subscriptions",
        id="createSubscription",
        roles=MANAGERS,
        summary="Create a subscription; its secret is shown in this answer and never again.",
        handler=create,
        status=201,
        request=SubscriptionIn,
        answer=SubscriptionCreated,
        errors=(BadRequest, Invalid, StoreUnavailable),
    ),
    Operation(
        method="GET",
        path="/v1/subscriptions",
        id="listSubscriptions",
        roles=READERS,
        summary="Subscriptions, newest first.",
        handler=list_subscriptions,
        answer=SubscriptionPage,
        params=(TENANT, *PAGE),
        errors=(Invalid,),
    ),
    Operation(
        method="GET",
        path=_ONE,
        id="getSubscription",
        roles=READERS,
        summary="One subscription.",
        handler=get,
        answer=SubscriptionView,
        errors=(NotFound,),
    ),
    Operation(
        method="PATCH",
        path=_ONE,
        id="changeSubscription",
        roles=MANAGERS,
        summary="Change what is given; what is pending goes by the new values.",
        handler=change,
        request=SubscriptionPatch,
        answer=SubscriptionView,
        errors=(BadRequest, Conflict, NotFound, Invalid, StoreUnavailable),
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        id="deleteSubscription",
        roles=MANAGERS,
        summary="Delete it; no attempt starts after the answer, what is pending is cancelled.",
        handler=delete,
        status=204,
        errors=(NotFound, StoreUnavailable),
    ),
    Operation(
        method="POST",
        path=_ONE + "/test",
        id="testSubscription",
        roles=MANAGERS,
        summary="Make one signed attempt now, in every state; it is logged and counts for nothing.",
        handler=test,
        answer=AttemptView,
        errors=(NotFound, StoreUnavailable),
    ),
)
