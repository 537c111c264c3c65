"""Subscriptions that were created through the Workfront-compatible API, which shows no others.

When a version changes, a second subscription, the twin, keeps sending the old version for five
minutes (``policy.workfront``). Its requests carry the id of the first. Every change of the first is
also made to the twin in the same commit, and both are deleted together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from homing.app.access import MANAGERS, READERS, Caller, use_case
from homing.app.subscriptions import Drafted, Subscriptions
from homing.engine.engine import Engine
from homing.errors import DuplicateSubscription, FieldProblem, Invalid, NotFound
from homing.model import Endpoint, Subscription, Workfront
from homing.policy.admission import SubscriptionDraft, draft_of
from homing.policy.url import parse_url
from homing.policy.workfront import VERSIONS
from homing.ports import ViewStore

_PAGE = 1_000
_PROBLEMS_MAX = 100


class WorkfrontSubscriptions:
    """Subscriptions with a version and otherwise like all others."""

    def __init__(self, engine: Engine, views: ViewStore, subscriptions: Subscriptions) -> None:
        self._engine, self._views, self._subscriptions = engine, views, subscriptions

    @use_case(MANAGERS, changes=True)
    async def create(self, caller: Caller, draft: SubscriptionDraft) -> Subscription:
        """Creates a subscription; raises DuplicateSubscription if an equal one exists."""

        async def no_equal_one(wanted: SubscriptionDraft) -> None:
            others = [draft_of(it) for it in await self._of_tenant(wanted.tenant)]
            if _fields(wanted) in map(_fields, others):
                raise DuplicateSubscription

        return await self._subscriptions.add(caller, Drafted(draft), condition=no_equal_one)

    @use_case(READERS)
    async def of_tenant(self, caller: Caller, *, tenant: str | None) -> list[Subscription]:
        """All subscriptions of one tenant, oldest first."""
        return await self._of_tenant(caller.scope_one(tenant))

    @use_case(READERS)
    async def get(self, caller: Caller, subscription_id: int) -> Subscription:
        """The subscription; raises NotFound."""
        return await self._visible(caller, subscription_id)

    @use_case(READERS)
    async def endpoints_of(
        self, caller: Caller, subscriptions: Sequence[Subscription]
    ) -> dict[int, Endpoint]:
        """The endpoints of these subscriptions by id."""
        found: dict[int, Endpoint] = {}
        for number in {one.endpoint_id for one in subscriptions}:
            endpoint = await self._views.endpoint(number)
            assert endpoint is not None, "a subscription has an endpoint"
            assert caller.sees(endpoint.tenant)
            found[number] = endpoint
        return found

    @use_case(MANAGERS, changes=True)
    async def delete(self, caller: Caller, subscription_id: int) -> None:
        """Deletes a subscription and its twin; raises NotFound."""
        await self._visible(caller, subscription_id)
        await self._engine.unsubscribe(subscription_id)

    @use_case(MANAGERS, changes=True)
    async def change_version(
        self, caller: Caller, subscription_id: int, version: str
    ) -> Subscription:
        """Sends another version from now on, and the old one as well for five minutes."""
        _check_version(version)
        await self._visible(caller, subscription_id)
        return await self._engine.change_version(subscription_id, version)

    @use_case(MANAGERS, changes=True)
    async def change_versions(
        self,
        caller: Caller,
        version: str,
        *,
        tenant: str | None,
        ids: Sequence[int | None] | None,
    ) -> list[Subscription]:
        """The same for these subscriptions, which must exist, or for all of the tenant's."""
        _check_version(version)
        found = await self._of_tenant(caller.scope_one(tenant))
        chosen = found if ids is None else _chosen(ids, found)
        changed = (self._engine.change_version(it.id, version) for it in chosen)
        return await asyncio.gather(*changed)

    @use_case(MANAGERS, changes=True)
    async def enable(self, caller: Caller, subscription_id: int) -> Subscription:
        """Enables the endpoint of this subscription; raises NotFound."""
        found = await self._visible(caller, subscription_id)
        await self._engine.enable(found.endpoint_id, by=caller.by)
        return found

    @use_case(MANAGERS, changes=True)
    async def enable_url(self, caller: Caller, url: str, *, tenant: str | None) -> Endpoint:
        """Enables the endpoint with this URL; raises Invalid or NotFound."""
        url, _ = parse_url(url)
        for one in await self._of_tenant(caller.scope_one(tenant)):
            if one.url == url:
                return await self._engine.enable(one.endpoint_id, by=caller.by)
        raise NotFound("No subscription has this URL.")

    async def _visible(self, caller: Caller, subscription_id: int) -> Subscription:
        found = await self._subscriptions.get(caller, subscription_id)
        if not _is_workfront(found):
            raise NotFound("There is no such subscription.")
        return found

    async def _of_tenant(self, tenant: str) -> list[Subscription]:
        """All subscriptions of one tenant without twins, oldest first."""
        found: list[Subscription] = []
        before: int | None = None
        while True:
            page, before = await self._views.subscriptions(
                tenant=tenant, before_id=before, limit=_PAGE
            )
            found += filter(_is_workfront, page)
            if before is None:
                return found[::-1]


def _is_workfront(subscription: Subscription) -> bool:
    return subscription.workfront is not None and subscription.workfront.twin_of is None


def _fields(draft: SubscriptionDraft) -> tuple[object, ...]:
    """Two subscriptions must differ in one of these fields, which do not include the version."""
    own = draft.workfront or Workfront()
    kept = (draft.url, draft.types, draft.token, draft.filters, draft.filter_connector)
    return (*kept, own.object_id, own.base64)


def _check_version(version: str) -> None:
    if version not in VERSIONS:
        raise Invalid(problems=(FieldProblem("version", "must be v1 or v2"),))


def _chosen(ids: Sequence[int | None], found: Sequence[Subscription]) -> list[Subscription]:
    existing = {one.id: one for one in found}
    problems = tuple(
        FieldProblem(f"subscriptionIds[{index}]", "is not the id of a subscription")
        for index, number in enumerate(ids)
        if number not in existing
    )
    if problems:
        raise Invalid(problems=problems[:_PROBLEMS_MAX])
    return [existing[number] for number in dict.fromkeys(ids) if number is not None]
