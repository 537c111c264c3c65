"""Failover under load: the primary is killed, stopped or cut off, and the standby is promoted.

Everything is judged from outside, as in ``fleet.run``. With a synchronous standby nothing that was
acknowledged may be missing, nothing may be sent twice but what was in flight when a lease ended,
and sending must go on within a second of the promotion. With an asynchronous standby that lags, the
same count must find that events are missing: otherwise it would find nothing.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from fleet.faults import Scale
from fleet.house import fetch
from fleet.run import Count, Story
from postgres import Server
from replicas import Replicas, replicas

Kind = Literal["killed", "stopped", "cut off"]
KINDS: tuple[Kind, ...] = ("killed", "stopped", "cut off")
AGAIN_WITHIN_S = 1.0
BEFORE_S, AFTER_S = 2.5, 3.0  # of load
LAG_S = 1.0
BACK_S = 1.0  # after the promotion the old primary is there again


@dataclass(frozen=True)
class Failover:
    """What happens."""

    kind: Kind
    promoted_after_s: float
    synchronous: bool = True
    standby_first: bool = False
    api: int = 1
    deliver: int = 2
    rate: int = 300
    urls: int = 20

    @property
    def scale(self) -> Scale:
        seconds = BEFORE_S + self.promoted_after_s + AFTER_S
        return Scale(self.api, self.deliver, self.rate, seconds, self.urls, 0, 0, 0, 0, 0)

    @property
    def text(self) -> str:
        standby = "synchronous" if self.synchronous else f"asynchronous, {LAG_S:.0f} s behind"
        return f"{self.kind}, promoted after {self.promoted_after_s:.0f} s, {standby}"


class _Strike:
    """The fault of a run, in the place of ``Faults``."""

    def __init__(self, asked: Failover, pair: Replicas, story: Story) -> None:
        self._asked, self._pair, self._story = asked, pair, story
        self.fired: Counter[str] = Counter()
        self.away_s, self.struck_at, self.promoted_at = 0.0, 0.0, 0.0

    async def run(self) -> None:
        asked, pair = self._asked, self._pair
        await asyncio.sleep(BEFORE_S)
        if not asked.synchronous:
            pair.log.cut()
            await asyncio.sleep(LAG_S)
        self.struck_at = time.time()
        match asked.kind:
            case "killed":
                await asyncio.to_thread(pair.primary.kill)
            case "stopped":
                pair.primary.signal(signal.SIGSTOP)
            case "cut off":
                pair.clients.cut()
                pair.log.cut()
        await asyncio.sleep(asked.promoted_after_s)
        self.promoted_at = await pair.promote()
        self._story.dsn = pair.standby.dsn
        await asyncio.sleep(BACK_S)
        await self._come_back()
        self.away_s = self.promoted_at - self.struck_at

    async def _come_back(self) -> None:
        """The old primary, which nobody has stopped for good; where it was killed, in recovery."""
        pair = self._pair
        match self._asked.kind:
            case "killed":
                await asyncio.to_thread(pair.primary.demote)
            case "stopped":
                pair.primary.signal(signal.SIGCONT)
            case "cut off":
                pair.clients.mend()


@dataclass
class Result:
    """What a run has shown."""

    asked: Failover
    count: Count
    again_s: float  # from the promotion to the first attempt
    acknowledged_again_s: float
    absent: int  # acknowledged events that the database no longer has

    @property
    def wrong(self) -> list[str]:
        """What does not hold; how long it took is the machine's affair in a short run."""
        wrong = [it for it in self.count.wrong if it != "a stall"]
        return [*wrong, *(["events are absent"] if self.absent else [])]

    @property
    def all_wrong(self) -> list[str]:
        """The same, with the time."""
        slow = self.again_s > AGAIN_WITHIN_S
        return [*self.wrong, *(["sending again took too long"] if slow else [])]

    @property
    def text(self) -> str:
        verdict = self.count.verdict
        return (
            f"{self.asked.text}: acknowledged {verdict.acknowledged}, missing {verdict.lost},"
            f" absent {self.absent}, sent twice {verdict.duplicated} (in flight when a lease ended"
            f" {verdict.in_flight_at_faults}), sending again after {self.again_s:.2f} s,"
            f" acknowledging after {self.acknowledged_again_s:.2f} s"
        )


async def fail_over(asked: Failover, folder: Path) -> Result:
    """One run on servers of its own."""
    async with replicas(synchronous=asked.synchronous) as pair:
        dsn = pair.dsn(standby_first=asked.standby_first)
        story = Story(asked.scale, cast("Server", None), dsn, folder, seed=1)
        story.dsn = pair.primary.dsn  # of the audit
        strike = _Strike(asked, pair, story)
        story.faults = cast("Any", strike)
        if not asked.synchronous:
            story.drain_s = 10  # What is missing never arrives.
        count = await story.run()
        at = strike.promoted_at
        again = [it.sent - at for it in story.facts.arrivals if it.sent > at]
        acked = [it - at for it in story.facts.acked.values() if it > at]
        rows = await fetch(pair.standby.dsn, "SELECT key FROM event")
        absent = len(story.facts.acked.keys() - {row[0] for row in rows})
        return Result(asked, count, min(again, default=99.0), min(acked, default=99.0), absent)


def plan(*, rounds: int = 1, quick: bool = False) -> Sequence[Failover]:
    """Every kind with every wait, in each round; the standby is named first in every second run."""
    waits = (1.0,) if quick else (1.0, 3.0, 15.0)
    each = [(kind, after) for kind in KINDS for after in waits]
    return [
        Failover(kind, after, standby_first=(number + round_number) % 2 == 0)
        for round_number in range(rounds)
        for number, (kind, after) in enumerate(each)
    ]


CONTROL = Failover("killed", 1.0, synchronous=False)


async def all_of_them(folder: Path, *, rounds: int = 1, quick: bool = False) -> bool:
    """Print each run and the sums; whether all are as they must be."""
    results: list[Result] = []
    for number, asked in enumerate(plan(rounds=rounds, quick=quick)):
        place = folder / str(number)
        result = await fail_over(asked, place)
        verdict = "GOOD" if not result.all_wrong else f"BAD: {', '.join(result.all_wrong)}"
        print(f"  {result.text}: {verdict}", flush=True)
        if not result.all_wrong:
            shutil.rmtree(place)
        results.append(result)
    print(f"  {_sums(results)}", flush=True)
    control = await fail_over(CONTROL, folder / "control")
    found = control.absent > 0
    print(f"  control: {control.text}: {'found' if found else 'NOT FOUND'}")
    return found and not any(it.all_wrong for it in results)


def _sums(results: Sequence[Result]) -> str:
    verdicts = [it.count.verdict for it in results]
    again = sorted(it.again_s for it in results)
    return (
        f"{len(results)} failovers: acknowledged {sum(it.acknowledged for it in verdicts)},"
        f" missing {sum(it.lost for it in verdicts)}, absent {sum(it.absent for it in results)},"
        f" sent twice {sum(it.duplicated for it in verdicts)} (in flight when a lease ended"
        f" {sum(it.in_flight_at_faults for it in verdicts)}), sending again after"
        f" {again[len(again) // 2]:.2f} s in the median and {again[-1]:.2f} s at most,"
        f" BAD {sum(bool(it.all_wrong) for it in results)}"
    )
