"""Judges a run from what was seen outside the processes: arrivals, and the audit of PostgreSQL.

A delivery that arrives again under the number of the same attempt is a duplicate. (After an attempt
that is recorded as failed it comes under the next number: a retry.) An attempt is *in flight at a
fault* from its beginning until its outcome is settled, if its bucket was taken over in between: its
process was killed, was stopped or could not renew its lease. Each of these may arrive once more,
and nothing else may.

A *stall* is how long something acknowledged waited for its arrival. When the holder of its bucket
is struck while it waits, a new wait begins: two faults in a row are two stalls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from homing.model import read_id

DEAD = "/dead"

Settled = float  # when


class Arrival(NamedTuple):
    """A request as the receiver saw it."""

    key: str
    data: Any
    delivery: str
    number: int  # of the attempt
    path: str
    who: str
    sent: float  # when its process began the attempt
    at: float


class Hand(NamedTuple):
    """A bucket changed hands."""

    pid: int | None
    at: float


class Strike(NamedTuple):
    """A process was killed or stopped."""

    pid: int
    at: float


@dataclass
class Facts:
    """All that was seen."""

    sent: dict[str, Any] = field(default_factory=dict)  # key → data
    acked: dict[str, float] = field(default_factory=dict)
    arrivals: list[Arrival] = field(default_factory=list)
    pids: dict[str, int] = field(default_factory=dict)  # of the labels
    buckets: dict[str, int] = field(default_factory=dict)  # of the paths
    hands: dict[int, list[Hand]] = field(default_factory=dict)
    settled: dict[int, Settled] = field(default_factory=dict)
    failed: set[tuple[int, int]] = field(default_factory=set)  # attempts: delivery, number
    strikes: list[Strike] = field(default_factory=list)
    disabled_at: float | None = None


@dataclass
class Verdict:
    """What is counted."""

    acknowledged: int = 0
    lost: int = 0
    unexpected: int = 0
    retried: int = 0  # after an attempt that is recorded as failed
    retried_without_a_failure: int = 0
    duplicated: int = 0
    in_flight_at_faults: int = 0
    duplicates_without_a_cause: int = 0
    two_owners: int = 0  # attempts of a process whose bucket another had
    takeovers: int = 0
    probes: int = 0
    probes_over_the_limit: int = 0
    longest_stall_s: float = 0.0
    longest_wait_s: float = 0.0  # through all the faults that struck it
    median_ms: float = 0.0


def judge(facts: Facts, *, probe_every_s: float) -> Verdict:
    """All of it."""
    verdict = Verdict(acknowledged=len(facts.acked))
    healthy = [it for it in facts.arrivals if it.path != DEAD]
    by_key: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in sorted(healthy, key=lambda it: it.sent):
        by_key[arrival.key].append(arrival)
    verdict.lost = sum(key not in by_key for key in facts.acked)
    verdict.unexpected = sum(
        it.key not in facts.sent or facts.sent[it.key] != it.data for it in healthy
    )
    _owners(facts, verdict)
    _duplicates(facts, by_key, verdict)
    _stalls(facts, by_key, verdict)
    _probes(facts, verdict, probe_every_s)
    return verdict


def _hand_at(hands: Sequence[Hand], at: float) -> Hand | None:
    place = bisect_right(hands, at, key=lambda it: it.at)
    return hands[place - 1] if place else None


def _owners(facts: Facts, verdict: Verdict) -> None:
    for arrival in facts.arrivals:
        hands = facts.hands.get(facts.buckets[arrival.path], [])
        held = _hand_at(hands, arrival.sent)
        if held is None or held.pid != facts.pids[arrival.who]:
            verdict.two_owners += 1


def _takeovers(hands: Sequence[Hand]) -> Iterator[tuple[Hand, Hand]]:
    """From one process to another without being handed over: who had it, who took it."""
    for before, after in pairwise(hands):
        if before.pid is not None and after.pid is not None and before.pid != after.pid:
            yield before, after


def _duplicates(facts: Facts, by_key: Mapping[str, Sequence[Arrival]], verdict: Verdict) -> None:
    by_bucket: dict[int, list[Arrival]] = defaultdict(list)
    by_attempt: dict[tuple[int, int], list[Arrival]] = defaultdict(list)
    for arrival in (it for arrivals in by_key.values() for it in arrivals):
        by_bucket[facts.buckets[arrival.path]].append(arrival)
        by_attempt[_number(arrival), arrival.number].append(arrival)
    for delivery_id, number in by_attempt:
        if number > 1:
            verdict.retried += 1
            verdict.retried_without_a_failure += (delivery_id, number - 1) not in facts.failed
    open_at: set[tuple[int, int]] = set()  # a delivery, and who had it in flight at a fault
    for bucket, hands in facts.hands.items():
        for before, after in _takeovers(hands):
            verdict.takeovers += 1
            found = {
                (_number(it), before.pid or 0)
                for it in by_bucket[bucket]
                if facts.pids[it.who] == before.pid
                and before.at <= it.sent <= after.at
                and facts.settled.get(_number(it), after.at + 1) > after.at
            }
            verdict.in_flight_at_faults += len(found)
            open_at |= found
    for (delivery_id, _), arrivals in by_attempt.items():
        verdict.duplicated += len(arrivals) - 1
        for first, _ in pairwise(arrivals):
            if (delivery_id, facts.pids[first.who]) not in open_at:
                verdict.duplicates_without_a_cause += 1


def _number(arrival: Arrival) -> int:
    number = read_id("dlv", arrival.delivery)
    assert number is not None, arrival
    return number


def _stalls(facts: Facts, by_key: Mapping[str, Sequence[Arrival]], verdict: Verdict) -> None:
    strikes = sorted(facts.strikes, key=lambda it: it.at)
    waits = []
    for key, acked_at in facts.acked.items():
        if key not in by_key:
            continue
        first = min(by_key[key], key=lambda it: it.at)
        waits.append(first.at - acked_at)
        if waits[-1] <= verdict.longest_stall_s:
            continue
        hands = facts.hands.get(facts.buckets[first.path], [])
        cuts = [
            strike.at
            for strike in strikes
            if acked_at < strike.at < first.at
            and (held := _hand_at(hands, strike.at)) is not None
            and held.pid == strike.pid
        ]
        pieces = pairwise([acked_at, *cuts, first.at])
        longest = max(after - before for before, after in pieces)
        verdict.longest_stall_s = max(verdict.longest_stall_s, longest)
    waits.sort()
    if waits:
        verdict.longest_wait_s = waits[-1]
        verdict.median_ms = 1000 * waits[len(waits) // 2]


def _probes(facts: Facts, verdict: Verdict, every_s: float) -> None:
    if facts.disabled_at is None:
        return
    begun = facts.disabled_at + 1.0  # Until then an attempt may begin that knows nothing of it.
    probes = sorted(it.sent for it in facts.arrivals if it.path == DEAD and it.sent > begun)
    verdict.probes = len(probes)
    verdict.probes_over_the_limit = sum(
        after - before < 0.9 * every_s for before, after in pairwise(probes)
    )
