"""One seed from its beginning to its verdict: faults, then healing, then the sums."""

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
from simulation.accounts import Accounts
from simulation.books import Books
from simulation.cuts import Cuts
from simulation.deaths import Deaths
from simulation.faults import Faults, FaultyWorld
from simulation.findings import Violation
from simulation.hanging import Hanging
from simulation.invariants import SLACK_MS, Balance, Healing
from simulation.mix import Mix, Rates, draw
from simulation.outage_watch import OutageWatch
from simulation.overdue import Overdue
from simulation.people import People
from simulation.process import Process
from simulation.publishers import Publishers
from simulation.receivers import Receivers
from simulation.slow_names import ResolvingSender, SlowNames

NO_FAULTS = Rates(*([0] * 10))
ENDS_WITHIN_S = 1_000 * 3_600  # after the last fault
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

    @property
    def replay_command(self) -> str:
        asked = f"--seed {self.seed} --deliveries {self.deliveries}"
        return f"PYTHONPATH=src:tests python -m simulation.run {asked}"

    def report(self) -> str:
        if self.violation is None:
            return f"seed {self.seed}: green, trace {self.trace_sha256}"
        lines = "\n".join(f"  {line}" for line in self.violation.trace)
        return (
            f"seed {self.seed}: {self.violation.invariant} does not hold\n"
            f"{self.violation.text}\n{lines}\nagain: {self.replay_command}"
        )


class Seed:
    """All parts of one run, made from its mix."""

    def __init__(self, mix: Mix, db: SqliteDb) -> None:
        self.books = books = Books(mix=mix, clock=self._now, wall_ahead=self._wall_ahead)
        self.accounts = accounts = Accounts(books)

        def rng(part: str) -> Random:
            return Random(f"{part} {mix.seed} {mix.deliveries}")

        self.mix = mix
        self.faults = faults = Faults(mix.rates, rng("store"), accounts)
        self.world = world = FaultyWorld(db, mix.options, accounts)
        world.faults, world.on_life = faults, self._begin_life
        faults.kill = world.die
        self.receivers = Receivers(
            mix,
            rng("receivers"),
            fire=faults.fire,
            asked=accounts.asked,
        )
        world.otherwise = self.receivers.reply
        self.names: SlowNames | None = None
        if mix.slow_names is not None:
            self.names = SlowNames(mix, rng("names"), books=books, fire=faults.fire)
            world.make_sender = partial(ResolvingSender, self.names, world)
        self.process = Process(world, faults, books, mix, rng("process"))
        self.people = People(world, mix, rng("people"), accounts, faults.fire)
        self.publishers = Publishers(world, mix, rng("publishers"), accounts, faults.fire)
        self.people.meanwhile = self.publishers.meanwhile
        self.overdue = Overdue(world, books, faults)
        self.outage_watch = OutageWatch(books, faults.fire)
        accounts.watch_outages(self.outage_watch)
        self.cuts = Cuts(
            mix,
            rng("cuts"),
            books=books,
            faults=faults,
            receivers=self.receivers,
            publishers=self.publishers,
            watch=self.outage_watch,
        )
        self.deaths = self._deaths(rng("deaths"))

        self.hanging = Hanging(
            mix,
            rng("hanging"),
            world=world,
            books=books,
            faults=faults,
            receivers=self.receivers,
            publishers=self.publishers,
        )

    def _begin_life(self, number: int) -> None:
        self.books.begin_life(number)
        self.outage_watch.begin_life()

    def _deaths(self, rng: Random) -> Deaths:
        self.receivers.tenant_of = self._tenant_of
        deaths = Deaths(
            self.mix,
            rng,
            world=self.world,
            books=self.books,
            faults=self.faults,
            receivers=self.receivers,
            publishers=self.publishers,
        )
        deaths.over = lambda: self.cuts.over
        return deaths

    def _tenant_of(self, hit: Hit) -> str:
        delivery = self.books.deliveries.get(read_id("dlv", hit.delivery) or 0)
        return "" if delivery is None else delivery.tenant

    async def _cuts_and_deaths(self) -> None:
        """One after the other: each begins when all is well."""
        await self.cuts.act()
        await self.deaths.act()

    def _now(self) -> int:
        return self.world.clock.now()  # Of the life of now.

    def _wall_ahead(self) -> int:
        return self.world.clock.state().ahead_ms

    async def live(self) -> None:
        """Until the end, or the first violation."""
        story = asyncio.ensure_future(self._story())
        end_s = self.mix.run_for_ms / 1000 + ENDS_WITHIN_S
        while not story.done() and not self.books.violations:
            await asyncio.wait([story], timeout=600)
            late = asyncio.get_running_loop().time() > end_s and not story.done()
            self.books.must(not late, "L1", lambda: "all is healed, and it does not end")
        if story.done():
            story.result()

    async def _story(self) -> None:
        rates, self.faults.rates = self.faults.rates, NO_FAULTS
        self.world.install()
        await self.process.start()
        await self.people.set_up()
        await self.hanging.set_up()
        self.faults.rates = rates
        supervisor = asyncio.ensure_future(self.process.supervise())
        actors = [asyncio.ensure_future(it) for it in self._actors()]
        await asyncio.sleep(self.mix.run_for_ms / 1000)
        await self._heal(actors)
        await Healing(self.world, self.books).watch()
        await asyncio.sleep(SLACK_MS / 1000)
        await Balance(self.world, self.accounts, self.faults).check(self.people.jobs)
        supervisor.cancel()

    def _actors(self) -> list[asyncio.Future[None]]:
        subs = self.mix.subscriptions_each
        events = int(self.mix.deliveries / max(0.6 * subs, 0.5))
        each = [self.publishers.publish_all(events) for _ in range(self.mix.publishers)]
        process = self.process
        others = [process.kills(), process.stops(), process.outages(), process.steps()]
        others += [
            self.people.act(),
            self._cuts_and_deaths(),
            self.hanging.act(),
            self.overdue.look(),
        ]
        return [asyncio.ensure_future(it) for it in (*each, *others)]

    async def _heal(self, actors: list[asyncio.Future[None]]) -> None:
        self.books.say("all heals")
        parts = (self.process, self.people, self.publishers, self.cuts, self.hanging)
        for part in (*parts, self.overdue):
            part.over = True
        self.outage_watch.end()
        self.receivers.healed = True
        if self.names is not None:
            self.names.healed = True
        self.faults.heal()
        await self.world.is_up.wait()
        await asyncio.wait(actors, timeout=GATHER_S)
        for actor in actors:
            actor.cancel()
        for error in await asyncio.gather(*actors, return_exceptions=True):
            if isinstance(error, Exception):
                raise error
        await self.world.is_up.wait()  # An orderly stop may have been under way.


def run_seed(seed: int, deliveries: int) -> Verdict:
    """Run it; the same seed gives the same verdict and the same trace."""
    parts: list[Seed] = []

    async def main() -> None:
        db = await SqliteDb.open(":memory:")
        parts.append(Seed(draw(seed, deliveries), db))
        await parts[0].live()

    try:
        run_virtual(main())
    except (SpinsForEver, WaitsForEver) as error:
        parts[0].books.violated("S14", repr(error))
    except Exception:  # noqa: BLE001 - an exception that nobody took, from whatever part
        parts[0].books.violated("exception", traceback.format_exc())
    run = parts[0]
    books = run.books
    return Verdict(
        seed,
        deliveries,
        books.violations[0] if books.violations else None,
        books.trace.digest(),
        books.trace.lines,
        run.faults.fired,
        books.counts,
    )
