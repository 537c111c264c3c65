"""Many seeds over all cores, with a progress line and the figures at the end.

``python -m simulation.run`` runs 1,000 seeds with 1,000 deliveries each; ``--seed N`` runs one
again and prints its verdict. A run in which a kind of fault never happened has failed.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import structlog

from homing.net.clock import monotonic
from simulation.mix import ACTIONS, BACKFILLS, CUTS, FLEET_ACTIONS, PAUSES, ROTATIONS, TROUBLES
from simulation.readers import READER_KINDS
from simulation.seed import Verdict, run_seed
from simulation.set_clocks import KINDS as CLOCK_KINDS
from simulation.tokens import KINDS as TOKEN_KINDS

KINDS = frozenset(
    {
        *(f"receiver_{trouble}" for trouble in TROUBLES),
        *(f"person_{action}" for action in (*ACTIONS, *ROTATIONS, *PAUSES, *BACKFILLS)),
        *(f"cut_{kind}" for kind in CUTS),
        "person_erase_event",
        "person_erase_field",
        *(f"reader_{kind}" for kind in READER_KINDS),
        *TOKEN_KINDS,
        "proxy_away",
        "certificate_expired",
        "tenant_hangs",
        "publish_bulk_edit",
        "outage_began",
        "outage_ended",
        "tenants_die",
        "settings_changed",
        "receiver_private_address",
        "held_by_settings",
        "failed_by_name",
        "expired_by_settings",
        "store_refused",
        "store_outage",
        "reply_lost",
        "crash_before_commit",
        "crash_after_commit",
        "crash_in_recovery",
        "kill",
        "stop",
        "clock_step",
        "clock_jump",
        *CLOCK_KINDS,
        "publish_batch",
        "publish_twice_in_batch",
        "publish_again_equal",
        "publish_again_other_data",
        "publish_again_other_type",
        "publish_again_other_time",
        "publish_twins_that_differ",
        "publish_id_of_another_tenant",
        "person_filters",
        "person_verify",
        "receiver_410",
        "challenge",
        "subscription_gone",
        "publish_again_unanswered",
        "publish_again_other_key",
        "person_change_order",
        "blocked",
        "superseded",
        "released",
        "released_in_flight",
    }
)
FLEET_KINDS = frozenset(
    {
        *(f"reader_{kind}" for kind in READER_KINDS),
        *(f"person_{action}" for action in (*FLEET_ACTIONS, *ROTATIONS, *PAUSES, *BACKFILLS)),
        "person_erase_event",
        "person_erase_field",
        "kill",
        "pause",
        "long_pause",
        "stop",
        "messages_lost",
        "failover",
        "duplicates",
        "handed_over",
        "probes",
        "store_refused",
        "reply_lost",
        "crash_after_commit",
        "crash_before_commit",
        "blocked",
        "superseded",
        "waited_for_former_owner",
    }
)
AGAIN_EVERY = 50  # of so many seeds one is run twice: the same seed gives the same trace
FLEET_AGAIN_EVERY = 20
FLEET_DELIVERIES = 100
_LINE_EVERY_S = 0.5


@dataclass
class Totals:
    """What a run of many seeds comes to."""

    kinds: frozenset[str] = KINDS
    seeds: int = 0
    bad: list[Verdict] = field(default_factory=list)
    fired: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    traces: dict[int, str] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        self.seeds += 1
        self.fired += verdict.fired
        self.counts += verdict.counts
        self.traces[verdict.seed] = verdict.trace_sha256
        if verdict.violation is not None:
            self.bad.append(verdict)

    @property
    def never_fired(self) -> list[str]:
        return sorted(self.kinds - set(+self.fired))

    def differing(self, again: Totals) -> list[int]:
        """Seeds whose second run was another one."""
        return [seed for seed, trace in again.traces.items() if self.traces[seed] != trace]

    @property
    def failed(self) -> bool:
        """Something did not hold, never happened, or was due too late."""
        return bool(self.bad or self.never_fired or self.counts["past_window"])

    def broken(self, *invariants: str) -> int:
        """How many seeds ended with one of these."""
        return sum(
            it.violation is not None and it.violation.invariant in invariants for it in self.bad
        )


def quiet() -> None:
    """The engine's log lines are of no use here."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.ReturnLoggerFactory(),  # Lost commits are critical.
    )


def _run(asked: tuple[int, int, bool]) -> Verdict:
    seed, deliveries, fleet = asked
    return run_seed(seed, deliveries, fleet=fleet)


def verdicts(
    seeds: Iterable[int], deliveries: int, *, processes: int, fleet: bool = False
) -> Iterator[Verdict]:
    """Each as soon as it is there."""
    asked = [(seed, deliveries, fleet) for seed in seeds]
    with multiprocessing.Pool(processes, initializer=quiet) as pool:
        yield from pool.imap_unordered(_run, asked)


