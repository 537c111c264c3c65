"""Absurd values in a scenario are refused with line and field, each only for its own mistake."""

from __future__ import annotations

import pytest

from homing.errors import BadScenario
from homing.sim.fields import read_duration
from homing.sim.read import read_scenario

LITTLE = """run_for = "1h"
[[endpoints]]
name = "a"
"""


def wrong(text: str) -> list[str]:
    """What is said of each mistake, from the line on."""
    with pytest.raises(BadScenario) as caught:
        read_scenario(text, source="x.toml")
    return [part.strip() for part in str(caught.value).split("x.toml, line ")[1:]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            f'seed = 1\nrun_for = "{"9" * 400}h"\n[[endpoints]]\nname = "a"',
            '2: run_for must be 1ms to 366d, not "99999',
            id="a duration beyond all numbers",
        ),
        pytest.param(
            f"\nseed = {'9' * 5_000}\n{LITTLE}",
            "2: seed is a number of more than 600 characters.",
            id="too many digits to be read",
        ),
        pytest.param(
            f"seed = 0x{'f' * 5_000}\n{LITTLE}",
            "1: seed is a number of more than 600 characters.",
            id="too many digits to be shown",
        ),
        pytest.param(
            f"{LITTLE}latency_ms = [1, {{ a = [-{'9' * 5_000}] }}]",
            "4: endpoints[0].latency_ms[1].a[0] is a number of more than 600 characters.",
            id="too many digits deep inside",
        ),
        pytest.param(
            f"{LITTLE}x = {'[' * 5_000}",
            "4: endpoints[0].x[0][0]",
            id="arrays without end",
        ),
        pytest.param(
            f"{LITTLE}x = {'[' * 300}{']' * 300}",
            "4: endpoints[0].x[0][0]",
            id="arrays that can just be read",
        ),
        pytest.param(
            f"x = {'{a=' * 5_000}1{'}' * 5_000}\n{LITTLE}",
            "1: x.a.a.a",
            id="tables within tables",
        ),
        pytest.param(
            f"seed.{'a.' * 5_000}a = 1\n{LITTLE}",
            "1: seed.a.a.a",
            id="a key of too many parts",
        ),
        pytest.param(
            f"{LITTLE}[policy]\njitter = 0x{'f' * 5_000}",
            "5: policy.jitter",
            id="an override beyond all numbers",
        ),
        pytest.param(
            f"{LITTLE}[policy]\nwindow = {'[' * 400}'1h'{']' * 400}",
            "5: policy.window[0][0]",
            id="an override of arrays",
        ),
    ],
)
def test_what_is_absurd_is_refused_with_line_and_field(text: str, told: str) -> None:
    first = wrong(text)[0]
    assert first.startswith(told)
    assert len(first) < 200


def test_what_is_nested_too_deeply_is_told_so() -> None:
    (told,) = wrong(f"{LITTLE}x = {'[' * 5_000}")
    assert told.endswith(" is nested more than 16 deep.")


def test_a_duration_beyond_all_numbers_is_a_long_one() -> None:
    found = read_duration(f"{'9' * 400}d {'9' * 400}h")
    assert found is not None
    assert found > 10**15


