"""Enters into the books what goes over the lines to the store, and what publishers are told.

Each operation of the store is entered twice: when it is committed, because from then on it is
true, and when the engine is told, because from then on the engine must act on it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from typing import Any

from homing.model import Delivery, Endpoint, Subscription, Work
from homing.policy.admission import EventDraft
from homing.ports import NewEvent, Receipt, ReplayJob, Response
from homing.sim.world import Hit, Watch
from simulation.books import (
    SETTLED_WITHIN_MS,
    WRITTEN_WITHIN_MS,
    Books,
    Fact,
    Slots,
    Sub,
    name,
)
from simulation.health_model import DeliveryModel
from simulation.outage_watch import OutageWatch
from simulation.requests import Requests
from simulation.settlements import Settlements, compare_changes, compare_endpoint

REPORT_EVERY_MS = 60_000
ENABLES, FREEZES = "ann", "bob"  # who does what
START_SLACK_MS = 1_000  # between a start as seen from outside and from inside


class Accounts(Watch):
    """The witness of a run."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self._requests = Requests(books)
        self._settlements = Settlements(books)
        self._asked: dict[tuple[str, int], tuple[int, bool]] = {}  # by Retry-After
        self.replayed: dict[int, list[DeliveryModel]] = {}  # by job

    def watch_outages(self, outage_watch: OutageWatch) -> None:
        self.outage_watch = outage_watch
        self._requests.outage_watch = self._settlements.outage_watch = outage_watch

    # --- requests ----------------------------------------------------------------------------

    def sent(self, hit: Hit) -> None:
        try:
            self._requests.sent(hit)
        except Exception:  # noqa: BLE001 - as below
            self.books.violated("books", traceback.format_exc())

    def asked(self, hit: Hit, at: int, *, by_wall: bool = False) -> None:
        """A receiver asks for this time; by_wall: on its own clock, when the response arrives."""
        self._asked[hit.delivery, hit.number] = at, by_wall

    def responded(self, hit: Hit, response: Response) -> None:
        at, by_wall = self._asked.pop((hit.delivery, hit.number), (None, False))
        if at is not None and by_wall:
            at -= self.books.wall_ahead()
        self._requests.responded(hit, response, at if response.retry_after is not None else None)

    # --- lines -------------------------------------------------------------------------------

    def committed(self, op: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        self._enter(f"_done_{op}", args, more, result)

    def told(self, op: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        self._enter(f"_told_{op}", args, more, result)

    def _enter(self, entry: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        enter = getattr(self, entry, None)
        if enter is None:
            return
        try:
            enter(*args, result=result, **more)
        except Exception:  # noqa: BLE001 - it would end in the engine, which takes it for its own
            self.books.violated("books", traceback.format_exc())

    def fault(self, kind: str) -> None:
        self.books.say(f"fault {kind}")

    # --- publishing --------------------------------------------------------------------------

    def offer(self, drafts: Sequence[EventDraft]) -> None:
        """A publisher is about to publish these."""
        for draft in drafts:
            fact = Fact(draft.tenant, draft.type, draft.data, draft.key, draft.time)
            self.books.offered.setdefault(draft.data, []).append(fact)

    def _done_publish(
        self,
        requests: Sequence[Sequence[NewEvent]],
        *,
        result: list[Any],
        catalog_version: int,
        number: int,
    ) -> None:
        del catalog_version, number
        for request, response in zip(requests, result, strict=True):
            if not isinstance(response, list):
                continue
            for new, receipt in zip(request, response, strict=True):
                if receipt.new:
                    self._event(new, exact=True)
                    self.books.on_their_way.update(it.id for it in new.deliveries)

    def _told_publish(self, requests: Sequence[Sequence[NewEvent]], **_: Any) -> None:
        told = (it.id for request in requests for new in request for it in new.deliveries)
        self.books.on_their_way.difference_update(told)

    def _event(self, new: NewEvent, *, exact: bool, about: int | None = None) -> None:
        """An event and its deliveries are stored."""
        books, event = self.books, new.event
        books.must(
            (event.tenant, event.key) not in books.keys,
            "S5",
            lambda: f"a second event {event.key} of {event.tenant}",
        )
        books.counts["events"] += 1
        books.say(f"event {event.key} {event.type} of {event.tenant}: {len(new.deliveries)}")
        fact = Fact(event.tenant, event.type, event.data, event.key, event.time)
        if about is None:
            offered = books.offered.get(event.data, [])
            given = next((it for it in offered if it.became(event)), None)
            if given is None:
                books.violated("S2", f"{event.key} is not what was published")
                return
            books.asked[event.id] = given
        books.keys[event.tenant, event.key] = event.id
        books.facts[event.id] = fact
        books.fan_out[event.id] = len(new.deliveries)
        wanted = {it.id for it in books.subs.values() if it.matches(*fact.for_whom)}
        if about is not None:
            wanted = {it for it in wanted if books.subs[it].now.endpoint_id != about}
        found = {it.subscription_id for it in new.deliveries}
        books.must(
            found == wanted or not exact,
            "S1",
            lambda: f"{event.key} goes to {sorted(found)}, and should to {sorted(wanted)}",
        )
        for row in new.deliveries:
            self._delivery(row, about)

    def _delivery(self, row: Delivery, about: int | None = None) -> DeliveryModel:
        books = self.books
        sub = books.subs[row.subscription_id]
        right = row.tenant == sub.tenant == books.facts[row.event_id].tenant
        books.must(right, "S12", lambda: f"{name(row.id)} left its tenant")
        right = about is None or row.endpoint_id != about
        books.must(right, "notices", lambda: f"{name(row.id)} tells an endpoint of itself")
        model = DeliveryModel(
            row.id,
            row.tenant,
            row.event_id,
            row.subscription_id,
            row.endpoint_id,
            row.root_id,
            row.accepted_at,
            books.mix.table_of(sub.now.policy, sub.tenant),
            replay=row.replay,
        )
        stored = (row.due_at, row.expires_at, row.t0, row.retry, row.attempts)
        wanted = (model.due, model.expires, None, 0, 0)
        right = row.endpoint_id in {sub.now.endpoint_id, sub.told.endpoint_id}
        books.must(
            stored == wanted and right,
            "schedule",
            lambda: f"{name(row.id)} begins as {stored}, and should as {wanted}",
        )
        slack_ms = WRITTEN_WITHIN_MS if about is None else SETTLED_WITHIN_MS
        books.on_time(row.accepted_at, f"{name(row.id)} is accepted", slack_ms=slack_ms)
        books.add(model)
        return model

    def receipts(self, drafts: Sequence[EventDraft], receipts: Sequence[Receipt]) -> None:
        """A publisher was told 202."""
        books = self.books
        for draft, receipt in zip(drafts, receipts, strict=True):
            event_id = books.keys.get((draft.tenant, receipt.key))
            fact = books.facts.get(event_id) if event_id is not None else None
            if fact is None or event_id is None:
                books.violated("S4", f"202 for {receipt.key}, which is not stored")
                return
            right = books.asked[event_id].content == _content(draft)
            books.must(right, "S5", lambda it=receipt: f"202 for {it.key} with another content")  # type: ignore[misc]
            right = receipt.deliveries == books.fan_out[event_id]
            books.must(right, "S4", lambda it=receipt: f"{it.key}: not {it.deliveries} deliveries")  # type: ignore[misc]

    def conflict(self, drafts: Sequence[EventDraft]) -> None:
        """A publisher was told 409."""
        books = self.books
        seen: dict[str | None, EventDraft] = {}
        for draft in drafts:
            event_id = books.keys.get((draft.tenant, draft.key or ""))
            twin = seen.setdefault(draft.key, draft)
            differs = draft.key is not None and _content(twin) != _content(draft)
            if differs or (event_id and books.asked[event_id].content != _content(draft)):
                return
        books.violated("S5", "409, and no id of the request was in use for another content")

    # --- settling and probing ----------------------------------------------------------------

    def _done_settle(self, batch: Any, *, result: frozenset[int]) -> None:
        self._settlements.committed(batch, result)
        for new in batch.notices:
            if (new.event.tenant, new.event.key) not in self.books.keys:
                self._notice(new)

    def _told_settle(self, batch: Any, *, result: frozenset[int]) -> None:
        del result
        self._settlements.told(batch)

    def _notice(self, new: NewEvent) -> None:
        """Homing's own events: one about an endpoint never goes to that endpoint."""
        books = self.books
        said = json.loads(new.event.data)
        about = books.endpoint_ids[new.event.tenant, said["url"]]
        settled = all(it.now is it.told for it in books.subs.values())
        self._event(new, exact=settled, about=about)
        books.counts[new.event.type] += 1
        if new.event.type == "homing.delivery.dropped":
            last = books.drop_notice_at.get(about)
            books.drop_notice_at[about] = said["at"]
            books.drops_reported[about] += said["count"]
            books.must(
                last is None or said["at"] >= last + REPORT_EVERY_MS or said["at"] < last,
                "notices",
                lambda: f"two notices of drops within a minute about {said['url']}",
            )

    def _done_take_probe(
        self, endpoint: Endpoint, *, result: Work | None, next_probe_at: int, now: int, **more: Any
    ) -> None:
        if result is None:
            return
        books, model = self.books, self.books.endpoints[endpoint.id]
        chosen = result.delivery.id
        books.say(f"probe {name(chosen)} for {model.url}")
        books.must(model.state == "disabled", "S9", lambda: f"{model.url} is {model.state}")
        # A take whose reply was lost sent nothing: it may be taken again.
        before = books.untold.setdefault(endpoint.id, (model.probe_at, model.probed_last))
        due = before[0]
        books.must(
            due is not None and (now >= due or books.clock_jumped),
            "S9",
            lambda: f"a probe of {model.url} at {now}, due {due}",
        )
        books.must(
            next_probe_at == now + model.numbers.probe_every_ms,
            "S9",
            lambda: f"the next probe of {model.url} is at {next_probe_at}",
        )
        books.must(
            more["skip_expired"] == (now >= books.quiet_until)
            or abs(now - books.quiet_until) < START_SLACK_MS
            or (not more["skip_expired"] and now < books.maybe_quiet_until),
            "S14",
            lambda: f"a probe of {model.url} is wrong about the quiet hour",
        )
        if endpoint.id not in books.unsure and not books.clock_jumped:
            waiting = books.waiting.get(endpoint.id, {})
            skip = now if more["skip_expired"] else -1
            alive = [it for it in sorted(waiting) if waiting[it].expires > skip]
            never = [it for it in alive if not waiting[it].attempts]
            later = [it for it in alive if it > before[1]]
            right = (never or later or alive or [0])[0]
            oldest = min(never, key=lambda it: (waiting[it].accepted_at, it), default=right)
            books.must(
                chosen in {right, oldest},
                "probe",
                lambda: f"{model.url} is probed with {name(chosen)}, not with {name(right)}",
            )
        model.probe_at, model.probed_last = next_probe_at, chosen

    def _told_take_probe(self, endpoint: Endpoint, *, result: Work | None, **_: Any) -> None:
        if result is not None:
            self.books.untold.pop(endpoint.id, None)
            self.books.taken[result.delivery.id] = endpoint.id

    # --- what people change ------------------------------------------------------------------

    def _done_create_subscription(
        self, _: Any, *, result: Subscription, endpoint: Endpoint
    ) -> None:
        books = self.books
        books.subs[result.id] = Sub(result.id, result.tenant, result, result)
        self._at(result, endpoint)
        books.say(f"subscribed {result.id} of {result.tenant} to {result.url}")

    def _at(self, subscription: Subscription, endpoint: Endpoint) -> None:
        books, place = self.books, (subscription.tenant, subscription.url)
        there = books.endpoint_ids.get(place)
        right = there is None or there == subscription.endpoint_id
        books.must(right, "S11", lambda: f"a second endpoint for {subscription.url}")
        books.endpoint(
            subscription.endpoint_id,
            tenant=subscription.tenant,
            url=subscription.url,
            at=endpoint.health.enabled_since,
        )

    def _done_change_subscription(
        self, _: Any, *, result: Subscription, endpoint: Endpoint, cleanup_job_id: int
    ) -> None:
        del cleanup_job_id
        books, sub = self.books, self.books.subs[result.id]
        if sub.now.endpoint_id != result.endpoint_id:
            books.unsure |= {sub.now.endpoint_id, result.endpoint_id}
            sub.left.add(sub.now.endpoint_id)
            for delivery in books.deliveries.values():
                if delivery.subscription_id == sub.id and delivery.status == "pending":
                    delivery.moved = True
        sub.now = result
        self._at(result, endpoint)
        books.say(f"changed {result.id} to {result.url}, active {result.active}")

    def _told_subscriptions_since(self, _: int, *, result: list[Subscription]) -> None:
        for subscription in result:
            sub = self.books.subs[subscription.id]
            sub.told = subscription
            sub.deleted_told = subscription.deleted_at is not None

    def _done_delete_subscription(
        self, subscription_id: int, *, result: Subscription, **_: Any
    ) -> None:
        self.books.subs[subscription_id].deleted = True
        self.books.unsure.add(result.endpoint_id)
        self.books.say(f"deleted {subscription_id}")

    def _told_endpoints(self, _: Any, *, result: list[Any]) -> None:
        for start in result:
            number, state = start.endpoint.id, start.endpoint.health.state.value
            if state == self.books.endpoints[number].state:  # Else it was read before it changed.
                self.books.learn(number)

    def _done_set_endpoint(self, endpoint: Endpoint, *, result: Endpoint, **more: Any) -> None:
        books, transition = self.books, more["transition"]
        model = books.endpoints[endpoint.id]
        marks = {endpoint.id: len(model.changes)}
        if endpoint.health.state.value == "enabled":
            at = endpoint.health.manual_enable_at or 0
            model.enabled_by_person(at, ENABLES)
        else:
            at = endpoint.health.since if model.state != "frozen" else books.clock()
            model.frozen_by_person(at, FREEZES)
        books.on_time(at, f"{model.url} is made {endpoint.health.state.value}")
        compare_endpoint(books, result)
        recorded = [transition] if transition is not None else []
        compare_changes(books, marks, recorded, more["notices"])
        for new in more["notices"]:
            self._notice(new)

    def _told_set_endpoint(self, endpoint: Endpoint, *, result: Endpoint, **_: Any) -> None:
        self.books.learn(endpoint.id)
        if result.health.state.value == "enabled":
            self.books.slots[endpoint.id] = Slots()

    def _done_cancel_delivery(self, delivery_id: int, *, result: Delivery, now: int) -> None:
        del result, now
        self.books.finish(self.books.deliveries[delivery_id], "cancelled", "by_person")
        self.books.say(f"cancelled {name(delivery_id)}")

    def _told_cancel_delivery(self, delivery_id: int, **_: Any) -> None:
        if delivery_id not in self.books.on_their_way:  # Else the engine cannot know it yet.
            self.books.cancels_told.add(delivery_id)

    def _done_replay(self, delivery_id: int, *, result: Delivery, new: Delivery) -> None:
        del new
        old = self.books.deliveries[delivery_id]
        self._replayed(result, old)
        right = old.status != "pending"
        self.books.must(right, "replay", lambda: f"{name(old.id)} is pending, and was replayed")

    def _replayed(self, row: Delivery, old: DeliveryModel) -> DeliveryModel:
        model = self._delivery(row)
        right = row.replay and (old.event_id, old.root_id) == (row.event_id, row.root_id)
        self.books.must(right, "replay", lambda: f"{name(row.id)} is no replay of {name(old.id)}")
        self.books.say(f"replayed {name(old.id)} as {name(row.id)}")
        return model

    def _done_replay_step(
        self, job: ReplayJob, *, result: bool, after: ReplayJob, new: Sequence[Delivery]
    ) -> None:
        del after
        made = self.replayed.setdefault(job.id, [])
        for row in new if result else ():
            sub = self.books.subs[row.subscription_id]
            if not sub.deleted:
                old = self.books.deliveries[row.root_id]
                made.append(self._replayed(row, old))


def _content(draft: EventDraft) -> tuple[str, str | None, bytes]:
    return draft.type, draft.time, draft.data
