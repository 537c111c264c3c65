"""Commands of people: subscribe, change, delete; enable, freeze, cancel; send a test."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from homing.engine.attempt import RequestTemplates, refused
from homing.engine.challenges import Challenges
from homing.engine.core import Core
from homing.engine.dispatch import Dispatcher
from homing.engine.maintenance import Maintenance
from homing.engine.queue import TOP_ID
from homing.engine.sample import sample_work
from homing.engine.settle import Settler
from homing.engine.shared import Shared
from homing.errors import (
    Conflict,
    FieldProblem,
    NotAuthorized,
    NotFound,
    NotVerified,
    StaleCatalog,
    StaleEndpoints,
    TooMany,
    Unavailable,
)
from homing.languages.sentences import say
from homing.model import (
    Attempt,
    Decided,
    Delivery,
    Endpoint,
    Failure,
    Health,
    Lane,
    Outcome,
    Secret,
    Signature,
    SigningKeys,
    State,
    Subscription,
    Transition,
    Verification,
    Work,
    Workfront,
    bucket_of,
    show_id,
)
from homing.policy import health, pause, verification
from homing.policy.admission import SubscriptionDraft
from homing.policy.notices import Notice
from homing.policy.order import waiting_rules
from homing.policy.outcome import judge
from homing.policy.reach import names_address
from homing.policy.receiver import after_change, is_gone
from homing.policy.rotation import rotated
from homing.policy.share import Share
from homing.policy.signature import SEED_BYTES, new_private_key, new_secret
from homing.policy.url import parse_url
from homing.policy.workfront import twin_after, twin_of
from homing.ports import NewEvent, ReplayJob, Response

CHANGES_MAX = 20  # tries to write a change that other changes overtake each time
_TOO_MANY_CHANGES = say("Other changes of this subscription came first each time; try again.")
OTHER_URL = say("The subscription has another URL by now: verify it again.")
NOTHING_TO_PAUSE = say(
    "This subscription has no URL, so nothing is sent that could be paused: its events wait until "
    "its readers read them."
)
UNVERIFIED = say("The receiver has not proved that it owns the URL: verify the subscription first.")
TWIN_REST_MS = 60_000
CLEANUP_WAIT_S = 2.0  # that a change waits for its cleanup jobs, which continue after it


def _refuse_twin(subscription: Subscription) -> None:
    """Raises Conflict for a twin: it follows the changes of its subscription."""
    own = subscription.workfront
    if own is not None and own.twin_of is not None:
        main = show_id("sub", own.twin_of)
        raise Conflict(
            say(
                "This subscription sends the old version of {main} for five minutes: "
                "change {main} instead.",
                main=main,
            )
        )


def _new_private_key() -> str:
    return new_private_key(secrets.token_bytes(SEED_BYTES))


class Operator:
    """Commands. Endpoints change under the settler's lock, so no outcome is overwritten."""

    def __init__(
        self, core: Core, dispatcher: Dispatcher, settler: Settler, maintenance: Maintenance
    ) -> None:
        self._flow, self._admin, self._sender = core.flow, core.admin, core.sender
        self._clock, self._catalog, self._ids = core.clock, core.catalog, core.ids
        self._grace = core.grace
        self._notices, self._people, self._options = core.notices, core.people, core.options
        self.on_people_notices: Callable[[], None] = lambda: None  # records were written
        self._dispatcher = dispatcher
        self._settler, self._maintenance, self._ownership = settler, maintenance, core.ownership
        self._templates = RequestTemplates(
            deadline_of=core.options.deadline_of, signer_of=core.catalog.signer_of
        )
        self._challenges = Challenges(core)
        self._conditional = Shared(Share(1))  # creations that depend on other subscriptions

    # --- subscriptions -----------------------------------------------------------------------

    def new_subscription(self, draft: SubscriptionDraft) -> Subscription:
        """The subscription of a draft, which is not stored yet."""
        now = self._clock.now()
        secret = draft.secret or new_secret(secrets.token_bytes(32))
        return Subscription(
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

    async def create(
        self,
        new: Subscription,
        *,
        backfill: ReplayJob | None = None,
        at_most: int = 0,
        condition: Callable[[], Awaitable[None]] | None = None,
    ) -> Subscription:
        """Store a new subscription, with a job that delivers past events to it."""
        if new.signature is not Signature.HMAC:
            await self._ensure_signing_keys(new.tenant)
        endpoint = self._new_endpoint(new.tenant, new.url, new.created_at)

        async def store(seen: int | None) -> Subscription:
            return await self._admin.create_subscription(
                new, endpoint=endpoint, backfill=backfill, at_most=at_most, seen=seen
            )

        with self._recheck_on_failure():
            if condition is None:
                made = await store(None)
            else:
                made = await self._store_if(condition, store, tenant=new.tenant)
            await self._catalog.refresh()
        await self._grace.changed(made.version)
        return await self._try_to_verify(made) if made.is_unverified else made

    async def _store_if(
        self,
        condition: Callable[[], Awaitable[None]],
        store: Callable[[int], Awaitable[Subscription]],
        *,
        tenant: str,
    ) -> Subscription:
        """Store a new subscription under a condition about the tenant's other ones.

        The turns only save tries: that the condition still holds is checked in the commit.
        """
        async with self._conditional.hold(tenant):
            for _ in range(CHANGES_MAX):
                await self._catalog.refresh()
                seen = self._catalog.version
                await condition()
                with suppress(StaleCatalog):
                    return await store(seen)
        raise Unavailable(
            say("Other changes of this tenant's subscriptions came first each time; try again.")
        )

    async def change(
        self, subscription_id: int, draft_of: Callable[[Subscription], SubscriptionDraft]
    ) -> Subscription:
        def changed(old: Subscription) -> Subscription:
            draft = draft_of(old)
            signing = (Secret(draft.secret),) if draft.secret else old.secrets
            new = msgspec.structs.replace(
                old, secrets=signing, workfront=draft.workfront, **draft.spec()
            )
            return verification.after_change(old, after_change(old, new))

        def unproved(before: Subscription) -> Subscription:
            after = changed(before)
            if after.is_unverified and not before.is_unverified:
                raise Conflict(OTHER_URL)  # Another change came first.
            return after

        old = await self._current(subscription_id)
        new = changed(old)
        if not new.is_unverified:
            return await self._replace(subscription_id, unproved)
        if old.is_unverified:  # Nothing is pending: the new URL may wait for its proof.
            made = await self._replace(subscription_id, unproved)
            is_new = (made.url, made.verification) != (old.url, old.verification)
            return await self._try_to_verify(made) if is_new else made
        proof = await self._challenges.ask(new, secrets.token_urlsafe(24))
        if proof.problem:
            raise NotVerified(problems=(FieldProblem("url", proof.problem),))

        def proved(before: Subscription) -> Subscription:
            after = changed(before)
            if (after.url, after.verification) != (new.url, new.verification):
                raise Conflict(OTHER_URL)
            return verification.with_proof(after, proof, now=self._clock.now())

        return await self._replace(subscription_id, proved)

    async def verify(self, subscription_id: int) -> Subscription:
        """Ask the receiver to prove that it owns the URL; raises TooMany or Conflict."""
        subscription = await self._current(subscription_id)
        _refuse_twin(subscription)
        if subscription.verification is Verification.NONE:
            raise Conflict(say("This subscription needs no proof: its verification is none."))
        proof = await self._challenges.ask(subscription, secrets.token_urlsafe(24))

        def asked(before: Subscription) -> Subscription:
            asked_for = (subscription.url, subscription.verification)
            if (before.url, before.verification) != asked_for:
                raise Conflict(OTHER_URL)
            if proof.problem and not before.is_unverified:  # An earlier proof stays valid.
                raise NotVerified(problems=(FieldProblem("url", proof.problem),))
            return verification.with_proof(before, proof, now=self._clock.now())

        return await self._replace(subscription_id, asked)

    async def _try_to_verify(self, made: Subscription) -> Subscription:
        """The subscription after a first challenge; the reason is kept if there is no proof."""
        try:
            return await self.verify(made.id)
        except TooMany as error:
            now, text = self._clock.now(), error.detail
            proof = verification.Proof(text)
            return await self._replace(
                made.id, lambda before: verification.with_proof(before, proof, now=now)
            )
        except (Conflict, NotAuthorized, NotFound):  # It, or the key, was changed meanwhile.
            return made

    async def pause(self, subscription_id: int) -> Subscription:
        """Let the deliveries of a subscription wait; those in flight finish. One row is written."""

        def changed(old: Subscription) -> Subscription | None:
            if not old.url:
                raise Conflict(NOTHING_TO_PAUSE)
            new = pause.paused(old, now=self._clock.now())
            return None if new is old else new

        return await self._replace(subscription_id, changed)

    async def resume(self, subscription_id: int) -> Subscription:
        """End a pause: due times and windows have moved by its length. One row is written."""

        def changed(old: Subscription) -> Subscription | None:
            new = pause.resumed(old, now=self._clock.now())
            return None if new is old else new

        return await self._replace(subscription_id, changed)

    async def rotate(
        self, subscription_id: int, secret: str | None, *, overlap_ms: int
    ) -> Subscription:
        """Sign with this secret, or a new one; until the overlap ends the older ones sign, too."""
        new = secret or new_secret(secrets.token_bytes(32))

        def changed(old: Subscription) -> Subscription:
            now = self._clock.now()
            signing = rotated(old.secrets, new, now=now, overlap_ms=overlap_ms)
            return msgspec.structs.replace(old, secrets=signing)

        return await self._replace(subscription_id, changed)

    async def rotate_signing_keys(self, tenant: str, *, overlap_ms: int) -> SigningKeys:
        """Sign with a new key of the tenant; until the overlap ends the older ones sign, too."""
        for _ in range(CHANGES_MAX):
            await self._catalog.refresh()
            old, now = self._catalog.signing_keys(tenant), self._clock.now()
            keys = rotated(old.keys, _new_private_key(), now=now, overlap_ms=overlap_ms)
            try:
                return await self._set_signing_keys(msgspec.structs.replace(old, keys=keys))
            except StaleCatalog:
                continue
        raise Unavailable(
            say("Other changes of these signing keys came first each time; try again.")
        )

    async def _ensure_signing_keys(self, tenant: str) -> None:
        """Make the first signing key of a tenant, if it has none."""
        if self._catalog.signing_keys(tenant).version:
            return
        first = SigningKeys(tenant, (Secret(_new_private_key()),))
        try:
            await self._set_signing_keys(first)
        except StaleCatalog:  # Another process has just made it.
            await self._catalog.refresh()
            await self._grace.everywhere(self._catalog.signing_keys(tenant).version)

    async def _set_signing_keys(self, keys: SigningKeys) -> SigningKeys:
        """Store the keys, and wait until every process signs with them and publishes them."""
        with self._recheck_on_failure():
            new = await self._admin.set_signing_keys(keys)
            await self._catalog.refresh()
        await self._grace.changed(new.version)
        return new

    async def change_version(self, subscription_id: int, version: str) -> Subscription:
        """Send another version from now on, and for five minutes the old version as well."""

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
        """Read, change, write; start again if another change was written in between.

        ``changed`` returns None if there is nothing to change.
        """
        for _ in range(CHANGES_MAX):
            old = await self._current(subscription_id)
            _refuse_twin(old)
            wanted = changed(old)
            if wanted is None:
                return old
            if wanted.signature is not Signature.HMAC:
                await self._ensure_signing_keys(wanted.tenant)
            try:
                new = await self._replace_once(wanted, twin=self._twin(old, wanted))
            except StaleCatalog:
                continue
            await self._grace.changed(new.version)
            moved = new.endpoint_id != old.endpoint_id
            waits = waiting_rules(new) != waiting_rules(old)
            if moved or is_gone(old) or waits:
                await self._cleanup_jobs()
            return new
        raise Unavailable(_TOO_MANY_CHANGES)

    def _twin(self, old: Subscription, new: Subscription) -> Subscription | None:
        """The twin that sends the old version after this change; None if there is none."""
        twin, now = self._catalog.twin(old.id), self._clock.now()
        before, after = old.workfront, new.workfront
        if before is not None and after is not None and before.version != after.version:
            standing = twin_of(old, twin, new_id=self._ids.take(now), now=now)
            return twin_after(new, standing, now=now)
        return None if twin is None else twin_after(new, twin, now=now)

    async def _replace_once(
        self, subscription: Subscription, *, twin: Subscription | None
    ) -> Subscription:
        now = self._clock.now()
        subscription = msgspec.structs.replace(subscription, updated_at=now)
        endpoint = self._new_endpoint(subscription.tenant, subscription.url, now)
        cleanup_job_id = self._ids.take(now)
        with self._recheck_on_failure():
            async with self._settler.lock:
                if twin is None or endpoint is None:
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
        """The subscription as it is in the store; another process may have just changed it."""
        await self._catalog.refresh()
        subscription = self._catalog.get(subscription_id)
        if subscription is None:
            raise NotFound
        return subscription

    async def unsubscribe(self, subscription_id: int) -> None:
        if self._catalog.get(subscription_id) is None:  # Another process may have just created it.
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
            await self._grace.changed(gone.version)
            await self._cleanup_jobs()
            return
        raise Unavailable(_TOO_MANY_CHANGES)

    async def end_twin(self, twin: Subscription) -> None:
        """Set a twin inactive whose time is over, or delete it if none of its deliveries is left.

        A minute lies between both: until then a delivery in flight may belong to another endpoint.
        Raises StaleCatalog or NotFound if it was changed or deleted.
        """
        now = self._clock.now()
        if twin.active:
            ended = msgspec.structs.replace(twin, active=False)
            changed = await self._replace_once(ended, twin=None)
            await self._grace.changed(changed.version)
        elif now - twin.updated_at >= TWIN_REST_MS and not await self._has_pending(twin):
            gone = await self._delete_once(twin.id, twin, None)
            await self._grace.changed(gone.version)
            await self._cleanup_jobs()

    async def _has_pending(self, subscription: Subscription) -> bool:
        """Whether a delivery of a subscription is pending; its endpoint's are read in pages."""
        if any(it.subscription_id == subscription.id for it in await self._admin.cleanup_jobs()):
            return True  # They may be at another endpoint.
        after_id, limit = 0, self._options.step_rows
        while True:
            rows = await self._flow.older(
                subscription.endpoint_id,
                bucket=bucket_of(subscription.tenant, subscription.url),
                after_id=after_id,
                before_id=TOP_ID,
                limit=limit,
            )
            if any(row.subscription_id == subscription.id for row in rows):
                return True
            if len(rows) < limit:
                return False
            after_id = rows[-1].id
            await asyncio.sleep(0.01)

    async def _delete_once(
        self, subscription_id: int, old: Subscription | None, twin: Subscription | None
    ) -> Subscription:
        """Delete a subscription with its twin.

        One of the Workfront-compatible API is deleted only in the version that was read: another
        change may have added a twin.
        """
        now = self._clock.now()
        cleanup_job_id = self._ids.take(now)
        with self._recheck_on_failure():
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

    @contextmanager
    def _recheck_on_failure(self) -> Iterator[None]:
        """Read the catalog and search for cleanup jobs if a change fails: it may be stored."""
        try:
            yield
        except Unavailable:
            self._maintenance.run_cleanup_jobs()
            raise

    async def _cleanup_jobs(self) -> None:
        await asyncio.wait([self._maintenance.run_cleanup_jobs()], timeout=CLEANUP_WAIT_S)

    def _new_endpoint(self, tenant: str, url: str, now: int) -> Endpoint | None:
        if not url:
            return None  # Its events are read.
        return Endpoint(
            id=self._ids.take(now),
            bucket=bucket_of(tenant, url),
            tenant=tenant,
            url=url,
            created_at=now,
            generation=0,
            health=Health(state=State.ENABLED, since=now, enabled_since=now),
            guard_passed=self._options.guard if names_address(parse_url(url)[1]) else 0,
        )

    # --- endpoints ---------------------------------------------------------------------------

    async def enable(self, endpoint_id: int, *, by: str) -> Endpoint:
        """Enable an endpoint and reset its counters; overdue deliveries are due at once."""
        return await self._set(endpoint_id, State.ENABLED, by)

    async def freeze(self, endpoint_id: int, *, by: str) -> Endpoint:
        """Freeze an endpoint: nothing is attempted until a person enables it."""
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
        seen, now, version = starts[0].endpoint, self._clock.now(), self._catalog.version
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
        for_people: tuple[Notice, ...] = ()
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
            for_people = self._people.changed(endpoint, transition)
        try:
            with self._grace.group(version, self._grace.fence):
                written = await self._admin.set_endpoint(
                    endpoint,
                    seen=seen,
                    transition=transition,
                    notices=notices,
                    for_people=for_people,
                )
        except Unavailable:  # The change may have been written without a reply.
            self._dispatcher.reload_endpoint(endpoint.id)
            for delivery in (delivery for new in notices for delivery in new.deliveries):
                self._dispatcher.check_store(delivery.endpoint_id)
            raise
        self._dispatcher.update_endpoint(written, enabled=enabling)
        if for_people:
            self.on_people_notices()
        for new in notices:
            self._dispatcher.accept([Work(it, new.event) for it in new.deliveries], version)
        return written

    # --- deliveries --------------------------------------------------------------------------

    async def cancel(self, delivery_id: int) -> Delivery:
        try:
            cancelled = await self._admin.cancel_delivery(delivery_id, now=self._clock.now())
        except Unavailable:  # It may have been written without a reply.
            if self._catalog.ordered:
                self._maintenance.run_cleanup_jobs(keys_wait=True)
            raise
        self._dispatcher.remove_delivery(cancelled.id, cancelled.endpoint_id)
        if not self._ownership.mine[cancelled.bucket]:
            self._ownership.notify_owner_of_change(cancelled.bucket, cancelled.endpoint_id)
        self._settler.finished["cancelled"] += 1
        if cancelled.order_key:
            self._maintenance.run_cleanup_jobs(keys_wait=True)
        return cancelled

    async def try_now(self, delivery: Delivery) -> Delivery:
        """Make a pending delivery due now: it is its next retry, made early."""
        now, subscription = self._clock.now(), self._catalog.get(delivery.subscription_id)
        pauses = None if subscription is None else subscription.pauses
        # Pauses that the row does not have yet move its due time, so the stored one is earlier.
        by_ms = pause.as_of(delivery, pauses, now).paused_ms - delivery.paused_ms
        try:
            tried = await self._admin.try_delivery_now(delivery.id, due_at=now - by_ms)
        except Unavailable:  # It may have been written without a reply.
            self._dispatcher.check_store(delivery.endpoint_id)
            raise
        self._dispatcher.left_in_store(tried)
        return tried

    async def test_send(self, subscription_id: int) -> Attempt:
        """Make one signed attempt now, in every state; it is logged and affects nothing else."""
        subscription = await self._to_test(subscription_id)
        if await self._dispatcher.wait_to_test(subscription):  # It may have changed meanwhile.
            url, subscription = subscription.url, await self._to_test(subscription_id)
            if subscription.url != url:
                raise Conflict(say("The subscription has another URL by now: send the test again."))
        now, wall = self._clock.now(), self._clock.wall()
        work = sample_work(subscription, number=self._ids.take(now), now=now, wall=wall)
        template = self._templates.of(subscription)
        request, lines = template.write(work, number=1, now=now, wall=wall)
        responded: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._sender.send(request, responded.set_result)
        response = await responded
        outcome = judge(response.code, response.failure)
        if response.failure is Failure.FORBIDDEN_ADDRESS:
            starts = await self._flow.endpoints([subscription.endpoint_id])
            if starts:
                outcome, response = refused(response, starts[0].endpoint, self._options.guard)
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

    async def _to_test(self, subscription_id: int) -> Subscription:
        """The subscription; raises Conflict if nothing can be sent to its receiver."""
        subscription = await self._current(subscription_id)
        if (move := self._catalog.moves.get(subscription.tenant)) is not None:
            raise move.refusal()
        if not subscription.url:
            raise Conflict(
                say("This subscription has no URL: publish an event and read it instead.")
            )
        if subscription.is_unverified:
            raise Conflict(UNVERIFIED)
        return subscription