# --- consequences of another mistake ----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            "[[endpoints]]\nname = 'a'\n[[actions]]\nat = '5m'\ndo = 'enable'\nendpoint = 'a'",
            ["1: it needs run_for."],
            id="without an end every moment may lie before it",
        ),
        pytest.param(
            "run_for = 'x'\n[[endpoints]]\nname = 'a'\n[[traffic]]\nto = 'a'\nevery = '1ms'",
            ["1: run_for must be a duration"],
            id="without an end nobody can count the events",
        ),
        pytest.param(
            f"{LITTLE.replace('1h', '300d')}[[traffic]]\nto = 'a'\nevery = 'x'",
            ["6: traffic[0].every must be a duration"],
            id="without a rate neither",
        ),
        pytest.param(
            "run_for = '1h'\n[[endpoints]]\nname = 5\n[[traffic]]\nto = 'a'\nevery = '1s'",
            ["3: endpoints[0].name must be text"],
            id="a wrong name may be the one that is meant",
        ),
        pytest.param(
            "run_for = '1h'\n[[endpoints]]\n[[actions]]\nat = '1m'\ndo = 'enable'\nendpoint = 'a'",
            ["2: endpoints[0] needs name."],
            id="so may a missing one",
        ),
        pytest.param(
            "run_for = '1h'\n[[endpoints]]\n[[endpoints]]\n",
            ["2: endpoints[0] needs name.", "3: endpoints[1] needs name."],
            id="missing names are not the same name",
        ),
        pytest.param(
            "run_for = '1h'\n[[traffic]]\nto = 'a'\nevery = '1s'",
            ["1: it needs 1 to 100,000 [[endpoints]]."],
            id="where there are no endpoints, none is named wrongly",
        ),
        pytest.param(
            "run_for = '1h'\nendpoints = 3",
            ["2: endpoints must be an array of tables."],
            id="what is no array has no number of items",
        ),
        pytest.param(
            "run_for = '1h'\nendpoints = [3]\ntraffic = [4]\nactions = [5]",
            [
                "2: endpoints[0] must be a table.",
                "3: traffic[0] must be a table.",
                "4: actions[0] must be a table.",
            ],
            id="what is no table lacks nothing",
        ),
        pytest.param(
            f"{LITTLE}outages = [{{ from = '2h', to = 'x', hangs = true }}]",
            ["4: endpoints[0].outages[0].to must be a duration"],
            id="a wrong end of an outage lies nowhere",
        ),
        pytest.param(
            f"{LITTLE}[[traffic]]\nto = 'a'\nevery = '1s'\nfrom = '2h'\nuntil = 'x'",
            ["8: traffic[0].until must be a duration"],
            id="nor does that of traffic",
        ),
        pytest.param(
            f"policy = {{ preset = 'x', window = '50h' }}\n{LITTLE}",
            ["1: policy.preset must be one of"],
            id="a window of an unknown preset may be right",
        ),
        pytest.param(
            f"policy = {{ delays = ['x'], window = '1h' }}\n{LITTLE}",
            ["1: policy.delays must be a duration"],
            id="and one of delays that cannot be read",
        ),
    ],
)
def test_only_the_mistake_is_told_not_what_follows_from_it(text: str, told: list[str]) -> None:
    said = wrong(text)
    assert len(said) == len(told), said
    assert all(one.startswith(start) for one, start in zip(said, told, strict=True)), said


def test_a_wrong_endpoint_is_told_where_all_names_are_right() -> None:
    (told,) = wrong(f"{LITTLE}[[traffic]]\nto = 'b'\nevery = '1s'")
    assert told == '5: traffic[0].to must be the name of an endpoint: a, not "b".'


# --- the words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (LITTLE + '[[traffic]]\nto = "\\u001b[31mx\\n"\nevery = "1s"', '"\\u001b[31mx\\n"'),
        (LITTLE + '[[traffic]]\nto = "a\\"b\\\\"\nevery = "1s"', '"a\\"b\\\\"'),
        (LITTLE + '[[traffic]]\nto = "é\\u009b\\u202E"\nevery = "1s"', '"é\\u009b\\u202e"'),
        (LITTLE + '"\\u001b[2J" = 1', 'endpoints[0]."\\u001b[2J" is not known'),
        (LITTLE + '"a b" = 1', 'endpoints[0]."a b" is not known'),
        (LITTLE + '[policy]\nanchor = "\\u001b"\n', "policy.anchor is wrong: "),
        ("seed = [1, 2]\n" + LITTLE, "not an array."),
        ("seed = { a = 1 }\n" + LITTLE, "not a table."),
        ("seed = true\n" + LITTLE, "not true."),
        ("seed = 1.5\n" + LITTLE, "not 1.5."),
        ("seed = 1979-05-27\n" + LITTLE, "not 1979-05-27."),
        (f"seed = 1{'0' * 200}\n{LITTLE}", f"not 1{'0' * 56}…."),
    ],
)
def test_what_was_refused_is_shown_escaped(text: str, shown: str) -> None:
    (told,) = wrong(text)
    assert shown in told
    assert told.isprintable()


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("\nbase_ms = 0", ["6: policy.base_ms must be 1 to 86400000."]),
        ("base = '0s'", ["5: policy.base must be 1 to 86400000."]),
        ("\n\nretries = 41", ["7: policy.retries must be 0 to 40."]),
        (
            "base_ms = 0\nretries = -1",
            ["5: policy.base_ms must be 1 to 86400000.", "6: policy.retries must be 0 to 40."],
        ),
    ],
)
def test_a_wrong_number_of_a_policy_is_told_in_its_line(table: str, told: list[str]) -> None:
    assert wrong(f"{LITTLE}[policy]\n{table}") == told
