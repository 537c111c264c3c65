"""One seed of a fleet: two or three processes share the buckets of one store, and suffer.

They are killed, stopped for longer than their lease, ended in good order and started again; words
between them are lost, the store refuses, is slow, or loses replies. People press every button, at
any of them. Then all heals: everything that was accepted is delivered, and every bucket has one
living holder.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable, Container, Coroutine
from random import Random

from homing.engine.options import EngineOptions
from homing.errors import HomingError
from homing.model import Status
from homing.policy.admission import EventDraft
from homing.policy.health import HealthRules
from homing.policy.retry import Anchor, Schedule
from homing.policy.shares import BUCKETS
from homing.ports import DeliveryRow
from homing.sim.loop import START_MS, SpinsForEver, WaitsForEver, run_virtual
from homing.sim.world import Crashed, Hit, Life, Reply
from homing.store.admin import Admin
from homing.store.sqlite import SqliteDb
from simulation.faults import Faults
from simulation.fleet_accounts import Ear, FleetAccounts
from simulation.fleet_books import FleetBooks
from simulation.fleet_people import ACTIONS, URLS, FleetPeople
from simulation.fleet_world import LEASE_MS, Air, FleetLoop, Machine
from simulation.health_model import Numbers, Timetable
from simulation.mix import Rates
from simulation.seed import NO_FAULTS, Verdict
from simulation.settlements import recorded_change

MINUTE = 60_000
PROBE_MS = MINUTE
GRACE_MS = 8_000
HEAL_MS = 6 * MINUTE
PUBLISHING = 0.8  # of the time before all heals
LATENCIES = (0, 5, 400, 1_900, 1_900, 1_900)
EVENT_TIME = "2026-01-02T03:04:05.678Z"
FLEET_KINDS = frozenset(
    {
        *(f"fleet_{action}" for action in ACTIONS),
        "fleet_kill",
        "fleet_pause",
        "fleet_long_pause",
        "fleet_stop",
        "fleet_words_lost",
        "fleet_duplicates",
        "fleet_handed_over",
        "fleet_probes",
        "store_refused",
        "reply_lost",
        "crash_after_commit",
        "crash_before_commit",
    }
)


def _rates(rng: Random) -> Rates:
    def rate(*choices: float) -> float:
        return rng.choice((0.0, *choices))

    return Rates(
        slow=rng.choice((0.05, 0.3, 0.6)),
        refused=rate(0.005, 0.02),
        reply_lost=rate(0.005, 0.02),
        crash=rate(0.0005, 0.002),
        crashes_most=3,
        outages_per_hour=0,
        kills_per_hour=0,
        stops_per_hour=0,
        steps_per_hour=0,
        clock_jumps=0,
    )


def _options(rng: Random) -> EngineOptions:
    delays = tuple(rng.choice((2, 5, 20)) * 1_000 for _ in range(8))
    quick = Schedule(
        name="quick",
        delays_ms=delays,
        anchor=Anchor.PREVIOUS_FAILURE,
        window_ms=60 * MINUTE,
        deadline_ms=rng.choice((2, 5, 12)) * 1_000,
    )
    rules = HealthRules(
        rate_after_attempts=200, consecutive_disable=rng.choice((3, 6)), probe_every_ms=PROBE_MS
    )
    return EngineOptions(
        schedules={"quick": quick},
        policy="quick",
        health=rules,
        queues_max=rng.choice((2, 20_000)),
        ready_max=rng.choice((2, 20_000)),
    )


def _books(options: EngineOptions, clock: Callable[[], int]) -> FleetBooks:
    """With the numbers that the models need."""
    rules, schedule = options.health, options.schedules["quick"]
    numbers = Numbers(
        rate_over_attempts=rules.rate_after_attempts,
        row_disables=rules.consecutive_disable,
        probe_every_ms=rules.probe_every_ms,
    )
    table = Timetable(schedule.delays_ms or (), from_first=False, window_ms=schedule.window_ms)
    return FleetBooks(clock=clock, numbers=numbers, table=table)


class FleetSeed:
    """All parts of one run."""

    def __init__(self, seed: int, deliveries: int, db: SqliteDb) -> None:
        rng = self._rng = Random(f"fleet {seed} {deliveries}")
        self._db, self._deliveries = db, deliveries
        self._loop = asyncio.get_running_loop()
        self.fired: Counter[str] = Counter()
        self._air = Air()
        self._over = False
        self._bad = rng.choice((0.0, 0.2, 0.5))
        self._run_ms = rng.choice((4, 8)) * MINUTE
        self._options, self._rates = _options(rng), _rates(rng)
        self.books = _books(self._options, self._now)
        self.accounts = FleetAccounts(self.books)
        self.machines = [self._machine(it) for it in range(1, rng.choice((2, 3)) + 1)]
        people = Random(f"people {seed} {deliveries}")
        self._people = FleetPeople(self.machines, self.books, people)
        self._people.fire = self._fire

    def _now(self) -> int:
        return START_MS + round(self._loop.time() * 1000)

    def _machine(self, number: int) -> Machine:
        machine = Machine(number, self._db, self._options, self.accounts, self._air)
        faults = Faults(NO_FAULTS, self._rng, Ear(self.accounts, machine))
        faults.fired, faults.kill = self.fired, machine.die
        machine.faults, machine.on_life = faults, lambda _: None
        machine.on_member = self.accounts.joined
        machine.otherwise = self._reply
        return machine

    def _fire(self, kind: str, machine: Machine) -> None:
        self.fired[kind] += 1
        self.books.say(f"machine {machine.number}: {kind}")

    def _reply(self, _: Hit) -> Reply:
        if self._over or self._rng.random() >= self._bad:
            return Reply(latency_ms=self._rng.choice(LATENCIES))
        return Reply(code=self._rng.choice((500, 503)), latency_ms=self._rng.choice((0, 50)))

    # --- the story ---------------------------------------------------------------------------

    async def live(self) -> None:
        story = asyncio.ensure_future(self._story())
        while not story.done() and not self.books.violations:
            await asyncio.wait([story], timeout=60)
        if story.done():
            story.result()

    async def _story(self) -> None:
        self.machines[0].install()
        supervisors = []
        for machine in self.machines:
            await self._start(machine)
            supervisors.append(asyncio.ensure_future(self._supervise(machine)))
        await self._people.set_up()
        for machine in self.machines:
            machine.faults.rates = self._rates
            machine.faults.crashes_left = self._rates.crashes_most
        actors = [asyncio.ensure_future(it) for it in self._doings()]
        actors += [asyncio.ensure_future(self._suffer(machine)) for machine in self.machines]
        await asyncio.sleep(self._run_ms / 1000)
        self._over, self._air.cut, self._people.over = True, False, True
        self.books.say("all heals")
        for machine in self.machines:
            machine.faults.heal()
        await asyncio.wait(actors, timeout=120)
        for machine in self.machines:
            await machine.is_up.wait()
        await self._people.enable_all()
        await asyncio.sleep(HEAL_MS / 1000)
        await self._check()
        for task in (*supervisors, *actors):
            task.cancel()

    def _doings(self) -> tuple[Coroutine[None, None, None], ...]:
        return self._publish(), self._words(), self._people.act()

    async def _start(self, machine: Machine) -> None:
        while True:
            machine.faults.died.clear()
            try:
                await machine.start()
            except Crashed:
                await asyncio.sleep(1)
            except HomingError:
                machine.die()
                await asyncio.sleep(1)
            else:
                machine.is_up.set()
                return

    async def _supervise(self, machine: Machine) -> None:
        while True:
            await machine.faults.died.wait()
            await asyncio.sleep(self._rng.choice((0.02, 3, 3, 25)))
            await self._start(machine)

    async def _publish(self) -> None:
        """Whichever process it is, the response means the same."""
        number, a_second = 0, self._deliveries / URLS / (PUBLISHING * self._run_ms / 1000)
        while not self._over and number * URLS < self._deliveries:
            await asyncio.sleep(self._rng.expovariate(a_second))
            number += 1
            key, data = f"key-{number}", b'{"n": %d }' % number
            self.books.offered[key] = data
            draft = EventDraft(tenant="acme", type="a.b", data=data, key=key, time=EVENT_TIME)
            told = await self._told(draft)
            while not told:
                await asyncio.sleep(1)
                told = await self._told(draft)

    async def _told(self, draft: EventDraft) -> bool:
        machine = self._rng.choice(self.machines)
        if machine.life in self._stopped:
            return False
        try:
            async with asyncio.timeout(60):
                receipts = await machine.ask(lambda engine: engine.publish([draft]))
        except (HomingError, Crashed, TimeoutError):
            return False
        self.accounts.receipts(receipts)
        return True

    # --- what befalls them -------------------------------------------------------------------

    @property
    def _stopped(self) -> Container[Life]:
        assert isinstance(self._loop, FleetLoop)
        return self._loop.stopped

    async def _words(self) -> None:
        while not self._over:
            await asyncio.sleep(self._rng.expovariate(1 / 30))
            if not self._over and self._rng.random() < 0.5:
                self._fire("fleet_words_lost", self.machines[0])
                self._air.cut = True
                await asyncio.sleep(self._rng.choice((2, 20, 40)))
                self._air.cut = False

    async def _suffer(self, machine: Machine) -> None:
        while not self._over:
            await asyncio.sleep(self._rng.expovariate(1 / 40))
            if self._over or not machine.up:
                continue
            await self._rng.choice((self._kill, self._pause, self._pause, self._stop))(machine)

    async def _kill(self, machine: Machine) -> None:
        for _ in range(self._rng.randint(0, 5)):
            await asyncio.sleep(0)
        self._fire("fleet_kill", machine)
        machine.faults.die()

    async def _pause(self, machine: Machine) -> None:
        """As by SIGSTOP: for a moment, or beyond its lease."""
        assert isinstance(self._loop, FleetLoop)
        long = self._rng.random() < 0.7
        self._fire("fleet_long_pause" if long else "fleet_pause", machine)
        life = machine.life
        self._loop.stop_life(life)
        await asyncio.sleep(self._rng.uniform(1, 3) * LEASE_MS / 1000 if long else 1)
        self.books.say(f"machine {machine.number} goes on")
        self.books.resumed[life.number] = self.books.clock()
        self._loop.go_on(life)

    async def _stop(self, machine: Machine) -> None:
        self._fire("fleet_stop", machine)
        life = machine.life
        try:
            await machine.ask(lambda engine: engine.stop(grace_ms=GRACE_MS))
        except Crashed:
            return
        if machine.life is life and life.alive:
            machine.faults.die()

    # --- what must hold at the end -----------------------------------------------------------

    async def _check(self) -> None:
        books = self.books
        rows = await self.machines[0].deliveries()
        stored = {row.delivery.id: row for row in rows}
        lost = [it for it in books.duties if it not in stored]
        books.must(not lost, "S1", lambda: f"{len(lost)} deliveries are lost: {lost[0]}")
        for row in rows:
            self._as_entered(row)
        self._shares()
        await self._endpoints()
        await self._ledger(rows)
        self.fired["fleet_duplicates"] += books.counts["duplicates"]
        self.fired["fleet_handed_over"] += books.counts["given"]
        self.fired["fleet_probes"] += books.counts["probes"]

    def _as_entered(self, row: DeliveryRow) -> None:
        """What is stored of it is what was seen to be written."""
        books, duty = self.books, self.books.duties[row.delivery.id]
        reason = row.reason.value if row.reason is not None else None
        stored = (row.status.value, reason, row.delivery.attempts, row.arrived)
        seen = (duty.status, duty.reason, duty.attempts, duty.arrived)
        books.must(stored == seen, "S7", lambda: f"{row.delivery.id} is {stored}, not {seen}")
        right = row.status is not Status.PENDING
        books.must(right, "L1", lambda: f"{row.delivery} waits for ever")

    async def _endpoints(self) -> None:
        """Each as the model has it, with the record of its changes."""
        books, world = self.books, self.machines[0]
        for endpoint in await world.endpoints():
            self.accounts.settlements.compare_endpoint(endpoint)
            kept, _ = await world.views.transitions(endpoint.id, before_id=None, limit=10_000)
            recorded = [recorded_change(it) for it in kept]
            changes = books.places[endpoint.id].model.changes
            right = sorted(recorded, key=repr) == sorted(changes, key=repr)
            books.must(right, "S11", lambda it=recorded, was=changes: f"{it}, and it was {was}")  # type: ignore[misc]
        cleanup_jobs = await Admin(self._db).cleanup_jobs()
        books.must(not cleanup_jobs, "L2", lambda: f"cleanup jobs are left: {cleanup_jobs}")

    async def _ledger(self, rows: list[DeliveryRow]) -> None:
        counted = Counter(row.status.value for row in rows)
        for ledger in await self.machines[0].views.ledger(tenant="acme"):
            kept = (ledger.delivered, ledger.pending, ledger.dropped, ledger.cancelled)
            words = ("delivered", "pending", "dropped", "cancelled")
            right = kept == tuple(counted[it] for it in words) and sum(kept) == ledger.accepted
            self.books.must(right, "ledger", lambda it=ledger: f"{it}, counted {counted}")  # type: ignore[misc]

    def _shares(self) -> None:
        """Every bucket has a living holder, and all have as many."""
        books = self.books
        alive = {it.me.id for it in self.machines if it.me is not None and it.up}
        held = Counter(books.owner_of(it)[0] for it in range(BUCKETS))
        books.must(set(held) == alive, "L2", lambda: f"buckets are held by {held}, not {alive}")
        fair = max(held.values()) - min(held.values()) <= 1
        books.must(fair, "L5", lambda: f"unfair shares: {held}")


class FleetVerdict(Verdict):
    """What came of a seed of a fleet."""

    @property
    def replay_command(self) -> str:
        return f"{super().replay_command} --fleet"


def run_fleet_seed(seed: int, deliveries: int) -> Verdict:
    """Run it; the same seed gives the same verdict and the same trace."""
    parts: list[FleetSeed] = []

    async def main() -> None:
        db = await SqliteDb.open(":memory:")
        parts.append(FleetSeed(seed, deliveries, db))
        await parts[0].live()

    try:
        run_virtual(main(), FleetLoop())
    except (SpinsForEver, WaitsForEver) as error:
        parts[0].books.violated("S14", repr(error))
    except Exception:  # noqa: BLE001 - an exception that nobody took, from whatever part
        parts[0].books.violated("exception", traceback.format_exc())
    books = parts[0].books
    return FleetVerdict(
        seed,
        deliveries,
        books.violations[0] if books.violations else None,
        books.trace.digest(),
        books.trace.lines,
        parts[0].fired,
        books.counts,
    )
