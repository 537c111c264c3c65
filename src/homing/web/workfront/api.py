"""``/attask/eventsubscription/api/v1/subscriptions``: the Workfront-compatible API.

It shows only subscriptions that were created through it. Where Adobe's documentation leaves a
choice open, Homing does what breaks no client: docs/howto/develop-a-workfront-integration.md.
"""

from __future__ import annotations

from msgspec import Struct, UnsetType

from homing.app.workfront import WorkfrontSubscriptions
from homing.errors import (
    BadRequest,
    DuplicateSubscription,
    FieldProblem,
    Invalid,
    NotFound,
    StoreUnavailable,
)
from homing.model import Subscription
from homing.policy.exact import encode
from homing.policy.workfront_ids import SUBSCRIPTION, read_either_id, show_uuid
from homing.web.operation import Call, Operation, Param
from homing.web.response import Response
from homing.web.show import warnings_of
from homing.web.workfront.auth_scheme import AUTH_SCHEME
from homing.web.workfront.create import draft_from, with_workfront_names
from homing.web.workfront.schemas import (
    Created,
    Meta,
    OldSubscription,
    SubscriptionList,
    SubscriptionOut,
    UrlIn,
    UrlRecord,
    VersionIn,
    VersionsIn,
    VersionsOut,
    WorkfrontSubscriptionIn,
)
from homing.web.workfront.show import (
    created,
    old_subscription,
    subscription_out,
    url_record,
)

BASE = "/attask/eventsubscription/api/v1/subscriptions"
LIMIT_DEFAULT, LIMIT_MAX = 100, 1_000
_JSON = "application/json;charset=UTF-8"
_CUSTOMER = Param("customerId", "The tenant; only for admin keys, with the default `default`.")


def _response(
    content: Struct | list[Struct], *, status: int = 200, location: str | None = None
) -> Response:
    headers = () if location is None else ((b"location", location.encode()),)
    return Response(status, encode(content), _JSON.encode(), headers)


def _tenant(call: Call) -> str | None:
    """The tenant, which Workfront calls a customer; None if the request does not name one."""
    return call.query.text(_CUSTOMER.name) or None


async def create(call: Call) -> Response:
    given = call.content(WorkfrontSubscriptionIn)
    draft = draft_from(given, call.caller.tenant_or_default(_tenant(call)))
    try:
        made = await call.app.workfront.create(call.caller, draft)
    except Invalid as error:
        raise with_workfront_names(error) from None
    shown = created(made)
    return _response(shown, status=201, location=f"{call.site}{BASE}/{shown.id}")


