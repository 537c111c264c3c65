"""Checks every settle: by the owner of the bucket, and each outcome as the model has it."""

from __future__ import annotations

import json
from collections.abc import Sequence, Set

from homing.model import Attempt, Delivery, Endpoint, Finished, Transition
from homing.ports import NewEvent, SettleBatch, SettleResult
from simulation.health_model import HOLD_MAX_MS, HOUR, DeliveryModel, EndpointModel
from simulation.health_model import Change as StateChange
from simulation.order_model import Key, key_of
from simulation.reference import SETTLED_WITHIN_MS, Change, Flight, Memory, Reference, Slots, name

_CONNECT_FAILURES = {"timeout", "connect_timeout", "refused", "unreachable", "tls", "dns", "token"}
SENDER_ERROR_FIRST_MS = 5_000
DEADLINE_MAX_MS = 30_000  # of any request
STEP_SLACK_MS = 15 * 60_000  # what was decided before a step of the clock may be written after it


class SettleChecks:
    """Every batch of outcomes, once when it is committed and once when its engine knows."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._done: dict[tuple[int, int], frozenset[int]] = {}  # whose rows were gone

    def committed(self, memory: Memory, batch: SettleBatch, result: SettleResult) -> bool:
        """False: it was committed before, and its reply was lost."""
        reference, gone = self._reference, result.gone
        mark = (memory.life, batch.number)
        before = self._done.get(mark)
        if before is not None:
            right = before == gone or not result.known
            reference.must(right, "S7", lambda: f"batch {batch.number} was settled twice")
            return False
        self._done[mark] = gone
        self._fenced(memory, batch)
        touched = {it.endpoint_id for it in batch.attempts} | {it.id for it in batch.endpoints}
        marks = {it: len(reference.endpoints[it].changes) for it in sorted(touched)}
        exhausted: set[int] = set()
        by_410: set[int] = set()
        self._pauses(memory, batch)
        for attempt in batch.attempts:
            self._attempt(memory, attempt, exhausted, by_410, gone)
            self._cause(attempt, batch)
        for endpoint_id in sorted({it.endpoint_id for it in batch.attempts}):
            if not reference.is_used(endpoint_id):
                reference.causes.left(endpoint_id, 0, opened_in=batch.number)
        self._each_has_its_row(batch)
        for ended in batch.finished:
            if ended.delivery.id in gone:
                self._gone(ended.delivery)
                reference.drops_undone[ended.delivery.endpoint_id] += (
                    ended.status.value == "dropped"
                )
            else:
                self._finished(memory, ended, batch, exhausted, by_410)
        for row in batch.waiting:
            if row.id in gone:
                self._gone(row)
            else:
                self._waiting(row)
                self._not_gone(memory, row)
        self._unblocked(memory, batch, result)
        for endpoint in batch.endpoints:
            compare_endpoint(reference, endpoint, memory)
        change = Change(memory.life, reference.clock(), by_person=False)
        compare_changes(reference, marks, batch.transitions, batch.notices, change)
        return True

    def _unblocked(self, memory: Memory, batch: SettleBatch, result: SettleResult) -> None:
        """Each finished delivery lets the next one of its key go, and nothing else does."""
        reference = self._reference
        self._asks_for_newer(memory, batch, result)
        self._after_failures(batch, result)
        ended = [reference.deliveries[it.delivery.id] for it in batch.finished]
        ended = [it for it in ended if it.key]
        keys = {key_of(it) for it in ended if it.id not in result.gone}
        dropped = {
            key_of(it) for it in ended if it.id not in result.gone and it.status == "dropped"
        }
        late = [*ended, *(reference.deliveries[it.id] for it in batch.waiting)]
        for delivery in late:
            if delivery.key and delivery.id in result.gone and reference.order.released(delivery):
                keys.add(key_of(delivery))
                reference.counts["released_in_flight"] += 1
        newest = {it.id for it in result.unblocked} & self._newest
        others = [it for it in result.unblocked if it.id not in newest]
        self.next_ones(keys, others, dropped=dropped)

    def _asks_for_newer(self, memory: Memory, batch: SettleBatch, result: SettleResult) -> None:
        """Nothing is retried while a newer event of its key waits, if only the newest is wanted."""
        reference, waiting = self._reference, {it.id for it in batch.waiting} - result.gone
        for number in waiting & {it.delivery_id for it in batch.attempts} - set(batch.latest):
            older, flight = reference.deliveries[number], memory.flights.get(number)
            sub = reference.subs[older.subscription_id].now
            if flight is None or flight.version != sub.version or sub.order.value != "latest":
                continue  # Its process may not have known that only the newest is wanted.
            newest = reference.order.instead_of(older) if older.key else None
            reference.must(
                newest is None,
                "latest",
                lambda it=number, by=newest: f"{name(it)} is retried, and {by} waits",  # type: ignore[misc]
            )

    def _after_failures(self, batch: SettleBatch, result: SettleResult) -> None:
        """What failed is superseded if a newer event of its key waits, and that one goes."""
        reference, at = self._reference, max((it.finished_at for it in batch.attempts), default=0)
        self._newest: set[int] = set()
        for number in batch.latest:
            older = reference.deliveries[number]
            newest = reference.order.instead_of(older) if number not in result.gone else None
            reference.must(
                (number in result.superseded) == (newest is not None),
                "latest",
                lambda it=number, by=newest: f"{name(it)} failed, and {by} waits",  # type: ignore[misc]
            )
            if number in result.superseded and newest is not None:
                self.superseded([number])
                next_ = reference.order.line(older).blocked[0]
                self.unblocked(reference.deliveries[next_], at=at, after_drop=True)
                self._newest.add(next_)

    def swapped(self, older: DeliveryModel, newest_id: int, *, at: int) -> None:
        """The newest delivery of a key takes the place of an older one."""
        reference, newest = self._reference, self._reference.deliveries[newest_id]
        if not older.attempts and not older.replay:
            # An attempt of it whose process died left no record: the key waits since before it.
            line = reference.order.line(older)
            line.since = min(line.since or older.accepted_at, older.accepted_at)
        self.superseded([older.id, *reference.order.before(newest)])
        endpoint = reference.endpoints[newest.endpoint_id]
        retry = older.attempts > 0 or older.replay or older.after_drop
        retry = retry or older.ready < endpoint.enabled_since
        self.unblocked(newest, at=at, after_drop=retry)
        if endpoint.state == "enabled":
            newest.due, newest.due_latest = min(older.due, at), min(older.due_latest, at)
            if not retry and older.due <= older.ready:  # It did not wait for quiet.
                newest.turn = older.turn

    def superseded(self, ids: Sequence[int]) -> None:
        """These are finished because a newer event of their key waits."""
        reference = self._reference
        for it in ids:
            reference.finish(reference.deliveries[it], "superseded", None, maybe_in_flight=False)
            reference.counts["superseded"] += 1

    def next_ones(
        self, keys: set[Key], unblocked: Sequence[Delivery], *, dropped: Set[Key]
    ) -> None:
        """Exactly the next deliveries of these keys were unblocked."""
        reference = self._reference
        right, found = reference.order.next_of(keys), {it.id for it in unblocked}
        reference.must(
            found == right,
            "order",
            lambda: f"unblocked {sorted(found)}, and should {sorted(right)}",
        )
        for row in unblocked:
            delivery = reference.deliveries[row.id]
            if delivery.id in right:
                after_drop = row.unblocked_at < 0
                enabled = reference.endpoints[delivery.endpoint_id].state == "enabled"
                fits = after_drop == (enabled and key_of(delivery) in dropped)
                reference.must(fits, "order", lambda it=row: f"{it} was unblocked by no drop")  # type: ignore[misc]
                self.unblocked(delivery, at=row.ready_at, after_drop=after_drop)
                reference.counts["unblocked"] += 1

    def unblocked(self, delivery: DeliveryModel, *, at: int, after_drop: bool) -> None:
        """Its time begins now if its endpoint is enabled; else it was as if never blocked."""
        reference = self._reference
        reference.order.unblocked(delivery)
        if reference.endpoints[delivery.endpoint_id].state == "enabled":
            reference.on_time(at, f"{name(delivery.id)} is unblocked", slack_ms=SETTLED_WITHIN_MS)
            delivery.unblocked(at, after_drop=after_drop)
            delivery.turn = reference.acceptance.last + 1

    def told(self, memory: Memory, batch: SettleBatch) -> None:
        """Slots are free again, and what was decided is known."""
        reference = self._reference
        for attempt in batch.attempts:
            memory.flights.pop(attempt.delivery_id, None)
            slots = memory.slots.setdefault(attempt.endpoint_id, Slots())
            self._ramp(slots, attempt)
        enabled = {it.endpoint_id for it in batch.transitions if it.after.value == "enabled"}
        for endpoint in batch.endpoints:
            reference.learn(memory, endpoint.id)
            if endpoint.id in enabled:
                memory.slots[endpoint.id] = Slots()

    def _fenced(self, memory: Memory, batch: SettleBatch) -> None:
        """In a fleet: by where things are stored, not by where they go."""
        reference, fences = self._reference, dict(batch.fences)
        if reference.alone:
            return
        rows = [it.delivery.id for it in batch.finished]
        rows += [it.id for it in batch.waiting if not self._was_moved(it)]
        known = (reference.deliveries[it] for it in rows)
        buckets = {it.bucket for it in known if it.status == "pending"}
        for bucket in sorted(buckets | {it.bucket for it in batch.endpoints}):
            owner, epoch = reference.owner_of(bucket)
            reference.must(
                (owner, epoch) == (memory.member_id, fences.get(bucket)),
                "S6",
                lambda it=bucket, who=owner: (  # type: ignore[misc]
                    f"process {memory.member_id} settles in {it}, which {who} owns"
                ),
            )

    def _was_moved(self, row: Delivery) -> bool:
        """A cleanup job was there first: it is written as it is, or not at all."""
        delivery = self._reference.deliveries[row.id]
        place = (delivery.endpoint_id, delivery.due) == (row.endpoint_id, row.due_at)
        return place and row.attempts == delivery.attempts

    def _ramp(self, slots: Slots, attempt: Attempt) -> None:
        most = self._reference.mix.options.endpoint_slots
        failure = attempt.failure.value if attempt.failure is not None else None
        if attempt.code is not None and 200 <= attempt.code < 300:
            slots.streak += 1
            if slots.streak >= slots.slots:
                slots.slots, slots.streak = min(slots.slots * 2, most), 0
        elif attempt.code is None and failure in _CONNECT_FAILURES:
            slots.slots, slots.streak = 1, 0
        else:
            slots.streak = 0

    # --- pauses ------------------------------------------------------------------------------

    def _pauses(self, memory: Memory, batch: SettleBatch) -> None:
        """Rows that wait, and those that failed, have moved by the pauses until then."""
        attempts = {it.delivery_id: it for it in batch.attempts}
        for row in batch.waiting:
            self._move(memory, row, attempts.get(row.id))
        for ended in batch.finished:
            attempt = attempts.get(ended.delivery.id)
            if attempt is not None and attempt.outcome.value != "delivered":
                self._move(memory, ended.delivery, attempt)

    def _move(self, memory: Memory, row: Delivery, attempt: Attempt | None) -> None:
        """The times of a row have moved by the pauses of its subscription, and by no more.

        Until when that is counted: the end of the attempt, or the present.
        """
        reference = self._reference
        delivery, now = reference.deliveries[row.id], reference.clock()
        sub = reference.subs[delivery.subscription_id]
        if delivery.status != "pending" or (not sub.pauses and not sub.pauses_before):
            return
        until = now if attempt is None else attempt.finished_at
        totals = {sub.paused_ms(delivery.ready, until)}
        flight = memory.flights.get(delivery.id) if attempt is not None else None
        began = now if flight is None else flight.at
        if not sub.responded or sub.changed.at >= began:  # It was decided before the change.
            totals.add(sub.paused_ms(delivery.ready, until, before=True))
        if attempt is None or reference.clock_jumped:  # Of a pause that ended before it began.
            totals.add(delivery.paused)  # It is written as it was.
        just_now = sub.changed.at >= now - SETTLED_WITHIN_MS  # It was decided before that.
        within = attempt is None and delivery.paused <= row.paused_ms <= max(totals)
        reference.must(
            row.paused_ms in totals
            or (within and (sub.paused_since is not None or not sub.responded or just_now))
            or (within and reference.clock_jumped),
            "S17",
            lambda: f"{name(row.id)} has moved by {row.paused_ms}, and should by {totals}",
        )
        delivery.move_to(row.paused_ms)

    # --- attempts ----------------------------------------------------------------------------

    def _attempt(
        self,
        memory: Memory,
        attempt: Attempt,
        exhausted: set[int],
        ended: set[int],
        gone: frozenset[int],
    ) -> None:
        reference = self._reference
        reference.counts["attempts"] += 1
        flight = memory.flights.get(attempt.delivery_id)
        if flight is None or flight.finished_at is None:
            reference.violated("S7", f"{name(attempt.delivery_id)} is settled without an attempt")
            return
        self._as_it_was(attempt, flight)
        reference.say(
            f"settled {name(attempt.delivery_id)} #{attempt.number} {attempt.lane.value} "
            f"{attempt.outcome.value} {attempt.decided.value} {attempt.due_at}"
        )
        delivery = reference.deliveries[attempt.delivery_id]
        endpoint = reference.endpoints[flight.endpoint_id]
        right = attempt.number == delivery.attempts + 1
        reference.must(
            right,
            "S7",
            lambda: f"{name(delivery.id)}: #{attempt.number} after {delivery.attempts}",
        )
        outcome, may_be = attempt.outcome.value, self._outcomes(memory, flight)
        reference.must(
            outcome in may_be,
            "S10",
            lambda: f"{flight.code or flight.failure} is {outcome}: {may_be}",
        )
        pending = delivery.status == "pending" and delivery.id not in gone
        if flight.passed_guard:
            endpoint.passed_guard(memory.guard)
        if flight.failure == "forbidden_address":
            self._refused(memory, flight, endpoint, outcome)
        match outcome:
            case "delivered":
                delivery.attempts += pending
                delivery.arrived = delivery.arrived or not pending
                endpoint.succeeded(flight.finished_at)
            case "sender_error":
                if pending:
                    self._rested(flight, delivery, attempt)
                    delivery.had_sender_error(flight.finished_at, probe=flight.probe)
            case _:
                self._failed(attempt, flight, endpoint, exhausted, ended, pending=pending)

    def _cause(self, attempt: Attempt, batch: SettleBatch) -> None:
        causes = self._reference.causes
        if attempt.outcome.value == "failed":
            causes.failed(attempt, batch.number)
        elif attempt.outcome.value == "delivered":
            causes.succeeded(attempt.endpoint_id, attempt.finished_at)

    def _refused(
        self, memory: Memory, flight: Flight, endpoint: EndpointModel, outcome: str
    ) -> None:
        """The guard refused it; nobody but the operator hears of a refusal by changed settings."""
        if outcome == "sender_error":
            endpoint.refused(flight.finished_at or 0, memory.guard)
        if memory.guard:
            by_settings = flight.refusal_may_be == {"sender_error"}
            self._reference.counts["held_by_settings" if by_settings else "failed_by_name"] += 1

    def _outcomes(self, memory: Memory, flight: Flight) -> set[str]:
        """What it may be called."""
        if flight.code is not None:
            return {"delivered" if 200 <= flight.code < 300 else "failed"}
        if flight.surely_sender_error:
            return {"sender_error"}
        if (flight.failure or "").startswith("sender_"):
            return {"sender_error", "failed"} if flight.maybe_theirs else {"sender_error"}
        may_be = set(flight.refusal_may_be) or {"failed"}
        # What waits for a verdict when the process stops has spent nothing.
        waited = memory.stopping and self._reference.mix.options.outage.detects
        return may_be | {"sender_error"} if flight.maybe_sender_error or waited else may_be

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
        # The newest of a key takes the lane of the older one, which a clock set back may change.
        swapped = (
            self._reference.clock_jumped and self._reference.deliveries[flight.delivery_id].ordered
        )
        swapped = swapped or flight.lane == "fresh or retry"
        lane = attempt.lane.value if swapped and not flight.probe else flight.lane
        failure = attempt.failure.value if attempt.failure is not None else None
        logged = (
            attempt.number,
            attempt.endpoint_id,
            attempt.started_at,
            attempt.finished_at,
            attempt.code,
            failure,
            self._lane(attempt.lane.value),
        )
        seen = (
            flight.number,
            flight.endpoint_id,
            flight.at,
            flight.finished_at,
            flight.code,
            flight.failure,
            self._lane(lane),
        )
        self._reference.must(
            logged == seen,
            "S7",
            lambda: f"{name(flight.delivery_id)}: logged {logged}, and it was {seen}",
        )

    def _lane(self, lane: str) -> str:
        """In a fleet it is not seen when a process hears of an enable: a retry may be fresh."""
        return lane if self._reference.alone or lane == "probe" else "fresh or retry"

    def _failed(
        self,
        attempt: Attempt,
        flight: Flight,
        endpoint: EndpointModel,
        exhausted: set[int],
        ended: set[int],
        *,
        pending: bool,
    ) -> None:
        at, delivery = flight.finished_at, self._reference.deliveries[attempt.delivery_id]
        assert at is not None
        asked = None
        if self._is_gone(attempt, flight, delivery):
            delivery.attempts += pending
            ended.add(delivery.id)
            endpoint.failed(at, probe=flight.probe, asked=None)
            return
        if not flight.probe and flight.code in {429, 503} and (flight.asked or 0) > at:
            if self._ignores_retry_after(flight, delivery):
                self._reference.counts["retry_after_ignored"] += 1
            else:
                asked = min(flight.asked or 0, at + HOLD_MAX_MS)
                self._reference.counts["retry_after"] += 1
        if flight.probe:
            if pending:
                delivery.probe_failed(at)
        elif pending and not delivery.failed(at, enabled_since=endpoint.enabled_since, asked=asked):
            exhausted.add(delivery.id)
        endpoint.failed(at, probe=flight.probe, asked=asked)

    def _ignores_retry_after(self, flight: Flight, delivery: DeliveryModel) -> bool:
        """By the policy of its subscription, as its process knows it; of its tenant if deleted."""
        reference = self._reference
        known = reference.lives[flight.life].catalog[delivery.subscription_id]
        policy = known.policy if known.deleted_at is None else None
        return reference.mix.ignores(policy, known.tenant)

    def _is_gone(self, attempt: Attempt, flight: Flight, delivery: DeliveryModel) -> bool:
        """Whether a 410 ended the delivery; by what its process knew, it had to, or must not."""
        reference, sub = self._reference, self._reference.subs[delivery.subscription_id]
        known = reference.lives[flight.life].catalog[sub.id]
        at = flight.finished_at or 0
        obeys = flight.code == 410 and reference.mix.obeys(known.policy, known.tenant)
        here = known.deleted_at is None and known.endpoint_id == flight.endpoint_id
        ends = obeys and here and (not known.active or known.version == flight.version)
        ended = attempt.decided.value == "cancelled"
        reference.must(
            ended == ends or (obeys and sub.changed.at >= at),  # It was decided before the change.
            "S16",
            lambda: f"{name(delivery.id)} {flight.code}: {attempt.decided}, with {known}",
        )
        reference.must(
            not ended or not known.active or sub.changed.at >= at,
            "S16",
            lambda: f"{name(delivery.id)} got a 410, and its subscription is active",
        )
        return ended

    # --- rows --------------------------------------------------------------------------------

    def _each_has_its_row(self, batch: SettleBatch) -> None:
        rows = [it.delivery.id for it in batch.finished] + [it.id for it in batch.waiting]
        self._reference.must(len(rows) == len(set(rows)), "S7", lambda: "two rows of one delivery")
        delivered = {it.delivery.id for it in batch.finished if it.status.value == "delivered"}
        for attempt in batch.attempts:
            right = attempt.delivery_id in rows
            if attempt.outcome.value == "delivered":
                right = attempt.delivery_id in delivered
            self._reference.must(
                right,
                "S1",
                lambda it=attempt: f"{name(it.delivery_id)} was {it.outcome}, and has no such row",  # type: ignore[misc]
            )

    def _gone(self, row: Delivery) -> None:
        delivery = self._reference.deliveries[row.id]
        self._reference.must(
            delivery.status != "pending" or row.attempts < delivery.attempts,
            "S1",
            lambda: f"{name(row.id)} is gone, and nothing has finished it",
        )

    def _finished(
        self,
        memory: Memory,
        ended: Finished,
        batch: SettleBatch,
        exhausted: set[int],
        by_410: set[int],
    ) -> None:
        reference = self._reference
        delivery = reference.deliveries[ended.delivery.id]
        sub = reference.subs[delivery.subscription_id]
        reason = ended.reason.value if ended.reason is not None else None
        reference.say(f"finished {name(delivery.id)} {ended.status.value} {reason or ''}")
        match ended.status.value, reason:
            case "delivered", None:
                right = any(
                    it.delivery_id == delivery.id and it.outcome.value == "delivered"
                    for it in batch.attempts
                )
                reference.must(right, "S1", lambda: f"{name(delivery.id)} was not delivered")
                self._at_its_response(memory, ended)
            case "dropped", "exhausted":
                right = delivery.id in exhausted or sub.deleted
                reference.must(right, "S1", lambda: f"{name(delivery.id)} has a retry ahead")
                self._at_its_response(memory, ended)
            case "dropped", "expired":
                self._expired(memory, ended, delivery)
            case "cancelled", "subscription_deleted":
                reference.must(sub.deleted, "S1", lambda: f"{name(delivery.id)} was not cancelled")
            case "cancelled", "gone":
                right = delivery.id in by_410 or delivery.position <= sub.gone_upto
                # In a fleet another process may have accepted it before it knew.
                right = right or (sub.gone and not reference.alone)
                reference.must(right, "S16", lambda: f"{name(delivery.id)} was not gone")
            case other:
                reference.violated("S1", f"{name(delivery.id)} finished as {other}")
        right = delivery.id not in by_410 or reason in {"gone", "by_person"}
        reference.must(right, "S16", lambda: f"{name(delivery.id)} got a 410 and goes on")
        right = delivery.id not in exhausted or ended.status.value != "delivered"
        reference.must(right, "S1", lambda: f"{name(delivery.id)} is exhausted")
        reference.finish(delivery, ended.status.value, reason, maybe_in_flight=False)
        reference.drops[ended.delivery.endpoint_id] += ended.status.value == "dropped"
        reference.counts[f"{ended.status.value}_{reason}"] += 1

    def _at_its_response(self, memory: Memory, ended: Finished) -> None:
        flight = memory.flights.get(ended.delivery.id)
        self._reference.must(
            flight is None or ended.finished_at == flight.finished_at,
            "S7",
            lambda: f"{name(ended.delivery.id)} ended at another time than its last attempt",
        )

    def _expired(self, memory: Memory, ended: Finished, delivery: DeliveryModel) -> None:
        reference, at = self._reference, ended.finished_at
        reference.on_time(at, f"{name(delivery.id)} expired", slack_ms=SETTLED_WITHIN_MS)
        endpoint = reference.endpoints[ended.delivery.endpoint_id]
        sub = reference.subs[delivery.subscription_id]
        may_not_know = not sub.responded and memory.may_not_know(sub.changed, at=at)
        reference.must(
            sub.paused_since is None or may_not_know,
            "S17",
            lambda: f"{name(delivery.id)} expires in a pause since {sub.paused_since}",
        )
        begin, since = delivery.ready, endpoint.enabled_since
        paused = {sub.paused_ms(begin, at), sub.paused_ms(begin, at, before=may_not_know)}
        end = delivery.expires + min(paused) - delivery.paused
        reference.must(at >= end, "S8", lambda: f"{name(delivery.id)} expires {end - at} ms early")
        at_enable = delivery.expires + sub.paused_ms(begin, since) - delivery.paused
        held = endpoint.state != "enabled" or at_enable <= since
        held = held or memory.known[endpoint.id].state != "enabled"
        if not held and (endpoint.refused_at or memory.known[endpoint.id].refused):
            held = True
            reference.counts["expired_by_settings"] += 1
        reference.must(held, "S8", lambda: f"{name(delivery.id)} expired, and nothing held it back")
        quiet = max(memory.started_at, memory.paused_until) + HOUR
        right = not memory.outage_checks.surely_closed
        reference.must(right, "S14", lambda: f"{name(delivery.id)} expired in a sender outage")
        if memory.stepped_at + STEP_SLACK_MS < at:
            quiet = max(quiet, memory.stepped_at + HOUR)
        reference.must(
            at >= quiet,
            "S14",
            lambda: f"{name(delivery.id)} expired {quiet - at} ms before the quiet hour was over",
        )

    def _not_gone(self, memory: Memory, row: Delivery) -> None:
        """What was accepted before a 410 does not wait, as far as its process knows of it."""
        reference = self._reference
        sub = reference.subs[row.subscription_id]
        known = memory.catalog.get(sub.id, sub.now).receiver
        gone_at = None if known is None else known.gone_at
        recent = sub.changed.at >= reference.clock() - SETTLED_WITHIN_MS
        reference.must(
            gone_at is None
            or reference.deliveries[row.id].position > sub.gone_upto
            or (recent and not reference.alone),
            "S16",
            lambda: f"{name(row.id)} waits, and its subscription is gone since {gone_at}",
        )

    def _waiting(self, row: Delivery) -> None:
        reference = self._reference
        delivery = reference.deliveries[row.id]
        sub = reference.subs[delivery.subscription_id]
        if delivery.key and not reference.alone and row.attempts == delivery.attempts:
            self._waits_for_former_owner(row, delivery)
        if not compare_delivery(reference, row, delivery):
            return
        delivery.due = delivery.due_latest = row.due_at
        reference.must(
            row.endpoint_id in {sub.now.endpoint_id, *sub.left},  # Cleanup jobs will follow.
            "S1",
            lambda: f"{name(row.id)} waits where its subscription is not",
        )
        reference.move(delivery, row.endpoint_id)
        right = row.bucket == delivery.bucket
        reference.must(right, "S6", lambda: f"{name(row.id)} waits in bucket {row.bucket}")

    def _waits_for_former_owner(self, row: Delivery, delivery: DeliveryModel) -> None:
        """After a lease that expired, deliveries with a key wait for the longest deadline."""
        now = self._reference.clock()
        if delivery.due_latest < row.due_at <= now + DEADLINE_MAX_MS:
            delivery.due = delivery.due_latest = row.due_at
            self._reference.counts["waited_for_former_owner"] += 1


def compare_delivery(reference: Reference, row: Delivery, delivery: DeliveryModel) -> bool:
    """A pending row against the model."""
    stored = (
        row.t0,
        row.retry,
        row.attempts,
        row.sender_errors,
        row.expires_at,
        row.accepted_at,
        row.paused_ms,
    )
    model = (
        delivery.t0,
        delivery.n,
        delivery.attempts,
        delivery.sender_errors,
        delivery.expires,
        delivery.accepted_at,
        delivery.paused,
    )
    reference.counts["model_steps"] += 1
    in_time = delivery.due <= row.due_at <= delivery.due_latest
    late = row.t0 is not None and row.sender_errors == 0 and row.due_at > row.expires_at
    reference.counts["past_window"] += late
    reference.must(not late, "S8", lambda: f"{name(row.id)} is due after its window")
    return reference.must(
        stored == model and in_time,
        "schedule",
        lambda: (
            f"{name(row.id)}: (t0, n, attempts, sender_errors, expires, accepted, paused) "
            f"{stored}, due "
            f"{row.due_at}; the model has {model}, due {delivery.due}"
        ),
    )


def compare_endpoint(reference: Reference, row: Endpoint, memory: Memory | None = None) -> None:
    """An endpoint's row against the model; ``memory``: of the process that wrote it."""
    model, health = reference.endpoints[row.id], row.health
    reference.counts["model_steps"] += 1
    untold = memory.untold.get(row.id) if memory is not None else None
    if untold is not None and row.next_probe_at == untold[0]:
        model.probe_at = row.next_probe_at  # A take that nobody was told of is not known.
    if reference.clock_jumped:  # Times that a clock set too far ahead are brought within reach.
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
        row.guard_passed,
        row.guard_refused_at,
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
        model.guard_passed,
        model.refused_at,
    )
    reference.must(
        stored == expected,
        "health",
        lambda: f"{row.url}: stored {stored}, the model has {expected}",
    )


