"""What people do: subscribe, change, delete; enable, freeze, cancel; send a test."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from homing.engine.attempt import RequestTemplates
from homing.engine.core import Core
from homing.engine.dispatch import Dispatcher
from homing.engine.maintenance import Maintenance
from homing.engine.sample import sample_work
from homing.engine.settle import Settler
from homing.errors import Conflict, NotFound, StaleCatalog, StaleEndpoints, Unavailable
from homing.model import (
    Attempt,
    Decided,
    Delivery,
    Endpoint,
    Health,
    Lane,
    Outcome,
    Secret,
    State,
    Subscription,
    Transition,
    Work,
    Workfront,
    bucket_of,
    show_id,
)
from homing.policy import health
from homing.policy.admission import SubscriptionDraft
from homing.policy.outcome import judge
from homing.policy.rotation import rotated
from homing.policy.signature import new_secret
from homing.policy.workfront import twin_after, twin_of
from homing.ports import NewEvent, Response

CHANGES_MAX = 20  # so often a change is made anew because another came before it
CLEANUP_WAIT_S = 2.0  # a change waits so long for its cleanup jobs, which go on after it


def _refuse_twin(subscription: Subscription) -> None:
    """Raises Conflict: it is what its subscription is."""
    own = subscription.workfront
    if own is not None and own.twin_of is not None:
        main = show_id("sub", own.twin_of)
        raise Conflict(f"It sends the old version of {main} for a while: change {main} instead.")


class Operator:
    """Commands. Endpoints change under the settler's lock, so no outcome is overwritten."""

    def __init__(
        self, core: Core, dispatcher: Dispatcher, settler: Settler, maintenance: Maintenance
    ) -> None:
        self._flow, self._admin, self._sender = core.flow, core.admin, core.sender
        self._clock, self._catalog, self._ids = core.clock, core.catalog, core.ids
        self._notices, self._options = core.notices, core.options
        self._dispatcher = dispatcher
        self._settler, self._maintenance, self._ownership = settler, maintenance, core.ownership
        self._templates = RequestTemplates(deadline_of=core.options.deadline_of)

    # --- subscriptions -----------------------------------------------------------------------

    async def subscribe(self, draft: SubscriptionDraft) -> Subscription:
        now = self._clock.now()
        secret = draft.secret or new_secret(secrets.token_bytes(32))
        subscription = Subscription(
            id=self._ids.take(now),
            tenant=draft.tenant,
            endpoint_id=0,
            secrets=(Secret(secret),),
            created_at=now,
            updated_at=now,
            version=0,
            workfront=draft.workfront,
            **draft.spec(),
        )
        with self._in_doubt():
            made = await self._admin.create_subscription(
                subscription, endpoint=self._new_endpoint(draft.tenant, draft.url, now)
            )
            await self._catalog.refresh()
        self._ownership.notify_peers("catalog")
        return made

    async def change(
        self, subscription_id: int, draft_of: Callable[[Subscription], SubscriptionDraft]
    ) -> Subscription:
        def changed(old: Subscription) -> Subscription:
            draft = draft_of(old)
            signing = (Secret(draft.secret),) if draft.secret else old.secrets
            return msgspec.structs.replace(
                old, secrets=signing, workfront=draft.workfront, **draft.spec()
            )

        return await self._replace(subscription_id, changed)

    async def rotate(
        self, subscription_id: int, secret: str | None, *, overlap_ms: int
    ) -> Subscription:
        """Sign with this secret, or a new one, and for the overlap with those before it."""
        new = secret or new_secret(secrets.token_bytes(32))

        def changed(old: Subscription) -> Subscription:
            now = self._clock.now()
            signing = rotated(old.secrets, new, now=now, overlap_ms=overlap_ms)
            return msgspec.structs.replace(old, secrets=signing)

        return await self._replace(subscription_id, changed)

    async def change_version(self, subscription_id: int, version: str) -> Subscription:
        """Send another version from now on, and for five minutes the old one as well."""

        def changed(old: Subscription) -> Subscription | None:
            own = old.workfront or Workfront()
            if own.version == version:
                return None
            at = self._clock.now()
            new = msgspec.structs.replace(own, version=version, version_at=at)
            return msgspec.structs.replace(old, workfront=new)

        return await self._replace(subscription_id, changed)

    async def _replace(
        self, subscription_id: int, changed: Callable[[Subscription], Subscription | None]
    ) -> Subscription:
        """Read, change, write; again if somebody has written in between.

        ``changed`` gives None where there is nothing to change.
        """
        for _ in range(CHANGES_MAX):
            old = await self._current(subscription_id)
            _refuse_twin(old)
            wanted = changed(old)
            if wanted is None:
                return old
            try:
                new = await self._replace_once(wanted, twin=self._twin(old, wanted))
            except StaleCatalog:
                continue
            await self._tell(new)
            if new.endpoint_id != old.endpoint_id:
                await self._cleanup_jobs()
            return new
        raise Unavailable("Others change it all the time.")

    def _twin(self, old: Subscription, new: Subscription) -> Subscription | None:
        """What sends the old version after this change; None if nothing does."""
        twin, now = self._catalog.twin(old.id), self._clock.now()
        before, after = old.workfront, new.workfront
        if before is not None and after is not None and before.version != after.version:
            standing = twin_of(old, twin, new_id=self._ids.take(now), now=now)
            return twin_after(new, standing)
        return None if twin is None else twin_after(new, twin)

    async def _replace_once(
        self, subscription: Subscription, *, twin: Subscription | None
    ) -> Subscription:
        now = self._clock.now()
        subscription = msgspec.structs.replace(subscription, updated_at=now)
        endpoint = self._new_endpoint(subscription.tenant, subscription.url, now)
        cleanup_job_id = self._ids.take(now)
        with self._in_doubt():
            async with self._settler.lock:
                if twin is None:
                    changed = await self._admin.change_subscription(
                        subscription, endpoint=endpoint, cleanup_job_id=cleanup_job_id
                    )
                else:
                    changed = await self._admin.change_pair(
                        subscription,
                        msgspec.structs.replace(twin, updated_at=now),
                        endpoint=endpoint,
                        cleanup_job_ids=(cleanup_job_id, self._ids.take(now)),
                    )
                await self._catalog.refresh()
        return changed

    async def _current(self, subscription_id: int) -> Subscription:
        """As it is in the store: another process may have made or changed it just now."""
        await self._catalog.refresh()
        subscription = self._catalog.get(subscription_id)
        if subscription is None:
            raise NotFound
        return subscription

    async def unsubscribe(self, subscription_id: int) -> None:
        if self._catalog.get(subscription_id) is None:  # Perhaps another process just made it.
            await self._catalog.refresh()
        for _ in range(CHANGES_MAX):
            old = self._catalog.get(subscription_id)
            twin = self._catalog.twin(subscription_id)
            try:
                gone = await self._delete_once(subscription_id, old, twin)
            except StaleCatalog:
                await self._catalog.refresh()
                continue
            self._dispatcher.remove_subscription(gone.id, gone.endpoint_id)
            if twin is not None:
                self._dispatcher.remove_subscription(twin.id, twin.endpoint_id)
            await self._tell(gone)
            await self._cleanup_jobs()
            return
        raise Unavailable("Others change it all the time.")

    async def _delete_once(
        self, subscription_id: int, old: Subscription | None, twin: Subscription | None
    ) -> Subscription:
        """With its twin; what has versions is deleted only as it was seen, for a twin may come."""
        now = self._clock.now()
        cleanup_job_id = self._ids.take(now)
        with self._in_doubt():
            async with self._settler.lock:
                if old is None or old.workfront is None:
                    gone = await self._admin.delete_subscription(
                        subscription_id, now=now, cleanup_job_id=cleanup_job_id
                    )
                else:
                    gone = await self._admin.delete_pair(
                        old, twin, now=now, cleanup_job_ids=(cleanup_job_id, self._ids.take(now))
                    )
                await self._catalog.refresh()
        return gone

    async def _tell(self, changed: Subscription) -> None:
        """Waits until the change holds in every process."""
        self._ownership.notify_peers("catalog")
        await self._ownership.wait_for_peers(changed.version)

    @contextmanager
    def _in_doubt(self) -> Iterator[None]:
        """A change that failed may have been written all the same: what it left is looked for."""
        try:
            yield
        except Unavailable:
            self._maintenance.run_cleanup_jobs()
            raise

    async def _cleanup_jobs(self) -> None:
        await asyncio.wait([self._maintenance.run_cleanup_jobs()], timeout=CLEANUP_WAIT_S)

    def _new_endpoint(self, tenant: str, url: str, now: int) -> Endpoint:
        return Endpoint(
            id=self._ids.take(now),
            bucket=bucket_of(tenant, url),
            tenant=tenant,
            url=url,
            created_at=now,
            generation=0,
            health=Health(state=State.ENABLED, since=now, enabled_since=now),
        )

    # --- endpoints ---------------------------------------------------------------------------

    async def enable(self, endpoint_id: int, *, by: str) -> Endpoint:
        """Enabled, and the counters of the rules are zero; what is overdue is due at once."""
        return await self._set(endpoint_id, State.ENABLED, by)

    async def freeze(self, endpoint_id: int, *, by: str) -> Endpoint:
        """Frozen: nothing is attempted until a person enables it."""
        return await self._set(endpoint_id, State.FROZEN, by)

    async def _set(self, endpoint_id: int, state: State, by: str) -> Endpoint:
        while True:
            async with self._settler.lock:
                try:
                    return await self._set_once(endpoint_id, state, by)
                except StaleEndpoints:
                    continue

    async def _set_once(self, endpoint_id: int, state: State, by: str) -> Endpoint:
        starts = await self._flow.endpoints([endpoint_id])
        if not starts:
            raise NotFound
        seen, now = starts[0].endpoint, self._clock.now()
        enabling = state is State.ENABLED
        verdict = (health.enable if enabling else health.freeze)(seen.health, now=now)
        endpoint = msgspec.structs.replace(
            seen,
            health=verdict.health,
            next_probe_at=None,
            hold_until=0 if enabling else seen.hold_until,
        )
        transition: Transition | None = None
        notices: tuple[NewEvent, ...] = ()
        if verdict.change is not None:
            endpoint = msgspec.structs.replace(endpoint, rule=verdict.change.rule)
            transition = Transition(
                id=self._ids.take(now),
                endpoint_id=endpoint.id,
                at=now,
                before=verdict.change.before,
                after=verdict.change.after,
                rule=verdict.change.rule,
                numbers=verdict.change.numbers,
                by=by,
            )
            notices = (self._notices.changed(endpoint, verdict.change, by=by, now=now),)
        try:
            written = await self._admin.set_endpoint(
                endpoint, seen=seen, transition=transition, notices=notices
            )
        except Unavailable:  # It may have been written all the same.
            self._dispatcher.reload_endpoint(endpoint.id)
            for delivery in (delivery for new in notices for delivery in new.deliveries):
                self._dispatcher.check_store(delivery.endpoint_id)
            raise
        self._dispatcher.update_endpoint(written, enabled=enabling)
        for new in notices:
            self._dispatcher.accept(Work(delivery, new.event) for delivery in new.deliveries)
        return written

    # --- deliveries --------------------------------------------------------------------------

    async def cancel(self, delivery_id: int) -> Delivery:
        cancelled = await self._admin.cancel_delivery(delivery_id, now=self._clock.now())
        self._dispatcher.remove_delivery(cancelled.id, cancelled.endpoint_id)
        if not self._ownership.mine[cancelled.bucket]:
            self._ownership.notify_owner_of_change(cancelled.bucket, cancelled.endpoint_id)
        self._settler.finished["cancelled"] += 1
        return cancelled

    async def test_send(self, subscription_id: int) -> Attempt:
        """One signed attempt now, in every state, logged, counting for nothing."""
        subscription = await self._current(subscription_id)
        now, wall = self._clock.now(), self._clock.wall()
        work = sample_work(subscription, number=self._ids.take(now), now=now, wall=wall)
        template = self._templates.of(subscription)
        request, lines = template.write(work, number=1, now=now, wall=wall)
        responded: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._sender.send(request, responded.set_result)
        response = await responded
        outcome = judge(response.code, response.failure)
        attempt = Attempt(
            delivery_id=work.delivery.id,
            number=1,
            endpoint_id=subscription.endpoint_id,
            subscription_id=subscription.id,
            lane=Lane.TEST,
            started_at=now,
            finished_at=self._clock.now(),
            outcome=outcome,
            code=response.code,
            failure=response.failure,
            detail=response.detail,
            address=response.address,
            phases=response.phases,
            request_headers=lines,
            response_headers=response.headers,
            excerpt=b"" if outcome is Outcome.DELIVERED else response.excerpt[:1024],
            decided=Decided.NOTHING,
        )
        await self._admin.log_test(attempt)
        return attempt
