"""Checks every settle: each outcome goes through the model, and the written rows must agree."""

from __future__ import annotations

import json
from collections.abc import Sequence

from homing.model import Attempt, Delivery, Endpoint, Finished, Transition
from homing.ports import NewEvent, SettleBatch
from simulation.books import SETTLED_WITHIN_MS, Books, Flight, Slots, name
from simulation.health_model import HOLD_MAX_MS, HOUR, Change, DeliveryModel, EndpointModel
from simulation.outage_watch import OutageWatch

_CONNECT_FAILURES = {"timeout", "connect_timeout", "refused", "unreachable", "tls", "dns"}
SENDER_ERROR_FIRST_MS = 5_000
STEP_SLACK_MS = 15 * 60_000  # what was decided before a step of the clock may be written after it


class Settlements:
    """Every batch of outcomes, once when it is committed and once when the engine knows."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._done: dict[tuple[int, int], frozenset[int]] = {}  # whose rows were gone
        self.outage_watch: OutageWatch

    def committed(self, batch: SettleBatch, gone: frozenset[int]) -> None:
        books = self._books
        mark = (books.life, batch.number)
        before = self._done.get(mark)
        if before is not None:
            books.must(before == gone, "S7", lambda: f"batch {batch.number} was settled twice")
            return
        self._done[mark] = gone
        touched = {it.endpoint_id for it in batch.attempts} | {it.id for it in batch.endpoints}
        marks = {it: len(books.endpoints[it].changes) for it in sorted(touched)}
        exhausted: set[int] = set()
        for attempt in batch.attempts:
            self._attempt(attempt, exhausted, gone)
        self._each_has_its_row(batch)
        for ended in batch.finished:
            if ended.delivery.id in gone:
                self._gone(ended.delivery.id)
                books.drops_undone[ended.delivery.endpoint_id] += ended.status.value == "dropped"
            else:
                self._finished(ended, batch, exhausted)
        for row in batch.waiting:
            if row.id in gone:
                self._gone(row.id)
            else:
                self._waiting(row)
        for endpoint in batch.endpoints:
            compare_endpoint(books, endpoint)
        compare_changes(books, marks, batch.transitions, batch.notices)

    def told(self, batch: SettleBatch) -> None:
        """Slots are free again, and what was decided is known."""
        books = self._books
        for attempt in batch.attempts:
            books.flights.pop(attempt.delivery_id, None)
            slots = books.slots.setdefault(attempt.endpoint_id, Slots())
            self._ramp(slots, attempt)
        enabled = {it.endpoint_id for it in batch.transitions if it.after.value == "enabled"}
        for endpoint in batch.endpoints:
            books.learn(endpoint.id)
            if endpoint.id in enabled:
                books.slots[endpoint.id] = Slots()

    def _ramp(self, slots: Slots, attempt: Attempt) -> None:
        most = self._books.mix.options.endpoint_slots
        failure = attempt.failure.value if attempt.failure is not None else None
        if attempt.code is not None and 200 <= attempt.code < 300:
            slots.streak += 1
            if slots.streak >= slots.slots:
                slots.slots, slots.streak = min(slots.slots * 2, most), 0
        elif attempt.code is None and failure in _CONNECT_FAILURES:
            slots.slots, slots.streak = 1, 0
        else:
            slots.streak = 0

    # --- attempts ----------------------------------------------------------------------------

    def _attempt(self, attempt: Attempt, exhausted: set[int], gone: frozenset[int]) -> None:
        books = self._books
        books.counts["attempts"] += 1
        flight = books.flights.get(attempt.delivery_id)
        if flight is None or flight.finished_at is None:
            books.violated("S7", f"{name(attempt.delivery_id)} is settled without an attempt")
            return
        self._as_it_was(attempt, flight)
        books.say(
            f"settled {name(attempt.delivery_id)} #{attempt.number} {attempt.lane.value} "
            f"{attempt.outcome.value} {attempt.decided.value} {attempt.due_at}"
        )
        delivery = books.deliveries[attempt.delivery_id]
        endpoint = books.endpoints[flight.endpoint_id]
        outcome = attempt.outcome.value
        books.must(
            outcome in self._outcomes(flight),
            "S10",
            lambda: f"{flight.code or flight.failure} is {outcome}: {self._outcomes(flight)}",
        )
        pending = delivery.status == "pending" and delivery.id not in gone
        match outcome:
            case "delivered":
                delivery.attempts += pending
                endpoint.succeeded(flight.finished_at)
            case "sender_error":
                if pending:
                    self._rested(flight, delivery, attempt)
                    delivery.had_sender_error(flight.finished_at, probe=flight.probe)
            case _:
                self._failed(flight, delivery, endpoint, exhausted, pending=pending)

    def _outcomes(self, flight: Flight) -> set[str]:
        """What it may be called."""
        if flight.code is not None:
            return {"delivered" if 200 <= flight.code < 300 else "failed"}
        if flight.surely_sender_error:
            return {"sender_error"}
        if (flight.failure or "").startswith("sender_"):
            return {"sender_error", "failed"} if flight.maybe_theirs else {"sender_error"}
        # What waits for a verdict when the process stops has spent nothing.
        return (
            {"sender_error", "failed"}
            if flight.maybe_sender_error or self._books.stopping
            else {"failed"}
        )

    def _rested(self, flight: Flight, delivery: DeliveryModel, attempt: Attempt) -> None:
        """Canaries of an outage do not wait longer and longer: the outage paces them."""
        at = flight.finished_at or 0
        if (
            flight.maybe_closed
            and not flight.probe
            and attempt.due_at == at + SENDER_ERROR_FIRST_MS
        ):
            delivery.sender_errors = 0

    def _as_it_was(self, attempt: Attempt, flight: Flight) -> None:
        failure = attempt.failure.value if attempt.failure is not None else None
        logged = (
            attempt.number,
            attempt.endpoint_id,
            attempt.started_at,
            attempt.finished_at,
            attempt.code,
            failure,
            attempt.lane.value,
        )
        seen = (
            flight.number,
            flight.endpoint_id,
            flight.at,
            flight.finished_at,
            flight.code,
            flight.failure,
            flight.lane,
        )
        self._books.must(
            logged == seen,
            "S7",
            lambda: f"{name(flight.delivery_id)}: logged {logged}, and it was {seen}",
        )

    def _failed(
        self,
        flight: Flight,
        delivery: DeliveryModel,
        endpoint: EndpointModel,
        exhausted: set[int],
        *,
        pending: bool,
    ) -> None:
        at = flight.finished_at
        assert at is not None
        asked = None
        if not flight.probe and flight.code in {429, 503} and (flight.asked or 0) > at:
            asked = min(flight.asked or 0, at + HOLD_MAX_MS)
            self._books.counts["retry_after"] += 1
        if flight.probe:
            if pending:
                delivery.probe_failed(at)
        elif pending and not delivery.failed(at, enabled_since=endpoint.enabled_since, asked=asked):
            exhausted.add(delivery.id)
        endpoint.failed(at, probe=flight.probe, asked=asked)

    # --- rows --------------------------------------------------------------------------------

    def _each_has_its_row(self, batch: SettleBatch) -> None:
        rows = [it.delivery.id for it in batch.finished] + [it.id for it in batch.waiting]
        self._books.must(len(rows) == len(set(rows)), "S7", lambda: "two rows of one delivery")
        delivered = {it.delivery.id for it in batch.finished if it.status.value == "delivered"}
        for attempt in batch.attempts:
            right = attempt.delivery_id in rows
            if attempt.outcome.value == "delivered":
                right = attempt.delivery_id in delivered
            self._books.must(
                right,
                "S1",
                lambda it=attempt: f"{name(it.delivery_id)} was {it.outcome}, and has no such row",  # type: ignore[misc]
            )

    def _gone(self, delivery_id: int) -> None:
        delivery = self._books.deliveries[delivery_id]
        deleted = self._books.subs[delivery.subscription_id].deleted
        self._books.must(
            delivery.status != "pending" or deleted,  # A sweep may come too late, and does no harm.
            "S1",
            lambda: f"{name(delivery_id)} is gone, and nothing has finished it",
        )
        if delivery.status == "pending":
            self._books.finish(delivery, "cancelled", "subscription_deleted")

    def _finished(self, ended: Finished, batch: SettleBatch, exhausted: set[int]) -> None:
        books = self._books
        delivery = books.deliveries[ended.delivery.id]
        sub = books.subs[delivery.subscription_id]
        reason = ended.reason.value if ended.reason is not None else None
        books.say(f"finished {name(delivery.id)} {ended.status.value} {reason or ''}")
        match ended.status.value, reason:
            case "delivered", None:
                right = any(
                    it.delivery_id == delivery.id and it.outcome.value == "delivered"
                    for it in batch.attempts
                )
                books.must(right, "S1", lambda: f"{name(delivery.id)} was not delivered")
                self._at_its_response(ended)
            case "dropped", "exhausted":
                right = delivery.id in exhausted or sub.deleted
                books.must(right, "S1", lambda: f"{name(delivery.id)} has a retry ahead")
                self._at_its_response(ended)
            case "dropped", "expired":
                self._expired(ended, delivery)
            case "cancelled", "subscription_deleted":
                books.must(sub.deleted, "S1", lambda: f"{name(delivery.id)} was not cancelled")
            case other:
                books.violated("S1", f"{name(delivery.id)} finished as {other}")
        right = delivery.id not in exhausted or ended.status.value != "delivered"
        books.must(right, "S1", lambda: f"{name(delivery.id)} is exhausted")
        books.finish(delivery, ended.status.value, reason)
        books.drops[ended.delivery.endpoint_id] += ended.status.value == "dropped"
        books.counts[f"{ended.status.value}_{reason}"] += 1

    def _at_its_response(self, ended: Finished) -> None:
        flight = self._books.flights.get(ended.delivery.id)
        self._books.must(
            flight is None or ended.finished_at == flight.finished_at,
            "S7",
            lambda: f"{name(ended.delivery.id)} ended at another time than its last attempt",
        )

    def _expired(self, ended: Finished, delivery: DeliveryModel) -> None:
        books, at = self._books, ended.finished_at
        books.on_time(at, f"{name(delivery.id)} expired", slack_ms=SETTLED_WITHIN_MS)
        endpoint = books.endpoints[ended.delivery.endpoint_id]
        books.must(
            at >= delivery.expires,
            "S8",
            lambda: f"{name(delivery.id)} expires {delivery.expires - at} ms early",
        )
        held = endpoint.state != "enabled" or delivery.expires <= endpoint.enabled_since
        held = held or books.known[endpoint.id].state != "enabled"
        books.must(held, "S8", lambda: f"{name(delivery.id)} expired, and nothing held it back")
        quiet = max(books.life_at, books.paused_until) + HOUR
        right = not self.outage_watch.surely_closed
        books.must(right, "S14", lambda: f"{name(delivery.id)} expired in a sender outage")
        if books.stepped_at + STEP_SLACK_MS < at:
            quiet = max(quiet, books.stepped_at + HOUR)
        books.must(
            at >= quiet,
            "S14",
            lambda: f"{name(delivery.id)} expired {quiet - at} ms before the quiet hour was over",
        )

    def _waiting(self, row: Delivery) -> None:
        books = self._books
        delivery = books.deliveries[row.id]
        sub = books.subs[delivery.subscription_id]
        if not compare_delivery(books, row, delivery):
            return
        delivery.due = delivery.due_latest = row.due_at
        books.must(
            row.endpoint_id in {sub.now.endpoint_id, *sub.left},  # Cleanup jobs will follow.
            "S1",
            lambda: f"{name(row.id)} waits where its subscription is not",
        )
        if row.endpoint_id != delivery.endpoint_id:
            books.waiting.get(delivery.endpoint_id, {}).pop(row.id, None)
            delivery.endpoint_id = row.endpoint_id
            books.waiting.setdefault(row.endpoint_id, {})[row.id] = delivery


def compare_delivery(books: Books, row: Delivery, delivery: DeliveryModel) -> bool:
    """A pending row against the model."""
    stored = (row.t0, row.retry, row.attempts, row.sender_errors, row.expires_at, row.accepted_at)
    model = (
        delivery.t0,
        delivery.n,
        delivery.attempts,
        delivery.sender_errors,
        delivery.expires,
        delivery.accepted_at,
    )
    books.counts["model_steps"] += 1
    in_time = delivery.due <= row.due_at <= delivery.due_latest
    late = row.t0 is not None and row.sender_errors == 0 and row.due_at > row.expires_at
    books.counts["past_window"] += late
    books.must(not late, "S8", lambda: f"{name(row.id)} is due after its window")
    return books.must(
        stored == model and in_time,
        "schedule",
        lambda: (
            f"{name(row.id)}: (t0, n, attempts, sender_errors, expires, accepted) {stored}, due "
            f"{row.due_at}; the model has {model}, due {delivery.due}"
        ),
    )


def compare_endpoint(books: Books, row: Endpoint) -> None:
    """An endpoint's row against the model."""
    model, health = books.endpoints[row.id], row.health
    books.counts["model_steps"] += 1
    if row.id in books.untold and row.next_probe_at == books.untold[row.id][0]:
        model.probe_at = row.next_probe_at  # A take that nobody was told of is not known.
    if books.clock_jumped:  # Times that a clock set too far ahead are brought within reach.
        if model.probe_at is not None and row.next_probe_at is not None:
            model.probe_at = min(model.probe_at, row.next_probe_at)
        model.hold_until = min(model.hold_until, row.hold_until)
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
        row.next_probe_at,
        row.hold_until,
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
        model.probe_at,
        model.hold_until,
    )
    books.must(
        stored == expected,
        "health",
        lambda: f"{row.url}: stored {stored}, the model has {expected}",
    )


