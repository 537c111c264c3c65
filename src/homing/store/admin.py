"""Commands of people: changes of subscriptions, endpoints and single deliveries, and replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import json
from msgspec.structs import replace

from homing.errors import AlreadyFinished, NotFound, StaleCatalog, StaleEndpoints
from homing.model import (
    NOT_BOUND,
    Attempt,
    Delivery,
    Endpoint,
    Event,
    Finished,
    Order,
    Reason,
    ReceiverState,
    SigningKeys,
    State,
    Status,
    Subscription,
    Transition,
    show_id,
)
from homing.policy.audit import AuditDraft, shown
from homing.policy.bulk import Counted
from homing.policy.commit_loss import LISTED_MAX, CommitLoss, missing_text
from homing.policy.erasure import ErasedId
from homing.policy.event_types import EventType, TypePlace, TypeSummary
from homing.policy.notices import Notice
from homing.policy.order import waiting_rules
from homing.policy.quota import too_many_subscriptions
from homing.policy.receiver import is_gone, is_unbound
from homing.policy.retry import Schedule
from homing.ports import (
    CatalogNotes,
    CleanupJob,
    CleanupStep,
    KeyRelease,
    NewEvent,
    PastEvent,
    ReplayJob,
)
from homing.ports.admin import EventPlace
from homing.ports.erasures import Erasable, Erasure, ErasureKind, TenantChanges
from homing.store import (
    acceptance,
    causes,
    cleanup_jobs,
    erasures,
    event_types,
    leases,
    order,
    replays,
    rows,
)
from homing.store import audit as audit_log
from homing.store import notices as notice_records
from homing.store.catalog_versions import begin_change, raise_catalog
from homing.store.tx import Db, Tx, transaction
from homing.store.writes import LedgerChange, add_to_ledger, write_events

# Columns of an endpoint that no command changes.
_FIXED = frozenset(
    {"bucket", "tenant", "url", "created_at", "failing", "guard_passed", "guard_refused_at"}
)

TOP_ID = (1 << 63) - 1  # above every id


class Admin:
    """``AdminStore`` on a database; ``node`` is the number of this process in the ledger.

    A change writes its entry of the audit log; ``audit`` is None for a change without a caller.
    """

    def __init__(self, db: Db, node: int = 0) -> None:
        self._db = db
        self._node = node

    # --- subscriptions ----------------------------------------------------------------------

    @transaction(read_only=True)
    async def catalog_version(self, tx: Tx) -> int:
        row = await tx.one("catalog_version")
        assert row is not None
        return int(row[0])

    @transaction(read_only=True)
    async def policies(self, tx: Tx) -> dict[str, Schedule]:
        found = await tx.all("policies")
        return {name: json.decode(text, type=Schedule) for name, text in found}

    @transaction()
    async def keep_policies(self, tx: Tx, policies: Sequence[Schedule]) -> None:
        for it in sorted(policies, key=lambda it: it.name):
            await tx.all("policy_set", name=it.name, schedule=json.encode(it).decode())

    @transaction(read_only=True)
    async def catalog_notes(self, tx: Tx, version: int) -> CatalogNotes:
        found = await tx.one("catalog_base")
        assert found is not None
        targets = await tx.one("notice_targets_exist")
        changed = await tx.all("event_types_changed", version=version)
        types = tuple((it[0], it[1], it[2]) for it in changed)
        return CatalogNotes(targets is not None, types, found[0])

    @transaction(read_only=True)
    async def subscriptions_since(
        self, tx: Tx, version: int, *, after_id: int = NOT_BOUND, limit: int = NOT_BOUND
    ) -> list[Subscription]:
        found = await tx.all("subscriptions_since", version=version, after_id=after_id, limit=limit)
        return [rows.subscription(row) for row in found]

    @transaction()
    async def create_subscription(
        self,
        tx: Tx,
        subscription: Subscription,
        *,
        endpoint: Endpoint | None,
        backfill: ReplayJob | None = None,
        at_most: int = 0,
        seen: int | None = None,
        audit: AuditDraft | None = None,
    ) -> Subscription:
        tenant = subscription.tenant
        await begin_change(tx, tenant)
        await erasures.refuse_while_erased(tx, tenant)
        if seen is not None and await tx.one(
            "subscription_changed_since", tenant=tenant, version=seen
        ):
            raise StaleCatalog
        if at_most:
            row = await tx.one("view_subscription_count", tenant=tenant, limit=at_most)
            assert row is not None
            if row[0] >= at_most:
                raise too_many_subscriptions(tenant, at_most)
        endpoint_id = await _endpoint_at(tx, endpoint)
        stored = replace(subscription, endpoint_id=endpoint_id)
        await tx.insert("subscription", [rows.subscription_row(stored)])
        if endpoint is None:
            await tx.insert("pull_stream", [(stored.id, stored.tenant, 0, 0)])
        if backfill is None:
            await _log(tx, audit, None, stored)
        else:
            await _log_with_backfill(tx, audit, stored, await replays.save_backfill(tx, backfill))
        return await _with_version(tx, stored)

    @transaction()
    async def change_subscription(
        self,
        tx: Tx,
        subscription: Subscription,
        *,
        endpoint: Endpoint | None,
        cleanup_job_id: int,
        audit: AuditDraft | None = None,
    ) -> Subscription:
        before = await _of_version(tx, subscription)
        endpoint_id = await _endpoint_at(tx, endpoint)
        new = replace(subscription, endpoint_id=endpoint_id)
        await _log(tx, audit, before, new)
        await _change(tx, before, new, cleanup_job_id=cleanup_job_id)
        return await _with_version(tx, new)

    @transaction()
    async def change_pair(
        self,
        tx: Tx,
        subscription: Subscription,
        twin: Subscription,
        *,
        endpoint: Endpoint,
        cleanup_job_ids: tuple[int, int],
        audit: AuditDraft | None = None,
    ) -> Subscription:
        before = await _of_version(tx, subscription)
        endpoint_id = await _endpoint_at(tx, endpoint)
        new, other = (replace(it, endpoint_id=endpoint_id) for it in (subscription, twin))
        if twin.version:
            known = await _twin_of_version(tx, twin)
            await _change(tx, known, other, cleanup_job_id=cleanup_job_ids[1])
        else:
            await tx.insert("subscription", [rows.subscription_row(other)])
        await _log(tx, audit, before, new)
        await _change(tx, before, new, cleanup_job_id=cleanup_job_ids[0])
        return await _with_version(tx, new, other)

    @transaction()
    async def delete_pair(
        self,
        tx: Tx,
        subscription: Subscription,
        twin: Subscription | None,
        *,
        now: int,
        cleanup_job_ids: tuple[int, int],
        audit: AuditDraft | None = None,
    ) -> Subscription:
        before = await _of_version(tx, subscription)
        await _log(tx, audit, before, None)
        others: list[Subscription] = []
        if twin is not None:
            other = await _twin_of_version(tx, twin)
            others = [await _delete(tx, other, now=now, cleanup_job_id=cleanup_job_ids[1])]
        gone = await _delete(tx, before, now=now, cleanup_job_id=cleanup_job_ids[0])
        return await _with_version(tx, gone, *others)

    @transaction()
    async def delete_subscription(
        self,
        tx: Tx,
        subscription_id: int,
        *,
        now: int,
        cleanup_job_id: int,
        audit: AuditDraft | None = None,
    ) -> Subscription:
        row = await tx.one("subscription_by_id", id=subscription_id)
        if row is None:
            raise NotFound
        await begin_change(tx, rows.subscription(row).tenant)
        before = await _living(tx, subscription_id)
        await _log(tx, audit, before, None)
        gone = await _delete(tx, before, now=now, cleanup_job_id=cleanup_job_id)
        return await _with_version(tx, gone)

    @transaction()
    async def subscription_gone(
        self,
        tx: Tx,
        subscription: Subscription,
        *,
        cleanup_job_id: int,
        notices: Sequence[NewEvent],
        for_people: Sequence[Notice],
        bucket: int,
        epoch: int = 0,
        audit: AuditDraft | None = None,
    ) -> Subscription:
        await leases.hold(tx, [(bucket, epoch)] if epoch else ())
        before = await _of_version(tx, subscription)
        state = replace(subscription.receiver or ReceiverState(), gone_upto=NOT_BOUND)
        new = replace(subscription, receiver=state)
        await _log(tx, audit, before, new)
        await _replace_subscription(tx, new)
        await tx.all("cleanup_job_moves_gone", subscription_id=new.id)
        await cleanup_jobs.leave(
            tx,
            cleanup_jobs.GONE,
            cleanup_job_id=cleanup_job_id,
            subscription_id=new.id,
            at=new.endpoint_id,
        )
        await write_events(tx, notices, node=self._node)
        await notice_records.write(tx, for_people, node=self._node)
        return await _with_version(tx, new)

    @transaction()
    async def bound_gone(self, tx: Tx, subscription_id: int) -> Subscription:
        before = await _living(tx, subscription_id)
        if before.receiver is None or not is_unbound(before):
            return before
        state = replace(before.receiver, gone_upto=await acceptance.last(tx))
        new = replace(before, receiver=state)
        await _replace_subscription(tx, new)
        return await _with_version(tx, new)

    @transaction(read_only=True)
    async def signing_keys_since(self, tx: Tx, version: int) -> list[SigningKeys]:
        found = await tx.all("signing_keys_since", version=version)
        return [rows.signing_keys(row) for row in found]

    @transaction()
    async def set_signing_keys(
        self, tx: Tx, keys: SigningKeys, *, audit: AuditDraft | None = None
    ) -> SigningKeys:
        await begin_change(tx, keys.tenant)
        await erasures.refuse_while_erased(tx, keys.tenant)
        row = await tx.one("signing_keys_of", tenant=keys.tenant)
        before = None if row is None else rows.signing_keys(row)
        if keys.version != (0 if before is None else before.version):
            raise StaleCatalog
        await audit_log.write(
            tx, audit, tenant=keys.tenant, object_id="signing_keys", before=before, after=keys
        )
        stored = replace(keys, version=await raise_catalog(tx))
        values = zip(rows.COLUMNS["signing_keys"], rows.signing_keys_row(stored), strict=True)
        await tx.all("signing_keys_set", **dict(values))
        return stored

    # --- event types ------------------------------------------------------------------------

    @transaction()
    async def create_event_type(
        self, tx: Tx, new: EventType, *, audit: AuditDraft | None = None
    ) -> EventType:
        return await event_types.create(tx, new, audit=audit)

    @transaction()
    async def change_event_type(
        self, tx: Tx, new: EventType, *, audit: AuditDraft | None = None
    ) -> EventType:
        return await event_types.change(tx, new, audit=audit)

    @transaction()
    async def delete_event_type(
        self, tx: Tx, tenant: str, name: str, *, audit: AuditDraft | None = None
    ) -> int:
        return await event_types.delete(tx, tenant, name, audit=audit)

    @transaction(read_only=True)
    async def event_type(self, tx: Tx, tenant: str, name: str) -> EventType | None:
        return await event_types.find(tx, tenant, name)

    @transaction(read_only=True)
    async def event_types(
        self, tx: Tx, *, tenant: str | None, after: TypePlace | None, limit: int
    ) -> tuple[list[TypeSummary], TypePlace | None]:
        return await event_types.page(tx, tenant=tenant, after=after, limit=limit)

    @transaction(view=True)
    async def event_types_whole(self, tx: Tx, tenant: str) -> list[EventType]:
        return await event_types.whole(tx, tenant)

    @transaction(read_only=True)
    async def cleanup_jobs(self, tx: Tx) -> list[CleanupJob]:
        return [rows.cleanup_job(row) for row in await tx.all("cleanup_jobs")]

    @transaction()
    async def run_cleanup_job(
        self,
        tx: Tx,
        cleanup_job: CleanupJob,
        *,
        target: Endpoint | None,
        except_ids: frozenset[int],
        now: int,
        limit: int,
        epoch: int = 0,
    ) -> CleanupStep:
        """Raises StaleCatalog if ``target`` is not the present endpoint of the subscription."""

        await leases.hold(tx, [(cleanup_job.bucket, epoch)] if epoch else ())
        if target is not None:
            await leases.raise_topic(tx, leases.bucket_topic(target.bucket))
        return await cleanup_jobs.step(
            tx,
            cleanup_job.id,
            subscription_id=cleanup_job.subscription_id,
            target=target,
            except_ids=except_ids,
            now=now,
            limit=limit,
            node=self._node,
        )

    # --- lost commits -----------------------------------------------------------------------

    @transaction()
    async def add_commit_loss(self, tx: Tx, loss: CommitLoss) -> None:
        await tx.all(
            "commit_loss_add",
            id=loss.id,
            noticed_at=loss.noticed_at,
            process=loss.process,
            kind=loss.kind,
            from_at=loss.from_at,
            upto_at=loss.upto_at,
        )
        await leases.raise_topic(tx, "commit_losses")

    @transaction(read_only=True)
    async def commit_losses(self, tx: Tx) -> list[CommitLoss]:
        return [CommitLoss(*row) for row in await tx.all("commit_losses", limit=LISTED_MAX)]

    @transaction()
    async def confirm_commit_losses(
        self, tx: Tx, *, now: int, audit: AuditDraft | None = None
    ) -> list[CommitLoss]:
        confirmed = [CommitLoss(*row) for row in await tx.all("commit_losses_confirm", now=now)]
        if confirmed:
            await leases.raise_topic(tx, "commit_losses")
            after = {"confirmed": [str(missing_text(it)) for it in confirmed[:LISTED_MAX]]}
            await audit_log.write(tx, audit, tenant=None, object_id="", after=after)
        return confirmed

    # --- tenants that move to or from another installation -----------------------------------

    @transaction()
    async def tenant_move_ready(self, tx: Tx, move_id: str, process: int) -> None:
        await tx.all("tenant_move_ready", move_id=move_id, process=process)

    # --- endpoints and deliveries -----------------------------------------------------------

    @transaction()
    async def set_endpoint(
        self,
        tx: Tx,
        endpoint: Endpoint,
        *,
        seen: Endpoint,
        transition: Transition | None,
        notices: Sequence[NewEvent],
        for_people: Sequence[Notice] = (),
        audit: AuditDraft | None = None,
    ) -> Endpoint:
        if transition is not None and transition.after is State.ENABLED:
            await acceptance.take(tx)  # What was unblocked before is not fresh.
        columns = zip(rows.COLUMNS["endpoint"], rows.endpoint_row(endpoint), strict=True)
        values = {name: value for name, value in columns if name not in _FIXED}
        row = await tx.one("endpoint_replace", **values, **_as_seen(seen))
        if row is None:
            raise StaleEndpoints(frozenset({endpoint.id}))
        if transition is not None:
            await tx.insert("transition", [rows.transition_row(transition)])
        await write_events(tx, notices, node=self._node)
        await notice_records.write(tx, for_people, node=self._node)
        await leases.raise_topic(tx, leases.bucket_topic(endpoint.bucket))
        await audit_log.write(
            tx,
            audit,
            tenant=endpoint.tenant,
            object_id=show_id("ep", endpoint.id),
            before=seen,
            after=endpoint,
        )
        return replace(endpoint, generation=row[0])

    @transaction(read_only=True)
    async def key_releases(self, tx: Tx, *, limit: int) -> list[KeyRelease]:
        return await order.releases(tx, limit)

    @transaction()
    async def release_keys(
        self,
        tx: Tx,
        releases: Sequence[KeyRelease],
        *,
        now: int,
        fences: Sequence[tuple[int, int]] = (),
    ) -> list[Delivery]:
        await leases.hold(tx, fences)
        return await order.release(tx, releases, now=now)

    @transaction()
    async def cancel_delivery(
        self, tx: Tx, delivery_id: int, *, now: int, audit: AuditDraft | None = None
    ) -> Delivery:
        row = await tx.one("cancel_one", id=delivery_id)
        if row is None:
            if await tx.one("history_by_id", id=delivery_id) is not None:
                raise AlreadyFinished
            raise NotFound
        delivery = rows.pending(row)
        finished = Finished(delivery, Status.CANCELLED, Reason.BY_PERSON, now)
        await tx.insert("history", [rows.history_row(finished)])
        await order.release_later(tx, [delivery])
        await leases.raise_topic(tx, leases.bucket_topic(delivery.bucket))
        await add_to_ledger(tx, {delivery.tenant: LedgerChange(cancelled=1)}, node=self._node)
        await audit_log.write(
            tx,
            audit,
            tenant=delivery.tenant,
            object_id=show_id("dlv", delivery.id),
            before={"status": Status.PENDING},
            after={"status": Status.CANCELLED},
        )
        return delivery

    @transaction()
    async def try_delivery_now(
        self, tx: Tx, delivery_id: int, *, due_at: int, audit: AuditDraft | None = None
    ) -> Delivery:
        row = await tx.one("pending_by_id", id=delivery_id)
        if row is None:
            if await tx.one("history_by_id", id=delivery_id) is not None:
                raise AlreadyFinished
            raise NotFound
        before = rows.pending(row)
        row = await tx.one("due_now", id=delivery_id, due_at=due_at)
        if row is None:
            return before
        delivery = rows.pending(row)
        await leases.raise_topic(tx, leases.bucket_topic(delivery.bucket))
        await audit_log.write(
            tx,
            audit,
            tenant=delivery.tenant,
            object_id=show_id("dlv", delivery.id),
            before={"due_at": before.due_at},
            after={"due_at": delivery.due_at},
        )
        return delivery

    @transaction()
    async def log_test(self, tx: Tx, attempt: Attempt, *, audit: AuditDraft | None = None) -> None:
        await tx.insert("attempt", [rows.attempt_row(attempt)])
        if audit is None:
            return
        row = await tx.one("subscription_by_id", id=attempt.subscription_id)
        await audit_log.write(
            tx,
            audit,
            tenant=None if row is None else rows.subscription(row).tenant,
            object_id=show_id("sub", attempt.subscription_id),
            after={"outcome": attempt.outcome, "code": attempt.code},
        )

    # --- replays ----------------------------------------------------------------------------

    @transaction()
    async def replay(
        self, tx: Tx, delivery_id: int, *, new: Delivery, audit: AuditDraft | None = None
    ) -> Delivery:
        made = await replays.replay_one(tx, delivery_id, new=new, node=self._node)
        await audit_log.write(
            tx,
            audit,
            tenant=made.tenant,
            object_id=show_id("dlv", delivery_id),
            after={"replay": show_id("dlv", made.id)},
        )
        return made

    @transaction()
    async def save_replay_job(
        self, tx: Tx, job: ReplayJob, *, audit: AuditDraft | None = None
    ) -> None:
        await replays.save_replay(tx, job)
        await _log_job(tx, audit, job, after=_conditions(job))

    @transaction()
    async def save_backfill(
        self, tx: Tx, job: ReplayJob, *, audit: AuditDraft | None = None
    ) -> ReplayJob:
        stored = await replays.save_backfill(tx, job)
        await _log_job(tx, audit, stored, after=_conditions(stored))
        return stored

    @transaction()
    async def bound_backfill(self, tx: Tx, job_id: int) -> ReplayJob | None:
        return await replays.bound_backfill(tx, job_id)

    @transaction(view=True)
    async def past_events(
        self, tx: Tx, job: ReplayJob, *, limit: int
    ) -> tuple[list[PastEvent], int, EventPlace, bool]:
        return await replays.past_events(tx, job, limit=limit)

    @transaction(view=True)
    async def newer_of_key(
        self,
        tx: Tx,
        tenant: str,
        key: str,
        *,
        subscription_id: int,
        after: EventPlace,
        before: EventPlace,
        limit: int,
    ) -> list[PastEvent]:
        asked = tenant, key, *after, *before, limit
        return await replays.newer_of_key(tx, [asked], subscription_id)

    @transaction(view=True)
    async def events_whole(self, tx: Tx, event_ids: Sequence[int]) -> list[Event]:
        return await replays.events_whole(tx, event_ids)

    @transaction(read_only=True)
    async def replay_job(self, tx: Tx, job_id: int) -> ReplayJob | None:
        row = await tx.one("replay_job_by_id", id=job_id)
        return rows.replay_job(row) if row else None

    @transaction(read_only=True)
    async def running_replay_jobs(self, tx: Tx) -> list[ReplayJob]:
        return [rows.replay_job(row) for row in await tx.all("replay_jobs_running")]

    @transaction()
    async def cancel_replay_job(
        self, tx: Tx, job_id: int, *, audit: AuditDraft | None = None
    ) -> ReplayJob | None:
        was_running = await tx.one("replay_job_cancel", id=job_id) is not None
        row = await tx.one("replay_job_by_id", id=job_id)
        if row is None:
            return None
        job = rows.replay_job(row)
        if was_running:
            states = ({"state": "running"}, {"state": job.state})
            await _log_job(tx, audit, job, before=states[0], after=states[1])
        return job

    @transaction(view=True)
    async def count_replay(
        self, tx: Tx, job: ReplayJob, *, now: int, limit: int
    ) -> tuple[int, bool]:
        return await replays.count(tx, job, now=now, limit=limit)

    @transaction(view=True)
    async def replay_groups(self, tx: Tx, job: ReplayJob, *, now: int, limit: int) -> Counted:
        return await replays.groups(tx, job, now=now, limit=limit)

    @transaction(view=True)
    async def candidates(
        self, tx: Tx, job: ReplayJob, *, now: int, limit: int
    ) -> tuple[list[Finished], int, bool]:
        return await replays.found(tx, job, now=now, limit=limit)

    @transaction()
    async def replay_step(
        self,
        tx: Tx,
        job: ReplayJob,
        *,
        after: ReplayJob,
        new: Sequence[Delivery],
        seen: Mapping[str, EventPlace],
    ) -> bool:
        return await replays.replay_step(tx, job, after=after, new=new, seen=seen, node=self._node)

    # --- erasures ---------------------------------------------------------------------------

    @transaction(read_only=True)
    async def tenant_changes(self, tx: Tx, version: int) -> TenantChanges:
        return await erasures.tenants(tx, version)

    @transaction()
    async def begin_erasure(
        self,
        tx: Tx,
        new: Erasure,
        *,
        key: str | None,
        earlier: Sequence[bytes],
        audit: AuditDraft | None = None,
    ) -> Erasure:
        await begin_change(tx, new.tenant)
        asked = replace(new, upto_position=NOT_BOUND)
        begun, known = await erasures.same_as(tx, asked, key=key, earlier=earlier)
        if known and new.kind is not ErasureKind.TENANT:
            return begun
        if new.kind is ErasureKind.TENANT:
            await erasures.hide_tenant(tx, begun)
        await audit_log.write(  # It never says which id or value was erased.
            tx,
            audit,
            tenant=begun.tenant,
            object_id=show_id("era", begun.id),
            after={"kind": begun.kind, "field": begun.path},
        )
        if known:
            await tx.one("erasure_hold", id=begun.id)
        version = await raise_catalog(tx)  # From now on publishes look for erased ids.
        if new.kind is ErasureKind.TENANT:
            begun = replace(begun, version=version, upto_position=NOT_BOUND)
        if known:
            await tx.all("erasure_extend", id=begun.id, upto_position=NOT_BOUND, version=version)
        else:
            await tx.insert("erasure", [rows.erasure_row(begun)])
        return begun

    @transaction()
    async def bound_erasure(self, tx: Tx, erasure_id: int) -> Erasure:
        upto = await acceptance.last(tx)
        await tx.all("erasure_bound", id=erasure_id, upto_position=upto, not_bound=NOT_BOUND)
        row = await tx.one("erasure_by_id", id=erasure_id)
        if row is None:
            raise NotFound
        return rows.erasure(row)

    @transaction(read_only=True)
    async def erasure(self, tx: Tx, erasure_id: int) -> Erasure | None:
        row = await tx.one("erasure_by_id", id=erasure_id)
        return rows.erasure(row) if row else None

    @transaction(read_only=True)
    async def erasures(
        self, tx: Tx, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Erasure], int | None]:
        bounds = {"before_id": TOP_ID if before_id is None else before_id, "limit": limit + 1}
        if tenant is None:
            found = await tx.all("erasures_page", **bounds)
        else:
            found = await tx.all("erasures_page_of", tenant=tenant, **bounds)
        page = [rows.erasure(row) for row in found[:limit]]
        return page, page[-1].id if len(found) > limit else None

    @transaction(read_only=True)
    async def running_erasures(self, tx: Tx, *, limit: int) -> list[Erasure]:
        return [rows.erasure(row) for row in await tx.all("erasures_running", limit=limit)]

    @transaction(read_only=True)
    async def erasable(
        self, tx: Tx, erasure: Erasure, *, after_key: str, limit: int
    ) -> tuple[list[Erasable], str | None]:
        return await erasures.next_events(tx, erasure, after_key=after_key, limit=limit)

    @transaction()
    async def erase_events(
        self,
        tx: Tx,
        erasure_id: int,
        events: Sequence[tuple[Erasable, ErasedId]],
        *,
        limit: int,
    ) -> bool:
        return await erasures.erase(tx, erasure_id, events, limit=limit, node=self._node)

    @transaction()
    async def hide_erased(self, tx: Tx, erasure_id: int, *, more: bool) -> int:
        await tx.one("erasure_hold", id=erasure_id)
        version = await raise_catalog(tx)
        await erasures.hide(tx, erasure_id, version=version, more=more)
        return version

    @transaction()
    async def erase_rest_of_tenant(self, tx: Tx, erasure: Erasure, *, limit: int) -> CleanupStep:
        return await erasures.remove_of_tenant(tx, erasure, limit=limit)

    @transaction()
    async def finish_erasure(self, tx: Tx, erasure: Erasure, *, now: int) -> bool:
        await tx.one("erasure_hold", id=erasure.id)
        version = await raise_catalog(tx) if erasure.kind is ErasureKind.TENANT else None
        row = await tx.one(
            "erasure_finish",
            id=erasure.id,
            upto_position=erasure.upto_position,
            now=now,
            version=version,
        )
        return row is not None

    async def empty_log(self) -> bool:
        return await self._db.empty_log()


async def _log(
    tx: Tx, audit: AuditDraft | None, before: Subscription | None, after: Subscription | None
) -> None:
    """Write the audit entry of a change of a subscription."""
    it = after or before
    assert it is not None
    await audit_log.write(
        tx,
        audit,
        tenant=it.tenant,
        object_id=show_id("sub", it.id),
        before=before,
        after=after,
    )


async def _log_with_backfill(
    tx: Tx, audit: AuditDraft | None, made: Subscription, job: ReplayJob
) -> None:
    """Write the audit entry of a new subscription that starts in the past."""
    began = {
        "id": show_id("rpl", job.id),
        "since": job.filter.since,
        "per_second": job.filter.per_second,
    }
    await audit_log.write(
        tx,
        audit,
        tenant=made.tenant,
        object_id=show_id("sub", made.id),
        after={**shown(made), "backfill": began},
    )


async def _log_job(
    tx: Tx,
    audit: AuditDraft | None,
    job: ReplayJob,
    *,
    after: dict[str, Any],
    before: dict[str, Any] | None = None,
) -> None:
    """Write the audit entry of a bulk replay."""
    await audit_log.write(
        tx,
        audit,
        tenant=job.filter.tenant,
        object_id=show_id("rpl", job.id),
        before=before,
        after=after,
    )


def _conditions(job: ReplayJob) -> dict[str, Any]:
    """Which deliveries a job takes; without the id of an event, which may be erased later."""
    values: dict[str, Any] = msgspec.to_builtins(replace(job.filter, event_key=None))
    return {name: value for name, value in values.items() if value is not None}


def _as_seen(endpoint: Endpoint) -> dict[str, Any]:
    """The values that a settle may have changed since a command read them."""
    health = endpoint.health
    return {
        "seen_state": health.state,
        "seen_attempts": health.attempts,
        "seen_failures": health.failures,
        "seen_consecutive": health.consecutive_failures,
        "seen_success": health.last_success_at or 0,
        "seen_dropped": endpoint.dropped_unreported,
        "seen_probed": endpoint.probe_after_id,
        "seen_hold": endpoint.hold_until,
    }


async def _endpoint_at(tx: Tx, endpoint: Endpoint | None) -> int:
    """The id of the endpoint of this tenant and URL; inserts it if there is none.

    Changes of a tenant are made one at a time, so no other transaction inserts it at the same time.
    Without a URL there is no endpoint, and the id is 0.
    """
    if endpoint is None:
        return 0
    row = await tx.one("endpoint_of_url", tenant=endpoint.tenant, url=endpoint.url)
    if row is not None:
        return int(row[0])
    await tx.insert("endpoint", [rows.endpoint_row(endpoint)])
    await tx.all("endpoint_made", id=endpoint.id)
    return endpoint.id


async def _living(tx: Tx, subscription_id: int) -> Subscription:
    """The subscription as it is stored, locked until the commit."""
    row = await tx.one("subscription_hold", id=subscription_id)
    if row is None:
        raise NotFound
    subscription = rows.subscription(row)
    if subscription.deleted_at is not None:
        raise NotFound
    if subscription.tenant in await erasures.being_erased(tx):
        raise NotFound  # It is hidden, and no change may give it a later version.
    return subscription


async def _of_version(tx: Tx, subscription: Subscription) -> Subscription:
    """The subscription as it is stored; raises StaleCatalog if it has another version."""
    await begin_change(tx, subscription.tenant)
    before = await _living(tx, subscription.id)
    if before.version != subscription.version:
        raise StaleCatalog
    return before


async def _twin_of_version(tx: Tx, twin: Subscription) -> Subscription:
    """The twin as it is stored; raises StaleCatalog if it was changed or deleted."""
    try:
        return await _of_version(tx, twin)
    except NotFound:
        raise StaleCatalog from None


async def _with_version(tx: Tx, new: Subscription, *others: Subscription) -> Subscription:
    """Give the subscriptions of a change its version, as the last wait before the commit."""
    version = await raise_catalog(tx)
    ids = [it.id for it in (new, *others)]
    await tx.all("subscriptions_raise", ids=ids, version=version)
    return replace(new, version=version)


async def _change(tx: Tx, before: Subscription, new: Subscription, *, cleanup_job_id: int) -> None:
    """Replace a subscription; a cleanup job moves its pending deliveries to a new endpoint."""
    await _replace_subscription(tx, new)
    if is_gone(before) and not is_gone(new):
        await tx.all("cleanup_job_gone_moves", subscription_id=new.id)
    if before.endpoint_id != new.endpoint_id:
        await cleanup_jobs.leave(
            tx,
            cleanup_jobs.MOVE,
            cleanup_job_id=cleanup_job_id,
            subscription_id=new.id,
            at=before.endpoint_id,
        )
        await causes.leave(tx, before.endpoint_id, now=new.updated_at)
    elif before.order is not Order.NONE and waiting_rules(before) != waiting_rules(new):
        await cleanup_jobs.leave(
            tx,
            cleanup_jobs.UNBLOCK,
            cleanup_job_id=cleanup_job_id,
            subscription_id=new.id,
            at=new.endpoint_id,
        )


async def _delete(tx: Tx, before: Subscription, *, now: int, cleanup_job_id: int) -> Subscription:
    """Mark a subscription as deleted; a cleanup job cancels its pending deliveries."""
    gone = replace(before, deleted_at=now, updated_at=now)
    await _replace_subscription(tx, gone)
    if not gone.endpoint_id:
        return gone  # It has no deliveries; retention removes its stream.
    await tx.all("cleanup_job_moves_cancel", subscription_id=gone.id)
    await cleanup_jobs.leave(
        tx,
        cleanup_jobs.CANCEL,
        cleanup_job_id=cleanup_job_id,
        subscription_id=gone.id,
        at=gone.endpoint_id,
    )
    await causes.leave(tx, gone.endpoint_id, now=now)
    return gone


async def _replace_subscription(tx: Tx, subscription: Subscription) -> None:
    columns = rows.COLUMNS["subscription"]
    values = zip(columns, rows.subscription_row(subscription), strict=True)
    await tx.all("subscription_replace", **dict(values))
