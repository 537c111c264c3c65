"""The checker: enters what the store has done, and what people and publishers are told.

Each operation of a store is entered twice: when it is committed, because from then on it is
true, and when the engine that asked is told, because from then on it must act on it.
"""

from __future__ import annotations

import json
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from homing.model import NOT_BOUND, Delivery, Endpoint, SigningKeys, Subscription, Work, id_time
from homing.policy.admission import EventDraft
from homing.ports import (
    CleanupJob,
    CleanupStep,
    EndpointStart,
    KeyRelease,
    NewEvent,
    ProbeTaken,
    Published,
    Receipt,
    ReplayJob,
    Response,
    SettleResult,
)
from homing.ports.admin import EventPlace
from homing.ports.erasures import Erasable
from homing.ports.flow import Retention
from homing.sim.world import Hit, Watch
from simulation.check_requests import RequestChecks
from simulation.check_settles import (
    SettleChecks,
    compare_changes,
    compare_delivery,
    compare_endpoint,
)
from simulation.guard_settings import is_address
from simulation.health_model import DeliveryModel
from simulation.order_model import key_of
from simulation.reference import (
    SETTLED_WITHIN_MS,
    WRITTEN_WITHIN_MS,
    Change,
    Fact,
    Memory,
    Reference,
    Signing,
    Slots,
    Sub,
    gets,
    name,
)

REPORT_EVERY_MS = 60_000
ENABLES, FREEZES = "ann", "bob"  # who does what
START_SLACK_MS = 1_000  # between a start as seen from outside and from inside
LEASE_MS = 9_000
STEP_WITHIN_MS = 5_000  # of a job, from its decision to its commit


