"""A simulation that begins with the state and the counters of a real endpoint."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.app.simulation import (
    EVENTS_MAX,
    Lateness,
    SimulatedEndpoint,
    SimulationAsked,
    SimulationFigures,
    verdict,
)
from homing.errors import BadScenario
from homing.model import State
from homing.policy.health import HealthRules
from homing.policy.presets import WORKFRONT
from homing.server.simulator import scenario_text
from homing.sim.play import Played, play
from homing.sim.read import read_scenario
from homing.sim.record import StateLine
from homing.sim.scenario import Start
from homing.sim.summary import summarize

HOUR = 3_600_000
TEXT = """
run_for = "3h"
[[endpoints]]
name = "a"
{start}
outages = [{{ from = "1h", to = "2h", responds = 503 }}]
[[traffic]]
to = "a"
every = "1m"
"""
ENDPOINT = SimulatedEndpoint(
    url="https://receiver.example/hook",
    policy="workfront",
    deadline_ms=None,
    rules=HealthRules(),
    state=State.ENABLED,
    attempts=95,
    failures=90,
    consecutive_failures=3,
    first_attempt_age_ms=10 * HOUR,
    last_success_age_ms=60_000,
    hours=(0,) * 12 + (60,) * 12,
)
ASKED = SimulationAsked(
    policy="workfront",
    run_for_ms=48 * HOUR,
    from_ms=HOUR,
    to_ms=31 * HOUR,
    does="503",
    percent=100,
    every_ms=0,
    seed=7,
    endpoint=ENDPOINT,
)


def played(start: str) -> Played:
    return play(read_scenario(TEXT.format(start=start), source="one"))


def changes(run: Played) -> list[tuple[str, str]]:
    return [(it.before, it.after) for it in run.trace.lines if isinstance(it, StateLine)]


def first_change(run: Played) -> StateLine:
    return next(it for it in run.trace.lines if isinstance(it, StateLine))


def test_counters_bring_an_endpoint_nearer_to_its_limits() -> None:
    counted = played("counters = { attempts = 95, failures = 90, consecutive_failures = 3 }")
    plain = played("")
    assert changes(counted) == changes(plain) == [("enabled", "disabled"), ("disabled", "enabled")]
    first, later = (
        next(line for line in it.trace.lines if line.kind == "state") for it in (counted, plain)
    )
    assert first.at_ms < later.at_ms
    assert first.numbers["failures"] > 90  # type: ignore[union-attr]


def test_a_disabled_endpoint_begins_disabled_and_a_frozen_one_stays_so() -> None:
    disabled = summarize(played('state = "disabled"')).total
    assert disabled.disabled_ms >= 10 * 60_000
    frozen = summarize(played('state = "frozen"')).total
    assert (frozen.attempts, frozen.frozen_ms) == (0, 3 * HOUR)


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ('state = "asleep"', "state must be one of"),
        ("counters = { attempts = 1, failures = 2 }", "must not be more than attempts"),
        ("counters = { tries = 1 }", "is not known here"),
        ('counters = { last_success = "never" }', "must be a duration"),
    ],
)
def test_a_wrong_start_is_named(start: str, reason: str) -> None:
    with pytest.raises(BadScenario, match=reason):
        played(start)


def test_the_traffic_of_an_endpoint_is_that_of_its_last_24_hours_again_and_again() -> None:
    scenario = read_scenario(scenario_text(ASKED, WORKFRONT, ENDPOINT.rules), source="asked")
    assert scenario.events == ASKED.events == 2 * 12 * 60
    assert {it.from_ms // HOUR % 24 for it in scenario.traffic} == set(range(12, 24))
    assert scenario.receivers[0].start == Start(
        attempts=95,
        failures=90,
        consecutive_failures=3,
        first_attempt_age_ms=10 * HOUR,
        last_success_age_ms=60_000,
    )


def test_of_busy_traffic_a_part_is_simulated_with_smaller_limits() -> None:
    busy = replace(ASKED, endpoint=replace(ENDPOINT, hours=(36_000,) * 24))
    assert busy.one_of == -(-48 * 36_000 // EVENTS_MAX)
    scenario = read_scenario(scenario_text(busy, WORKFRONT, ENDPOINT.rules), source="asked")
    assert scenario.events <= EVENTS_MAX * 1.1
    assert scenario.rules.consecutive_disable == 2_000 // busy.one_of
    assert scenario.rules.probe_every_ms == 600_000


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (
            {"late": Lateness(9, 1, 1, 1, 53 * HOUR), "disabled_ms": 30 * HOUR},
            "Nothing is lost; the last late one arrives 22 h after recovery; "
            "the endpoint is disabled for 30 h.",
        ),
        ({}, "Nothing is lost; no delivery is late; the endpoint stays enabled."),
        (
            {"dropped": {"expired": 1_200}, "pending": 3, "frozen_ms": HOUR},
            "1,200 of 5,000 deliveries are lost; 3 still wait when the simulation ends; "
            "no delivery is late; the endpoint is frozen for 1 h: a person must enable it.",
        ),
    ],
)
def test_the_verdict_is_one_sentence(figures: dict[str, object], said: str) -> None:
    plain: dict[str, object] = {
        "accepted": 5_000,
        "delivered": 5_000,
        "late": Lateness(0, None, None, None),
        "dropped": {},
        "pending": 0,
        "attempts": 1,
        "failed": 0,
        "probes": 0,
        "disabled_ms": 0,
        "frozen_ms": 0,
        "peak_per_second_after_recovery": 0,
    }
    found = SimulationFigures(**{**plain, **figures})  # type: ignore[arg-type]
    assert verdict(ASKED, found, lambda ms: f"{ms // HOUR} h") == said
