"""Decides a batch of outcomes: read from memory, ask pure policy, collect what is to be written.

Nothing here is kept until the batch is committed. When an endpoint turns out to have changed
meanwhile it is read again and the whole batch is decided anew, which is cheap: policy is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from homing.engine.attempt import Made
from homing.engine.core import Core
from homing.model import (
    Attempt,
    Decided,
    Delivery,
    Endpoint,
    Finished,
    Lane,
    Outcome,
    Reason,
    State,
    Status,
    Transition,
)
from homing.policy import health, retry
from homing.policy.outcome import wants_hold
from homing.ports import NewEvent, SettleBatch

REPORT_EVERY_MS = 60_000

# Python 3.11 looks up a member of an enum slowly; the hot path has these at hand.
_ARRIVED, _DELIVERED = Outcome.DELIVERED, Status.DELIVERED
_DONE, _DROPPED = Decided.DELIVERED, Status.DROPPED


class Ended(Struct, frozen=True, gc=False):
    """A delivery that ends without an attempt: expired, or its subscription is gone."""

    delivery: Delivery
    status: Status
    reason: Reason
    epoch: int = 1  # of the lease under which it was found
    written: Callable[[], None] | None = None  # called when it is, or is not ours to write

    @property
    def endpoint_id(self) -> int:
        return self.delivery.endpoint_id


class Stray(Struct, frozen=True, gc=False):
    """A delivery met where its subscription no longer is: it moves, or is cancelled."""

    delivery: Delivery
    epoch: int = 1

    @property
    def endpoint_id(self) -> int:
        return self.delivery.endpoint_id


class Later(Struct, frozen=True, gc=False):
    """A delivery that waits its turn: its subscription, or its host, takes no more now."""

    delivery: Delivery
    due_at: int
    epoch: int = 1

    @property
    def endpoint_id(self) -> int:
        return self.delivery.endpoint_id


class Report(Struct, frozen=True, gc=False):
    """Tell of an endpoint's drops: the minute since the last time is over."""

    endpoint_id: int
    bucket: int


Item = Made | Ended | Stray | Later | Report


