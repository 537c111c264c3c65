"""The simulator page: an outage is asked for, played elsewhere, and shown; never without bounds."""

from __future__ import annotations

import asyncio
import base64
import re
import tomllib
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest

from homing.app.simulation import SimulationAsked
from homing.errors import TooMany, Unavailable
from homing.policy.health import HealthRules
from homing.policy.presets import PRESETS
from homing.policy.retry import Anchor, OnRetryAfter, Schedule
from homing.server.settings import Settings
from homing.server.simulator import Simulator, scenario_text
from homing.sim.read import read_scenario
from homing.testing import HomingServer, running_server
from homing.web.dashboard.pages.simulator import DEFAULTS
from web.test_pages import Person

ASKED = SimulationAsked(
    policy="workfront",
    run_for_ms=4 * 3_600_000,
    from_ms=600_000,
    to_ms=3_600_000,
    does="503",
    percent=100,
    every_ms=60_000,
    seed=7,
)
OWN = Schedule(
    "own",
    (1_000, 5_000),
    Anchor.PREVIOUS_FAILURE,
    window_ms=60_000,
    jitter=0.5,
    retry_after=OnRetryAfter.IGNORE,
)


@pytest.fixture(scope="module")
def server() -> Iterator[HomingServer]:
    rules = HealthRules(rate_after_attempts=5)
    with running_server(Settings.of(listen="127.0.0.1:0", health=rules)) as server:
        yield server


def address(**fields: str) -> str:
    return "/simulator?" + urlencode({**DEFAULTS, **fields})


@pytest.mark.long
def test_two_policies_meet_the_same_outage(server: HomingServer) -> None:
    person = Person(server)
    assert "No simulation yet" in person.see("/simulator")
    outage = {"run_for": "4h", "from": "10m", "to": "1h", "every": "1m"}
    page = person.see(address(compare="standard-webhooks", **outage))
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)" alt="([^"]+)"', page)
    assert [summary.partition(":")[0] for _, summary in images] == [
        "workfront",
        "standard-webhooks",
    ]
    assert all(base64.b64decode(it).startswith(b"<svg") for it, _ in images)
    assert "240 of 240 delivered" in page
    sentences = [
        unescape(it) for it in re.findall(r"<span>((?:Dis|En)abled \(was .*?)</span>", page)
    ]
    assert any("which is more than 70 %" in it for it in sentences)
    assert any(it.startswith("Enabled (was disabled)") for it in sentences)
    assert page == person.see(address(compare="standard-webhooks", **outage)), "the same again"


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("policy", "none-such", "There is no such policy."),
        ("compare", "<script>", "There is no such policy."),
        ("run_for", "forever", "Must be a duration"),
        ("run_for", "15d", "Must be 1m to 14d."),
        ("every", "1s", "That would be 86,400 events; at most 10,000"),
        ("every", "0s", "Must be 1s to 14d."),
        ("to", "1h", 'Must be later than "Down from".'),
        ("does", "sings", "Must be one of"),
        ("percent", "0", "Must be a whole number from 1 to 100."),
        ("percent", "٣", "Must be a whole number"),
        ("seed", "-1", "Must be a whole number"),
    ],
)
def test_what_is_wrong_stands_beside_its_field(
    server: HomingServer, field: str, value: str, reason: str
) -> None:
    page = Person(server).see(address(**{field: value}), status=422)
    beside = re.search(rf'id="{field}-problem">([^<]*)<', page)
    assert beside is not None
    assert reason in unescape(beside[1])
    assert "<script>" not in page.partition("</head>")[2].replace("<script src", "")


def test_a_viewer_sees_no_simulator(server: HomingServer) -> None:
    key = server.client.create_key("looker", "viewer", tenant="acme").key
    person = Person(server, key)
    assert 'href="/simulator"' not in person.see("/deliveries")
    person.see("/simulator", status=403)


@pytest.mark.parametrize("does", ["503", "hangs", "refuses"])
@pytest.mark.parametrize("percent", [1, 50, 100])
def test_every_question_is_a_scenario(does: str, percent: int) -> None:
    text = scenario_text(_with(does=does, percent=percent), OWN, HealthRules(failure_percent=33))
    scenario = read_scenario(text, source="asked")
    assert scenario.rules.failure_percent == 33
    assert scenario.schedule.delays_ms == OWN.delays_ms
    assert scenario.schedule.jitter == OWN.jitter
    assert scenario.schedule.retry_after == OWN.retry_after
    outage = scenario.receivers[0].outages[0]
    assert (outage.from_ms, outage.to_ms) == (ASKED.from_ms, ASKED.to_ms)
    assert (outage.fails or 1.0) == percent / 100
    assert scenario.events == ASKED.events


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_played_under_its_name(name: str) -> None:
    text = scenario_text(_with(policy=name), PRESETS[name], HealthRules())
    assert tomllib.loads(text)["title"] == name
    assert read_scenario(text, source="asked").schedule == PRESETS[name]


def test_only_one_is_played_at_a_time_and_not_for_long() -> None:
    async def story() -> None:
        simulator = Simulator(PRESETS, HealthRules(), timeout_s=0.01)
        both = await asyncio.gather(
            simulator([ASKED]), simulator([_with(seed=8)]), return_exceptions=True
        )
        assert [type(it) for it in both] == [Unavailable, TooMany]
        with pytest.raises(Unavailable, match=r"more than 0\.01 seconds"):
            await simulator([ASKED])

    asyncio.run(story())


def test_tenants_take_turns_however_often_one_of_them_asks() -> None:
    async def story() -> None:
        simulator = Simulator(PRESETS, HealthRules(), timeout_s=0.01)
        asked = [
            *((tenant, simulator([_with(seed=n)], tenant)) for n, tenant in enumerate(("a", "b"))),
            *(("a", simulator([_with(seed=n)], "a")) for n in range(9, 12)),
        ]
        ended: list[tuple[str, type]] = []

        async def wait(tenant: str, response: Any) -> None:
            with pytest.raises((Unavailable, TooMany)) as caught:
                await response
            ended.append((tenant, caught.type))

        await asyncio.gather(*(wait(*one) for one in asked))
        assert sorted(ended, key=str) == sorted(
            [("a", Unavailable), ("b", Unavailable), *[("a", TooMany)] * 3], key=str
        )
        with pytest.raises(Unavailable):  # Nobody's turn was lost.
            await simulator([_with(seed=5)], "a")

    asyncio.run(story())


def _with(**changes: Any) -> SimulationAsked:
    values = {name: getattr(ASKED, name) for name in ASKED.__struct_fields__}
    return SimulationAsked(**{**values, **changes})
