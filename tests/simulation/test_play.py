"""A scenario is played by the real engine, and its trace shows exactly what happened and when."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest

from homing.policy.presets import WORKFRONT
from homing.sim.play import play
from homing.sim.read import read_scenario
from homing.sim.record import StateLine, encode
from simulation.scenes import (
    HOUR,
    MINUTE,
    ONE,
    SECOND,
    SENDER_OUTAGE,
    as_json,
    attempts,
    finishes,
    played,
    states,
)


def scene(*, run_for: str = "1h", head: str = "", endpoint: str = "", more: str = "") -> str:
    """One endpoint, ``a``, and an event to it at 0 unless ``more`` says otherwise."""
    traffic = '[[traffic]]\nto = "a"\nevery = "1h"\nuntil = "1s"\n'
    return (
        f'run_for = "{run_for}"\n{head}\n[[endpoints]]\nname = "a"\n{endpoint}\n{more or traffic}'
    )


def test_a_delivery_that_always_fails_lives_as_promised() -> None:
    one = played(ONE)
    due = [0, *WORKFRONT.delays_ms]
    assert [line.at_ms for line in attempts(one)] == due
    assert [line.attempt for line in attempts(one)] == list(range(1, 13))
    assert [line.lane for line in attempts(one)] == ["fresh"] + ["retry"] * 11
    assert {(line.outcome, line.code, line.delivery) for line in attempts(one)} == {
        ("failed", 503, 1)
    }
    (end,) = finishes(one)
    assert (end.at_ms, end.delivery, end.status, end.reason) == (due[-1], 1, "dropped", "exhausted")


def test_the_lines_have_exactly_these_keys() -> None:
    first, *_, last = as_json(played(ONE))
    assert first == {
        "at_ms": 0,
        "kind": "attempt",
        "endpoint": "payroll",
        "delivery": 1,
        "attempt": 1,
        "lane": "fresh",
        "outcome": "failed",
        "code": 503,
    }
    assert last == {
        "at_ms": 173_585_600,
        "kind": "finish",
        "delivery": 1,
        "status": "dropped",
        "reason": "exhausted",
    }


def test_a_change_of_state_names_its_rule_and_numbers() -> None:
    text = scene(
        head="[health]\nconsecutive_disable = 3",
        endpoint="responds = 500",
        more='[[traffic]]\nto = "a"\nevery = "1s"\nuntil = "3s"\n',
    )
    (line,) = [line for line in as_json(played(text)) if line["kind"] == "state"]
    assert line == {
        "at_ms": 2_000,
        "kind": "state",
        "endpoint": "a",
        "from": "enabled",
        "to": "disabled",
        "rule": "consecutive_failures",
        "numbers": {"consecutive_failures": 3, "limit": 3},
    }


def test_a_change_stands_right_behind_the_attempt_that_made_it() -> None:
    text = scene(
        endpoint='responds = 200\noutages = [{ from = "1s", responds = 500 }]',
        more='[[traffic]]\nto = "a"\nper_second = 40\nuntil = "1s"\n'
        '[[traffic]]\nto = "a"\nfrom = "1s"\nper_second = 10_000\nuntil = "1010ms"\n',
    )
    lines = played(text).trace.lines
    place = next(at for at, line in enumerate(lines) if isinstance(line, StateLine))
    change, before = lines[place], [line for line in lines[:place] if line.kind == "attempt"]
    assert isinstance(change, StateLine)
    assert change.numbers == {"attempts": 134, "failures": 94, "limit_percent": 70}
    assert len(before) == 134
    assert before[-1] is lines[place - 1]
    assert before[-1].at_ms == change.at_ms


def test_an_attempt_is_timed_by_its_start_and_an_end_by_its_response() -> None:
    one = played(scene(endpoint="latency_ms = 40"))
    (attempt,), (end,) = attempts(one), finishes(one)
    assert (attempt.at_ms, attempt.code, end.at_ms) == (0, 200, 40)
    assert (end.status, end.reason) == ("delivered", None)


def test_deliveries_are_numbered_in_order_of_publishing() -> None:
    text = """run_for = "1h"
    [[endpoints]]
    name = "a"
    [[endpoints]]
    name = "b"
    [[traffic]]
    to = "a"
    from = "10s"
    every = "10s"
    until = "30s"
    [[traffic]]
    to = "b"
    from = "5s"
    every = "5s"
    until = "25s"
    """
    lines = [(line.at_ms, line.endpoint, line.delivery) for line in attempts(played(text))]
    assert sorted(lines) == [  # Whose attempt of one moment goes first is for the engine to say.
        (5_000, "b", 1),
        (10_000, "a", 2),
        (10_000, "b", 3),
        (15_000, "b", 4),
        (20_000, "a", 5),
        (20_000, "b", 6),
    ]


def test_the_trace_is_in_order_of_time_and_its_hash_is_that_of_its_lines() -> None:
    text = scene(
        run_for="3h",
        endpoint='latency_ms = 700\noutages = [{ from = "1h", to = "2h", fails = 0.8 }]',
        more='[[traffic]]\nto = "a"\nevery = "30s"\n',
    )
    trace = played(text).trace
    assert all(a.at_ms <= b.at_ms for a, b in pairwise(trace.lines))
    assert hashlib.sha256(encode(trace.lines)).hexdigest() == trace.sha256


def test_the_same_seed_plays_the_same_and_another_one_does_not() -> None:
    text = scene(endpoint='outages = [{ from = "0s", fails = 0.5 }]').replace('"1s"', '"50m"')
    text = text.replace('every = "1h"', 'every = "1m"')
    first = play(read_scenario(text, source="x")).trace
    again = play(read_scenario(text, source="x")).trace
    other = play(read_scenario(f"seed = 8\n{text}", source="x")).trace
    assert first.sha256 == again.sha256 != other.sha256


def test_half_of_the_requests_fail_where_that_is_asked() -> None:
    text = scene(
        run_for="10h",
        endpoint='outages = [{ from = "0s", fails = 0.5 }]',
        more='[[traffic]]\nto = "a"\nevery = "1m"\n',
    )
    lines = attempts(played(text))
    failed = [line.code for line in lines if line.outcome == "failed"]
    assert set(failed) == {500}
    assert 0.44 < len(failed) / len(lines) < 0.56


def test_where_an_outage_hits_some_the_others_meet_nothing_of_it() -> None:
    text = scene(
        run_for="10h",
        endpoint='latency_ms = 10\noutages = [{ from = "0s", fails = 0.4, latency_ms = 9_000 }]',
        more='[[traffic]]\nto = "a"\nevery = "1m"\n',
    )
    lines = attempts(played(text))
    late = [line for line in lines if line.code is None]
    assert 0.34 < len(late) / len(lines) < 0.46
    assert all(line.outcome == "delivered" for line in lines if line.code is not None)


@pytest.mark.parametrize("latency_ms", [0, 2_000])
def test_what_happens_at_one_moment_stands_in_the_order_of_its_beginning(latency_ms: int) -> None:
    two = 'every = "1s"\nuntil = "20s"\n'
    text = scene(
        endpoint=f"latency_ms = {latency_ms}",
        more=f'[[traffic]]\nto = "a"\n{two}[[traffic]]\nto = "a"\n{two}'
        '[[traffic]]\nto = "a"\nper_second = 20\nuntil = "30s"\n',
    )
    one = played(text)
    assert [line.delivery for line in attempts(one)] == list(range(1, 641))
    assert [line.delivery for line in finishes(one)] == list(range(1, 641))


@pytest.mark.parametrize(
    ("outage", "code", "ends_ms"),
    [
        ("responds = 404", 404, 40),
        ("hangs = true", None, 5_000),
        ("refuses = true", None, 40),
        ("latency_ms = 5_001", None, 5_000),
        ("fails = 1.0", 500, 40),
        ("fails = 1.0, responds = 429", 429, 40),
    ],
)
def test_outages_fail_in_their_way(outage: str, code: int | None, ends_ms: int) -> None:
    endpoint = f'latency_ms = 40\noutages = [{{ from = "0s", to = "1m", {outage} }}]'
    first, second = attempts(played(scene(endpoint=endpoint)))
    assert (first.code, first.outcome) == (code, "failed")
    assert (second.at_ms, second.outcome) == (ends_ms + 84_800, "delivered")


def test_a_response_just_in_time_counts_and_the_deadline_can_be_set() -> None:
    assert attempts(played(scene(endpoint="latency_ms = 5_000")))[0].outcome == "delivered"
    slow = scene(endpoint='latency_ms = 7_000\ndeadline = "8s"')
    assert attempts(played(slow))[0].outcome == "delivered"


def test_of_two_outages_at_once_the_later_listed_counts() -> None:
    outages = '[{ from = "0s", responds = 500 }, { from = "0s", to = "1s", responds = 502 }]'
    codes = [line.code for line in attempts(played(scene(endpoint=f"outages = {outages}")))]
    assert codes[:2] == [502, 500]


def test_retry_after_is_sent_and_honoured() -> None:
    outage = '{ from = "0s", to = "1m", responds = 503, retry_after = "10m" }'
    times = [line.at_ms for line in attempts(played(scene(endpoint=f"outages = [{outage}]")))]
    assert times == [0, 10 * MINUTE]


def test_a_disabled_endpoint_is_probed_every_ten_minutes_until_it_heals() -> None:
    text = scene(
        run_for="2h",
        head="[health]\nconsecutive_disable = 2",
        endpoint='outages = [{ from = "0s", to = "25m", responds = 500 }]',
        more='[[traffic]]\nto = "a"\nevery = "1s"\nuntil = "2s"\n',
    )
    one = played(text)
    probes = [(line.at_ms, line.outcome) for line in attempts(one) if line.lane == "probe"]
    assert probes == [
        (SECOND + 10 * MINUTE, "failed"),
        (SECOND + 20 * MINUTE, "failed"),
        (SECOND + 30 * MINUTE, "delivered"),
    ]
    assert [(line.after, line.rule) for line in states(one)] == [
        ("disabled", "consecutive_failures"),
        ("enabled", "success"),
    ]


def test_people_enable_and_freeze() -> None:
    actions = "".join(
        f'[[actions]]\nat = "{at}"\ndo = "{do}"\nendpoint = "a"\n'
        for at, do in (("0s", "freeze"), ("10m", "enable"), ("20m", "freeze"))
    )
    text = scene(more=f'[[traffic]]\nto = "a"\nevery = "15m"\n{actions}')
    one = played(text)
    assert [(line.at_ms, line.before, line.after, line.rule) for line in states(one)] == [
        (0, "enabled", "frozen", "frozen_by_person"),
        (10 * MINUTE, "frozen", "enabled", "enabled_by_person"),
        (20 * MINUTE, "enabled", "frozen", "frozen_by_person"),
    ]
    assert [(line.at_ms, line.lane, line.delivery) for line in attempts(one)] == [
        (10 * MINUTE, "retry", 1),
        (15 * MINUTE, "fresh", 2),
    ]


def test_what_was_dropped_can_be_replayed_and_gets_new_numbers() -> None:
    text = scene(
        head="policy = { retries = 1 }",
        endpoint='outages = [{ from = "0s", to = "10m", responds = 500 }]',
        more='[[traffic]]\nto = "a"\nevery = "1m"\nuntil = "3m"\n'
        '[[actions]]\nat = "20m"\ndo = "replay_dropped"\nendpoint = "a"\n',
    )
    one = played(text)
    ends = [(line.delivery, line.status, line.reason) for line in finishes(one)]
    assert ends == [(n, "dropped", "exhausted") for n in (1, 2, 3)] + [
        (n, "delivered", None) for n in (4, 5, 6)
    ]
    again = attempts(one)[-3:]
    assert [(line.at_ms, line.lane, line.attempt) for line in again] == [
        (20 * MINUTE, "retry", 1)
    ] * 3


def test_what_happens_at_the_last_moment_is_part_of_it() -> None:
    one = played(scene(run_for="84800ms", endpoint="responds=500"))
    assert [line.at_ms for line in attempts(one)] == [0, 84_800]
    late = played(scene(run_for="84799ms", endpoint="responds=500"))
    assert [line.at_ms for line in attempts(late)] == [0]


def test_an_attempt_in_flight_at_the_end_was_seen_and_is_not_in_the_trace() -> None:
    one = played(scene(run_for="10ms", endpoint="latency_ms = 40"))
    assert one.trace.lines == ()
    assert one.trace.requests_ms == {"a": (0,)}


def test_attempts_that_begin_together_stand_in_that_order_whichever_ends_first() -> None:
    text = scene(
        endpoint='latency_ms = 40\noutages = [{ from = "0s", fails = 0.5, latency_ms = 3_000 }]',
        more='[[traffic]]\nto = "a"\nevery = "1s"\nuntil = "20s"\n' * 4,
    )
    first = [line for line in attempts(played(text)) if line.attempt == 1]
    assert [line.delivery for line in first] == list(range(1, 81))


def test_a_receiver_that_refuses_connections_sees_no_request() -> None:
    refuses = 'outages = [{ from = "0s", to = "1m", refuses = true }]'
    one = played(scene(endpoint=refuses))
    assert len(attempts(one)) == 2
    assert one.trace.requests_ms == {"a": (84_800,)}


def test_our_own_outage_is_told() -> None:
    one = played(SENDER_OUTAGE)
    (pause,) = one.trace.pauses
    assert pause.from_ms == 30 * MINUTE
    assert 35 * MINUTE <= pause.to_ms < 36 * MINUTE
    assert pause.why.startswith("7 of 12 endpoints on 7 hosts that were healthy fail")
    assert states(one) == []
    assert {line.outcome for line in attempts(one)} == {"delivered", "sender_error"}


def attempts_of_two_exceptions(head: str) -> list[list[int]]:
    """When each of twelve URLs was attempted, from 30 min on.

    They are healthy until then, refuse connections for 30 min and then respond with 503 and ask for
    an hour. There is one event to each at 30 min and one at 80 min, in such an hour.
    """
    one = played(
        f'run_for = "60h"\n{head}\n'
        + "".join(
            f"""
