"""What must hold at the end: all healed, all work done, every bucket owned, every sum balanced."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from operator import sub

from homing.errors import HomingError
from homing.model import Attempt, Delivery, Endpoint, Outcome, Status, id_time
from homing.policy.bucket_shares import BUCKETS
from homing.ports import DeliveryRow
from homing.store.admin import Admin
from homing.store.attempts import of_delivery
from homing.store.migrate import Execute
from homing.store.sqlite import SqliteDb
from homing.store.tx import Tx
from simulation.causes_model import facts_of
from simulation.check_settles import compare_delivery, compare_endpoint, recorded_change
from simulation.checker import ENABLES, Checker, about_of
from simulation.health_model import HOUR
from simulation.lives import Crashed
from simulation.machine import Machine
from simulation.mix import PATHS_KEY
from simulation.people import Job
from simulation.reference import Reference, name, value_at

FEW_PAGES = 10  # of a search for expired deliveries
ROUNDS = 4
ERASURES_MAX = 10_000  # that are read at once
ROWS_OF_EVENTS = (
    ("event", "id"),
    ("event_key", "event_id"),
    ("event_field", "event_id"),
    ("pending", "event_id"),
    ("history", "event_id"),
    ("replay_link", "event_id"),
    ("attempt", "delivery_id"),
)
CAUSES_MAX = 10_000  # that are read at once
# Attempts of one delivery in a long sender outage.
SENDER_ERRORS_MAX, SENDER_ERRORS_WITHIN_MS = 36, 600_000


class Healing:
    """After the faults: all that can be delivered is, in bounded time and without a restart."""

    def __init__(self, world: Machine, reference: Reference) -> None:
        self._world, self._reference = world, reference
        self._slack_ms = reference.mix.slack_ms

    async def watch(self) -> None:
        reference = self._reference
        await self._resume_paused()
        await self._enable_frozen()
        longest = max(it.probe_every_ms for it in reference.mix.numbers.values())
        await self._wait(longest + self._slack_ms)
        for endpoint in await self._world.endpoints():
            waiting = await self._world.views.waiting(endpoint.id, limit=1)
            reference.must(
                not waiting or endpoint.health.state.value == "enabled",
                "L3",
                lambda it=endpoint: f"{it.url} is healed and still {it.health.state}",  # type: ignore[misc]
            )
        for _ in range(ROUNDS):
            rows = await self._world.deliveries(status=Status.PENDING)
            for row in rows:
                sub = reference.subs[row.delivery.subscription_id]
                reference.must(
                    not sub.gone or reference.deliveries[row.delivery.id].position > sub.gone_upto,
                    "S16",
                    lambda it=row: f"{name(it.delivery.id)} is pending, and its URL is gone",  # type: ignore[misc]
                )
            if not rows or reference.violations:
                break
            rows = [it for it in rows if not reference.deliveries[it.delivery.id].blocked]
            holds = {it.id: it.hold_until for it in await self._world.endpoints()}
            times = [max(self._due(it.delivery), holds[it.delivery.endpoint_id]) for it in rows]
            await self._overdue(rows, times)
            await self._wait(max(max(times) - reference.clock(), 0) + self._slack_ms)
        rows = await self._world.deliveries(status=Status.PENDING)
        if rows:
            reference.violated("L1", f"{len(rows)} wait for ever, first {rows[0].delivery}")

    async def _wait(self, ms: int) -> None:
        await asyncio.sleep(ms / 1000)

    async def _resume_paused(self) -> None:
        for one in list(self._reference.subs.values()):
            if one.paused_since is not None and not one.deleted:
                try:
                    number = one.id
                    await self._world.ask(lambda engine, it=number: engine.resume(it))  # type: ignore[misc]
                    one.responded, one.answered = True, one.now.version
                except (HomingError, Crashed) as error:
                    self._reference.violated("L4", f"all is well, and resume says {error!r}")

    def _due(self, row: Delivery) -> int:
        """When it is due, as the pauses that it has not been moved by yet have moved it."""
        one, now = self._reference.subs[row.subscription_id], self._reference.clock()
        by = one.paused_ms(row.ready_at, now) - row.paused_ms
        return row.due_at if row.is_first else row.due_at + by

    async def _enable_frozen(self) -> None:
        for endpoint_id, model in list(self._reference.endpoints.items()):
            if model.state == "frozen":
                try:
                    number = endpoint_id
                    await self._world.ask(lambda engine, it=number: engine.enable(it, by=ENABLES))  # type: ignore[misc]
                except (HomingError, Crashed) as error:
                    self._reference.violated("L4", f"all is well, and enable says {error!r}")

    async def _overdue(self, rows: list[DeliveryRow], times: list[int]) -> None:
        now = self._reference.clock()
        for row, due in zip(rows, times, strict=True):
            self._reference.must(
                now - due <= self._slack_ms,
                "L2",
                lambda it=row.delivery: f"{name(it.id)} waits at {now}: {it}",  # type: ignore[misc]
            )


class Balance:
    """After the healing: what is stored is what was told, and what was seen."""

    def __init__(self, machines: Sequence[Machine], checker: Checker) -> None:
        self._machines, self._world = machines, machines[0]
        self._checker, self._reference = checker, checker.reference

    async def check(self, jobs: list[Job]) -> None:
        rows = await self._world.deliveries()
        await self._deliveries(rows)
        await self._ledger(rows)
        endpoints = await self._world.endpoints()
        for endpoint in endpoints:
            await self._endpoint(endpoint)
        await self._causes(endpoints)
        await self._fields()
        await self._cleanup_jobs()
        await self._erasures()
        for job in jobs:
            self._job(job)
        for number in self._checker.backfills:
            await self._backfill(number)
        for machine in self._machines:
            self._at_rest(machine)
        if self._reference.alone:
            self._few_operations()
        else:
            self._shares()
        await self._sound()

    async def _deliveries(self, rows: list[DeliveryRow]) -> None:
        reference = self._reference
        there = {row.delivery.id for row in rows}
        lost = [it for it in reference.deliveries if it not in there | reference.erased]
        reference.must(not lost, "S1", lambda: f"{len(lost)} deliveries are lost: {name(lost[0])}")
        for row in rows:
            delivery = reference.deliveries.get(row.delivery.id)
            if delivery is None or row.delivery.id in reference.erased:
                reference.violated("S1", f"{name(row.delivery.id)} was never accepted, or erased")
                return
            reason = row.reason.value if row.reason is not None else None
            stored = (row.status.value, reason, row.delivery.attempts, row.arrived)
            seen = (delivery.status, delivery.reason, delivery.attempts, delivery.arrived)
            reference.must(
                stored == seen,
                "S7",
                lambda it=row.delivery, is_=stored, was=seen: (  # type: ignore[misc]
                    f"{name(it.id)} is {is_}, and was {was}"
                ),
            )
            if row.status is Status.PENDING:
                compare_delivery(reference, row.delivery, delivery)
            await self._attempts(row)

    async def _attempts(self, row: DeliveryRow) -> None:
        attempts = await log_of(self._world.db, row.delivery)
        numbers = sorted(it.number for it in attempts)
        made = row.delivery.attempts
        right = numbers == list(range(1, len(numbers) + 1))
        # What was cancelled in flight has one more in the log than its row knew of.
        right = right and len(numbers) - made in ({0, 1} if row.status == "cancelled" else {0})
        self._reference.must(
            right, "S7", lambda: f"{name(row.delivery.id)}: {made} attempts, logged {len(numbers)}"
        )
        errors = sorted(it.started_at for it in attempts if it.outcome is Outcome.SENDER_ERROR)
        spans = map(sub, errors[SENDER_ERRORS_MAX:], errors)
        soonest = min(spans, default=SENDER_ERRORS_WITHIN_MS)
        self._reference.must(
            soonest >= SENDER_ERRORS_WITHIN_MS or self._reference.clock_jumped,
            "S14",
            lambda: (
                f"{name(row.delivery.id)}: {SENDER_ERRORS_MAX + 1} sender errors in {soonest} ms"
            ),
        )

    async def _ledger(self, rows: list[DeliveryRow]) -> None:
        counted: dict[str, Counter[str]] = {}
        for row in rows:
            counted.setdefault(row.delivery.tenant, Counter())[row.status.value] += 1
        for erased in map(self._reference.deliveries.__getitem__, self._reference.erased):
            counted.setdefault(erased.tenant, Counter())[erased.status] += 1
        for ledger in await self._world.views.ledger(tenant=None):
            counts = counted.pop(ledger.tenant, Counter())
            words = ("delivered", "pending", "dropped", "cancelled", "superseded")
            kept = tuple(getattr(ledger, it) for it in words)
            right = kept == tuple(counts[it] for it in words) and sum(kept) == ledger.accepted
            self._reference.must(right, "ledger", lambda it=ledger, n=counts: f"{it}, counted {n}")  # type: ignore[misc]
        self._reference.must(not counted, "ledger", lambda: f"no ledger for {sorted(counted)}")

    async def _endpoint(self, endpoint: Endpoint) -> None:
        reference = self._reference
        compare_endpoint(reference, endpoint, reference.first)
        kept, _ = await self._world.views.transitions(endpoint.id, before_id=None, limit=10_000)
        recorded = [recorded_change(it) for it in kept[::-1]]
        changes = reference.endpoints[endpoint.id].changes
        right = recorded == changes
        if not reference.alone:  # Ids of two processes are in no order.
            right = sorted(recorded, key=repr) == sorted(changes, key=repr)
        reference.must(
            right,
            "S11",
            lambda: f"{endpoint.url}: recorded {recorded}, and it was {changes}",
        )
        told = reference.drops_reported[endpoint.id] + endpoint.dropped_unreported
        drops, undone = reference.drops[endpoint.id], reference.drops_undone[endpoint.id]
        reference.must(
            drops <= told <= drops + undone,
            "notices",
            lambda: f"{endpoint.url}: {drops} drops, told of {told}",
        )

    async def _causes(self, endpoints: list[Endpoint]) -> None:
        """Each cause has counted its attempts, and was closed and continued at the right times."""
        reference, model = self._reference, self._reference.causes
        rows, after = await self._world.views.causes(
            tenant=None, endpoint_id=None, is_open=None, before_id=None, limit=CAUSES_MAX
        )
        assert after is None
        stored = Counter(facts_of(row.cause) for row in rows)
        seen = Counter(cause.facts for cause in model.all)
        reference.must(
            stored == seen,
            "causes",
            lambda: f"stored {[*(stored - seen)][:3]}, and it was {[*(seen - stored)][:3]}",
        )
        failing = {it.id for it in endpoints if it.failing}
        reference.must(
            failing == model.failing,
            "causes",
            lambda: f"{failing} are said to fail, and it was {model.failing}",
        )
        reference.counts["causes"] += len(model.all)

    async def _fields(self) -> None:
        """Every stored event has the payload fields of its data, under its tenant, and no other."""
        reference, paths = self._reference, self._reference.mix.options.payload_fields.paths

        async def look(execute: Execute) -> Sequence[tuple[object, ...]]:
            return await execute("SELECT event_id, place, hash, tenant FROM event_field")

        stored: Counter[tuple[object, ...]] = Counter(await self._world.db.raw(look))
        wanted: Counter[tuple[object, ...]] = Counter(
            (event_id, place, digest, fact.tenant)
            for event_id, fact in reference.facts.items()
            if event_id not in reference.erased_events
            for place, digest in enumerate(fields_of(fact.data, paths))
        )
        reference.must(
            stored == wanted,
            "fields",
            lambda: f"stored {[*(stored - wanted)][:3]}, and not {[*(wanted - stored)][:3]}",
        )
        reference.counts["fields"] += len(wanted)

    async def _cleanup_jobs(self) -> None:
        admin = Admin(self._world.db)
        cleanup_jobs, jobs = await admin.cleanup_jobs(), await admin.running_replay_jobs()
        if any(it.now.order.value != "none" for it in self._reference.subs.values()):
            waiting = await admin.key_releases(limit=1)
            self._reference.must(not waiting, "L2", lambda: f"a key waits for ever: {waiting}")
        self._reference.must(
            not cleanup_jobs, "L2", lambda: f"cleanup jobs are left: {cleanup_jobs}"
        )
        self._reference.must(not jobs, "L2", lambda: f"replays are left: {jobs}")

    async def _erasures(self) -> None:
        """Each is finished, has counted what it erased, and has left nothing of it."""
        reference, admin = self._reference, Admin(self._world.db)
        running = await admin.running_erasures(limit=1)
        reference.must(not running, "L2", lambda: f"an erasure never ends: {running}")
        rows, after = await admin.erasures(tenant=None, before_id=None, limit=ERASURES_MAX)
        assert after is None
        for row in rows:
            counted = (row.events, row.deliveries, row.cancelled)
            seen = reference.erasures.get(row.id, Counter[str]())
            was = (seen["events"], seen["deliveries"], seen["cancelled"])
            reference.must(
                counted == was,
                "erase",
                lambda n=counted, m=was: f"an erasure has counted {n}, and it was {m}",  # type: ignore[misc]
            )
        left = await self._world.db.raw(self._left)
        reference.must(not left, "erase", lambda: f"of what was erased there is still {left}")
        reference.counts["erased"] += len(reference.erased)

    async def _left(self, execute: Execute) -> list[str]:
        """The tables that have rows of an event, or attempts of a delivery, that was erased."""
        reference, left = self._reference, list[str]()
        for table, column in ROWS_OF_EVENTS:
            ids = {it for (it,) in await execute(f"SELECT DISTINCT {column} FROM {table}")}
            gone = reference.erased if column == "delivery_id" else reference.erased_events.keys()
            if ids & gone:
                left.append(table)
        return left

    def _job(self, job: Job) -> None:
        """Each finished delivery it was asked for comes again, and only once."""
        reference = self._reference
        made = self._checker.replayed.get(job.id, [])
        again = Counter((it.event_id, it.subscription_id) for it in made)
        asked = Counter((it.event_id, it.subscription_id) for it in job.finished)
        before = Counter(
            (it.event_id, it.subscription_id)
            for it in reference.deliveries.values()
            if it.id < job.id and it.tenant == job.tenant
        )
        for pair, times in asked.items():
            reference.must(
                again[pair] >= times
                or reference.subs[pair[1]].deleted
                or pair[0] in reference.erased_events,
                "replay",
                lambda: f"replay {job.id} left out what it was asked for",
            )
        for pair, times in again.items():
            reference.must(
                times <= before[pair],
                "replay",
                lambda it=pair: f"replay {job.id} took {it} more than once",  # type: ignore[misc]
            )

    async def _backfill(self, number: int) -> None:
        """Every past event that its subscription wanted all the time has come."""
        reference = self._reference
        begun, at = self._checker.backfills[number]
        stored = await Admin(self._world.db).replay_job(number)
        one = reference.subs[begun.filter.subscription_id or 0]
        made = len(self._checker.replayed.get(number, []))
        reference.must(
            stored is not None and stored.replayed == made,
            "backfill",
            lambda: f"{number} has made {made}, and says {stored}",
        )
        if stored is None or stored.state != "done" or one.wants_since >= at or one.deleted:
            return
        reference.counts["backfills_done"] += 1
        got = {it.event_id for it in reference.deliveries.values() if it.subscription_id == one.id}
        since = begun.filter.since or 0
        left = [
            event_id
            for event_id, fact in reference.facts.items()
            if event_id not in got and event_id <= begun.upto_id and one.matches(*fact.for_whom)
            if event_id not in reference.erased_events and id_time(event_id) >= since
            if about_of(reference, fact) != one.now.endpoint_id
            if not (one.now.order.value == "latest" and reference.newer(event_id, one))
        ]
        reference.must(
            not left or reference.clock_jumped,
            "backfill",
            lambda: f"{number} left out {len(left)} events: {left[:3]}",
        )

    def _at_rest(self, machine: Machine) -> None:
        reference, pulse = self._reference, machine.engine.pulse()
        busy = sum(pulse.in_flight.values()) + sum(pulse.ready.values()) + pulse.unsettled
        reference.must(busy == 0, "S13", lambda: f"nothing to do, and yet {pulse}")
        reference.must(
            pulse.memory_bytes == 0, "S13", lambda: f"{pulse.memory_bytes} bytes are held"
        )
        reference.must(pulse.store_ok, "L6", lambda: "the store is well, and the engine says not")

    def _few_operations(self) -> None:
        reference, faults = self._reference, self._world.faults
        work = (
            reference.counts["requests"]
            + reference.counts["events"]
            + reference.counts["deliveries"]
        )
        hours = 1 + hours_of(asyncio.get_running_loop().time())
        most = 3_000 + 40 * work + 30 * hours * (len(reference.endpoints) + 2)
        # Where windows differ, a search for expired deliveries reads all pages of an endpoint. Up
        # to ten are read for each delivery that expires, which is counted above. A search that
        # reads more is not repeated for as many seconds, five minutes at most: a page a second.
        few = FEW_PAGES * reference.mix.options.step_rows
        most += 3_600 * hours * sum(it > few for it in reference.crowds.values())
        reference.must(
            faults.operations <= most,
            "S14",
            lambda: f"{faults.operations} store operations; {most} would be much",
        )

    def _shares(self) -> None:
        """Every bucket has a living owner, and all processes own as many."""
        reference = self._reference
        alive = {it.member_id for it in reference.memories.values()}
        owned = Counter(reference.owner_of(it)[0] for it in range(BUCKETS))
        reference.must(
            set(owned) == alive, "L2", lambda: f"buckets are owned by {owned}, not {alive}"
        )
        fair = max(owned.values()) - min(owned.values()) <= 1
        reference.must(fair, "L5", lambda: f"unfair shares: {owned}")

    async def _sound(self) -> None:
        async def look(execute: Execute) -> object:
            return await execute("PRAGMA integrity_check")

        response = await self._world.db.raw(look)
        self._reference.must(response == [("ok",)], "S15", lambda: f"the store says {response}")


async def log_of(db: SqliteDb, delivery: Delivery) -> list[Attempt]:
    """All attempts that are logged: what people see of a delivery ends with the first 1,000."""
    limit = delivery.attempts + 2

    async def read(tx: Tx) -> list[Attempt]:
        return await of_delivery(tx, delivery.id, limit=limit)

    return await db.run(read, read_only=True)


def fields_of(data: bytes, paths: Sequence[str]) -> list[bytes]:
    """The hashes of the values at these paths: of texts, whole numbers, true and false."""
    found = []
    for path in paths:
        value = value_at(data, path)
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            content = f"{path}\0{text}".encode()
            found.append(hashlib.blake2b(content, digest_size=16, key=PATHS_KEY).digest())
    return found


def hours_of(loop_s: float) -> int:
    """Whole hours of virtual time."""
    return int(loop_s * 1000 // HOUR)