class MachineWitness:
    """The witness of one machine: the checker hears which process it was."""

    def __init__(self, checker: Checker, machine: int) -> None:
        self._checker, self._machine = checker, machine

    def called(self, op: str, args: Sequence[Any], more: dict[str, Any]) -> None:
        del args
        if op == "publish":
            memory = self._checker.reference.memories[self._machine]
            memory.matched[more["number"]] = dict(memory.catalog)

    def committed(self, op: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        self._enter(f"_done_{op}", args, more, result)

    def told(self, op: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        self._enter(f"_told_{op}", args, more, result)

    def _enter(self, entry: str, args: Sequence[Any], more: dict[str, Any], result: Any) -> None:
        enter = getattr(self._checker, entry, None)
        if enter is None:
            return
        reference = self._checker.reference
        try:
            enter(reference.memories[self._machine], *args, result=result, **more)
        except Exception:  # noqa: BLE001 - it would end in the engine, which takes it for its own
            reference.violated("checker", traceback.format_exc())

    def fault(self, kind: str) -> None:
        self._checker.reference.say(f"machine {self._machine}: fault {kind}")


class Checker(Watch):
    """The witness of a run."""

    def __init__(self, reference: Reference, wall_ahead: Callable[[], int]) -> None:
        self.reference, self._wall_ahead = reference, wall_ahead
        self._request_checks = RequestChecks(reference)
        self._settle_checks = SettleChecks(reference)
        self._asked: dict[tuple[str, int], tuple[int, bool]] = {}  # by Retry-After
        self._cleanup_jobs: dict[int, int] = {}  # how far each has come
        self._jobs_of: dict[int, set[int]] = {}  # by subscription
        self.replayed: dict[int, list[DeliveryModel]] = {}  # by job
        self.backfills: dict[int, tuple[ReplayJob, int]] = {}  # with the time of their begin

    # --- requests ----------------------------------------------------------------------------

    def sent(self, hit: Hit) -> None:
        try:
            self._request_checks.sent(self.reference.lives[hit.life], hit)
        except Exception:  # noqa: BLE001 - as above
            self.reference.violated("checker", traceback.format_exc())

    def asked(self, hit: Hit, at: int, *, by_wall: bool = False) -> None:
        """A receiver asks for this time; by_wall: on its own clock, when the response arrives."""
        self._asked[hit.delivery, hit.number] = at, by_wall

    def responded(self, hit: Hit, response: Response) -> None:
        at, by_wall = self._asked.pop((hit.delivery, hit.number), (None, False))
        if at is not None and by_wall:
            at -= self._wall_ahead()
        elif at is not None:  # In whole seconds after the response, whose time is rounded.
            now = self.reference.clock()
            at = now + round((at - now) / 1000) * 1000
        asked = at if response.retry_after is not None else None
        self._request_checks.responded(self.reference.lives[hit.life], hit, response, asked)

    # --- leases ------------------------------------------------------------------------------

    def _told_join(self, memory: Memory, *, result: Any, **_: Any) -> None:
        self.reference.say(f"machine {memory.machine} is process {result.id}")
        memory.member_id = result.id
        self.reference.expires[result.id] = result.expires_at

    def _done_renew(self, _: Memory, member_id: int, *, result: Any, **more: Any) -> None:
        del more
        if result is not None:
            self.reference.expires[member_id] = result.now + LEASE_MS

    def _done_take(self, _: Memory, member_id: int, wanted: Any, *, result: dict[int, int]) -> None:
        del wanted
        reference = self.reference
        if result:
            reference.counts["taken"] += len(result)
            reference.say(f"process {member_id} takes {len(result)} buckets")
        for bucket, epoch in result.items():
            owner, before = reference.owner_of(bucket)
            alive = owner is not None and reference.expires.get(owner, 0) > reference.clock()
            reference.must(
                not alive,
                "S6",
                lambda it=owner: f"process {it} lives, and loses a bucket",  # type: ignore[misc]
            )
            reference.must(epoch > before, "S6", lambda it=bucket: f"an epoch of {it} comes again")  # type: ignore[misc]
            reference.owners[bucket] = (member_id, epoch)

    def _done_give(
        self, memory: Memory, member_id: int, buckets: Sequence[int], *, result: None
    ) -> None:
        del result
        reference, now = self.reference, self.reference.clock()
        given = {it for it in buckets if reference.owner_of(it)[0] == member_id}
        for flight in memory.flights.values():
            delivery = reference.deliveries[flight.delivery_id]
            open_ = delivery.attempts < flight.number and delivery.status == "pending"
            reference.must(
                not (open_ and now - flight.at < LEASE_MS and delivery.bucket in given),
                "S3",
                lambda it=delivery: f"{name(it.id)} is in flight, and its bucket is handed over",  # type: ignore[misc]
            )
        reference.counts["given"] += len(given)
        self._free(given)

    def _done_leave(self, _: Memory, member_id: int, *, result: None) -> None:
        del result
        self._free({it for it, (owner, _) in self.reference.owners.items() if owner == member_id})
        self.reference.expires[member_id] = 0

    def _free(self, buckets: set[int]) -> None:
        for bucket in buckets:
            self.reference.owners[bucket] = (None, self.reference.owners[bucket][1])

    # --- publishing --------------------------------------------------------------------------

    def offer(self, drafts: Sequence[EventDraft]) -> None:
        """A publisher is about to publish these."""
        for draft in drafts:
            fact = Fact(
                draft.tenant, draft.type, draft.data, draft.key, draft.time, draft.order_key
            )
            self.reference.offered.setdefault(draft.data, []).append(fact)

    def _done_publish(
        self,
        memory: Memory,
        requests: Sequence[Sequence[NewEvent]],
        *,
        result: Published,
        number: int,
        fence: int,
    ) -> None:
        """It was matched with the catalog as it was known when the engine called.

        Every change that was answered by now is part of that.
        """
        del fence
        catalog = memory.matched.pop(number)
        stored: list[NewEvent] = []
        for request, response in zip(requests, result.results, strict=True):
            if not isinstance(response, list):
                continue
            for new, receipt in zip(request, response, strict=True):
                if receipt.new:
                    self._event(memory, new, catalog=catalog)
                    self._placed(new, receipt, catalog)
                    memory.on_their_way.update(it.id for it in new.deliveries)
                    stored.append(new)
        self._superseded_at_once(stored)

    def _placed(self, new: NewEvent, receipt: Receipt, catalog: dict[int, Subscription]) -> None:
        """Exactly those are blocked that must wait for others of their key."""
        deliveries = self.reference.deliveries
        blocked = {it.id for it in new.deliveries if deliveries[it.id].blocked}
        self.reference.must(
            blocked == set(receipt.blocked),
            "order",
            lambda: f"{receipt.key}: {receipt.blocked} are blocked, and should {blocked}",
        )
        for it in new.deliveries:
            sub = catalog[it.subscription_id]
            if it.id in blocked and sub.order.value == "latest":
                self._waits_for_quiet(deliveries[it.id], sub)

    def _waits_for_quiet(self, newest: DeliveryModel, sub: Subscription) -> None:
        """The delivery of its key that waits for quiet waits longer."""
        now, quiet_ms = newest.accepted_at, sub.quiet_ms or 0
        for it in self.reference.order.line(newest).free if quiet_ms else ():
            head = self.reference.deliveries[it]
            if not head.attempts and not head.replay and head.due > now:
                longest = sub.max_wait_ms or 10 * quiet_ms
                due = max(head.due, min(now + quiet_ms, head.accepted_at + longest))
                if head.due > self.reference.clock():  # Else it may have begun by now.
                    head.due = due
                head.due_latest = due

    def _superseded_at_once(self, request: Sequence[NewEvent]) -> None:
        """A publish supersedes what waits before the newest of its keys, in one bounded step."""
        reference = self.reference
        for new in request:
            for latest in new.latest:
                newest = reference.deliveries[latest.delivery_id]
                if newest.blocked and reference.order.newest_of(newest) == newest.id:
                    ended = reference.order.superseded_before(
                        newest, limit=reference.mix.superseded_max, keep_first=latest.quiet_ms > 0
                    )
                    self._settle_checks.superseded(ended)

    def _done_newest(
        self,
        memory: Memory,
        deliveries: Sequence[Delivery],
        *,
        result: dict[int, Work | int],
        now: int,
        fences: Any,
        wait: bool = True,
    ) -> None:
        del fences
        reference = self.reference
        for row in deliveries:
            older = reference.deliveries[row.id]
            work = result.get(row.id)
            pending = older.status == "pending"
            wanted = reference.order.instead_of(older) if pending else None
            if pending and (isinstance(work, int) or wait):
                quiet_at = self._quiet_at(older, wanted) if wait else 0
                if self._asks_again(row, older, wanted, work, quiet_at=quiet_at, now=now):
                    continue
            if isinstance(work, int):
                continue  # It was cancelled just now.
            found = None if work is None else work.delivery.id
            reference.must(
                found == wanted,
                "latest",
                lambda it=row.id, a=found, b=wanted: f"instead of {name(it)}: {a}, not {b}",  # type: ignore[misc]
            )
            flight = memory.flights.get(row.id)
            reference.must(
                found is None or flight is None or not reference.is_current(flight),
                "latest",
                lambda it=row.id: f"{name(it)} is in flight, and was superseded",  # type: ignore[misc]
            )
            if row.id not in memory.taken:  # A probe does not wait until it is due.
                early = older.attempts == 0 and now < older.ready  # Its clock was set back.
                reference.must(
                    now >= older.due or early or older.status != "pending",
                    "S8",
                    lambda it=older, at=now: f"{name(it.id)} begins {it.due - at} ms early",  # type: ignore[misc]
                )
            if work is not None and found == wanted:
                self._settle_checks.swapped(older, work.delivery.id, at=now)
                compare_delivery(reference, work.delivery, reference.deliveries[work.delivery.id])

    def _quiet_at(self, older: DeliveryModel, newest_id: int | None) -> int:
        """When the key of a delivery that is about to be attempted is quiet."""
        reference = self.reference
        sub = reference.subs[older.subscription_id].now
        quiet_ms = sub.quiet_ms if sub.order.value == "latest" else None
        if not quiet_ms or (newest_id is None and not older.was_just_unblocked):
            return 0
        newest = older if newest_id is None else reference.deliveries[newest_id]
        since = older.accepted_at
        if older.attempts or older.replay:
            first = reference.order.first_of(older)
            since = newest.accepted_at if first is None else reference.deliveries[first].accepted_at
        return min(newest.accepted_at + quiet_ms, since + (sub.max_wait_ms or 10 * quiet_ms))

    def _asks_again(
        self,
        row: Delivery,
        older: DeliveryModel,
        newest_id: int | None,
        work: Work | int | None,
        *,
        quiet_at: int,
        now: int,
    ) -> bool:
        """Whether nothing may be attempted yet: the key is not quiet, or too many others wait."""
        reference, limit = self.reference, self.reference.mix.superseded_max
        wanted = None
        if quiet_at > now:
            wanted = older.due = older.due_latest = quiet_at
            older.paused, older.expires, older.t0 = row.paused_ms, row.expires_at, row.t0
            reference.counts["waited_for_quiet"] += 1
        elif newest_id is not None:
            newest = reference.deliveries[newest_id]
            ended = reference.order.superseded_before(newest, limit=limit)
            if len(ended) == limit:
                wanted = row.due_at
                self._settle_checks.superseded(ended)
                reference.counts["superseded_in_steps"] += 1
        found = work if isinstance(work, int) else None
        return (
            reference.must(
                found == wanted,
                "latest",
                lambda: f"{name(older.id)} is asked for again at {found}, and should at {wanted}",
            )
            and wanted is not None
        )

    def _told_newest(
        self, memory: Memory, _: Any, *, result: dict[int, Work | int], **more: Any
    ) -> None:
        del more
        for older, work in result.items():
            if older in memory.taken and not isinstance(work, int):
                memory.taken[work.delivery.id] = memory.taken.pop(older)

    def _told_publish(
        self, memory: Memory, requests: Sequence[Sequence[NewEvent]], **_: Any
    ) -> None:
        told = (it.id for request in requests for new in request for it in new.deliveries)
        memory.on_their_way.difference_update(told)

    def _event(
        self,
        memory: Memory,
        new: NewEvent,
        *,
        catalog: dict[int, Subscription] | None,
        about: int | None = None,
    ) -> None:
        """An event and its deliveries are stored, matched with this catalog; None: unknown."""
        reference, event = self.reference, new.event
        reference.must(
            (event.tenant, event.key) not in reference.keys,
            "S5",
            lambda: f"a second event {event.key} of {event.tenant}",
        )
        reference.counts["events"] += 1
        reference.say(f"event {event.key} {event.type} of {event.tenant}: {len(new.deliveries)}")
        about_ = event.order_key or None
        fact = Fact(event.tenant, event.type, event.data, event.key, event.time, about_)
        if about is None:
            offered = reference.offered.get(event.data, [])
            given = next((it for it in offered if it.became(event)), None)
            if given is None:
                reference.violated("S2", f"{event.key} is not what was published")
                return
            reference.asked[event.id] = given
        reference.keys[event.tenant, event.key] = event.id
        reference.facts[event.id] = fact
        reference.places[event.id] = len(reference.places)
        reference.fan_out[event.id] = len(new.deliveries)
        if catalog is not None:
            self._matched(new, fact, catalog, about)
        reference.streams.committed(new)
        for row in new.deliveries:
            state = None if catalog is None else catalog[row.subscription_id]
            self._delivery(memory, row, about, state)

    def _matched(
        self,
        new: NewEvent,
        fact: Fact,
        catalog: dict[int, Subscription],
        about: int | None,
    ) -> None:
        """It goes to those that this catalog says, which has every change that was answered."""
        reference = self.reference
        wanted = {it.id for it in catalog.values() if gets(it, *fact.for_whom)}
        if about is not None:
            wanted = {it for it in wanted if catalog[it].endpoint_id != about}
        found = {*(it.subscription_id for it in new.deliveries), *new.pulled}
        reference.must(
            found == wanted,
            "S1",
            lambda: f"{new.event.key} goes to {sorted(found)}, and should to {sorted(wanted)}",
        )
        subs = (*reference.subs.values(), *reference.streams.subs.values())
        for sub in (it for it in subs if it.tenant == fact.tenant):
            known = catalog.get(sub.id)
            reference.must(
                sub.answered <= (0 if known is None else known.version),
                "S9",
                lambda it=sub: f"{new.event.key} was matched without {it.now}, which was answered",  # type: ignore[misc]
            )

    def _delivery(
        self,
        memory: Memory,
        row: Delivery,
        about: int | None = None,
        state: Subscription | None = None,
    ) -> DeliveryModel:
        """A delivery is stored, for its subscription as it was then (None: as it is)."""
        reference = self.reference
        sub = reference.subs[row.subscription_id]
        state = sub.now if state is None else state
        right = row.tenant == sub.tenant == reference.facts[row.event_id].tenant
        reference.must(right, "S12", lambda: f"{name(row.id)} left its tenant")
        right = about is None or row.endpoint_id != about
        reference.must(right, "notices", lambda: f"{name(row.id)} tells an endpoint of itself")
        model = DeliveryModel(
            row.id,
            row.tenant,
            row.event_id,
            row.subscription_id,
            row.endpoint_id,
            row.root_id,
            row.accepted_at,
            reference.mix.table_of(state.policy, sub.tenant),
            replay=row.replay,
            bucket=row.bucket,
        )
        stored = (row.due_at, row.expires_at, row.t0, row.retry, row.attempts)
        keyed = reference.facts[row.event_id].about is not None
        if keyed and state.order.value == "latest" and not row.replay:
            model.due = model.due_latest = row.accepted_at + (state.quiet_ms or 0)
        wanted = (model.due, model.expires, None, 0, 0)
        known = memory.catalog.get(sub.id, sub.now)
        there = {state.endpoint_id, known.endpoint_id}
        if not reference.alone and memory.may_not_know(sub.changed, at=reference.clock()):
            there |= sub.left  # A notice was made before its process read the change.
        right = row.endpoint_id in there and row.bucket == reference.buckets[row.endpoint_id]
        reference.must(
            stored == wanted and right,
            "schedule",
            lambda: f"{name(row.id)} begins as {stored}, and should as {wanted}",
        )
        slack_ms = WRITTEN_WITHIN_MS if about is None else SETTLED_WITHIN_MS
        reference.on_time(row.accepted_at, f"{name(row.id)} is accepted", slack_ms=slack_ms)
        model.moved = model.moved or row.endpoint_id != sub.now.endpoint_id
        reference.add(model)
        if (key := reference.facts[row.event_id].about) is not None:
            model.key = key
            reference.order.stored(model, ordered=state.order.value != "none")
            reference.counts["blocked"] += model.blocked
        return model

    def receipts(self, drafts: Sequence[EventDraft], receipts: Sequence[Receipt]) -> None:
        """A publisher was told 202."""
        reference = self.reference
        for draft, receipt in zip(drafts, receipts, strict=True):
            event_id = reference.keys.get((draft.tenant, receipt.key))
            fact = reference.facts.get(event_id) if event_id is not None else None
            if fact is None or event_id is None:
                reference.violated("S4", f"202 for {receipt.key}, which is not stored")
                return
            right = reference.asked[event_id].content == _content(draft)
            reference.must(right, "S5", lambda it=receipt: f"202 for {it.key} with another content")  # type: ignore[misc]
            right = receipt.deliveries == reference.fan_out[event_id]
            reference.must(
                right,
                "S4",
                lambda it=receipt: f"{it.key}: not {it.deliveries} deliveries",  # type: ignore[misc]
            )

    def conflict(self, drafts: Sequence[EventDraft]) -> None:
        """A publisher was told 409."""
        reference = self.reference
        seen: dict[str | None, EventDraft] = {}
        for draft in drafts:
            event_id = reference.keys.get((draft.tenant, draft.key or ""))
            twin = seen.setdefault(draft.key, draft)
            differs = draft.key is not None and _content(twin) != _content(draft)
            if differs or (event_id and reference.asked[event_id].content != _content(draft)):
                return
        reference.violated("S5", "409, and no id of the request was in use for another content")

    # --- settling and probing ----------------------------------------------------------------

    def _done_settle(self, memory: Memory, batch: Any, *, result: SettleResult) -> None:
        if self._settle_checks.committed(memory, batch, result):
            for new in batch.notices:
                self._notice(memory, new)

    def _told_settle(self, memory: Memory, batch: Any, *, result: SettleResult) -> None:
        del result
        self._settle_checks.told(memory, batch)

    def _notice(self, memory: Memory, new: NewEvent) -> None:
        """Homing's own events: one about an endpoint never goes to that endpoint."""
        reference = self.reference
        said = json.loads(new.event.data)
        about = reference.endpoint_ids[new.event.tenant, said["url"]]
        settled = all(
            it.now == memory.catalog.get(it.id)
            and (reference.alone or not memory.may_not_know(it.changed, at=reference.clock()))
            for it in reference.subs.values()
        )
        self._event(memory, new, catalog=memory.catalog if settled else None, about=about)
        reference.counts[new.event.type] += 1
        if new.event.type == "homing.delivery.dropped":
            last = reference.drop_notice_at.get(about)
            reference.drop_notice_at[about] = said["at"]
            reference.drops_reported[about] += said["count"]
            told = reference.drops_reported[about]
            drops = reference.drops[about] + reference.drops_undone[about]
            reference.must(
                told <= drops,
                "notices",
                lambda: f"{told} drops at {said['url']} are told, and there were {drops}",
            )
            reference.must(
                last is None or said["at"] >= last + REPORT_EVERY_MS or said["at"] < last,
                "notices",
                lambda: f"two notices of drops within a minute about {said['url']}",
            )

    def _done_take_probe(
        self,
        memory: Memory,
        endpoint: Endpoint,
        *,
        result: Work | None,
        next_probe_at: int,
        now: int,
        **more: Any,
    ) -> None:
        if result is None:
            return
        reference, model = self.reference, self.reference.endpoints[endpoint.id]
        owner, _ = reference.owner_of(endpoint.bucket)
        mine = owner == memory.member_id
        reference.must(mine, "S6", lambda: f"a probe is taken, and {owner} owns the bucket")
        chosen = result.delivery.id
        reference.say(f"probe {name(chosen)} for {model.url}")
        reference.must(model.state == "disabled", "S9", lambda: f"{model.url} is {model.state}")
        # A take whose reply was lost sent nothing: it may be taken again.
        before = memory.untold.setdefault(endpoint.id, (model.probe_at, model.probed_last))
        due = before[0]
        reference.must(
            due is not None and (now >= due or reference.clock_jumped),
            "S9",
            lambda: f"a probe of {model.url} at {now}, due {due}",
        )
        reference.must(
            next_probe_at == now + model.numbers.probe_every_ms,
            "S9",
            lambda: f"the next probe of {model.url} is at {next_probe_at}",
        )
        reference.must(
            more["skip_expired"] == (now >= memory.quiet_until)
            or abs(now - memory.quiet_until) < START_SLACK_MS
            or (not more["skip_expired"] and now < memory.maybe_quiet_until),
            "S14",
            lambda: f"a probe of {model.url} is wrong about the quiet hour",
        )
        if endpoint.id not in reference.unsure and not reference.clock_jumped:
            waiting = reference.waiting.get(endpoint.id, {})
            skip = now if more["skip_expired"] else -1
            paused = more.get("paused", frozenset())
            waiting = {k: it for k, it in waiting.items() if it.subscription_id not in paused}
            alive = [
                it
                for it in sorted(waiting)
                if waiting[it].expires > skip and not waiting[it].blocked
            ]
            never = [it for it in alive if not waiting[it].attempts]
            later = [it for it in alive if it > before[1]]
            right = (never or later or alive or [0])[0]
            oldest = min(never, key=lambda it: waiting[it].position, default=right)
            reference.must(
                chosen in {right, oldest, *_earliest_due(waiting, never)},
                "probe",
                lambda: f"{model.url} is probed with {name(chosen)}, not with {name(right)}",
            )
        model.probe_at, model.probed_last = next_probe_at, chosen

    def _told_take_probe(
        self, memory: Memory, endpoint: Endpoint, *, result: Work | None, **_: Any
    ) -> None:
        if result is not None:
            memory.untold.pop(endpoint.id, None)
            # One that was taken earlier and not sent, because its key could not be read, was none.
            others = {it: to for it, to in memory.taken.items() if to[0] != endpoint.id}
            memory.taken = {
                **others,
                result.delivery.id: (endpoint.id, self.reference.clock()),
            }

    def _done_take_unpaused_probe(
        self, memory: Memory, endpoint: Endpoint, *, result: ProbeTaken, **more: Any
    ) -> None:
        self._done_take_probe(memory, endpoint, result=result.work, **more)

    def _told_take_unpaused_probe(
        self, memory: Memory, endpoint: Endpoint, *, result: ProbeTaken, **_: Any
    ) -> None:
        self._told_take_probe(memory, endpoint, result=result.work)

    # --- what people change ------------------------------------------------------------------

    def _change(self, memory: Memory) -> Change:
        return Change(memory.life, self.reference.clock(), by_person=True)

    def _done_create_subscription(
        self, memory: Memory, _: Any, *, result: Subscription, endpoint: Endpoint | None, **__: Any
    ) -> None:
        if endpoint is None:
            self.reference.streams.created(Sub(result, self._change(memory)))
            return
        self.reference.subs[result.id] = Sub(result, self._change(memory))
        self._at(memory, result, endpoint)
        self.reference.say(f"subscribed {result.id} of {result.tenant} to {result.url}")

    def _at(self, memory: Memory, subscription: Subscription, endpoint: Endpoint) -> None:
        reference, place = self.reference, (subscription.tenant, subscription.url)
        there = reference.endpoint_ids.get(place)
        right = there is None or there == subscription.endpoint_id
        reference.must(right, "S11", lambda: f"a second endpoint for {subscription.url}")
        reference.endpoint(
            subscription.endpoint_id,
            tenant=subscription.tenant,
            url=subscription.url,
            bucket=endpoint.bucket,
            changed=self._change(memory),
            at=endpoint.health.enabled_since,
            guard_passed=memory.guard if is_address(subscription.url) else 0,
        )

    def _done_change_subscription(
        self,
        memory: Memory,
        _: Any,
        *,
        result: Subscription,
        endpoint: Endpoint,
        cleanup_job_id: int,
    ) -> None:
        del cleanup_job_id
        reference, sub = self.reference, self.reference.subs[result.id]
        if sub.now.endpoint_id != result.endpoint_id:
            reference.unsure |= {sub.now.endpoint_id, result.endpoint_id}
            sub.left.add(sub.now.endpoint_id)
            for delivery in reference.deliveries.values():
                if delivery.subscription_id == sub.id and delivery.status == "pending":
                    delivery.moved = True
        self._freed(sub, result)
        self._proof(sub, result)
        if sub.gone and (result.receiver is None or result.receiver.gone_at is None):
            self._walk_again(sub.id)
            for delivery in reference.deliveries.values():
                if delivery.subscription_id == sub.id and delivery.status == "pending":
                    delivery.moved = True  # Others were sent while it could not be.
        before = sub.now.endpoint_id
        self._pause(sub, result)
        if _wanted(sub.now) != _wanted(result):
            sub.wants_since = reference.clock()
        if _waits(sub.now) != _waits(result):
            sub.waits_since = reference.clock()
        sub.now, sub.changed, sub.responded = result, self._change(memory), False
        if before != result.endpoint_id and not reference.is_used(before):
            reference.causes.left(before, result.updated_at)
        self._at(memory, result, endpoint)
        reference.say(f"changed {result.id} to {result.url}, active {result.active}")

    def _freed(self, sub: Sub, result: Subscription) -> None:
        """Without an order, what is pending may go at any time."""
        if sub.now.order.value == "none" or result.order.value != "none":
            return
        for delivery in self.reference.deliveries.values():
            if delivery.subscription_id == sub.id and delivery.status == "pending":
                delivery.freed = True

    def _pause(self, sub: Sub, result: Subscription) -> None:
        """It was paused or resumed just now; all earlier pauses are kept."""
        reference, pauses = self.reference, result.pauses
        sub.pauses_before = list(sub.pauses)
        was, since = sub.paused_since, result.paused_since
        if was is None and since is not None:
            if since not in {end for _, end in sub.pauses}:  # Else a clock was ahead before.
                reference.on_time(since, f"{sub.id} is paused")
            sub.pauses.append((since, None))
            reference.say(f"paused {sub.id}")
        elif was is not None and since is None:
            past = () if pauses is None else pauses.past
            end = past[-1][1] if past and past[-1][0] == was else was
            if end > was:
                reference.on_time(end, f"{sub.id} is resumed")
            sub.pauses[-1] = (was, end)
            reference.say(f"resumed {sub.id}")
        kept = [] if pauses is None else list(pauses.past)
        seen = [it for it in sub.pauses if it[1] is not None and it[1] > it[0]]
        reference.must(
            kept == seen and since == sub.paused_since,
            "S17",
            lambda: f"{sub.id} was paused {sub.pauses}, and has {pauses}",
        )

    def _proof(self, sub: Sub, result: Subscription) -> None:
        """A new proof is that of a URL which has returned a challenge."""
        state, before = result.receiver, sub.now.receiver
        if state is None or state.verified_at is None:
            return
        same = before is not None and before.verified_at == state.verified_at
        self.reference.must(
            (same and sub.now.url == result.url) or result.url in self.reference.echoed,
            "S15",
            lambda: f"{result.url} is taken for proved",
        )

    def _walk_again(self, subscription_id: int) -> None:
        """Its cleanup jobs start at the first delivery again."""
        for job in self._jobs_of.get(subscription_id, ()):
            self._cleanup_jobs.pop(job, None)

    def _done_subscription_gone(
        self, memory: Memory, subscription: Subscription, *, result: Subscription, **more: Any
    ) -> None:
        reference, sub = self.reference, self.reference.subs[subscription.id]
        owner, _ = reference.owner_of(more["bucket"])
        mine = owner == memory.member_id
        reference.must(mine, "S6", lambda: f"a 410 ends {sub.id}, and {owner} owns the bucket")
        reference.must(
            any(
                it.code == 410
                and it.version == sub.now.version
                and it.endpoint_id == sub.now.endpoint_id
                and reference.deliveries[it.delivery_id].subscription_id == sub.id
                for it in memory.flights.values()
            )
            and reference.mix.obeys(sub.now.policy, sub.tenant),
            "S16",
            lambda: f"{sub.now} is set inactive without a 410 about it",
        )
        self._walk_again(sub.id)
        sub.now, sub.changed, sub.responded = result, self._change(memory), False
        sub.gone_upto, sub.by_receiver = NOT_BOUND, result.version
        reference.unsure.add(result.endpoint_id)
        reference.counts["subscription_gone"] += 1
        reference.say(f"gone {sub.id} at {result.url}")
        types = [it.event.type for it in more["notices"]]
        right = types == ["homing.subscription.gone"]
        reference.must(right, "notices", lambda: f"nobody is told that {sub.id} is gone")
        for new in more["notices"]:
            self._notice(memory, new)

    def _done_bound_gone(self, memory: Memory, _: int, *, result: Subscription) -> None:
        """Publishes that were matched before the 410 have ended: their deliveries end, too."""
        sub = self.reference.subs[result.id]
        if sub.now == result:
            return  # Another process was first, or a person has activated it.
        self._walk_again(sub.id)
        sub.now, sub.changed, sub.responded = result, self._change(memory), False
        sub.gone_upto, sub.by_receiver = self.reference.acceptance.last, result.version
        self.reference.say(f"bound {sub.id}")

    def _done_delete_subscription(
        self, memory: Memory, subscription_id: int, *, result: Subscription, **_: Any
    ) -> None:
        sub = self.reference.subs[subscription_id]
        sub.now, sub.changed, sub.responded = result, self._change(memory), False
        self.reference.unsure.add(result.endpoint_id)
        if not self.reference.is_used(result.endpoint_id):
            self.reference.causes.left(result.endpoint_id, result.updated_at)
        self.reference.say(f"deleted {subscription_id}")

    def _told_subscriptions_since(
        self, memory: Memory, _: int, *, result: list[Subscription], **__: int
    ) -> None:
        memory.catalog.update((it.id, it) for it in result)

    def _done_set_signing_keys(self, memory: Memory, _: Any, *, result: SigningKeys) -> None:
        self.reference.signing[result.tenant] = Signing(result, self._change(memory))
        self.reference.say(f"{result.tenant} has {len(result.keys)} signing keys")

    def _told_signing_keys_since(
        self, memory: Memory, _: int, *, result: list[SigningKeys]
    ) -> None:
        memory.signing.update((it.tenant, it) for it in result)

    def _done_run_cleanup_job(
        self,
        memory: Memory,
        cleanup_job: CleanupJob,
        *,
        result: CleanupStep,
        target: Endpoint | None,
        except_ids: frozenset[int],
        limit: int,
        **more: Any,
    ) -> None:
        reference, sub, after = (
            self.reference,
            self.reference.subs[cleanup_job.subscription_id],
            self._cleanup_jobs,
        )
        self._jobs_of.setdefault(sub.id, set()).add(cleanup_job.id)
        waiting = reference.waiting.get(cleanup_job.endpoint_id, {})
        there = sorted(it for it in waiting if it > after.get(cleanup_job.id, 0))[:limit]
        if there and not result.done:
            after[cleanup_job.id] = there[-1]
        if not result.touched:
            return
        owner, _ = reference.owner_of(cleanup_job.bucket)
        right = owner == memory.member_id
        reference.must(right, "S6", lambda: f"a cleanup job is done, and {owner} owns the bucket")
        mine = [waiting[it] for it in there if it not in except_ids]
        mine = [it for it in mine if it.subscription_id == cleanup_job.subscription_id]
        is_back = target is not None and target.id == cleanup_job.endpoint_id
        if cleanup_job.kind == "unblock" or (cleanup_job.kind == "move" and is_back):
            touched = self._follow(mine, sub.now, more["now"])
            right = result.touched == touched
            reference.must(right, "order", lambda: f"{result.touched} changed, not {touched}")
            return
        if sub.gone and not sub.deleted:
            mine = [it for it in mine if it.position <= sub.gone_upto]
        reference.must(
            len(mine) == result.touched, "S1", lambda: f"{cleanup_job}: {result}, not {len(mine)}"
        )
        reference.say(f"cleanup job at {cleanup_job.endpoint_id}: {result.touched}")
        for delivery in mine:
            if sub.deleted:
                reference.finish(delivery, "cancelled", "subscription_deleted")
                reference.cancels[delivery.id] = sub.changed
            elif sub.gone:
                reference.finish(delivery, "cancelled", "gone")
                reference.cancels[delivery.id] = sub.changed
            elif target is not None:
                reference.move(delivery, target.id)
        if target is not None and not (sub.deleted or sub.gone):
            self._follow(mine, sub.now, more["now"])

    def _follow(self, mine: list[DeliveryModel], sub: Subscription, now: int) -> int:
        """What waits does so as its subscription says by now; how many deliveries that changes."""
        reference, changed = self.reference, 0
        for delivery in mine:
            if delivery.blocked and sub.order.value == "none":
                self._settle_checks.unblocked(delivery, at=now, after_drop=False)
                delivery.freed = True
                changed += 1
        for delivery in mine:
            if not delivery.key or delivery.blocked or delivery.attempts or delivery.replay:
                continue
            due = min(delivery.due, now)
            if sub.quiet_ms:
                newest_id = reference.order.instead_of(delivery) or delivery.id
                at = reference.deliveries[newest_id].accepted_at + sub.quiet_ms
                longest = delivery.accepted_at + (sub.max_wait_ms or 10 * sub.quiet_ms)
                until = min(at, longest) + delivery.paused
                due = until if until > now else due
            changed += due != delivery.due
            delivery.due = delivery.due_latest = due
        return changed

    def _done_release_keys(
        self,
        memory: Memory,
        releases: Sequence[KeyRelease],
        *,
        result: list[Delivery],
        now: int,
        fences: Any,
    ) -> None:
        del now, fences
        reference = self.reference
        keys = set()
        for delivery in (reference.deliveries[it.delivery_id] for it in releases):
            flight = memory.flights.get(delivery.id)
            reference.must(
                flight is None or not reference.is_current(flight),
                "order",
                lambda it=delivery: f"{name(it.id)} is in flight, and its key is released",  # type: ignore[misc]
            )
            if reference.order.released(delivery):
                keys.add(key_of(delivery))
                reference.counts["released"] += 1
        self._settle_checks.next_ones(keys, result, dropped=frozenset())

    def _done_expire_blocked(
        self,
        _: Memory,
        keep: Retention,
        *,
        result: tuple[int, int | None],
        after_id: int,
        now: int,
        limit: int,
        epoch: int = 0,
    ) -> None:
        del now, epoch, limit
        old = [
            it
            for it in self.reference.deliveries.values()
            if it.blocked and it.status == "pending" and it.id > after_id
            if it.accepted_at < keep.of(it.tenant)
        ]
        for delivery in sorted(old, key=lambda it: it.id)[: result[0]]:
            self.reference.finish(delivery, "dropped", "expired")

    # --- endpoints and deliveries ------------------------------------------------------------

    def _read(self, memory: Memory, starts: Sequence[EndpointStart]) -> None:
        for start in starts:
            number, state = start.endpoint.id, start.endpoint.health.state.value
            if (
                state == self.reference.endpoints[number].state
            ):  # Else it was read before it changed.
                self.reference.learn(memory, number)

    def _told_endpoints(self, memory: Memory, _: Any, *, result: list[EndpointStart]) -> None:
        self._read(memory, result)

    def _told_bucket_page(self, memory: Memory, *_: Any, result: Any, **more: Any) -> None:
        del more
        self._read(memory, result[0])

    def _done_set_endpoint(
        self, memory: Memory, endpoint: Endpoint, *, result: Endpoint, **more: Any
    ) -> None:
        reference, transition = self.reference, more["transition"]
        model = reference.endpoints[endpoint.id]
        marks = {endpoint.id: len(model.changes)}
        if endpoint.health.state.value == "enabled":
            at = endpoint.health.manual_enable_at or 0
            model.enabled_by_person(at, ENABLES)
        else:
            at = endpoint.health.since if model.state != "frozen" else reference.clock()
            model.frozen_by_person(at, FREEZES)
        reference.on_time(at, f"{model.url} is made {endpoint.health.state.value}")
        compare_endpoint(reference, result, memory)
        recorded = [transition] if transition is not None else []
        compare_changes(reference, marks, recorded, more["notices"], self._change(memory))
        for new in more["notices"]:
            self._notice(memory, new)

    def _told_set_endpoint(
        self, memory: Memory, endpoint: Endpoint, *, result: Endpoint, **_: Any
    ) -> None:
        self.reference.learn(memory, endpoint.id)
        if result.health.state.value == "enabled":
            memory.slots[endpoint.id] = Slots()

    def _done_cancel_delivery(
        self, memory: Memory, delivery_id: int, *, result: Delivery, now: int
    ) -> None:
        del result, now
        self.reference.finish(self.reference.deliveries[delivery_id], "cancelled", "by_person")
        self.reference.cancels[delivery_id] = self._change(memory)
        self.reference.say(f"cancelled {name(delivery_id)}")

    def _told_cancel_delivery(self, memory: Memory, delivery_id: int, **_: Any) -> None:
        if delivery_id not in memory.on_their_way:  # Else the engine cannot know it yet.
            self.reference.cancels[delivery_id].told = True

    def _done_replay(
        self, memory: Memory, delivery_id: int, *, result: Delivery, new: Delivery
    ) -> None:
        del new
        old = self.reference.deliveries[delivery_id]
        self._replayed(memory, result, old)
        right = old.status != "pending"
        self.reference.must(right, "replay", lambda: f"{name(old.id)} is pending, and was replayed")

    def _replayed(self, memory: Memory, row: Delivery, old: DeliveryModel) -> DeliveryModel:
        right = row.event_id not in self.reference.erased_events
        self.reference.must(right, "erase", lambda: f"{name(row.id)} replays an erased event")
        model = self._delivery(memory, row)
        right = row.replay and (old.event_id, old.root_id) == (row.event_id, row.root_id)
        self.reference.must(
            right, "replay", lambda: f"{name(row.id)} is no replay of {name(old.id)}"
        )
        self.reference.say(f"replayed {name(old.id)} as {name(row.id)}")
        return model

    def _done_replay_step(
        self,
        memory: Memory,
        job: ReplayJob,
        *,
        result: bool,
        after: ReplayJob,
        new: Sequence[Delivery],
        seen: Mapping[str, EventPlace],
    ) -> None:
        del after, seen
        made = self.replayed.setdefault(job.id, [])
        if job.filter.backfill:
            for row in new if result else ():
                self._backfilled(memory, job, row, made)
            return
        for row in new if result else ():
            sub = self.reference.subs[row.subscription_id]
            if not sub.deleted and row.event_id not in self.reference.erased_events:
                old = self.reference.deliveries[row.root_id]
                made.append(self._replayed(memory, row, old))

    def _done_save_backfill(self, _: Memory, __: Any, *, result: ReplayJob) -> None:
        self.backfills[result.id] = result, self.reference.clock()
        self.reference.say(f"backfill {result.id} of {result.filter.subscription_id}")

    def _backfilled(
        self, memory: Memory, job: ReplayJob, row: Delivery, made: list[DeliveryModel]
    ) -> None:
        """A past event comes once, in order, if it matches and its subscription has none of it."""
        reference, sub = self.reference, self.reference.subs[row.subscription_id]
        if sub.deleted or row.event_id in reference.erased_events:
            return  # The store leaves it out.
        if sub.now.order.value == "latest" and reference.is_outdated(row.event_id, sub):
            return  # The same: a newer event of its key was published since it was looked for.
        fact, must = reference.facts[row.event_id], reference.must
        had = [it.id for it in reference.of_event(row.event_id) if it.subscription_id == sub.id]
        must(not had, "backfill", lambda: f"{name(row.id)} doubles {name(had[0])}")
        same = self._was_known(memory, sub, self.backfills[job.id][1])
        must(
            not same or sub.matches(*fact.for_whom),
            "backfill",
            lambda: f"{name(row.id)} is of an event that {sub.id} does not want",
        )
        must(
            not made or reference.places[made[-1].event_id] < reference.places[row.event_id],
            "backfill",
            lambda: f"{name(row.id)} comes after a later event",
        )
        must(
            reference.clock_jumped or id_time(row.event_id) >= (job.filter.since or 0),
            "backfill",
            lambda: f"{name(row.id)} is of an event from before",
        )
        newer = (
            reference.newer(row.event_id, sub) if same and sub.now.order.value == "latest" else []
        )
        must(
            not newer or reference.clock_jumped,
            "backfill",
            lambda: f"{name(row.id)} is of an event with a key that {newer[0]} has, too",
        )
        right = row.replay and row.root_id == row.id
        must(right, "backfill", lambda: f"{name(row.id)} is no first delivery: {row}")
        about = about_of(reference, fact) if same else None
        made.append(self._delivery(memory, row, about))
        reference.say(f"made {name(row.id)} for a past event")

    def _was_known(self, memory: Memory, sub: Sub, since: int) -> bool:
        """Whether a step of a job that began then was decided with the subscription as it is."""
        now, changed = self.reference.clock(), sub.changed
        known = memory.catalog.get(sub.id, sub.now) == sub.now
        known = known and (sub.responded or not memory.may_not_know(changed, at=now))
        return known and (changed.at <= since or changed.at + STEP_WITHIN_MS <= now)

    # --- erasures ----------------------------------------------------------------------------

    def _done_erase_events(
        self,
        memory: Memory,
        erasure_id: int,
        events: Sequence[tuple[Erasable, Any]],
        *,
        result: bool,
        limit: int,
    ) -> None:
        reference, change = self.reference, self._change(memory)
        counts = reference.erasures.setdefault(erasure_id, Counter())
        whole = True
        for event_id in (it.event_id for it, _ in events):
            if event_id in reference.erased_events:
                continue  # Another process was there first.
            there = [it for it in reference.of_event(event_id) if it.id not in reference.erased]
            links = [it for it in there if it.replay][:limit]
            first = [it for it in there if not it.replay]
            waiting = [it for it in first if it.status == "pending"][:limit]
            finished = [it for it in first if it.status != "pending"][:limit]
            waiting += [it for it in links if it.status == "pending"]
            finished += [it for it in links if it.status != "pending"]
            for delivery in waiting:
                reference.finish(delivery, "cancelled", "erased")
                reference.cancels[delivery.id] = change
            gone = [*waiting, *finished]
            reference.erased.update(it.id for it in gone)
            counts.update(deliveries=len(gone), cancelled=len(waiting))
            if max(map(len, (links, waiting, finished))) >= limit:
                whole = False
            else:
                reference.erased_events[event_id] = change
                counts["events"] += 1
        reference.say(f"erased {len(events)} events: {result}")
        reference.must(whole == result, "erase", lambda: f"an erasure is done: {result}")


def about_of(reference: Reference, fact: Fact) -> int | None:
    """The endpoint that a notice is about."""
    if not fact.type.startswith("homing."):
        return None
    url = json.loads(fact.data).get("url")
    return reference.endpoint_ids.get((fact.tenant, url))


def _wanted(it: Subscription) -> tuple[object, ...]:
    """What decides which events it gets."""
    return it.types, it.filters, it.active, it.endpoint_id, it.verification, it.receiver


def _waits(it: Subscription) -> tuple[object, ...]:
    """What decides how its deliveries with a key wait."""
    return it.order, it.quiet_ms, it.max_wait_ms


def _earliest_due(waiting: dict[int, DeliveryModel], ids: Sequence[int]) -> set[int]:
    """By the times from which they count: of those in the retry lane, and of the others."""
    kinds: dict[bool, list[int]] = {}
    for it in ids:
        one = waiting[it]
        in_retry_lane = one.replay or one.after_drop or one.due > one.ready  # It waits for quiet.
        kinds.setdefault(in_retry_lane, []).append(it)
    return {min(of, key=lambda it: (waiting[it].due, it)) for of in kinds.values()}


def _content(draft: EventDraft) -> tuple[str, str | None, bytes, str | None]:
    return draft.type, draft.time, draft.data, draft.order_key
