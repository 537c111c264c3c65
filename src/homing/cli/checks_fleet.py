"""Checks of a PostgreSQL and the processes on it: vacuum, snapshots, leases, days ahead, clock."""

from __future__ import annotations

import asyncio

from homing.cli.checks import Check, Verdict
from homing.cli.output import clock_ms, span
from homing.errors import StoreUnavailable
from homing.server.settings import Settings
from homing.store.inspect_fleet import FleetFacts, look_at_fleet

DEAD_LEAST = 10_000  # rows: fewer cost nothing
OLD_MS = 10 * 60_000  # a transaction this old holds vacuum back
DAY_MS = 86_400_000


def check_fleet(settings: Settings) -> list[Check]:
    """On PostgreSQL only."""
    if not settings.database.url:
        return []
    try:
        facts = asyncio.run(look_at_fleet(settings.database.url))
    except StoreUnavailable as error:
        return [Check("fleet", Verdict.UNKNOWN, f"The fleet cannot be looked at: {error}")]
    return [_leases(facts), _vacuum(facts), _snapshot(facts), _days(facts), _skew(facts)]


def _leases(facts: FleetFacts) -> Check:
    alive = [it for it in facts.crew if it.alive]
    silent = sum(it.buckets for it in facts.crew if not it.alive)
    told = ", ".join(f"{it.name} ({it.role}) {it.buckets}" for it in alive)
    delivering = [it for it in alive if it.role != "api"]
    if not alive:
        return Check("fleet", Verdict.UNKNOWN, "No process is there.", "`homing serve` starts one.")
    if not delivering:
        advice = "Start one with --role deliver or both: nothing is sent."
        return Check("fleet", Verdict.WRONG, f"Nobody delivers; there is {told}.", advice)
    if facts.free or silent:
        sentence = f"{facts.free + silent} of 256 buckets wait for a holder; {told}."
        return Check("fleet", Verdict.LOOK, sentence, "They are taken within seconds: ask again.")
    return Check("fleet", Verdict.WELL, f"Buckets: {told}.")


def _vacuum(facts: FleetFacts) -> Check:
    ratios = {
        name: dead / (live + dead) if dead else 0.0 for name, (live, dead) in facts.dead.items()
    }
    told = ", ".join(f"{name} {100 * ratio:.0f} %" for name, ratio in sorted(ratios.items()))
    bad = [name for name, (live, dead) in facts.dead.items() if dead > DEAD_LEAST and dead > live]
    if bad:
        advice = "Vacuum does not keep up: is autovacuum on, does an old transaction hold it back?"
        return Check("vacuum", Verdict.LOOK, f"Dead rows: {told}.", advice)
    return Check("vacuum", Verdict.WELL, f"Dead rows: {told}.")


def _snapshot(facts: FleetFacts) -> Check:
    if facts.oldest_ms > OLD_MS:
        return Check(
            "snapshot",
            Verdict.LOOK,
            f"A transaction of {facts.oldest_name or 'somebody'} has been open for"
            f" {span(facts.oldest_ms)}: vacuum cannot remove what has finished since.",
            "End it; look for it in pg_stat_activity.",
        )
    return Check("snapshot", Verdict.WELL, "No old transaction holds vacuum back.")


def _days(facts: FleetFacts) -> Check:
    ahead = facts.last_day - facts.now_ms // DAY_MS
    if facts.last_day < 0 or ahead < 0:
        advice = "They are made by a delivering process, every hour: is one running?"
        return Check("days", Verdict.LOOK, "Today has no part of its own.", advice)
    return Check("days", Verdict.WELL, f"Parts are made for {ahead} days ahead.")


def _skew(facts: FleetFacts) -> Check:
    apart = abs(facts.now_ms - clock_ms())
    return Check("skew", Verdict.WELL, f"This machine and the database are {apart} ms apart.")
