"""Enters into the books of a fleet who writes and sends what.

They are kept from what goes over the lines to the store and from what receivers see. One process
at a time holds a bucket (S6); what it wrote late is refused (S6); the same attempt twice needs a
bucket that changed hands (S3); numbers have no gaps and ends are ends (S7); one probe in its time
for the whole fleet (S9).
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

from homing.model import Delivery, Endpoint, Subscription, Work
from homing.ports import CleanupJob, CleanupStep, Member, NewEvent, Receipt, Response, SettleBatch
from homing.sim.world import Hit, Watch
from simulation.fleet_books import ENABLES, FREEZES, Change, Duty, FleetBooks, Place, Sub
from simulation.fleet_requests import FleetRequests
from simulation.fleet_settlements import FleetSettlements
from simulation.fleet_world import LEASE_MS, Machine
from simulation.health_model import EndpointModel


class Ear:
    """The witness of one machine: it tells the accounts who it was."""

    def __init__(self, accounts: FleetAccounts, machine: Machine) -> None:
        self._accounts, self._machine = accounts, machine

    def committed(self, op: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        self._enter(f"done_{op}", args, more, result)

    def told(self, op: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        self._enter(f"told_{op}", args, more, result)

    def _enter(self, entry: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        enter = getattr(self._accounts, entry, None)
        if enter is None:
            return
        try:
            enter(self._machine, *args, result=result, **more)
        except Exception:  # noqa: BLE001 - it would end in the engine, which takes it for its own
            self._accounts.books.violated("books", traceback.format_exc())

    def fault(self, kind: str) -> None:
        self._accounts.books.say(f"machine {self._machine.number}: {kind}")


class FleetAccounts(Watch):
    """Enters what happens."""

    def __init__(self, books: FleetBooks) -> None:
        self.books = books
        self.machines: dict[int, Machine] = {}  # by life
        self._cleanup_jobs: dict[int, int] = {}  # how far each has come
        self._requests = FleetRequests(books)
        self.settlements = FleetSettlements(books)

    def joined(self, machine: Machine, me: Member) -> None:
        self.books.say(f"machine {machine.number} is process {me.id}")
        self.machines[machine.life.number] = machine
        self.books.expires[me.id] = me.expires_at

    # --- leases ------------------------------------------------------------------------------

    def done_renew(self, _: Machine, member_id: int, *, result: Any, **more: Any) -> None:
        del more
        if result is not None:
            self.books.expires[member_id] = result.now + LEASE_MS

    def done_take(self, _: Machine, member_id: int, wanted: Any, *, result: dict[int, int]) -> None:
        del wanted
        books = self.books
        if result:
            books.counts["taken"] += len(result)
            books.say(f"process {member_id} takes {len(result)} buckets")
        for bucket, epoch in result.items():
            owner, before = books.owner_of(bucket)
            alive = owner is not None and books.expires.get(owner, 0) > books.clock()
            books.must(not alive, "S6", lambda it=owner: f"process {it} lives, and loses a bucket")  # type: ignore[misc]
            books.must(epoch > before, "S6", lambda it=bucket: f"an epoch of {it} comes again")  # type: ignore[misc]
            books.owners[bucket] = (member_id, epoch)

    def done_give(
        self, machine: Machine, member_id: int, buckets: Sequence[int], *, result: None
    ) -> None:
        del result
        books, now = self.books, self.books.clock()
        given = {it for it in buckets if books.owner_of(it)[0] == member_id}
        for (delivery, number), sent in books.sent.items():
            duty = books.duties[delivery]
            open_ = duty.attempts < number and duty.status == "pending"
            young = now - sent.at < LEASE_MS and sent.life == machine.life.number
            books.must(
                not (open_ and young and duty.bucket in given),
                "S3",
                lambda it=delivery: f"{it} is in flight, and its bucket is handed over",  # type: ignore[misc]
            )
        books.counts["given"] += len(given)
        self._free(given)

    def done_leave(self, _: Machine, member_id: int, *, result: None) -> None:
        del result
        self._free({it for it, (owner, _) in self.books.owners.items() if owner == member_id})
        self.books.expires[member_id] = 0

    def _free(self, buckets: set[int]) -> None:
        for bucket in buckets:
            self.books.owners[bucket] = (None, self.books.owners[bucket][1])

    # --- publishing --------------------------------------------------------------------------

    def done_publish(
        self,
        _: Machine,
        requests: Sequence[Sequence[NewEvent]],
        *,
        result: list[Any],
        catalog_version: int,
        number: int,
    ) -> None:
        del catalog_version, number
        for request, response in zip(requests, result, strict=True):
            if isinstance(response, list):
                for new, receipt in zip(request, response, strict=True):
                    if receipt.new:
                        self._event(new)

    def _event(self, new: NewEvent, *, own: bool = False) -> None:
        """An event and its deliveries are stored; ``own``: it is Homing's."""
        books, event = self.books, new.event
        right = event.key not in books.keys
        books.must(right, "S5", lambda: f"a second event {event.key}")
        books.keys[event.key] = len(new.deliveries)
        books.events[event.id] = event
        books.say(f"event {event.key}: {len(new.deliveries)}")
        if not own:
            right = books.offered.get(event.key) == event.data
            books.must(right, "S2", lambda: f"{event.key} is not what was published")
            wanted = {it for it, sub in books.subs.items() if not sub.deleted}
            found = {it.subscription_id for it in new.deliveries}
            books.must(found == wanted, "S1", lambda: f"{event.key}: to {found}, not {wanted}")
        for row in new.deliveries:
            self._delivery(row)

    def _delivery(self, row: Delivery) -> None:
        books = self.books
        books.duties[row.id] = Duty(
            row.id,
            row.tenant,
            row.event_id,
            row.subscription_id,
            row.endpoint_id,
            row.root_id,
            row.accepted_at,
            books.table,
            replay=row.replay,
            bucket=row.bucket,
        )
        books.counts["deliveries"] += 1
        self.settlements.compare_delivery(row)

    def receipts(self, receipts: Sequence[Receipt]) -> None:
        """A publisher was told 202."""
        for receipt in receipts:
            right = self.books.keys.get(receipt.key) == receipt.deliveries
            self.books.must(right, "S4", lambda it=receipt: f"202 for {it.key}, not stored so")  # type: ignore[misc]

    # --- sending and settling ----------------------------------------------------------------

    def sent(self, hit: Hit) -> None:
        me = self.machines[hit.life].me
        assert me is not None
        try:
            self._requests.sent(hit, me.id)
        except Exception:  # noqa: BLE001 - as above
            self.books.violated("books", traceback.format_exc())

    def responded(self, hit: Hit, response: Response) -> None:
        self._requests.responded(hit, response)

    def done_settle(self, machine: Machine, batch: SettleBatch, *, result: frozenset[int]) -> None:
        assert machine.me is not None
        settle = self.settlements.committed
        if settle(batch, result, member_id=machine.me.id, life=machine.life.number):
            for new in batch.notices:
                self._event(new, own=True)

    def told_settle(self, machine: Machine, batch: SettleBatch, *, result: frozenset[int]) -> None:
        del result
        self.settlements.told(batch, machine.life.number)

    # --- probes ------------------------------------------------------------------------------

    def done_take_probe(
        self,
        machine: Machine,
        endpoint: Endpoint,
        *,
        result: Work | None,
        next_probe_at: int,
        now: int,
        **more: Any,
    ) -> None:
        del more
        if result is None:
            return
        books = self.books
        books.counts["probes"] += 1
        assert machine.me is not None
        owner, _ = books.owner_of(endpoint.bucket)
        right = owner == machine.me.id
        books.must(right, "S6", lambda: f"a probe is taken, and {owner} holds the bucket")
        state = books.places[endpoint.id].model.state
        books.must(state == "disabled", "S9", lambda: f"{endpoint.url} is {state}, and probed")
        due, taker = books.probes.get(endpoint.id, (0, 0))
        again = endpoint.id in books.untold and taker == machine.life.number
        books.must(
            now >= due or again,
            "S9",
            lambda: f"a probe of {endpoint.url} at {now}, due {due}",
        )
        books.probes[endpoint.id] = (next_probe_at, machine.life.number)
        books.untold.add(endpoint.id)

    def told_take_probe(
        self, machine: Machine, endpoint: Endpoint, *, result: Work | None, **more: Any
    ) -> None:
        del more
        if result is not None:
            self.books.untold.discard(endpoint.id)
            told = (machine.life.number, self.books.clock(), endpoint.url)
            self.books.taken[result.delivery.id] = told

    # --- what people change ------------------------------------------------------------------

    def _change(self, machine: Machine) -> Change:
        return Change(machine.life.number, self.books.clock(), by_person=True)

    def _at(self, machine: Machine, row: Subscription, endpoint: Endpoint) -> None:
        """A subscription is written; its endpoint may be new."""
        books, number = self.books, row.endpoint_id
        there = books.urls.setdefault(row.url, number)
        books.must(there == number, "S11", lambda: f"a second endpoint for {row.url}")
        if number not in books.places:
            since = endpoint.health.enabled_since
            model = EndpointModel(number, row.tenant, row.url, books.numbers, enabled_since=since)
            books.places[number] = Place(model, endpoint.bucket, self._change(machine))
        books.subs[row.id] = Sub(row, self._change(machine))
        books.say(f"subscription {row.id} is at {row.url}")

    def done_create_subscription(
        self, machine: Machine, _: Any, *, result: Subscription, endpoint: Endpoint
    ) -> None:
        self._at(machine, result, endpoint)

    def done_change_subscription(
        self,
        machine: Machine,
        _: Any,
        *,
        result: Subscription,
        endpoint: Endpoint,
        **more: Any,
    ) -> None:
        del more
        self._at(machine, result, endpoint)

    def done_delete_subscription(
        self, machine: Machine, subscription_id: int, *, result: Subscription, **more: Any
    ) -> None:
        del more
        self.books.subs[subscription_id] = Sub(result, self._change(machine))
        self.books.say(f"subscription {subscription_id} is deleted")

    def told_subscriptions_since(
        self, machine: Machine, _: int, *, result: list[Subscription]
    ) -> None:
        known = self.books.catalogs.setdefault(machine.life.number, {})
        known.update((it.id, it) for it in result)

    def done_run_cleanup_job(
        self,
        machine: Machine,
        cleanup_job: CleanupJob,
        *,
        result: CleanupStep,
        target: Endpoint | None,
        except_ids: frozenset[int],
        limit: int,
        **more: Any,
    ) -> None:
        del more
        books, sub, after = (
            self.books,
            self.books.subs[cleanup_job.subscription_id],
            self._cleanup_jobs,
        )
        there = books.pending(
            lambda it: (
                it.endpoint_id == cleanup_job.endpoint_id and it.id > after.get(cleanup_job.id, 0)
            )
        )
        there = sorted(there, key=lambda it: it.id)[:limit]
        if there and not result.done:
            after[cleanup_job.id] = there[-1].id
        if not result.touched:
            return
        owner, _ = books.owner_of(cleanup_job.bucket)
        right = machine.me is not None and owner == machine.me.id
        books.must(right, "S6", lambda: f"a cleanup job is done, and {owner} holds the bucket")
        rows = [
            it
            for it in there
            if it.subscription_id == cleanup_job.subscription_id and it.id not in except_ids
        ]
        books.must(
            len(rows) == result.touched, "S1", lambda: f"{cleanup_job}: {result}, not {len(rows)}"
        )
        books.say(f"cleanup job at {cleanup_job.endpoint_id}: {result.touched}")
        for duty in rows:
            if sub.deleted:
                books.finish(duty, "cancelled", "subscription_deleted")
                books.cancels[duty.id] = sub.changed
            elif target is not None:
                duty.endpoint_id, duty.bucket = target.id, target.bucket

    def done_set_endpoint(
        self, machine: Machine, endpoint: Endpoint, *, result: Endpoint, **more: Any
    ) -> None:
        books, transition = self.books, more["transition"]
        model = books.places[endpoint.id].model
        marks = {endpoint.id: len(model.changes)}
        if endpoint.health.state.value == "enabled":
            model.enabled_by_person(endpoint.health.manual_enable_at or 0, ENABLES)
        else:
            model.frozen_by_person(endpoint.health.since, FREEZES)
        books.probes.pop(endpoint.id, None)
        self.settlements.compare_endpoint(result)
        transitions = [transition] if transition is not None else []
        self.settlements.compare_changes(marks, transitions, self._change(machine))
        for new in more["notices"]:
            self._event(new, own=True)

    def told_set_endpoint(self, machine: Machine, endpoint: Endpoint, **more: Any) -> None:
        del more
        changed = self.books.places[endpoint.id].changed
        changed.told = changed.told or changed.life == machine.life.number

    def done_cancel_delivery(
        self, machine: Machine, delivery_id: int, *, result: Delivery, now: int
    ) -> None:
        del result, now
        self.books.finish(self.books.duties[delivery_id], "cancelled", "by_person")
        self.books.cancels[delivery_id] = self._change(machine)
        self.books.say(f"cancelled {delivery_id}")

    def told_cancel_delivery(self, _: Machine, delivery_id: int, **more: Any) -> None:
        del more
        self.books.cancels[delivery_id].told = True

    def done_replay(self, _: Machine, delivery_id: int, *, result: Delivery, new: Delivery) -> None:
        del new
        books, old = self.books, self.books.duties[delivery_id]
        right = result.replay and (old.event_id, old.root_id) == (result.event_id, result.root_id)
        right = right and old.status != "pending"
        books.must(right, "replay", lambda: f"{result.id} is no replay of {old.id}")
        books.say(f"replayed {old.id} as {result.id}")
        self._delivery(result)
