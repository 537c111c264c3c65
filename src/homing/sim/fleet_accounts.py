"""The books of a fleet: who holds which bucket, and who writes and sends what.

They are kept from what goes over the lines to the store and from what receivers see. One process
at a time holds a bucket (S6); what it wrote late is refused (S6); the same attempt twice needs a
bucket that changed hands (S3); numbers have no gaps and ends are ends (S7); one probe in its time
for the whole fleet (S9).
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from homing.model import Endpoint, Work, read_id
from homing.ports import Answer, Member, NewEvent, Receipt, SettleBatch
from homing.sim.findings import Findings
from homing.sim.fleet_world import LEASE_MS, Machine
from homing.sim.world import Hit, Watch


@dataclass
class Duty:
    """A delivery as it is stored."""

    id: int
    bucket: int
    status: str = "pending"
    attempts: int = 0


@dataclass(frozen=True)
class Sent:
    """An attempt on its way: by which life, under which epoch."""

    life: int
    epoch: int
    at: int


@dataclass(kw_only=True)
class FleetBooks(Findings):
    """All that is known of a fleet's run."""

    owners: dict[int, tuple[int | None, int]] = field(default_factory=dict)  # by bucket: epoch
    expires: dict[int, int] = field(default_factory=dict)  # by member
    duties: dict[int, Duty] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)  # of events: how many deliveries
    offered: dict[bytes, str] = field(default_factory=dict)
    sent: dict[tuple[int, int], Sent] = field(default_factory=dict)  # by delivery and number
    probes: dict[int, tuple[int, int]] = field(default_factory=dict)  # by endpoint: next, taker
    untold: set[int] = field(default_factory=set)  # endpoints whose take nobody heard of

    def owner_of(self, bucket: int) -> tuple[int | None, int]:
        return self.owners.get(bucket, (None, 0))


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
        self._settled: set[tuple[int, int]] = set()  # by life and number of a batch

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
        for request, answer in zip(requests, result, strict=True):
            if isinstance(answer, list):
                for new, receipt in zip(request, answer, strict=True):
                    if receipt.new:
                        self._event(new)

    def _event(self, new: NewEvent) -> None:
        books = self.books
        right = new.event.key not in books.keys
        books.must(right, "S5", lambda: f"a second event {new.event.key}")
        books.keys[new.event.key] = len(new.deliveries)
        books.say(f"event {new.event.key}: {len(new.deliveries)}")
        for row in new.deliveries:
            books.duties[row.id] = Duty(row.id, row.bucket)
            books.counts["deliveries"] += 1

    def receipts(self, receipts: Sequence[Receipt]) -> None:
        """A publisher was told 202."""
        for receipt in receipts:
            right = self.books.keys.get(receipt.key) == receipt.deliveries
            self.books.must(right, "S4", lambda it=receipt: f"202 for {it.key}, not stored so")  # type: ignore[misc]

    # --- sending and settling ----------------------------------------------------------------

    def sent(self, hit: Hit) -> None:
        books, machine = self.books, self.machines[hit.life]
        books.counts["requests"] += 1
        if hit.headers["homing-event-type"] == "homing.test":
            return
        number = read_id("dlv", hit.delivery) or 0
        duty = books.duties.get(number)
        if duty is None:
            books.violated("S2", f"{hit.delivery} was never accepted")
            return
        assert machine.me is not None
        owner, epoch = books.owner_of(duty.bucket)
        books.say(f"process {machine.me.id} sends {hit.delivery} #{hit.number}")
        books.must(
            owner == machine.me.id,
            "S6",
            lambda: f"process {machine.me and machine.me.id} sends, and {owner} holds the bucket",
        )
        right = duty.status in {"pending", "cancelled"}
        books.must(right, "S7", lambda: f"{hit.delivery} is {duty.status}, and is attempted")
        right = hit.number == duty.attempts + 1
        books.must(right, "S7", lambda: f"{hit.delivery}: {duty.attempts}, now #{hit.number}")
        before = books.sent.get((number, hit.number))
        if before is not None:
            books.counts["duplicates"] += 1
            books.must(
                before.epoch != epoch,
                "S3",
                lambda: f"{hit.delivery} #{hit.number} goes twice, and its bucket stayed",
            )
        books.sent[number, hit.number] = Sent(hit.life, epoch, hit.at)

    def answered(self, hit: Hit, answer: Answer) -> None:
        word = answer.code if answer.code is not None else answer.failure
        self.books.say(f"answer {hit.delivery} #{hit.number} {word}")

    def done_settle(self, machine: Machine, batch: SettleBatch, *, result: frozenset[int]) -> None:
        books = self.books
        assert machine.me is not None
        mark = (machine.life.number, batch.number)
        if mark in self._settled:
            return
        self._settled.add(mark)
        rows = [it.delivery for it in batch.finished] + list(batch.waiting)
        fences = dict(batch.fences)
        for bucket in sorted({it.bucket for it in rows} | {it.bucket for it in batch.endpoints}):
            owner, epoch = books.owner_of(bucket)
            books.must(
                (owner, epoch) == (machine.me.id, fences.get(bucket)),
                "S6",
                lambda it=bucket, who=owner: (  # type: ignore[misc]
                    f"process {machine.me and machine.me.id} settles in {it}, which {who} holds"
                ),
            )
        for attempt in batch.attempts:
            self._attempt(attempt.delivery_id, attempt.number, gone=result)
        for ended in batch.finished:
            if ended.delivery.id not in result:
                self._end(ended.delivery.id, ended.status.value)
        for new in batch.notices:
            if new.event.key not in books.keys:
                self._event(new)

    def _attempt(self, delivery_id: int, number: int, *, gone: frozenset[int]) -> None:
        books, duty = self.books, self.books.duties[delivery_id]
        books.counts["attempts"] += 1
        books.say(f"settled {delivery_id} #{number}")
        right = number == duty.attempts + 1
        books.must(right, "S7", lambda: f"{delivery_id}: #{number} after {duty.attempts}")
        if delivery_id not in gone:
            duty.attempts = number

    def _end(self, delivery_id: int, status: str) -> None:
        books, duty = self.books, self.books.duties[delivery_id]
        right = duty.status == "pending"
        books.must(right, "S7", lambda: f"{delivery_id} is {duty.status}, and now {status}")
        duty.status = status
        books.counts[status] += 1

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
        self, _: Machine, endpoint: Endpoint, *, result: Work | None, **more: Any
    ) -> None:
        del more
        if result is not None:
            self.books.untold.discard(endpoint.id)

    def done_set_endpoint(self, _: Machine, endpoint: Endpoint, **more: Any) -> None:
        self.books.probes.pop(endpoint.id, None)
        for new in more["notices"]:
            self._event(new)