def compare_changes(
    reference: Reference,
    marks: dict[int, int],
    transitions: Sequence[Transition],
    notices: Sequence[NewEvent],
    change: Change,
) -> None:
    """Every change of state of the model since ``marks`` is recorded and told; no other is."""
    expected = [
        (it, changed)
        for it, mark in marks.items()
        for changed in reference.endpoints[it].changes[mark:]
    ]
    recorded = [(it.endpoint_id, recorded_change(it)) for it in transitions]
    reference.must(
        sorted(expected, key=repr) == sorted(recorded, key=repr),
        "S11",
        lambda: f"recorded {recorded}, and what happened is {expected}",
    )
    for number, (before, after, rule, at, numbers, by) in recorded:
        url = reference.endpoints[number].url
        reference.changed[number] = change
        reference.say(f"state {url} {before} to {after}: {rule}")
        told = {"url": url, "at": at, "before": before, "state": after, "rule": rule, "by": by}
        reference.must(
            any(
                new.event.type == f"homing.endpoint.{after}"
                and {"numbers": numbers, **told}.items() <= json.loads(new.event.data).items()
                for new in notices
            ),
            "notices",
            lambda: f"nobody is told that {url} became {after}",  # noqa: B023 - asked at once
        )


def recorded_change(it: Transition) -> StateChange:
    return (it.before.value, it.after.value, it.rule, it.at, it.numbers, it.by)
