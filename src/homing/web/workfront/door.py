"""``/attask/eventsubscription/api/v1/subscriptions``: every operation of the Workfront door.

Only subscriptions that were made here are seen here. What Adobe leaves open was chosen so that no
client breaks; docs/howto/develop-a-workfront-integration.md lists the choices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from msgspec import Struct, UnsetType

from homing.errors import (
    BadRequest,
    DuplicateSubscription,
    FieldProblem,
    Invalid,
    NotFound,
    StoreUnavailable,
)
from homing.model import Endpoint, Subscription, show_id
from homing.policy.admission import DEFAULT_TENANT, check_subscription
from homing.policy.exact import encode
from homing.policy.url import parse_url
from homing.policy.workfront import VERSIONS
from homing.web import commands
from homing.web.answer import Answer
from homing.web.auth import MANAGERS, READERS
from homing.web.operation import Call, Operation, Param
from homing.web.query import NO_TENANT
from homing.web.show import SUBSCRIPTION
from homing.web.workfront import versions
from homing.web.workfront.create import draft_from, in_their_words, refuse_duplicate
from homing.web.workfront.manners import MANNERS
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
from homing.web.workfront.show import old_subscription, subscription_out, url_record

BASE = "/attask/eventsubscription/api/v1/subscriptions"
LIMIT_DEFAULT, LIMIT_MOST = 100, 1_000
_JSON = "application/json;charset=UTF-8"
_CUSTOMER = Param("customerId", "Whose; only for an admin's key, whose default is `default`.")


def _answer(
    content: Struct | list[Struct], *, status: int = 200, location: str | None = None
) -> Answer:
    headers = () if location is None else ((b"location", location.encode()),)
    return Answer(status, encode(content), _JSON.encode(), headers)


def _tenant(call: Call) -> str:
    """Workfront's customer: the tenant of the key; an admin may name one."""
    given = call.query.text(_CUSTOMER.name) or None
    if call.who.tenant is None:
        return given or DEFAULT_TENANT
    return call.who.tenant if given in {None, call.who.tenant} else NO_TENANT


async def create(call: Call) -> Answer:
    given = call.content(WorkfrontSubscriptionIn)
    tenant, options = _tenant(call), call.parts.options
    call.who.writes(tenant)
    draft = draft_from(given, tenant)
    try:
        draft = check_subscription(draft, policies=options.policies, refuses=options.refuses)
    except Invalid as error:
        raise in_their_words(error) from None

    async def check() -> None:
        refuse_duplicate(draft, await versions.door_subscriptions(call.parts, tenant))

    made = await commands.subscribe(call.parts, call.who, draft, check=check)
    shown = show_id(SUBSCRIPTION, made.id)
    version = made.workfront.version if made.workfront is not None else ""
    return _answer(Created(shown, version), status=201, location=f"{call.site}{BASE}/{shown}")


