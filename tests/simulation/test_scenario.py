"""A scenario is read correctly, and every mistake is reported with its line and field."""

from __future__ import annotations

import pytest

from homing.errors import BadScenario
from homing.policy.health import HealthRules
from homing.policy.presets import STANDARD_WEBHOOKS, WORKFRONT
from homing.policy.retry import Anchor
from homing.sim.fields import read_duration, show_ms
from homing.sim.read import read_scenario, with_policy
from homing.sim.scenario import Action, Do, Outage, Scenario, random_fraction_of

HOUR = 3_600_000

WHOLE = """
seed = 7
policy = "workfront"          # a preset, or a table of overrides
run_for = "60h"
[[endpoints]]
name = "payroll"
responds = 200                 # default response
latency_ms = 40
outages = [ { from = "2h", to = "9h", responds = 503, retry_after = 30 }, { from = "20h", to = "21h", hangs = true }, { from = "30h", to = "31h", fails = 0.4 } ]
[[traffic]]
to = "payroll"
from = "0s"
every = "30s"                 # or per_second = 200
until = "50h"
[[actions]]                   # what a person does
at = "33h"
do = "enable"                 # enable | freeze | replay_dropped
endpoint = "payroll"
"""  # noqa: E501

LITTLE = """run_for = "1h"
[[endpoints]]
name = "a"
"""


def read(text: str) -> Scenario:
    return read_scenario(text, source="x.toml")


def wrong(text: str) -> str:
    with pytest.raises(BadScenario) as caught:
        read(text)
    return str(caught.value)


def test_a_whole_scenario_is_read_as_it_is_written() -> None:
    scenario = read(WHOLE)
    (receiver,) = scenario.receivers
    assert (scenario.seed, scenario.run_for_ms, scenario.schedule) == (7, 60 * HOUR, WORKFRONT)
    assert (receiver.name, receiver.responds, receiver.latency_ms) == ("payroll", 200, 40)
    assert receiver.outages == (
        Outage(2 * HOUR, 9 * HOUR, responds=503, retry_after_s=30),
        Outage(20 * HOUR, 21 * HOUR, hangs=True),
        Outage(30 * HOUR, 31 * HOUR, fails=0.4),
    )
    assert scenario.events == 6_000
    assert scenario.actions == (Action(33 * HOUR, Do.ENABLE, 0),)


def test_what_is_left_out_has_a_default() -> None:
    scenario = read(LITTLE + '[[traffic]]\nto = "a"\nevery = "10m"\n')
    (receiver,) = scenario.receivers
    (traffic,) = scenario.traffic
    assert (receiver.responds, receiver.latency_ms, receiver.deadline_ms) == (200, 0, None)
    assert (traffic.from_ms, traffic.until_ms, traffic.type) == (0, HOUR, "event")
    assert (scenario.seed, scenario.title, scenario.rules) == (0, "x", HealthRules())


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0s", 0),
        ("500ms", 500),
        ("90s", 90_000),
        ("2h", 2 * HOUR),
        ("1h30m", 5_400_000),
        ("1d 2h", 26 * HOUR),
        ("1.5h", 5_400_000),
        ("48h13m5s600ms", 173_585_600),
        ("", None),
        ("90", None),
        ("-1s", None),
        ("1 week", None),
        ("٣s", None),
    ],
)
def test_durations_are_read(text: str, ms: int | None) -> None:
    assert read_duration(text) == ms


def test_a_duration_is_shown_as_it_would_be_written() -> None:
    assert [show_ms(ms) for ms in (0, 500, 90_000, 5_400_000)] == ["0s", "500ms", "1m30s", "1h30m"]