async def list_page(call: Call) -> Response:
    limit = call.query.count("limit", default=LIMIT_DEFAULT, maximum=LIMIT_MAX)
    page = call.query.count("page", default=1, maximum=10**9)
    found = await call.app.workfront.of_tenant(call.caller, tenant=_tenant(call))
    shown = found[(page - 1) * limit : page * limit]
    endpoints = await call.app.workfront.endpoints_of(call.caller, shown)
    items = [subscription_out(one, endpoints[one.endpoint_id], in_list=True) for one in shown]
    meta = Meta(page, -(-len(found) // limit), limit, len(found))
    return _response(SubscriptionList(items, meta))


async def list_old(call: Call) -> Response:
    found = await call.app.workfront.of_tenant(call.caller, tenant=_tenant(call))
    return _response([old_subscription(one) for one in found])


async def get(call: Call) -> Response:
    return await _shown(call, await call.app.workfront.get(call.caller, call.number(SUBSCRIPTION)))


async def delete(call: Call) -> Response:
    await call.app.workfront.delete(call.caller, call.number(SUBSCRIPTION))
    return Response(200, b"", _JSON.encode())


async def change_version(call: Call) -> Response:
    version, number = call.content(VersionIn).version, call.number(SUBSCRIPTION)
    changed = await call.app.workfront.change_version(call.caller, number, version)
    return _response(created(changed))


async def change_versions(call: Call) -> Response:
    given = call.content(VersionsIn)
    changed = await call.app.workfront.change_versions(
        call.caller, given.version, tenant=_tenant(call), ids=_ids(given)
    )
    ids = [show_uuid(one.id) for one in changed]
    told = {show_uuid(one.id): found for one in changed if (found := warnings_of(one))}
    return _response(VersionsOut(ids, given.version, told))


async def enable(call: Call) -> Response:
    found = await call.app.workfront.enable(call.caller, call.number(SUBSCRIPTION))
    return await _shown(call, found)


async def enable_url(call: Call) -> Response:
    url = call.content(UrlIn).url
    endpoint = await call.app.workfront.enable_url(call.caller, url, tenant=_tenant(call))
    return _response(url_record(endpoint))


async def _shown(call: Call, subscription: Subscription) -> Response:
    endpoints = await call.app.workfront.endpoints_of(call.caller, [subscription])
    return _response(subscription_out(subscription, endpoints[subscription.endpoint_id]))


def _ids(given: VersionsIn) -> list[int | None] | None:
    """The ids in the request, None in place of an invalid one; None: all subscriptions."""
    everything = given.everything is True
    if everything is not isinstance(given.ids, UnsetType):
        reason = "must be given, or allCustomerSubscriptions true, and not both"
        raise Invalid(problems=(FieldProblem("subscriptionIds", reason),))
    if isinstance(given.ids, UnsetType):
        return None
    return [read_either_id(SUBSCRIPTION, name) for name in given.ids]


_PAGE = (
    _CUSTOMER,
    Param("page", "Page number; default 1.", {"type": "integer", "minimum": 1, "default": 1}),
    Param(
        "limit",
        f"Items per page; default {LIMIT_DEFAULT}, at most {LIMIT_MAX}.",
        {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
    ),
)

# Paths without an id come first: otherwise a word like `list` would be taken for an id.
OPERATIONS = (
    Operation(
        method="POST",
        path=BASE,
        id="workfrontCreate",
        use_case=WorkfrontSubscriptions.create,
        summary="Create a subscription to one kind of event of one kind of object.",
        handler=create,
        status=201,
        params=(_CUSTOMER,),
        request=WorkfrontSubscriptionIn,
        response=Created,
        response_type=_JSON,
        errors=(BadRequest, DuplicateSubscription, StoreUnavailable),
        auth_scheme=AUTH_SCHEME,
    ),
    Operation(
        method="GET",
        path=BASE,
        id="workfrontList",
        use_case=WorkfrontSubscriptions.of_tenant,
        summary="A page of the subscriptions, oldest first.",
        handler=list_page,
        response=SubscriptionList,
        response_type=_JSON,
        params=_PAGE,
        errors=(BadRequest,),
        auth_scheme=AUTH_SCHEME,
    ),
    Operation(
        method="GET",
        path=f"{BASE}/list",
        id="workfrontListOld",
        use_case=WorkfrontSubscriptions.of_tenant,
        summary="All subscriptions in the old format; deprecated by Adobe.",
        handler=list_old,
        each=OldSubscription,
        params=(_CUSTOMER,),
        response_type=_JSON,
        errors=(BadRequest,),
        auth_scheme=AUTH_SCHEME,
    ),
    Operation(
        method="PUT",
        path=f"{BASE}/version",
        id="workfrontChangeVersions",
        use_case=WorkfrontSubscriptions.change_versions,
        summary="Change the version of several; for five minutes both versions are sent.",
        handler=change_versions,
        params=(_CUSTOMER,),
        request=VersionsIn,
        response=VersionsOut,
        response_type=_JSON,
        errors=(BadRequest, StoreUnavailable),
        auth_scheme=AUTH_SCHEME,
    ),
    Operation(
        method="PUT",
        path=f"{BASE}/enable",
        id="workfrontEnableUrl",
        use_case=WorkfrontSubscriptions.enable_url,
        summary="Enable a URL that is disabled or frozen.",
        handler=enable_url,
        params=(_CUSTOMER,),
        request=UrlIn,
        response=UrlRecord,
        response_type=_JSON,
        errors=(BadRequest, NotFound, StoreUnavailable),
        auth_scheme=AUTH_SCHEME,
    ),
    Operation(
        method="GET",
        path=BASE + "/{id}",
        id="workfrontGet",
        use_case=WorkfrontSubscriptions.get,
        summary="A subscription with the health of its URL.",
        handler=get,
        response=SubscriptionOut,
        response_type=_JSON,
        errors=(NotFound,),
        auth_scheme=AUTH_SCHEME,
    ),
    Operation(
        method="DELETE",
        path=BASE + "/{id}",
        id="workfrontDelete",
        use_case=WorkfrontSubscriptions.delete,
        summary="Delete a subscription; its pending deliveries are cancelled.",
        handler=delete,
        response_type=_JSON,
        errors=(NotFound, StoreUnavailable),
        auth_scheme=AUTH_SCHEME,
    ),
    Operation(
        method="PUT",
        path=BASE + "/{id}/version",
        id="workfrontChangeVersion",
        use_case=WorkfrontSubscriptions.change_version,
        summary="Change the version of one; for five minutes both versions are sent.",
        handler=change_version,
        request=VersionIn,
        response=Created,
        response_type=_JSON,
        errors=(BadRequest, NotFound, StoreUnavailable),
        auth_scheme=AUTH_SCHEME,
    ),
    Operation(
        method="PUT",
        path=BASE + "/{id}/enable",
        id="workfrontEnable",
        use_case=WorkfrontSubscriptions.enable,
        summary="Enable the URL of a subscription; an extension that Adobe does not document.",
        handler=enable,
        response=SubscriptionOut,
        response_type=_JSON,
        errors=(NotFound, StoreUnavailable),
        auth_scheme=AUTH_SCHEME,
    ),
)
