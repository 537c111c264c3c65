"""Deliveries: search, explain, replay, cancel; and the latest attempts."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from homing.app.access import MANAGERS, READERS, Caller, use_case
from homing.app.quotas import Quotas
from homing.engine.engine import Engine
from homing.errors import AlreadyFinished, Conflict, Gone, NotFound
from homing.languages.sentences import Sentence, say
from homing.model import (
    Attempt,
    Cause,
    CauseKey,
    Delivery,
    Endpoint,
    Outcome,
    Status,
    Subscription,
)
from homing.policy.bulk import Counted, check_typed
from homing.policy.causes import is_of_class, key_of
from homing.policy.explain import Facts, explain
from homing.policy.retry import Schedule, ahead, why_not_now
from homing.policy.sent_request import SentRequest, sent_request
from homing.ports import DeliveryFilter, DeliveryRow, ViewStore

COUNT_MAX = 100_000  # pending rows that are counted
EVENTS_MAX = 20  # of several tenants with one id, whose deliveries are listed together


class Described(Struct, frozen=True):
    """A delivery with its explanation, its attempts and its scheduled retries."""

    row: DeliveryRow
    explanation: Sentence
    attempts: list[Attempt]
    schedule: Schedule
    ahead: tuple[tuple[int, int], ...]  # retry n, due at
    may_try: bool  # a person may have it tried now
    endpoint: Endpoint | None
    subscription: Subscription | None  # also a deleted one
    waits_for: int | None = None  # the delivery of the same key that comes before it
    superseded_by: str = ""  # the id of the event that is sent instead


class RecentAttempts(Struct, frozen=True):
    """Attempts in the order they were settled, each with its delivery."""

    attempts: list[tuple[Attempt, DeliveryRow]]
    last: int  # the number of the last attempt: the next call asks for later ones
    missed: int  # attempts after the given number that are no longer in memory


class Deliveries:
    """The deliveries of all tenants, pending and finished."""

    def __init__(
        self, engine: Engine, views: ViewStore, quotas: Quotas, now: Callable[[], int]
    ) -> None:
        self._engine, self._views, self._quotas, self._now = engine, views, quotas, now

    @use_case(READERS)
    async def page(
        self,
        caller: Caller,
        conditions: DeliveryFilter,
        *,
        event: str | None = None,
        before_id: int | None,
        limit: int,
    ) -> tuple[list[DeliveryRow], int | None]:
        """A page, newest first, and the next ``before_id``.

        ``event`` is the id of an event of the tenant in the conditions, by default the caller's.
        """
        if event is not None:
            tenant = caller.scope_one(conditions.tenant)
            published = await self._views.event(event, tenant=tenant)
            if published is None:
                return [], None
            conditions = replace(conditions, event_id=published.event.id)
        conditions = await self._scoped(caller, conditions)
        if conditions.event_key is not None and conditions.event_id is None:
            found = await self._page_of_key(conditions, before_id=before_id, limit=limit)
        else:
            found = await self._views.deliveries(conditions, before_id=before_id, limit=limit)
        return [self._as_of_now(row) for row in found[0]], found[1]

    async def _page_of_key(
        self, conditions: DeliveryFilter, *, before_id: int | None, limit: int
    ) -> tuple[list[DeliveryRow], int | None]:
        """A page of the deliveries of the events with an id, of one tenant or of several."""
        assert conditions.event_key is not None
        events, complete = await self._views.events_by_key(
            conditions.event_key, tenant=conditions.tenant, limit=EVENTS_MAX + 1
        )
        if not complete or len(events) > EVENTS_MAX:
            return await self._views.deliveries(conditions, before_id=before_id, limit=limit)
        rows: list[DeliveryRow] = []
        read_from = 0  # below this id, the deliveries of some event were not read
        for event in events:
            found, next_id = await self._views.deliveries(
                replace(conditions, event_id=event.id), before_id=before_id, limit=limit
            )
            rows += found
            read_from = max(read_from, next_id or 0)
        rows = sorted((it for it in rows if it.delivery.id >= read_from), key=_newest_first)
        if len(rows) > limit:
            return rows[:limit], rows[limit - 1].delivery.id
        return rows, read_from or None

    @use_case(READERS)
    async def get(self, caller: Caller, delivery_id: int) -> Described:
        """The delivery with its explanation; raises NotFound."""
        row = self._as_of_now(await self._visible(caller, delivery_id))
        delivery, waits_for = row.delivery, None
        if row.order_key and row.status is Status.PENDING:
            ordered = await self._views.in_order(delivery.id)
            if ordered is not None:
                delivery, waits_for = ordered
        superseded_by = ""
        if row.superseded_by:
            superseded_by = await self._views.event_key(row.superseded_by)
        attempts = await self._views.attempts(delivery.id)
        endpoint = await self._views.endpoint(delivery.endpoint_id)
        subscription = await self._views.subscription(delivery.subscription_id)
        schedule = self._engine.schedule_of(subscription, tenant=delivery.tenant)
        if subscription is not None and subscription.deadline_ms is not None:
            schedule = replace(schedule, deadline_ms=subscription.deadline_ms)
        facts = Facts(
            status=row.status,
            reason=row.reason,
            finished_at=row.finished_at,
            arrived=row.arrived,
            delivery=delivery,
            endpoint=endpoint,
            in_flight=self._engine.in_flight(delivery.id, delivery.endpoint_id),
            schedule=schedule,
            rules=self._engine.rules_of(delivery.tenant),
            rated=self._engine.is_rated(subscription),
            quiet_ms=None if subscription is None else subscription.quiet_ms,
            waits_for=waits_for,
            superseded_by=superseded_by,
            cause=_last_cause(attempts),
            causes=await self._open_causes(row),
            paused_since=None if subscription is None else subscription.paused_since,
            retention_ms=self._engine.retention_of(delivery.tenant),
        )
        health = None if endpoint is None else endpoint.health
        is_pending, is_paused = row.status is Status.PENDING, facts.paused_since is not None
        cannot = why_not_now(delivery, endpoint, in_flight=facts.in_flight, is_paused=is_paused)
        return Described(
            row=row,
            explanation=explain(facts, now=self._now()),
            attempts=attempts,
            schedule=schedule,
            ahead=ahead(delivery, schedule, health, is_paused=is_paused)
            if is_pending and not delivery.order_seq
            else (),
            may_try=is_pending and delivery.due_at > self._now() and not cannot,
            waits_for=waits_for,
            superseded_by=superseded_by,
            endpoint=endpoint,
            subscription=subscription,
        )

    @use_case(READERS)
    async def sent_request(self, caller: Caller, delivery_id: int, number: int) -> SentRequest:
        """The request of an attempt as it was sent; raises NotFound or Gone."""
        row = await self._visible(caller, delivery_id)
        attempts = await self._views.attempts(delivery_id)
        attempt = next((it for it in attempts if it.number == number), None)
        if attempt is None:
            raise NotFound(say("The delivery has no attempt {number}.", number=str(number)))
        tenant = row.delivery.tenant
        event = await self._views.event(row.event_key, tenant=tenant)
        if event is None:
            raise Gone
        endpoint = await self._views.endpoint(attempt.endpoint_id)
        return sent_request(
            attempt,
            event.event,
            await self._views.subscription(attempt.subscription_id),
            url=row.url if endpoint is None else endpoint.url,
            tenant_signer=self._engine.signer_of(tenant),
        )

    @use_case(MANAGERS, changes=True)
    async def replay(self, caller: Caller, delivery_id: int) -> Delivery:
        """Replays a finished delivery and returns the new one.

        Raises NotFound, StillPending, SubscriptionGone, Gone, or TooMany by the tenant's quota.
        """
        old = (await self._visible(caller, delivery_id)).delivery
        await self._quotas.check_pending(old.tenant)
        return await self._engine.replay(old.id)

    @use_case(MANAGERS, changes=True)
    async def try_now(self, caller: Caller, delivery_id: int) -> Delivery:
        """Makes a pending delivery due now: its next retry is made early.

        Raises NotFound, AlreadyFinished, or Conflict if nothing is sent to its endpoint.
        """
        row = await self._visible(caller, delivery_id)
        if row.status is not Status.PENDING:
            raise AlreadyFinished
        endpoint = await self._views.endpoint(row.delivery.endpoint_id)
        subscription = await self._views.subscription(row.delivery.subscription_id)
        delivery = self._as_of_now(row).delivery
        ordered = await self._views.in_order(delivery_id) if row.order_key else None
        if ordered is not None:
            delivery = replace(delivery, order_seq=ordered[0].order_seq)
        reason = why_not_now(
            delivery,
            endpoint,
            in_flight=self._engine.in_flight(delivery_id, row.delivery.endpoint_id),
            is_paused=subscription is not None and subscription.paused_since is not None,
        )
        if reason:
            raise Conflict(reason)
        return await self._engine.try_now(row.delivery)

    @use_case(MANAGERS, changes=True)
    async def cancel(self, caller: Caller, delivery_id: int) -> Delivery:
        """Cancels a pending delivery; raises NotFound or AlreadyFinished."""
        await self._visible(caller, delivery_id)
        return await self._engine.cancel(delivery_id)

    @use_case(MANAGERS, changes=True)
    async def cancel_some(
        self,
        caller: Caller,
        conditions: DeliveryFilter,
        *,
        as_of: int,
        limit: int,
        typed: str | None = None,
    ) -> tuple[int, bool]:
        """Cancels at most ``limit`` matching deliveries: how many, and whether more may match.

        Deliveries accepted after ``as_of`` were not counted and stay. ``typed`` is what the person
        typed before the first step; more than 1,000 are cancelled only if it is their number.
        """
        conditions = counted_by(conditions, as_of=as_of)
        if typed is not None:
            check_typed(await self.count_pending(caller, conditions), typed)
        conditions = replace(await self._scoped(caller, conditions), status=Status.PENDING)
        rows, after = await self._views.deliveries(conditions, before_id=None, limit=limit)
        cancelled = 0
        for row in rows:
            try:
                await self._engine.cancel(row.delivery.id)
                cancelled += 1
            except (AlreadyFinished, NotFound):
                continue  # It was finished meanwhile.
        return cancelled, bool(rows) or after is not None

    @use_case(MANAGERS)
    async def count_pending(self, caller: Caller, conditions: DeliveryFilter) -> Counted:
        """The matching pending deliveries, by tenant and cause."""
        if conditions.status not in {None, Status.PENDING}:
            return Counted(0, exact=True)
        conditions = replace(await self._scoped(caller, conditions), status=Status.PENDING)
        return await self._views.pending_groups(conditions, limit=COUNT_MAX)

    @use_case(READERS)
    async def recent_attempts(
        self,
        caller: Caller,
        *,
        tenant: str | None,
        endpoint_id: int | None,
        subscription_id: int | None,
        failure: str | None = None,
        code: int | None = None,
        until: int | None = None,
        after: int | None,
        limit: int,
    ) -> RecentAttempts:
        """The latest attempts of this process, or those after this number.

        Conditions are applied after ``limit``, so that ``last`` always advances.
        """
        tenant = caller.scope(tenant)
        seen = self._engine.recent(after, limit=limit)
        rows = await self._views.deliveries_by_id([one.delivery_id for one in seen.attempts])
        attempts = [
            (attempt, rows[attempt.delivery_id])
            for attempt in seen.attempts
            if attempt.delivery_id in rows
            and tenant in {None, rows[attempt.delivery_id].delivery.tenant}
            and endpoint_id in {None, attempt.endpoint_id}
            and subscription_id in {None, attempt.subscription_id}
            and code in {None, attempt.code}
            and (failure is None or _is_of(attempt, failure))
            and (until is None or attempt.finished_at < until)
        ]
        return RecentAttempts(attempts, seen.last, seen.missed)

    def _as_of_now(self, row: DeliveryRow) -> DeliveryRow:
        """A pending delivery with the times that the pauses of its subscription have moved."""
        if row.status is not Status.PENDING:
            return row
        moved = self._engine.as_of_now(row.delivery)
        return row if moved is row.delivery else replace(row, delivery=moved)

    async def _open_causes(self, row: DeliveryRow) -> list[Cause]:
        endpoint_id = row.delivery.endpoint_id
        if row.status is not Status.PENDING:
            return []
        return (await self._views.open_causes([endpoint_id])).get(endpoint_id, [])

    async def _visible(self, caller: Caller, delivery_id: int) -> DeliveryRow:
        row = await self._views.delivery(delivery_id)
        if row is None or not caller.sees(row.delivery.tenant):
            raise NotFound(say("There is no such delivery, or it is past retention."))
        return row

    async def _scoped(self, caller: Caller, conditions: DeliveryFilter) -> DeliveryFilter:
        return replace(
            conditions,
            tenant=caller.scope(conditions.tenant),
            endpoint_id=await visible_endpoint_id(self._views, caller, conditions.endpoint_id),
        )


def counted_by(conditions: DeliveryFilter, *, as_of: int) -> DeliveryFilter:
    """The conditions for deliveries that had been accepted by then."""
    until = as_of + 1 if conditions.until is None else min(conditions.until, as_of + 1)
    return replace(conditions, until=until)


def _is_of(attempt: Attempt, failure: str) -> bool:
    return is_of_class(failure, attempt.outcome, attempt.code, attempt.failure)


def _last_cause(attempts: list[Attempt]) -> CauseKey | None:
    """Why the last failed attempt failed; None if none did."""
    failed = [it for it in attempts if it.outcome is Outcome.FAILED]
    return key_of(failed[-1].failure, failed[-1].detail, failed[-1].code) if failed else None


def _newest_first(row: DeliveryRow) -> int:
    return -row.delivery.id


async def visible_endpoint_id(
    views: ViewStore, caller: Caller, endpoint_id: int | None
) -> int | None:
    """The same id; 0, which no endpoint has, for an endpoint of another tenant."""
    if endpoint_id is None or caller.tenant is None:
        return endpoint_id
    endpoint = await views.endpoint(endpoint_id)
    return endpoint_id if endpoint is not None and caller.sees(endpoint.tenant) else 0
