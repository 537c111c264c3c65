"""Subscriptions: create, change, delete, rotate the secret, send a test event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from homing.app.access import MANAGERS, READERS, Caller, use_case
from homing.app.options import AppOptions
from homing.app.quotas import Quotas
from homing.engine.engine import Engine
from homing.errors import FieldProblem, Invalid, NotFound
from homing.languages.sentences import say
from homing.model import SPEC, Attempt, Subscription, Target, Verification
from homing.policy.admission import SubscriptionDraft, check_subscription
from homing.policy.authentication import kept_problems
from homing.policy.backfill import PastStart, creation_problems
from homing.policy.rotation import OVERLAP_MS, OVERLAP_MS_MAX
from homing.policy.signature import read_secret
from homing.policy.verification import needed
from homing.ports import ReplayJob, ViewStore
from homing.ports.audit import note_changed

NO_ORIGIN = say(
    "must not be cloudevents: its handshake names this sender, and the operator has not set "
    "public_url; use challenge"
)


class Drafted(NamedTuple):
    """A subscription as a request describes it, and the problems of unreadable fields.

    ``past``: a new subscription also gets the kept events since then. ``sent``: the secrets that a
    change gives anew, and does not keep, by the names of their fields and headers.
    """

    draft: SubscriptionDraft
    problems: tuple[FieldProblem, ...] = ()
    past: PastStart | None = None
    sent: frozenset[str] = frozenset()


class Backfill(Struct, frozen=True):
    """The job that delivers past events, and how many there were before it began."""

    job: ReplayJob
    count: int
    exact: bool  # False: there are more


class Created(NamedTuple):
    """A new subscription; ``backfill`` if it starts in the past."""

    subscription: Subscription
    backfill: Backfill | None = None


class Subscriptions:
    """The subscriptions of all tenants."""

    def __init__(
        self, engine: Engine, views: ViewStore, quotas: Quotas, options: AppOptions
    ) -> None:
        self._engine, self._views, self._quotas = engine, views, quotas
        self._options = options

    @use_case(MANAGERS, changes=True)
    async def create(self, caller: Caller, drafted: Drafted) -> Created:
        """Creates a subscription; raises Invalid, Forbidden, or TooMany by the tenant's quota.

        With ``past``, the past events are counted first, and the job that delivers them is stored
        in the same commit: there is no subscription without it.
        """
        if drafted.past is None:
            return Created(await self.add(caller, drafted))
        caller.must_write(drafted.draft.tenant)
        draft = self._checked(caller, drafted)
        await self._quotas.check_pending(draft.tenant)
        await self._quotas.check_subscriptions(draft.tenant)  # before events are read
        count, exact = await self._engine.count_past_of(draft, drafted.past)
        made, job = await self._engine.subscribe_from(
            draft, drafted.past, at_most=self._quotas.of(draft.tenant).subscriptions_max
        )
        return Created(made, Backfill(job, count, exact))

    async def add(
        self,
        caller: Caller,
        drafted: Drafted,
        *,
        condition: Callable[[SubscriptionDraft], Awaitable[None]] | None = None,
    ) -> Subscription:
        """Creates a subscription unless ``condition`` raises, which holds until the commit."""
        caller.must_write(drafted.draft.tenant)
        draft = self._checked(caller, drafted)
        return await self._engine.subscribe(
            draft,
            at_most=self._quotas.of(draft.tenant).subscriptions_max,
            condition=None if condition is None else lambda: condition(draft),
        )

    @use_case(READERS)
    async def page(
        self, caller: Caller, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Subscription], int | None]:
        """A page, newest first, and the next ``before_id``."""
        return await self._views.subscriptions(
            tenant=caller.scope(tenant), before_id=before_id, limit=limit
        )

    @use_case(READERS)
    async def get(self, caller: Caller, subscription_id: int) -> Subscription:
        """The subscription; raises NotFound."""
        return await self._visible(caller, subscription_id)

    @use_case(MANAGERS, changes=True)
    async def change(
        self,
        caller: Caller,
        subscription_id: int,
        drafted: Callable[[Subscription], Drafted],
    ) -> Subscription:
        """Replaces the fields; raises NotFound or Invalid.

        ``drafted`` gets the stored subscription; it is called again if the stored one has changed.
        """
        await self._visible(caller, subscription_id)

        def draft(before: Subscription) -> SubscriptionDraft:
            wanted = self._checked(caller, drafted(before), before=before)
            _note_hidden(before, wanted)
            return wanted

        return await self._engine.change(subscription_id, draft)

    @use_case(MANAGERS)
    async def check(
        self,
        caller: Caller,
        subscription_id: int | None,
        drafted: Callable[[Subscription | None], Drafted],
    ) -> tuple[FieldProblem, ...]:
        """The problems that creating (without an id) or changing a subscription would raise."""
        before = None if subscription_id is None else await self._visible(caller, subscription_id)
        try:
            self._checked(caller, drafted(before), before=before)
        except Invalid as error:
            return error.problems
        return ()

    @use_case(MANAGERS, changes=True)
    async def delete(self, caller: Caller, subscription_id: int) -> None:
        """Deletes a subscription and its twin; no attempt starts afterwards. Raises NotFound."""
        await self._visible(caller, subscription_id)
        await self._engine.unsubscribe(subscription_id)

    @use_case(MANAGERS, changes=True)
    async def rotate(
        self,
        caller: Caller,
        subscription_id: int,
        secret: str | None = None,
        *,
        overlap_ms: int = OVERLAP_MS,
    ) -> Subscription:
        """Replaces the secret with this one or a new one; old ones also sign during the overlap."""
        check_overlap(overlap_ms)
        if secret is not None:
            read_secret(secret)
        await self._visible(caller, subscription_id)
        note_changed("secrets")
        return await self._engine.rotate(subscription_id, secret, overlap_ms=overlap_ms)

    @use_case(MANAGERS, changes=True)
    async def verify(self, caller: Caller, subscription_id: int) -> Subscription:
        """Asks the receiver now to prove that it owns the URL, with the verification of the
        subscription. Raises NotFound, Conflict without a verification, NotVerified, TooMany."""
        await self._visible(caller, subscription_id)
        return await self._engine.verify(subscription_id)

    @use_case(MANAGERS, changes=True)
    async def pause(self, caller: Caller, subscription_id: int) -> Subscription:
        """Lets the deliveries of a subscription wait until it is resumed; no attempt starts
        afterwards. Raises NotFound, or Conflict if nothing is sent. A paused one stays paused."""
        await self._visible(caller, subscription_id)
        return await self._engine.pause(subscription_id)

    @use_case(MANAGERS, changes=True)
    async def resume(self, caller: Caller, subscription_id: int) -> Subscription:
        """Ends a pause: due times and windows have moved by its length. Raises NotFound."""
        await self._visible(caller, subscription_id)
        return await self._engine.resume(subscription_id)

    @use_case(MANAGERS, changes=True)
    async def test(self, caller: Caller, subscription_id: int) -> Attempt:
        """Sends a test event now, in any state of the endpoint, whose health is not affected."""
        await self._visible(caller, subscription_id)
        return await self._engine.test_send(subscription_id)

    async def _visible(self, caller: Caller, subscription_id: int) -> Subscription:
        found = await self._views.subscription(subscription_id)
        if found is None or found.deleted_at is not None or not caller.sees(found.tenant):
            raise NotFound(say("There is no such subscription."))
        return found

    def _checked(
        self, caller: Caller, drafted: Drafted, *, before: Subscription | None = None
    ) -> SubscriptionDraft:
        """The draft in its normal form; raises Invalid. An unchanged URL is not checked again."""
        draft, problems, past, sent = drafted
        verification = needed(draft, before, self._options.verification)
        if verification is not draft.verification:
            draft = replace(draft, verification=verification)
        if verification is Verification.CLOUDEVENTS and not self._options.origin:
            problems += (FieldProblem("verification", NO_ORIGIN),)

        def refuses(target: Target) -> str:
            url = f"{target.scheme}://{target.authority}{target.path}"
            return self._options.refusal(target, caller=caller, tenant=draft.tenant, url=url)

        try:
            draft = check_subscription(
                draft,
                policies=self._options.policies,
                refuses=refuses,
                before=before,
                now=self._options.now(),
            )
        except Invalid as error:
            problems += error.problems
        else:
            if before is not None:
                problems += tuple(kept_problems(draft, before, sent))
        if past is not None:
            problems += creation_problems(
                draft,
                past,
                retention_ms=self._engine.retention_of(draft.tenant),
                now=self._options.now(),
            )
        if problems:
            raise Invalid(problems=problems)
        return draft


def check_overlap(overlap_ms: int) -> None:
    """Raises Invalid if old secrets or keys cannot sign for so long."""
    if not 0 <= overlap_ms <= OVERLAP_MS_MAX:
        reason = say("must be {min} to {max}", min="0", max=str(OVERLAP_MS_MAX))
        raise Invalid(problems=(FieldProblem("overlap_ms", reason),))


def _note_hidden(before: Subscription, draft: SubscriptionDraft) -> None:
    """Note for the audit log which secret fields change: it never has their values."""
    changed = [
        name
        for name, field in SPEC.items()
        if field.secret and getattr(before, name) != getattr(draft, name)
    ]
    note_changed(*changed, *(("secrets",) if draft.secret else ()))
