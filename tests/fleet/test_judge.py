"""The judge of a fleet's run can say no: each number is made to go wrong once."""

from __future__ import annotations

from fleet.faults import Scale
from fleet.judge import Arrival, Facts, Hand, Strike, judge
from fleet.run import Count
from homing.model import show_id

A, B = 101, 102


def _arrival(n: int, who: str, sent: float, *, number: int = 1, path: str = "/h/0") -> Arrival:
    return Arrival(f"e-{n}", n, show_id("dlv", n), number, path, who, sent, sent + 0.01)


def _facts(*arrivals: Arrival) -> Facts:
    """One event, acknowledged at 10; bucket 7 is A's until B takes it over at 20."""
    return Facts(
        sent={"e-1": 1},
        acked={"e-1": 10.0},
        arrivals=list(arrivals),
        pids={"a": A, "b": B},
        buckets={"/h/0": 7, "/dead": 7},
        hands={7: [Hand(A, 0.0), Hand(B, 20.0)]},
        settled={1: 21.0},
    )


def test_a_delivery_that_arrives_once_is_well() -> None:
    verdict = judge(_facts(_arrival(1, "a", 10.1)), probe_every_s=5)

    assert (verdict.lost, verdict.unexpected, verdict.duplicated, verdict.two_owners) == (
        0,
        0,
        0,
        0,
    )
    assert verdict.in_flight_at_faults == 1  # It was settled after the bucket was taken.


def test_what_was_acknowledged_and_never_arrives_is_lost() -> None:
    assert judge(_facts(), probe_every_s=5).lost == 1


def test_what_nobody_published_or_has_other_data_is_unexpected() -> None:
    other = _arrival(1, "a", 10.1)._replace(data=2)

    assert judge(_facts(_arrival(2, "a", 10.1), other), probe_every_s=5).unexpected == 2


def test_a_duplicate_has_a_cause_if_its_bucket_was_taken_before_it_was_settled() -> None:
    facts = _facts(_arrival(1, "a", 19.0), _arrival(1, "b", 20.5))
    verdict = judge(facts, probe_every_s=5)
    assert (verdict.duplicated, verdict.duplicates_without_a_cause) == (1, 0)

    facts.settled[1] = 19.5
    verdict = judge(facts, probe_every_s=5)
    assert (verdict.in_flight_at_faults, verdict.duplicates_without_a_cause) == (0, 1)


def test_twice_by_one_holder_has_no_cause() -> None:
    facts = _facts(_arrival(1, "b", 20.5), _arrival(1, "b", 20.7))

    assert judge(facts, probe_every_s=5).duplicates_without_a_cause == 1


def test_handing_over_is_no_cause() -> None:
    facts = _facts(_arrival(1, "a", 19.0), _arrival(1, "b", 20.5))
    facts.hands[7].insert(1, Hand(None, 19.9))

    assert judge(facts, probe_every_s=5).duplicates_without_a_cause == 1


def test_a_retry_follows_a_failure_that_is_recorded() -> None:
    facts = _facts(_arrival(1, "a", 11.0), _arrival(1, "a", 16.0, number=2))
    assert judge(facts, probe_every_s=5).retried_without_a_failure == 1

    facts.failed.add((1, 1))
    verdict = judge(facts, probe_every_s=5)
    assert (verdict.retried, verdict.retried_without_a_failure, verdict.duplicated) == (1, 0, 0)


def test_who_sends_for_a_bucket_that_another_has_taken_is_a_second_owner() -> None:
    assert judge(_facts(_arrival(1, "a", 20.1)), probe_every_s=5).two_owners == 1


def test_a_stall_begins_anew_when_the_holder_is_struck() -> None:
    facts = _facts(_arrival(1, "b", 24.0))
    verdict = judge(facts, probe_every_s=5)
    assert round(verdict.longest_stall_s) == round(verdict.longest_wait_s) == 14

    facts.strikes = [Strike(B, 12.0), Strike(A, 16.0)]  # B does not hold it yet.
    verdict = judge(facts, probe_every_s=5)
    assert (round(verdict.longest_stall_s), round(verdict.longest_wait_s)) == (8, 14)


def test_probes_keep_their_distance_from_the_moment_of_disabling_on() -> None:
    facts = _facts(*(_arrival(1, "b", at, path="/dead") for at in (30.0, 30.1, 36.0, 41.0, 43.0)))
    facts.disabled_at = 30.0
    verdict = judge(facts, probe_every_s=5)

    assert (verdict.probes, verdict.probes_over_the_limit) == (3, 1)


def test_a_run_is_good_only_with_every_fault_fired() -> None:
    scale = Scale(1, 1, 1, 1, 1, kills=1, stops=0, restarts=0, backends=0, writers=0)
    count = Count(scale, judge(_facts(_arrival(1, "a", 10.1)), probe_every_s=5))
    assert count.wrong == ["not every fault was fired"]

    count.fired = dict(scale.faults)
    assert count.good
