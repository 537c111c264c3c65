"""Looks at every settle of a fleet: by the holder of the bucket, and as the model has it."""

from __future__ import annotations

from collections.abc import Sequence

from homing.model import Attempt, Delivery, Endpoint, Finished, Transition
from homing.ports import SettleBatch
from simulation.fleet_books import Change, Duty, FleetBooks
from simulation.settlements import recorded_change


class FleetSettlements:
    """Every batch of outcomes, once when it is committed and once when its process knows."""

    def __init__(self, books: FleetBooks) -> None:
        self._books = books
        self._settled: set[tuple[int, int]] = set()  # by life and number of a batch

    def committed(
        self, batch: SettleBatch, gone: frozenset[int], *, member_id: int, life: int
    ) -> bool:
        """False: it was entered before."""
        if (life, batch.number) in self._settled:
            return False
        self._settled.add((life, batch.number))
        self._fenced(batch, member_id)
        marks = {it.endpoint_id for it in batch.attempts} | {it.id for it in batch.endpoints}
        before = {it: len(self._books.places[it].model.changes) for it in sorted(marks)}
        exhausted: set[int] = set()
        for attempt in batch.attempts:
            self._attempt(attempt, life, exhausted, gone)
        for ended in batch.finished:
            self._finished(ended, batch, exhausted, gone)
        for row in batch.waiting:
            self._waiting(row, gone)
        for endpoint in batch.endpoints:
            self.compare_endpoint(endpoint)
        self.compare_changes(before, batch.transitions, Change(life, self._books.clock(), False))
        return True

    def told(self, batch: SettleBatch, life: int) -> None:
        for transition in batch.transitions:
            changed = self._books.places[transition.endpoint_id].changed
            if changed.life == life and not changed.by_person:
                changed.told = True

    def _fenced(self, batch: SettleBatch, member_id: int) -> None:
        """By where things are stored, not by where they go."""
        books, fences = self._books, dict(batch.fences)
        rows = [it.delivery.id for it in batch.finished]
        rows += [it.id for it in batch.waiting if not self._was_moved(it)]
        buckets = {books.duties[it].bucket for it in rows if books.duties[it].status == "pending"}
        for bucket in sorted(buckets | {it.bucket for it in batch.endpoints}):
            owner, epoch = books.owner_of(bucket)
            books.must(
                (owner, epoch) == (member_id, fences.get(bucket)),
                "S6",
                lambda it=bucket, who=owner: (  # type: ignore[misc]
                    f"process {member_id} settles in {it}, which {who} holds"
                ),
            )

    def _was_moved(self, row: Delivery) -> bool:
        """A cleanup job was there first: it is written as it is, or not at all."""
        duty = self._books.duties[row.id]
        place = (duty.endpoint_id, duty.due) == (row.endpoint_id, row.due_at)
        return place and row.attempts == duty.attempts

    # --- deliveries --------------------------------------------------------------------------

    def _attempt(
        self, attempt: Attempt, life: int, exhausted: set[int], gone: frozenset[int]
    ) -> None:
        books, duty = self._books, self._books.duties[attempt.delivery_id]
        books.counts["attempts"] += 1
        books.say(f"settled {duty.id} #{attempt.number} {attempt.outcome.value}")
        right = attempt.number == duty.attempts + 1
        books.must(right, "S7", lambda: f"{duty.id}: #{attempt.number} after {duty.attempts}")
        self._as_it_was(attempt, life)
        model = books.places[attempt.endpoint_id].model
        pending, at = duty.id not in gone, attempt.finished_at
        probe = attempt.lane.value == "probe"
        if attempt.code is not None and 200 <= attempt.code < 300:
            duty.attempts += pending
            duty.arrived = duty.arrived or not pending
            model.succeeded(at)
            return
        if pending and probe:
            duty.probe_failed(at)
        elif pending and not duty.failed(at, enabled_since=model.enabled_since, asked=None):
            exhausted.add(duty.id)
        model.failed(at, probe=probe, asked=None)

    def _as_it_was(self, attempt: Attempt, life: int) -> None:
        sent = self._books.sent.get((attempt.delivery_id, attempt.number))
        probe = attempt.lane.value == "probe"
        logged = (life, attempt.endpoint_id, attempt.started_at, attempt.finished_at)
        seen = sent and (sent.life, sent.endpoint_id, sent.at, sent.finished_at)
        right = sent is not None and (sent.code, sent.probe) == (attempt.code, probe)
        self._books.must(
            right and logged == seen,
            "S7",
            lambda: f"{attempt.delivery_id}: logged {attempt}, and it was {sent}",
        )

    def _finished(
        self, ended: Finished, batch: SettleBatch, exhausted: set[int], gone: frozenset[int]
    ) -> None:
        books, duty = self._books, self._books.duties[ended.delivery.id]
        if duty.id in gone:
            self._gone(duty, duty.attempts)
            return
        reason = ended.reason.value if ended.reason is not None else None
        match ended.status.value, reason:
            case "delivered", None:
                right = any(
                    it.delivery_id == duty.id and it.outcome.value == "delivered"
                    for it in batch.attempts
                )
            case "dropped", "exhausted":
                right = duty.id in exhausted
            case "cancelled", "subscription_deleted":
                right = books.subs[duty.subscription_id].deleted
            case _:
                right = False  # No window ends in so short a run.
        books.must(right, "S1", lambda: f"{duty.id} finished as {ended.status}, {reason}")
        books.finish(duty, ended.status.value, reason)

    def _gone(self, duty: Duty, attempts: int) -> None:
        right = duty.status != "pending" or attempts < duty.attempts
        self._books.must(right, "S1", lambda: f"{duty.id} is gone, and nothing has finished it")

    def _waiting(self, row: Delivery, gone: frozenset[int]) -> None:
        books, duty = self._books, self._books.duties[row.id]
        if row.id in gone:
            self._gone(duty, row.attempts)
            return
        self.compare_delivery(row)
        late = row.due_at > row.expires_at
        books.counts["past_window"] += late
        books.must(not late, "S8", lambda: f"{row.id} is due after its window")
        duty.endpoint_id, duty.bucket = row.endpoint_id, row.bucket
        right = row.bucket == books.places[row.endpoint_id].bucket
        books.must(right, "S6", lambda: f"{row.id} waits in bucket {row.bucket}")

    def compare_delivery(self, row: Delivery) -> None:
        """A pending row against the model."""
        duty = self._books.duties[row.id]
        stored = (row.t0, row.retry, row.attempts, row.expires_at, row.accepted_at, row.due_at)
        model = (duty.t0, duty.n, duty.attempts, duty.expires, duty.accepted_at, duty.due)
        self._books.must(
            stored == model,
            "schedule",
            lambda: f"{row.id}: (t0, n, attempts, expires, accepted, due) {stored}, not {model}",
        )

    # --- endpoints ---------------------------------------------------------------------------

    def compare_endpoint(self, row: Endpoint) -> None:
        model, health = self._books.places[row.id].model, row.health
        stored = (
            health.state.value,
            health.since,
            health.enabled_since,
            health.attempts,
            health.failures,
            health.consecutive_failures,
            health.first_attempt_at,
            health.last_success_at,
            health.manual_enable_at,
        )
        expected = (
            model.state,
            model.since,
            model.enabled_since,
            model.attempts,
            model.failures,
            model.row,
            model.first_attempt_at,
            model.last_success_at,
            model.enabled_by_person_at,
        )
        self._books.must(
            stored == expected,
            "health",
            lambda: f"{row.url}: stored {stored}, the model has {expected}",
        )

    def compare_changes(
        self, marks: dict[int, int], transitions: Sequence[Transition], change: Change
    ) -> None:
        """Every change of state of the model since has its record, and no other has one."""
        books = self._books
        expected = [
            (it, changed)
            for it, mark in marks.items()
            for changed in books.places[it].model.changes[mark:]
        ]
        recorded = [(it.endpoint_id, recorded_change(it)) for it in transitions]
        books.must(
            sorted(expected, key=repr) == sorted(recorded, key=repr),
            "S11",
            lambda: f"recorded {recorded}, and what happened is {expected}",
        )
        for endpoint_id, (before, after, rule, *_) in recorded:
            place = books.places[endpoint_id]
            place.changed = change
            books.say(f"state {place.model.url} {before} to {after}: {rule}")