def compare_changes(
    books: Books,
    marks: dict[int, int],
    transitions: Sequence[Transition],
    notices: Sequence[NewEvent],
) -> None:
    """Every change of state of the model since ``marks`` is recorded and told; no other is."""
    expected = [
        (it, change) for it, mark in marks.items() for change in books.endpoints[it].changes[mark:]
    ]
    recorded = [(it.endpoint_id, recorded_change(it)) for it in transitions]
    books.must(
        sorted(expected, key=repr) == sorted(recorded, key=repr),
        "S11",
        lambda: f"recorded {recorded}, and what happened is {expected}",
    )
    for number, (before, after, rule, at, numbers, by) in recorded:
        url = books.endpoints[number].url
        books.say(f"state {url} {before} to {after}: {rule}")
        told = {"url": url, "at": at, "before": before, "state": after, "rule": rule, "by": by}
        books.must(
            any(
                new.event.type == f"homing.endpoint.{after}"
                and {"numbers": numbers, **told}.items() <= json.loads(new.event.data).items()
                for new in notices
            ),
            "notices",
            lambda: f"nobody is told that {url} became {after}",  # noqa: B023 - asked at once
        )


def recorded_change(it: Transition) -> Change:
    return (it.before.value, it.after.value, it.rule, it.at, it.numbers, it.by)