class Decision:
    """One batch under decision."""

    def __init__(self, endpoints: dict[int, Endpoint], core: Core) -> None:
        self._endpoints = endpoints  # working copies, by id
        self._catalog, self._stage, self._notices = core.catalog, core.stage, core.notices
        self._ids, self._options, self._now = core.ids, core.options, core.clock.now()
        self._touched: set[int] = set()
        self.finished: list[Finished] = []
        self.waiting: list[Delivery] = []
        self.attempts: list[Attempt] = []
        self.transitions: list[Transition] = []
        self.new_events: list[NewEvent] = []
        self.enabled: set[int] = set()

    def take(self, items: Iterable[Item]) -> None:
        """Decide in the order in which things finished."""
        for item in items:
            match item:
                case Made():
                    self._attempt(item)
                case Ended() if item.reason is Reason.EXPIRED and not self._was_held(item.delivery):
                    self._wait(item.delivery)
                case Ended():
                    self._end(item.delivery, item.status, item.reason, self._now)
                case Stray():
                    self._wait(item.delivery)
                case Later():
                    self._wait(replace(item.delivery, due_at=item.due_at))
                case Report():
                    self._report(item.endpoint_id)

    def batch(self, number: int, fences: tuple[tuple[int, int], ...] = ()) -> SettleBatch:
        return SettleBatch(
            number=number,
            fences=fences,
            finished=tuple(self.finished),
            waiting=tuple(self.waiting),
            attempts=tuple(self.attempts),
            endpoints=tuple(self._endpoints[id_] for id_ in sorted(self._touched)),
            transitions=tuple(self.transitions),
            notices=tuple(self.new_events),
        )

    # --- one attempt -------------------------------------------------------------------------

    def _attempt(self, made: Made) -> None:
        endpoint, now = self._endpoints[made.endpoint_id], made.finished_at
        if made.outcome is _ARRIVED:
            self._log(made, _DONE)
            delivered = replace(made.work.delivery, attempts=made.number)
            self.finished.append(Finished(delivered, _DELIVERED, None, now))
            self._judged(endpoint, health.after_success(endpoint.health, now=now), now)
        elif made.outcome is Outcome.FAILED:
            self._failed(made, endpoint)
        else:
            probe = made.lane is Lane.PROBE
            row = retry.after_ours(made.work.delivery, now=now, probe=probe)
            self._log(made, Decided.WAIT, row)
            self._wait(row)

    def _failed(self, made: Made, endpoint: Endpoint) -> None:
        delivery, now = made.work.delivery, made.finished_at
        subscription = self._catalog.get(delivery.subscription_id)
        schedule = self._options.schedule_of(subscription, tenant=delivery.tenant)
        hold_at = None
        if made.lane is Lane.PROBE:
            row: Delivery | None = retry.after_probe_failure(delivery, schedule, now=now)
            decided = Decided.UNCHANGED
        else:
            if made.answer.retry_after is not None and wants_hold(made.answer.code):
                wall = now + made.wall_ahead_ms
                hold_at = retry.retry_after_at(made.answer.retry_after, now=now, wall=wall)
            row = retry.after_failure(
                delivery,
                schedule,
                now=now,
                enabled_since=endpoint.health.enabled_since,
                random=(delivery.id * 0x9E3779B97F4A7C15 >> 11) % (1 << 20) / (1 << 20),
                retry_after_at=hold_at,
            )
            decided = Decided.RETRY if row is not None else Decided.DROPPED
        self._log(made, decided, row)
        if row is None:
            ended = replace(delivery, attempts=made.number)
            self._end(ended, Status.DROPPED, Reason.EXHAUSTED, now)
        else:
            self._wait(row)
        endpoint = self._endpoints[endpoint.id]  # A drop may have been reported on it.
        if hold_at is not None:
            endpoint = replace(endpoint, hold_until=max(hold_at, endpoint.hold_until))
        rules = self._options.rules_of(endpoint.tenant)
        if made.lane is Lane.PROBE and endpoint.health.state is State.DISABLED:
            endpoint = replace(endpoint, next_probe_at=now + rules.probe_every_ms)
        self._judged(endpoint, health.after_failure(endpoint.health, rules, now=now), now)

    def _log(self, made: Made, decided: Decided, row: Delivery | None = None) -> None:
        answer, delivery = made.answer, made.work.delivery
        self.attempts.append(
            Attempt(  # In the order of its fields: by name it takes four times as long.
                delivery.id,
                made.number,
                made.endpoint_id,
                delivery.subscription_id,
                made.lane,
                made.started_at,
                made.finished_at,
                made.outcome,
                answer.code,
                answer.failure,
                answer.detail,
                answer.address,
                answer.phases,
                made.header_lines,
                answer.headers,
                b"" if made.outcome is _ARRIVED else answer.excerpt[:1024],
                decided,
                None if row is None else row.due_at,
                delivery.retry if row is None else row.retry,
            )
        )

    # --- the delivery ------------------------------------------------------------------------

    def _was_held(self, delivery: Delivery) -> bool:
        """Until its window ended: its endpoint may have been enabled since that was seen."""
        state = self._endpoints[delivery.endpoint_id].health
        held = state.state is not State.ENABLED
        return held or retry.held_past_window(delivery, enabled_since=state.enabled_since)

    def _wait(self, row: Delivery) -> None:
        """It stays pending: at its subscription's URL of today, unless that is gone."""
        subscription = self._catalog.get(row.subscription_id)
        if subscription is None:
            self._end(row, Status.CANCELLED, Reason.SUBSCRIPTION_DELETED, self._now)
            return
        if subscription.endpoint_id != row.endpoint_id:
            row = replace(
                row,
                endpoint_id=subscription.endpoint_id,
                bucket=self._stage.bucket(subscription),
            )
        self.waiting.append(row)

    def _end(
        self, delivery: Delivery, status: Status, reason: Reason | None, finished_at: int
    ) -> None:
        self.finished.append(Finished(delivery, status, reason, finished_at))
        if status is _DROPPED:
            endpoint = self._endpoints[delivery.endpoint_id]
            self._put(replace(endpoint, dropped_unreported=endpoint.dropped_unreported + 1))
            self._report(endpoint.id)

    # --- the endpoint ------------------------------------------------------------------------

    def _put(self, endpoint: Endpoint) -> None:
        self._endpoints[endpoint.id] = endpoint
        self._touched.add(endpoint.id)

    def _report(self, endpoint_id: int) -> None:
        """Tell of drops, at most once a minute per endpoint."""
        endpoint = self._endpoints[endpoint_id]
        since = endpoint.dropped_reported_at
        if not endpoint.dropped_unreported or self._now < since + REPORT_EVERY_MS:
            return
        self.new_events.append(
            self._notices.dropped(
                endpoint, count=endpoint.dropped_unreported, since=since, now=self._now
            )
        )
        self._put(replace(endpoint, dropped_unreported=0, dropped_reported_at=self._now))

    def _judged(self, endpoint: Endpoint, verdict: health.Verdict, now: int) -> None:
        endpoint = replace(endpoint, health=verdict.health)
        if verdict.change is not None:
            endpoint = self._changed(endpoint, verdict.change, now)
        if verdict.warning is not None:
            self.new_events.append(self._notices.warning(endpoint, verdict.warning, now=now))
        self._put(endpoint)

    def _changed(self, endpoint: Endpoint, change: health.Change, now: int) -> Endpoint:
        rules = self._options.rules_of(endpoint.tenant)
        disabled = change.after is State.DISABLED
        endpoint = replace(
            endpoint,
            rule=change.rule,
            next_probe_at=now + rules.probe_every_ms if disabled else None,
        )
        self.transitions.append(
            Transition(
                id=self._ids.take(self._now),
                endpoint_id=endpoint.id,
                at=now,
                before=change.before,
                after=change.after,
                rule=change.rule,
                numbers=change.numbers,
            )
        )
        self.new_events.append(self._notices.changed(endpoint, change, by="", now=now))
        if change.after is State.ENABLED:
            self.enabled.add(endpoint.id)
        return endpoint