[[endpoints]]
name = "e{n}"
outages = [
  {{ from = "30m", to = "60m", refuses = true }},
  {{ from = "60m", responds = 503, retry_after = "1h" }},
]
[[traffic]]
to = "e{n}"
every = "5m"
until = "31m"
[[traffic]]
to = "e{n}"
from = "80m"
every = "5m"
until = "81m"
"""
            for n in range(12)
        )
    )
    return [
        [it.at_ms for it in attempts(one) if it.endpoint == f"e{n}" and it.at_ms >= 30 * MINUTE]
        for n in range(12)
    ]


BARE_FORMULA = sorted(
    t0 + after for t0 in (30 * MINUTE, 80 * MINUTE) for after in (0, *WORKFRONT.delays_ms)
)


def test_without_the_two_exceptions_every_attempt_is_at_the_millisecond_of_the_formula() -> None:
    off = 'outage_detection = false\n[policy]\nretry_after = "ignore"'
    assert attempts_of_two_exceptions(off) == [BARE_FORMULA] * 12


@pytest.mark.parametrize(
    "head",
    ["outage_detection = false", '[policy]\nretry_after = "ignore"'],
    ids=["retry_after", "outage_detection"],
)
def test_each_of_the_two_exceptions_alone_moves_attempts(head: str) -> None:
    assert BARE_FORMULA not in attempts_of_two_exceptions(head)


def test_progress_is_told_to_its_end() -> None:
    heard: list[float] = []
    play(read_scenario(scene(), source="x"), heard.append)
    assert heard == sorted(heard)
    assert (len(heard), heard[-1]) == (200, 1.0)


def test_another_policy_gives_another_schedule() -> None:
    text = scene(run_for="80h", head='policy = "standard-webhooks"', endpoint="responds = 500")
    times = [line.at_ms for line in attempts(played(text))]
    assert times[:4] == [0, 5_000, 305_000, 2_105_000]
    assert len(times) == 10
    assert HOUR * 75 < times[-1] < HOUR * 76
