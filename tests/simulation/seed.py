"""One seed from its beginning to its verdict: faults, then healing, then the sums.

A seed has one process, or a fleet of two or three that share the buckets of one store. They are
killed, stopped for longer than their lease, ended in good order and started again; messages
between them are lost, the store refuses, is slow, or loses replies.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from dataclasses import dataclass
from functools import partial
from random import Random

from homing.model import read_id
from homing.sim.loop import SpinsForEver, WaitsForEver, run_virtual
from homing.sim.world import Hit
from homing.store.sqlite import SqliteDb
from simulation.bulk_edits import BulkEdits
from simulation.check_end import Balance, Healing
from simulation.check_outages import OutageChecks
from simulation.checker import Checker, MachineWitness
from simulation.cuts import Cuts
from simulation.deaths import Deaths
from simulation.erasing import Erasing
from simulation.faults import Faults
from simulation.findings import RULES, Violation
from simulation.guard_settings import GuardSettings
from simulation.hanging import Hanging
from simulation.machine import FleetLoop, Machine, Network
from simulation.mix import GUARDS, Mix, Rates, draw, draw_fleet
from simulation.overdue import Overdue
from simulation.people import People
from simulation.process import Process
from simulation.publishers import Publishers
from simulation.readers import Readers, Streams
from simulation.receivers import Receivers
from simulation.reference import Reference, request_of
from simulation.set_clocks import SetClocks
from simulation.slow_names import ResolvingSender, SlowNames
from simulation.tokens import AuthorizingSender, Tokens

NO_FAULTS = Rates(*([0] * 10))
ENDS_WITHIN_S = 1_000 * 3_600  # after the last fault
ORDER_KINDS = ("superseded", "blocked", "released", "released_in_flight", "waited_for_former_owner")
GUARD_KINDS = ("held_by_settings", "failed_by_name", "expired_by_settings")
AWAY_S = (0.3, 3.0, 20.0)  # the store, until its standby is promoted
GATHER_S = 2_000  # in which publishers and people get the responses that they still wait for


@dataclass(frozen=True)
class Verdict:
    """What came of a seed."""

    seed: int
    deliveries: int
    violation: Violation | None
    trace_sha256: str
    trace_lines: int
    fired: Counter[str]
    counts: Counter[str]
    fleet: bool = False

    @property
    def replay_command(self) -> str:
        asked = f"--seed {self.seed} --deliveries {self.deliveries}"
        command = f"PYTHONPATH=src:tests python -m simulation.run {asked}"
        return f"{command} --fleet" if self.fleet else command

    def report(self) -> str:
        if self.violation is None:
            return f"seed {self.seed}: green, trace {self.trace_sha256}"
        lines = "\n".join(f"  {line}" for line in self.violation.trace)
        meaning = RULES.get(self.violation.invariant, "")
        return (
            f"seed {self.seed}: {self.violation.invariant} does not hold"
            f"{meaning and f': {meaning}'}\n"
            f"{self.violation.text}\n{lines}\nagain: {self.replay_command}"
        )


class Seed:
    """All parts of one run, made from its mix."""

    def __init__(self, mix: Mix, db: SqliteDb) -> None:
        self.mix, self._db = mix, db
        self.fired: Counter[str] = Counter()
        self.reference = reference = Reference(mix=mix, clock=self._now)
        reference.streams = Streams(reference)
        self.checker = checker = Checker(reference, self._wall_ahead)
        self._network = Network() if mix.machines > 1 else None
        self.machines = [self._machine(it) for it in range(1, mix.machines + 1)]
        self.first = first = self.machines[0]
        self.faults = faults = first.faults
        if mix.clock_reboots is not None:
            first.set_clocks = SetClocks(
                self._rng("set clocks"), reference, faults.fire, reboots=mix.clock_reboots
            )
        self.outage_checks = {
            it.number: OutageChecks(reference, faults.fire) for it in self.machines
        }
        self.receivers = Receivers(
            mix, self._rng("receivers"), fire=faults.fire, asked=checker.asked
        )
        self.receivers.tenant_of = self._tenant_of
        self.receivers.proved = self.reference.echoed.add
        self.receivers.says_gone = lambda hit: self.reference.gone_replies.add(request_of(hit))
        self.names: SlowNames | None = None
        if mix.slow_names is not None:
            self.names = SlowNames(mix, self._rng("names"), reference=reference, fire=faults.fire)
        for machine in self.machines:
            machine.otherwise = self.receivers.reply
            if self.names is not None:
                machine.make_sender = partial(ResolvingSender, self.names, machine)
        self.tokens: Tokens | None = None
        if mix.oauth:
            self.tokens = Tokens(self._rng("tokens"), reference, faults.fire)
            first.make_sender = partial(AuthorizingSender, self.tokens, first)
        self.processes = [
            Process(it, it.faults, reference, mix, self._rng("process", it.number))
            for it in self.machines
        ]
        ask = (self.machines, mix)
        self.people = People(*ask, self._rng("people"), checker, faults.fire)
        self.publishers = Publishers(*ask, self._rng("publishers"), checker, faults.fire)
        self.people.meanwhile = self.publishers.meanwhile
        for process in self.processes:
            process.publish_about = self.publishers.about
        self.erasing = Erasing(*ask, self._rng("erasing"), reference, faults.fire)
        self.readers = Readers(*ask, self._rng("readers"), reference, faults.fire)
        self.overdue = Overdue(first, reference, faults)
        self.cuts = Cuts(
            mix,
            self._rng("cuts"),
            reference=reference,
            faults=faults,
            receivers=self.receivers,
            publishers=self.publishers,
            watch=self.outage_checks[1],
        )
        self.deaths = Deaths(
            mix,
            self._rng("deaths"),
            world=first,
            reference=reference,
            faults=faults,
            receivers=self.receivers,
            publishers=self.publishers,
        )
        self.deaths.over = lambda: self.cuts.over
        self.hanging = Hanging(
            mix,
            self._rng("hanging"),
            world=first,
            reference=reference,
            faults=faults,
            receivers=self.receivers,
            publishers=self.publishers,
        )

        self.bulk_edits = BulkEdits(
            mix,
            self._rng("bulk"),
            world=first,
            reference=reference,
            faults=faults,
            publishers=self.publishers,
        )
        self.receivers.on_bulk = self.bulk_edits.sent
        self.guard: GuardSettings | None = None
        if mix.guard_changes:
            self.guard = GuardSettings(
                mix,
                self._rng("guard"),
                world=first,
                process=self.processes[0],
                reference=reference,
                faults=faults,
                receivers=self.receivers,
                publishers=self.publishers,
            )
            first.otherwise = self.guard.reply
            self.people.allows_private = lambda: GUARDS[reference.first.guard]

    def _rng(self, part: str, machine: int = 1) -> Random:
        """A stream of its own for every part, and for every machine after the first."""
        which = part if machine == 1 else f"{part} of machine {machine}"
        return Random(f"{which} {self.mix.seed} {self.mix.deliveries}")

    def _machine(self, number: int) -> Machine:
        mix, checker = self.mix, self.checker
        machine = Machine(number, self._db, mix.options, checker, self._network)
        faults = Faults(mix.rates, self._rng("store", number), MachineWitness(checker, number))
        faults.fired, faults.kill = self.fired, machine.die
        machine.faults, machine.on_life = faults, self._begin_life
        return machine

    def _begin_life(self, machine: Machine) -> None:
        number = machine.number
        self.reference.begin_life(
            number,
            machine.life.number,
            self.outage_checks[number],
            guard=machine.options.guard,
        )

    def _tenant_of(self, hit: Hit) -> str:
        delivery = self.reference.deliveries.get(read_id("dlv", hit.delivery) or 0)
        return "" if delivery is None else delivery.tenant

    async def _cuts_and_deaths(self) -> None:
        """One after the other: each begins when all is well."""
        await self.cuts.act()
        await self.deaths.act()

    def _now(self) -> int:
        return self.first.clock.now()  # Of the life of now.

    def _wall_ahead(self) -> int:
        return self.first.clock.state().ahead_ms

    async def live(self) -> None:
        """Until the end, or the first violation."""
        story = asyncio.ensure_future(self._story())
        end_s = self.mix.run_for_ms / 1000 + ENDS_WITHIN_S
        while not story.done() and not self.reference.violations:
            await asyncio.wait([story], timeout=600)
            late = asyncio.get_running_loop().time() > end_s and not story.done()
            self.reference.must(not late, "L1", lambda: "all is healed, and it does not end")
        if story.done():
            story.result()

    async def _story(self) -> None:
        supervisors = []
        for machine, process in zip(self.machines, self.processes, strict=True):
            machine.faults.rates = NO_FAULTS
            await process.start()
            if not self.reference.alone:
                supervisors.append(asyncio.ensure_future(process.supervise()))
        await self.people.set_up()
        await self.hanging.set_up()
        await self.bulk_edits.set_up()
        await self.readers.set_up()
        for machine in self.machines:
            machine.faults.rates = self.mix.rates
        if self.reference.alone:
            supervisors.append(asyncio.ensure_future(self.processes[0].supervise()))
        actors = [asyncio.ensure_future(it) for it in self._actors()]
        await asyncio.sleep(self.mix.run_for_ms / 1000)
        await self._heal(actors)
        await Healing(self.first, self.reference).watch()
        await asyncio.sleep(self.mix.slack_ms / 1000)
        await self.readers.finish()
        await Balance(self.machines, self.checker).check(self.people.jobs)
        for kind in ("duplicates", "probes", "subscription_gone", *GUARD_KINDS, *ORDER_KINDS):
            self.fired[kind] += self.reference.counts[kind]
        self.fired["handed_over"] += self.reference.counts["given"]
        for supervisor in supervisors:
            supervisor.cancel()

    def _actors(self) -> list[asyncio.Future[None]]:
        subs = self.mix.subscriptions_each
        events = int(self.mix.published * self.mix.deliveries / max(0.6 * subs, 0.5))
        actors = [self.publishers.publish_all(events) for _ in range(self.mix.publishers)]
        for process in self.processes:
            actors += [process.kills(), process.stops(), process.outages(), process.steps()]
            actors.append(process.pauses())
        actors += [self.people.act(), self._cuts_and_deaths(), self.hanging.act()]
        actors.append(self.erasing.act())
        actors.append(self.bulk_edits.act())
        actors.append(self.readers.act())
        if self.guard is not None:
            actors.append(self.guard.act())
        if self._network is None:
            actors.append(self.overdue.look())
        else:
            actors.append(self._lose_messages(self._network, self._rng("network")))
            actors.append(self._fail_over(self._rng("failover")))
        return [asyncio.ensure_future(it) for it in actors]

    async def _lose_messages(self, network: Network, rng: Random) -> None:
        while not self.people.over:
            await asyncio.sleep(rng.expovariate(1 / 30))
            if not self.people.over and rng.random() < 0.5:
                self.faults.fire("messages_lost")
                network.cut = True
                await asyncio.sleep(rng.choice((2, 20, 40)))
                network.cut = False

    async def _fail_over(self, rng: Random) -> None:
        """The store is away for all processes at once, with every call that is under way."""
        while self.mix.failovers_per_hour and not self.people.over:
            await asyncio.sleep(rng.expovariate(self.mix.failovers_per_hour / 3_600))
            if self.people.over:
                return
            self.faults.fire("failover")
            for machine in self.machines:
                machine.faults.break_connections()
                machine.faults.store_down = True
            await asyncio.sleep(rng.choice(AWAY_S))
            for machine in self.machines:
                machine.faults.store_down = False

    async def _heal(self, actors: list[asyncio.Future[None]]) -> None:
        self.reference.say("all heals")
        self._end_faults()
        await self._all_up()
        await asyncio.wait(actors, timeout=GATHER_S)
        for actor in actors:
            actor.cancel()
        for error in await asyncio.gather(*actors, return_exceptions=True):
            if isinstance(error, Exception):
                raise error
        await self._all_up()  # An orderly stop may have been under way.

    def _end_faults(self) -> None:
        for process in self.processes:
            process.over = True
        parts = (self.people, self.erasing, self.publishers, self.cuts, self.hanging, self.overdue)
        for part in parts:
            part.over = True
        self.bulk_edits.over = self.readers.over = True
        self.readers.faults.heal()
        self.outage_checks[1].end()
        self.receivers.healed = True
        if self.names is not None:
            self.names.healed = True
        if self.tokens is not None:
            self.tokens.healed = True
        if self.guard is not None:
            self.guard.over = True
        if self._network is not None:
            self._network.cut = False
        for machine in self.machines:
            machine.faults.heal()

    async def _all_up(self) -> None:
        for machine in self.machines:
            await machine.is_up.wait()


def run_seed(seed: int, deliveries: int, *, fleet: bool = False) -> Verdict:
    """Run a single process or a fleet; the same seed gives the same verdict and the same trace."""
    mix = (draw_fleet if fleet else draw)(seed, deliveries)
    parts: list[Seed] = []

    async def main() -> None:
        db = await SqliteDb.open(":memory:")
        parts.append(Seed(mix, db))
        await parts[0].live()

    try:
        with mix.limited():
            run_virtual(main(), FleetLoop() if fleet else None)
    except (SpinsForEver, WaitsForEver) as error:
        parts[0].reference.violated("S14", repr(error))
    except Exception:  # noqa: BLE001 - an exception that nobody took, from whatever part
        parts[0].reference.violated("exception", traceback.format_exc())
    run = parts[0]
    reference = run.reference
    return Verdict(
        seed,
        deliveries,
        reference.violations[0] if reference.violations else None,
        reference.trace.digest(),
        reference.trace.lines,
        run.fired,
        reference.counts,
        fleet,
    )