async def list_page(call: Call) -> Answer:
    limit = call.query.count("limit", default=LIMIT_DEFAULT, most=LIMIT_MOST)
    page = call.query.count("page", default=1, most=10**9)
    found = await _all(call)
    shown = found[(page - 1) * limit : page * limit]
    endpoints = await _endpoints(call, shown)
    items = [subscription_out(one, endpoints[one.endpoint_id]) for one in shown]
    meta = Meta(page, -(-len(found) // limit), limit, len(found))
    return _answer(SubscriptionList(items, meta))


async def list_old(call: Call) -> Answer:
    return _answer([old_subscription(one) for one in await _all(call)])


async def get(call: Call) -> Answer:
    return await _shown(call, await _there(call))


async def delete(call: Call) -> Answer:
    await call.parts.engine.unsubscribe((await _there(call)).id)
    return Answer(200, b"", _JSON.encode())


async def change_version(call: Call) -> Answer:
    version = _version(call.content(VersionIn).version)
    async with call.parts.subscribing:
        subscription = await _there(call)
        await call.parts.engine.change_version(subscription.id, version)
    return _answer(Created(show_id(SUBSCRIPTION, subscription.id), version))


async def change_versions(call: Call) -> Answer:
    given = call.content(VersionsIn)
    version = _version(given.version)
    async with call.parts.subscribing:
        chosen = _chosen(given, await _all(call))
        await asyncio.gather(*(call.parts.engine.change_version(it.id, version) for it in chosen))
    return _answer(VersionsOut([show_id(SUBSCRIPTION, one.id) for one in chosen], version))


async def enable(call: Call) -> Answer:
    subscription = await _there(call)
    await call.parts.engine.enable(subscription.endpoint_id, by=call.who.name)
    return await _shown(call, subscription)


async def enable_url(call: Call) -> Answer:
    url, _ = parse_url(call.content(UrlIn).url)
    for one in await _all(call):
        if one.url == url:
            endpoint = await call.parts.engine.enable(one.endpoint_id, by=call.who.name)
            return _answer(url_record(endpoint))
    raise NotFound("No subscription has this URL.")


async def _all(call: Call) -> list[Subscription]:
    """The tenant's, oldest first."""
    found = await versions.door_subscriptions(call.parts, _tenant(call))
    return [one for one in found if one.workfront is not None and one.workfront.twin_of is None]


async def _there(call: Call) -> Subscription:
    found = await call.parts.views.subscription(call.number(SUBSCRIPTION))
    there = found is not None and found.deleted_at is None and call.who.sees(found.tenant)
    if found is None or not there or found.workfront is None or found.workfront.twin_of is not None:
        raise NotFound("There is no such subscription.")
    return found


async def _shown(call: Call, subscription: Subscription) -> Answer:
    endpoints = await _endpoints(call, [subscription])
    return _answer(subscription_out(subscription, endpoints[subscription.endpoint_id]))


async def _endpoints(call: Call, shown: Iterable[Subscription]) -> dict[int, Endpoint]:
    found: dict[int, Endpoint] = {}
    for number in {one.endpoint_id for one in shown}:
        endpoint = await call.parts.views.endpoint(number)
        assert endpoint is not None, "a subscription has an endpoint"
        found[number] = endpoint
    return found


def _version(given: str) -> str:
    if given not in VERSIONS:
        raise Invalid(problems=(FieldProblem("version", "must be v1 or v2"),))
    return given


def _chosen(given: VersionsIn, found: list[Subscription]) -> list[Subscription]:
    """Either those that are named, all of which must be there, or all."""
    everything = given.everything is True
    if everything is not isinstance(given.ids, UnsetType):
        reason = "must be given, or allCustomerSubscriptions true, and not both"
        raise Invalid(problems=(FieldProblem("subscriptionIds", reason),))
    if everything or isinstance(given.ids, UnsetType):
        return found
    there = {show_id(SUBSCRIPTION, one.id): one for one in found}
    problems = tuple(
        FieldProblem(f"subscriptionIds[{index}]", "is not the id of a subscription")
        for index, name in enumerate(given.ids)
        if name not in there
    )
    if problems:
        raise Invalid(problems=problems[:100])
    return [there[name] for name in dict.fromkeys(given.ids)]


_PAGE = (
    _CUSTOMER,
    Param("page", "Which page; default 1.", {"type": "integer", "minimum": 1, "default": 1}),
    Param(
        "limit",
        f"How many on a page; default {LIMIT_DEFAULT}, at most {LIMIT_MOST}.",
        {"type": "integer", "minimum": 1, "maximum": LIMIT_MOST, "default": LIMIT_DEFAULT},
    ),
)

# The paths without an id first: an id could be any of their words.
OPERATIONS = (
    Operation(
        method="POST",
        path=BASE,
        id="workfrontCreate",
        roles=MANAGERS,
        summary="Create a subscription to one kind of event of one kind of object.",
        handler=create,
        status=201,
        params=(_CUSTOMER,),
        request=WorkfrontSubscriptionIn,
        answer=Created,
        answer_type=_JSON,
        errors=(BadRequest, DuplicateSubscription, StoreUnavailable),
        manners=MANNERS,
    ),
    Operation(
        method="GET",
        path=BASE,
        id="workfrontList",
        roles=READERS,
        summary="A page of the subscriptions, oldest first.",
        handler=list_page,
        answer=SubscriptionList,
        answer_type=_JSON,
        params=_PAGE,
        errors=(BadRequest,),
        manners=MANNERS,
    ),
    Operation(
        method="GET",
        path=f"{BASE}/list",
        id="workfrontListOld",
        roles=READERS,
        summary="All subscriptions in the old form; deprecated by Adobe.",
        handler=list_old,
        each=OldSubscription,
        params=(_CUSTOMER,),
        answer_type=_JSON,
        errors=(BadRequest,),
        manners=MANNERS,
    ),
    Operation(
        method="PUT",
        path=f"{BASE}/version",
        id="workfrontChangeVersions",
        roles=MANAGERS,
        summary="Change the version of many; for five minutes both versions are sent.",
        handler=change_versions,
        params=(_CUSTOMER,),
        request=VersionsIn,
        answer=VersionsOut,
        answer_type=_JSON,
        errors=(BadRequest, StoreUnavailable),
        manners=MANNERS,
    ),
    Operation(
        method="PUT",
        path=f"{BASE}/enable",
        id="workfrontEnableUrl",
        roles=MANAGERS,
        summary="Enable a URL that is disabled or frozen.",
        handler=enable_url,
        params=(_CUSTOMER,),
        request=UrlIn,
        answer=UrlRecord,
        answer_type=_JSON,
        errors=(BadRequest, NotFound, StoreUnavailable),
        manners=MANNERS,
    ),
    Operation(
        method="GET",
        path=BASE + "/{id}",
        id="workfrontGet",
        roles=READERS,
        summary="One subscription, with its URL's health.",
        handler=get,
        answer=SubscriptionOut,
        answer_type=_JSON,
        errors=(NotFound,),
        manners=MANNERS,
    ),
    Operation(
        method="DELETE",
        path=BASE + "/{id}",
        id="workfrontDelete",
        roles=MANAGERS,
        summary="Delete it; what is pending is cancelled.",
        handler=delete,
        answer_type=_JSON,
        errors=(NotFound, StoreUnavailable),
        manners=MANNERS,
    ),
    Operation(
        method="PUT",
        path=BASE + "/{id}/version",
        id="workfrontChangeVersion",
        roles=MANAGERS,
        summary="Change its version; for five minutes both versions are sent.",
        handler=change_version,
        request=VersionIn,
        answer=Created,
        answer_type=_JSON,
        errors=(BadRequest, NotFound, StoreUnavailable),
        manners=MANNERS,
    ),
    Operation(
        method="PUT",
        path=BASE + "/{id}/enable",
        id="workfrontEnable",
        roles=MANAGERS,
        summary="Enable its URL; this request is ours, Adobe documents none.",
        handler=enable,
        answer=SubscriptionOut,
        answer_type=_JSON,
        errors=(NotFound, StoreUnavailable),
        manners=MANNERS,
    ),
)