@pytest.mark.parametrize(
    ("entry", "times"),
    [
        ('every = "20m"', [0, 1_200_000, 2_400_000]),
        ('every = "20m"\nfrom = "10m"', [600_000, 1_800_000, 3_000_000]),
        ('every = "20m"\nuntil = "20m"', [0]),
        ('per_second = 3\nuntil = "1s"', [0, 333, 666]),
        ('per_second = 0.5\nuntil = "5s"', [0, 2_000, 4_000]),
        ('per_second = 4000\nuntil = "1ms"', [0, 0, 0, 0]),
    ],
)
def test_the_first_event_is_at_from_and_none_at_until(entry: str, times: list[int]) -> None:
    (traffic,) = read(f'{LITTLE}[[traffic]]\nto = "a"\n{entry}\n').traffic
    assert list(traffic.times()) == times
    assert traffic.count == len(times)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("run_for = 5\n[[endpoints]]\nname = 'a'", 1, "run_for must be a duration"),
        ("[[endpoints]]\nname = 'a'", 1, "it needs run_for"),
        ("run_for = '1h'", 1, "it needs 1 to 100,000 [[endpoints]]"),
        (LITTLE + "colour = 1", 4, "endpoints[0].colour is not known here (known: "),
        (LITTLE + "latency = 1", 4, "endpoints[0].latency is not known here (did you mean latency"),
        (LITTLE + "responds = 'x'", 4, "endpoints[0].responds must be a whole number"),
        (LITTLE + "responds = true", 4, "endpoints[0].responds must be a whole number"),
        (LITTLE + "latency_ms = -1", 4, "from 0 to 3600000, not -1"),
        (LITTLE + "deadline = '31s'", 4, 'endpoints[0].deadline must be 1s to 30s, not "31s"'),
        (LITTLE + "[[endpoints]]\nname = 'a'", 5, "endpoints[1].name is the name of endpoints[0]"),
        (LITTLE + "[[endpoints]]\n", 4, "endpoints[1] needs name"),
        (
            LITTLE + "outages = [\n  { from = '1h', to = '2h' },\n]",
            5,
            "endpoints[0].outages[0] nee",
        ),
        (
            LITTLE + "outages = [\n{ from = '1h', hangs = true },\n{ from = '1x', hangs = true }]",
            6,
            "endpoints[0].outages[1].from must be a duration",
        ),
        (LITTLE + "outages = [{ from = '2h', to = '1h', hangs = true }]", 4, ".to must lie after"),
        (LITTLE + "outages = [{ from = '2h', fails = 2 }]", 4, ".fails must be a number from 0"),
        (
            LITTLE + "outages = [{ from = '2h', hangs = true, refuses = true }]",
            4,
            ".refuses does not go together with hangs",
        ),
        (LITTLE + "outages = [{ from = '2h', hangs = false }]", 4, ".hangs can only be true"),
        (LITTLE + "[[traffic]]\nevery = '1s'", 4, "traffic[0] needs to"),
        (LITTLE + "[[traffic]]\nto = 'b'\nevery = '1s'", 5, "must be the name of an endpoint: a"),
        (LITTLE + "[[traffic]]\nto = 'a'", 4, "traffic[0] needs either every or per_second"),
        (
            LITTLE + "[[traffic]]\nto = 'a'\nevery = '1s'\nper_second = 1",
            4,
            "traffic[0] needs either every or per_second",
        ),
        (LITTLE + "[[traffic]]\nto = 'a'\nevery = '0s'", 6, "traffic[0].every must be 1ms to"),
        (
            LITTLE + "[[traffic]]\nto = 'a'\nevery = '1s'\ntype = 'homing.x'",
            7,
            "traffic[0].type must be",
        ),
        (
            LITTLE + "[[traffic]]\nto = 'a'\nper_second = 100_000",
            4,
            "traffic would publish 360,000,000 events",
        ),
        (
            LITTLE + "[[actions]]\nat = '2h'\ndo = 'enable'\nendpoint = 'a'",
            5,
            "actions[0].at must be 0s to 1h",
        ),
        (
            LITTLE + "[[actions]]\nat = '1m'\ndo = 'melt'\nendpoint = 'a'",
            6,
            'must be one of enable, freeze, replay_dropped, not "melt"',
        ),
        ("policy = 'own'\n" + LITTLE, 1, "policy must be one of workfront"),
        ("[policy]\nretires = 3\n[health]\n", 2, "policy.retires is not known here"),
        ("[policy]\nbase_ms = 'x'\n", 2, "policy.base_ms is wrong"),
        ("[policy]\nwindow = '1m'\n", 2, "policy.window must not end before the last retry"),
        ("[policy]\ndeadline = 'x'\n", 2, "policy.deadline must be a duration"),
        ("[policy]\nbase_ms = 1\ndelays_ms = [1]\n", 1, "policy give either delays_ms"),
        ("[policy]\nanchor = 'moon'\n", 2, "policy.anchor is wrong"),
        ("[policy]\nfailure_percent = 101\n", 2, "policy.failure_percent must be 1 to 100"),
        ("[health]\n\nprobe_every = '1ms'\n", 3, "health.probe_every must be 1000 to"),
        ("health = 1\n" + LITTLE, 1, "health must be a table"),
        ("endpoints = 3\nrun_for = '1h'", 1, "endpoints must be an array of tables"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_field(text: str, line: int, told: str) -> None:
    said = wrong(text)
    assert f"x.toml, line {line}: " in said
    (about,) = [one for one in said.splitlines() if f"line {line}: " in one and told in one]
    assert about.endswith(".")


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_lines() -> None:
    said = wrong(LITTLE + "responds = 1\nlatency_ms = -1\n[[traffic]]\nto = 'a'\n")
    assert [part.split(":")[0] for part in said.split("line ")[1:]] == ["4", "5", "6"]


def test_broken_toml_is_told_with_its_line() -> None:
    assert "x.toml, line 2, column 9: Invalid value." in wrong("seed = 1\nseed2 = \n")
    assert "x.toml, end of document: " in wrong('seed = """')


def test_a_policy_can_be_overridden_in_parts() -> None:
    schedule = read('policy = { retries = 3, deadline = "2s" }\n' + LITTLE).schedule
    assert schedule.delays_ms == WORKFRONT.delays_ms[:3]
    assert schedule.window_ms == WORKFRONT.delays_ms[2]
    assert (schedule.deadline_ms, schedule.name) == (2_000, "scenario")


def test_a_policy_table_may_begin_with_another_preset() -> None:
    table = 'policy = { preset = "standard-webhooks", window = "80h" }\n'
    schedule = read(table + LITTLE).schedule
    assert schedule.delays_ms == STANDARD_WEBHOOKS.delays_ms
    assert (schedule.window_ms, schedule.anchor) == (80 * HOUR, Anchor.PREVIOUS_FAILURE)
    assert read('policy = { preset = "standard-webhooks" }\n' + LITTLE).schedule == (
        STANDARD_WEBHOOKS
    )


def test_delays_can_be_written_as_durations() -> None:
    schedule = read('policy = { delays = ["10s", "1m"], jitter = 0.5 }\n' + LITTLE).schedule
    assert (schedule.delays_ms, schedule.window_ms) == ((10_000, 60_000), 60_000)
    assert schedule.jitter == 0.5


def test_health_numbers_may_begin_with_a_preset() -> None:
    own = read(LITTLE + "[health]\npreset = 'workfront-faq'\nconsecutive_disable = 10\n").rules
    assert own == HealthRules(
        consecutive_disable=10, consecutive_freeze=1_999, freeze_after_ms=7 * 24 * 3_600_000
    )


def test_health_numbers_stand_in_a_table_of_their_own_or_in_the_policy() -> None:
    own = read(LITTLE + "[health]\nconsecutive_disable = 10\nfreeze_after = '1h'\n").rules
    assert own == HealthRules(consecutive_disable=10, freeze_after_ms=HOUR)
    inside = read("policy = { consecutive_disable = 10 }\n" + LITTLE).rules
    assert inside == HealthRules(consecutive_disable=10)


def test_another_policy_leaves_the_rest_as_it_is() -> None:
    scenario = read(WHOLE)
    other = with_policy(scenario, "standard-webhooks")
    assert other.schedule == STANDARD_WEBHOOKS
    assert other.receivers == scenario.receivers


def test_random_fractions_are_drawn_from_the_seed_and_evenly() -> None:
    draws = [random_fraction_of(7, "a", number, 1) for number in range(2_000)]
    assert draws == [random_fraction_of(7, "a", number, 1) for number in range(2_000)]
    assert draws != [random_fraction_of(8, "a", number, 1) for number in range(2_000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert 900 < sum(draw < 0.5 for draw in draws) < 1_100