def run_many(
    seeds: Sequence[int], deliveries: int, *, processes: int, fleet: bool = False
) -> Totals:
    """All of them, with a progress line."""
    totals, began, shown = Totals(KINDS if not fleet else FLEET_KINDS), monotonic(), 0.0
    for verdict in verdicts(seeds, deliveries, processes=processes, fleet=fleet):
        totals.add(verdict)
        if verdict.violation is not None:
            _say(f"\r{verdict.report()}\n")
        now = monotonic()
        if now - shown > _LINE_EVERY_S or totals.seeds == len(seeds):
            shown = now
            left = (now - began) / totals.seeds * (len(seeds) - totals.seeds)
            _say(
                f"\r{totals.seeds:,} of {len(seeds):,} seeds, "
                f"{totals.counts['deliveries']:,} deliveries, {totals.counts['attempts']:,} "
                f"attempts, {len(totals.bad)} violations, {left:.0f} s to go   "
            )
    _say("\n")
    return totals


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def figures(totals: Totals, again: Totals, *, took_s: float) -> list[str]:
    """What is counted, line by line: the whole, requests, clocks, the second implementation."""
    counts, fired = totals.counts, totals.fired
    same = again.seeds - len(totals.differing(again))
    kinds = len(KINDS) - len(totals.never_fired)
    clock = fired["clock_step"] + fired["clock_jump"]
    lost, early = totals.broken("S1", "S4", "L1", "L2"), totals.broken("S8")
    return [
        f"seeds {totals.seeds:,}, deliveries {counts['deliveries']:,}, "
        f"attempts {counts['attempts']:,}, violations {len(totals.bad)}, "
        f"fault kinds fired {kinds} of {len(KINDS)} ({fired.total():,} faults), "
        f"same trace again {same} of {again.seeds}, {took_s:.0f} s",
        f"requests {counts['requests']:,}: early {early}, due after the window "
        f"{counts['past_window']}, Retry-After honoured {counts['retry_after']:,}, "
        f"ignored {counts['retry_after_ignored']:,}, "
        f"dropped: exhausted {counts['dropped_exhausted']:,}, "
        f"expired {counts['dropped_expired']:,}",
        f"clock steps and jumps {clock:,}: lost {lost}, early {early}, "
        f"mass expiry {totals.broken('S14')}",
        f"model steps {counts['model_steps']:,}: mismatches "
        f"{totals.broken('health', 'schedule', 'S11', 'probe')}",
    ]


def fleet_figures(totals: Totals, again: Totals) -> str:
    """Of processes that share the buckets of one store."""
    counts = totals.counts
    same = again.seeds - len(totals.differing(again))
    kinds = len(totals.kinds) - len(totals.never_fired)
    return (
        f"fleets: seeds {totals.seeds:,}, deliveries {counts['deliveries']:,}, attempts "
        f"{counts['attempts']:,}, violations {len(totals.bad)}, fault kinds fired {kinds} of "
        f"{len(totals.kinds)}, same trace again {same} of {again.seeds}, due after the window "
        f"{counts['past_window']}, buckets taken {counts['taken']:,}, handed over "
        f"{counts['given']:,}, sent twice after a bucket changed hands {counts['duplicates']:,}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.run", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one and print its verdict")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--deliveries", type=int, default=1_000, help="of each seed (1000)")
    parser.add_argument("--fleets", type=int, default=200, help="seeds of fleets (200)")
    parser.add_argument("--fleet", action="store_true", help="with --seed: one of a fleet")
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    asked = parser.parse_args(arguments)
    quiet()
    if asked.seed is not None:
        verdict = _run((asked.seed, asked.deliveries, asked.fleet))
        sys.stdout.write(verdict.report() + "\n")
        return int(verdict.violation is not None)
    return _run_all(asked)


def _run_all(asked: argparse.Namespace) -> int:
    """Single processes and fleets, some of each twice; 0 if all of it held."""
    began, processes = monotonic(), asked.processes
    seeds = range(asked.first, asked.first + asked.seeds)
    totals = run_many(seeds, asked.deliveries, processes=processes)
    again = run_many(seeds[::AGAIN_EVERY], asked.deliveries, processes=processes)
    lines = figures(totals, again, took_s=monotonic() - began)
    failed = totals.failed or bool(totals.differing(again))
    never = totals.never_fired
    if asked.fleets:
        seeds = range(asked.fleets)
        fleets = run_many(seeds, FLEET_DELIVERIES, processes=processes, fleet=True)
        twice = seeds[::FLEET_AGAIN_EVERY]
        again = run_many(twice, FLEET_DELIVERIES, processes=processes, fleet=True)
        lines.append(fleet_figures(fleets, again))
        failed = failed or fleets.failed or bool(fleets.differing(again))
        never += fleets.never_fired
    for line in [*lines, *(f"never fired: {kind}" for kind in never)]:
        sys.stdout.write(line + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
