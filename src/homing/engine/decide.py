"""Decides a batch of outcomes: read from memory, ask pure policy, collect the rows to be written.

Nothing in memory changes until the batch is committed. When an endpoint turns out to have changed
meanwhile, it is read again and the whole batch is decided again, which is cheap: policy is pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from msgspec import Struct
from msgspec.structs import replace

from homing.engine.attempt import CompletedAttempt
from homing.engine.core import Core
from homing.model import (
    Attempt,
    CauseKey,
    Decided,
    Delivery,
    Endpoint,
    Failure,
    Finished,
    Lane,
    Order,
    Outcome,
    Reason,
    State,
    Status,
    Subscription,
    Transition,
)
from homing.policy import causes, health, pause, receiver, retry
from homing.policy.notices import Notice
from homing.policy.outcome import wants_hold
from homing.policy.reach import settings_changed
from homing.policy.retry import Schedule
from homing.ports import NewEvent, Response, SettleBatch

REPORT_EVERY_MS = 60_000

# Python 3.11 looks up a member of an enum slowly, so the hot path uses these.
_ARRIVED, _DELIVERED = Outcome.DELIVERED, Status.DELIVERED
_DONE, _DROPPED = Decided.DELIVERED, Status.DROPPED
_ENABLED = State.ENABLED


class Terminated(Struct, frozen=True, gc=False):
    """A delivery that ends without an attempt: it expired, or its subscription was deleted."""

    delivery: Delivery
    status: Status
    reason: Reason
    epoch: int = 1  # of the lease under which it was found
    written: Callable[[], None] | None = None  # called after the commit, or if its bucket is lost

    @property
    def endpoint_id(self) -> int:
        return self.delivery.endpoint_id


class Misrouted(Struct, frozen=True, gc=False):
    """A delivery whose subscription has another endpoint by now, is deleted, or is gone."""

    delivery: Delivery
    epoch: int = 1

    @property
    def endpoint_id(self) -> int:
        return self.delivery.endpoint_id


class Deferred(Struct, frozen=True, gc=False):
    """A delivery that waits for a rate, or whose times a pause has moved; no retry is spent."""

    delivery: Delivery
    due_at: int
    epoch: int = 1

    @property
    def endpoint_id(self) -> int:
        return self.delivery.endpoint_id


class Report(Struct, frozen=True, gc=False):
    """A request to report the drops of an endpoint: a minute has passed since the last report."""

    endpoint_id: int
    bucket: int


Item = CompletedAttempt | Terminated | Misrouted | Deferred | Report


class Decision:
    """The rows that a batch of outcomes changes."""

    def __init__(self, endpoints: dict[int, Endpoint], core: Core) -> None:
        self._endpoints = endpoints  # working copies, by id
        self._catalog, self._fan_out, self._notices = core.catalog, core.fan_out, core.notices
        self._people, self.version = core.people, core.catalog.version
        self._ids, self._options, self._now = core.ids, core.options, core.clock.now()
        self._touched: set[int] = set()
        self.finished: list[Finished] = []
        self.waiting: list[Delivery] = []
        self.attempts: list[Attempt] = []
        self.transitions: list[Transition] = []
        self.new_events: list[NewEvent] = []
        self.for_people: list[Notice] = []
        self.enabled: set[int] = set()
        # By endpoint: consecutive successes that are not yet in its row. Most batches have several
        # of an endpoint, and the row is written once.
        self._successes: defaultdict[int, list[int]] = defaultdict(list)
        self._failures: dict[int, dict[CauseKey, causes.Failures]] = {}  # by endpoint
        self._recovered: dict[int, int] = {}
        self.latest: list[int] = []  # waiting deliveries that a newer event of their key supersedes
        self.guarded: set[int] = set()  # endpoints that the guard newly admits or refuses
        # Active subscriptions whose receiver says that they are gone, with the attempt.
        self.gone: dict[int, CompletedAttempt] = {}

    def take(self, items: Iterable[Item]) -> None:
        """Decide these outcomes in the order in which they finished."""
        misrouted: dict[int, Delivery] = {}
        for item in items:
            match item:
                case CompletedAttempt():
                    self._attempt(item)
                case Terminated():
                    if self._has_lost_subscription(item):
                        misrouted[item.delivery.id] = item.delivery
                    else:
                        self._terminate(item)
                case Misrouted():
                    misrouted[item.delivery.id] = item.delivery
                case Deferred():
                    self._wait(replace(item.delivery, due_at=item.due_at))
                case Report():
                    self._report(item.endpoint_id)
        if misrouted:
            self._route(misrouted.values())

    def batch(
        self, number: int, fences: tuple[tuple[int, int], ...] = (), *, fence: int = 0
    ) -> SettleBatch:
        for endpoint_id in tuple(self._successes):
            self._count_successes(endpoint_id)
        return SettleBatch(
            number=number,
            fences=fences,
            finished=tuple(self.finished),
            waiting=tuple(self.waiting),
            attempts=tuple(self.attempts),
            endpoints=tuple(self._endpoints[id_] for id_ in sorted(self._touched)),
            transitions=tuple(self.transitions),
            notices=tuple(self.new_events),
            for_people=tuple(self.for_people),
            failures=tuple(it for keys in self._failures.values() for it in keys.values()),
            recovered=tuple(self._recovered.items()),
            guarded=tuple(sorted(self.guarded)),
            latest=tuple(self.latest),
            fence=fence,
        )

    # --- one attempt -------------------------------------------------------------------------

    def _attempt(self, attempt: CompletedAttempt) -> None:
        endpoint, now = self._endpoints[attempt.endpoint_id], attempt.finished_at
        if (
            endpoint.guard_passed != self._options.guard or endpoint.guard_refused_at
        ) and attempt.response.address is not None:
            endpoint = replace(endpoint, guard_passed=self._options.guard, guard_refused_at=0)
            self._guarded(endpoint)
        if attempt.outcome is _ARRIVED:
            self._log(attempt, _DONE)
            delivered = replace(attempt.work.delivery, attempts=attempt.number)
            self.finished.append(Finished(delivered, _DELIVERED, None, now))
            if endpoint.failing:
                endpoint = self._recover(endpoint, now)
            elif endpoint.health.state is _ENABLED:
                self._successes[endpoint.id].append(now)
                return
            self._judged(endpoint, health.after_success(endpoint.health, now=now), now)
        elif attempt.outcome is Outcome.FAILED:
            self._count_successes(endpoint.id)
            self._failed(attempt, self._endpoints[endpoint.id])
        else:
            probe = attempt.lane is Lane.PROBE
            delivery = self._as_of(attempt.work.delivery, now)
            row = retry.after_sender_error(delivery, now=now, probe=probe)
            self._log(attempt, Decided.WAIT, row)
            self._wait(row, attempted=True)
            if attempt.response.failure is Failure.FORBIDDEN_ADDRESS and settings_changed(
                endpoint.guard_passed, self._options.guard
            ):  # Otherwise a million waiting deliveries would be refused again every minute.
                hold_until = max(now + retry.SENDER_ERROR_MAX_MS, endpoint.hold_until)
                self._guarded(replace(endpoint, guard_refused_at=now, hold_until=hold_until))

    def _failed(self, attempt: CompletedAttempt, endpoint: Endpoint) -> None:
        now = attempt.finished_at
        delivery = self._as_of(attempt.work.delivery, now)
        subscription = self._catalog.get(delivery.subscription_id)
        schedule = self._options.schedule_of(subscription, tenant=delivery.tenant)
        hold_at, row = None, None
        ending = (Status.DROPPED, Reason.EXHAUSTED)
        if self._is_gone(attempt, subscription, schedule):
            decided, ending = Decided.CANCELLED, (Status.CANCELLED, Reason.GONE)
        elif attempt.lane is Lane.PROBE:
            row = retry.after_probe_failure(delivery, schedule, now=now)
            decided = Decided.UNCHANGED
        else:
            asked = attempt.response.retry_after
            if (
                asked is not None
                and wants_hold(attempt.response.code)
                and schedule.retry_after is retry.OnRetryAfter.OBEY
            ):
                wall = now + attempt.wall_ahead_ms
                hold_at = retry.retry_after_at(asked, now=now, wall=wall)
            row = retry.after_failure(
                delivery,
                schedule,
                now=now,
                enabled_since=endpoint.health.enabled_since,
                random=(delivery.id * 0x9E3779B97F4A7C15 >> 11) % (1 << 20) / (1 << 20),
                retry_after_at=hold_at,
            )
            decided = Decided.RETRY if row is not None else Decided.DROPPED
        self._log(attempt, decided, row)
        if row is None:
            ended = replace(delivery, attempts=attempt.number)
            self._end(ended, *ending, now)
        else:
            self._wait(row, attempted=True)
        endpoint = self._endpoints[endpoint.id]  # ``_end`` may have changed its count of drops.
        if hold_at is not None:
            endpoint = replace(endpoint, hold_until=max(hold_at, endpoint.hold_until))
        rules = self._options.rules_of(endpoint.tenant)
        if attempt.lane is Lane.PROBE and endpoint.health.state is State.DISABLED:
            endpoint = replace(endpoint, next_probe_at=now + rules.probe_every_ms)
        self._count_failure(attempt)
        endpoint = endpoint if endpoint.failing else replace(endpoint, failing=True)
        verdict = health.after_failure(endpoint.health, rules, now=now)
        self._judged(endpoint, verdict, now, attempt.response)

    def _is_gone(
        self, attempt: CompletedAttempt, subscription: Subscription | None, schedule: Schedule
    ) -> bool:
        """Whether the response ends the delivery; notes an active subscription in ``gone``."""
        verdict = receiver.after_gone(
            subscription,
            schedule,
            code=attempt.response.code,
            endpoint_id=attempt.endpoint_id,
            version=attempt.version,
        )
        if subscription is not None and verdict is receiver.Verdict.DEACTIVATE:
            self.gone.setdefault(subscription.id, attempt)
        return verdict is not receiver.Verdict.NOTHING

    def _log(
        self, attempt: CompletedAttempt, decided: Decided, row: Delivery | None = None
    ) -> None:
        response, delivery = attempt.response, attempt.work.delivery
        self.attempts.append(
            Attempt(  # By position: keywords take four times as long.
                delivery.id,
                attempt.number,
                attempt.endpoint_id,
                delivery.subscription_id,
                attempt.lane,
                attempt.started_at,
                attempt.finished_at,
                attempt.outcome,
                response.code,
                response.failure,
                response.detail,
                response.address,
                response.phases,
                attempt.header_lines,
                response.headers,
                b"" if attempt.outcome is _ARRIVED else response.excerpt[:1024],
                decided,
                None if row is None else row.due_at,
                delivery.retry if row is None else row.retry,
            )
        )

    # --- causes ------------------------------------------------------------------------------

    def _count_failure(self, attempt: CompletedAttempt) -> None:
        response, delivery = attempt.response, attempt.work.delivery
        key = causes.key_of(response.failure, response.detail, response.code)
        of_endpoint = self._failures.setdefault(attempt.endpoint_id, {})
        failures = of_endpoint.get(key)
        if failures is None:
            failures = of_endpoint[key] = causes.Failures(
                self._ids.take(self._now),
                delivery.tenant,
                attempt.endpoint_id,
                key,
                attempt.finished_at,
            )
        failures.add(attempt.finished_at, delivery.id, attempt.number, delivery.cause_id)

    def _recover(self, endpoint: Endpoint, now: int) -> Endpoint:
        """Close the causes of an endpoint that was failing until this success."""
        self._recovered.setdefault(endpoint.id, now)
        for failures in self._failures.get(endpoint.id, {}).values():
            failures.close(now)
        return replace(endpoint, failing=False)

    def _count_successes(self, endpoint_id: int) -> None:
        """Bring the endpoint's row up to date with the successes that were only collected."""
        finished_at = self._successes.pop(endpoint_id, None)
        if finished_at is not None:
            endpoint = self._endpoints[endpoint_id]
            counted = health.after_successes(endpoint.health, finished_at)
            self._put(replace(endpoint, health=counted))

    # --- the delivery ------------------------------------------------------------------------

    def _route(self, misrouted: Iterable[Delivery]) -> None:
        """Move these, unless a cleanup job has moved them already and they were sent from there."""
        decided = {it.delivery.id for it in self.finished} | {it.id for it in self.waiting}
        for delivery in misrouted:
            if delivery.id not in decided:
                self._wait(delivery)

    def _as_of(self, delivery: Delivery, at: int) -> Delivery:
        """The row with its times moved by the pauses of its subscription until then."""
        subscription = self._catalog.get(delivery.subscription_id)
        if subscription is None or subscription.pauses is None:
            return delivery
        return pause.as_of(delivery, subscription.pauses, at)

    def _has_lost_subscription(self, item: Terminated) -> bool:
        """Whether a delivery has expired, but its unknown subscription may have been paused."""
        known = self._catalog.get(item.delivery.subscription_id)
        return item.reason is Reason.EXPIRED and known is None

    def _terminate(self, item: Terminated) -> None:
        delivery = self._as_of(item.delivery, self._now)
        if item.reason is Reason.EXPIRED and not self._is_expired(delivery):
            self._wait(delivery)
        else:
            self._end(delivery, item.status, item.reason, self._now)

    def _is_expired(self, delivery: Delivery) -> bool:
        """Whether a delivery was held back past its window, judged by its endpoint's new state.

        While its subscription is paused, its window does not end; only the retention does.
        """
        subscription = self._catalog.get(delivery.subscription_id)
        pauses = None if subscription is None else subscription.pauses
        if subscription is not None and pauses is not None:
            if pauses.since is not None:
                retention_ms = self._options.retention_of(delivery.tenant)
                return pause.is_over_age(
                    delivery, subscription, retention_ms=retention_ms, now=self._now
                )
            if delivery.expires_at > self._now:
                return False
        endpoint = self._endpoints[delivery.endpoint_id]
        state = endpoint.health
        if state.state is not State.ENABLED or endpoint.guard_refused_at:
            return True
        at_enable = pause.as_of(delivery, pauses, state.enabled_since)
        return retry.held_past_window(at_enable, enabled_since=state.enabled_since)

    def _wait(self, row: Delivery, *, attempted: bool = False) -> None:
        """Keep a delivery pending, at the present endpoint of its subscription, or cancel it."""
        if row.order_seq:
            return  # It is blocked and was only found by a search: its row stays as it is.
        subscription = self._catalog.get(row.subscription_id)
        if subscription is None:
            self._end(row, Status.CANCELLED, Reason.SUBSCRIPTION_DELETED, self._now)
            return
        if subscription.receiver and receiver.is_over(subscription, row):
            self._end(row, Status.CANCELLED, Reason.GONE, self._now)
            return
        if subscription.endpoint_id != row.endpoint_id:
            row = replace(
                row,
                endpoint_id=subscription.endpoint_id,
                bucket=self._fan_out.bucket(subscription),
            )
        self.waiting.append(row)
        if attempted and row.order_key and subscription.order is Order.LATEST:
            self.latest.append(row.id)

    def _end(
        self, delivery: Delivery, status: Status, reason: Reason | None, finished_at: int
    ) -> None:
        self.finished.append(Finished(delivery, status, reason, finished_at))
        if status is _DROPPED:
            endpoint = self._endpoints[delivery.endpoint_id]
            self._put(replace(endpoint, dropped_unreported=endpoint.dropped_unreported + 1))
            self._report(endpoint.id)

    # --- the endpoint ------------------------------------------------------------------------

    def _guarded(self, endpoint: Endpoint) -> None:
        """Record that an endpoint passed the guard under these settings, or is refused by them."""
        self.guarded.add(endpoint.id)
        self._put(endpoint)

    def _put(self, endpoint: Endpoint) -> None:
        self._endpoints[endpoint.id] = endpoint
        self._touched.add(endpoint.id)

    def _report(self, endpoint_id: int) -> None:
        """Report drops, at most once a minute per endpoint."""
        endpoint = self._endpoints[endpoint_id]
        since = endpoint.dropped_reported_at
        if not endpoint.dropped_unreported or self._now < since + REPORT_EVERY_MS:
            return
        self.new_events.append(
            self._notices.dropped(
                endpoint, count=endpoint.dropped_unreported, since=since, now=self._now
            )
        )
        self.for_people += self._people.dropped(
            endpoint, count=endpoint.dropped_unreported, since=since, now=self._now
        )
        self._put(replace(endpoint, dropped_unreported=0, dropped_reported_at=self._now))

    def _judged(
        self,
        endpoint: Endpoint,
        verdict: health.Verdict,
        now: int,
        failed: Response | None = None,
    ) -> None:
        endpoint = replace(endpoint, health=verdict.health)
        if verdict.change is not None:
            endpoint = self._changed(endpoint, verdict.change, now, failed)
        if (warning := verdict.warning) is not None:
            self.new_events.append(self._notices.warning(endpoint, warning, now=now))
            self.for_people += self._people.warning(endpoint, warning, now=now, last=failed)
        self._put(endpoint)

    def _changed(
        self, endpoint: Endpoint, change: health.Change, now: int, failed: Response | None
    ) -> Endpoint:
        rules = self._options.rules_of(endpoint.tenant)
        disabled = change.after is State.DISABLED
        endpoint = replace(
            endpoint,
            rule=change.rule,
            next_probe_at=now + rules.probe_every_ms if disabled else None,
        )
        transition = Transition(
            id=self._ids.take(self._now),
            endpoint_id=endpoint.id,
            at=now,
            before=change.before,
            after=change.after,
            rule=change.rule,
            numbers=change.numbers,
        )
        self.transitions.append(transition)
        self.for_people += self._people.changed(endpoint, transition, failed)
        self.new_events.append(self._notices.changed(endpoint, change, by="", now=now))
        if change.after is State.ENABLED:
            self.enabled.add(endpoint.id)
        return endpoint
