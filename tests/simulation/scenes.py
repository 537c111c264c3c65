"""Builders of small scenarios, and functions that read their results."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from homing.sim.play import Played, play
from homing.sim.read import read_scenario
from homing.sim.record import AttemptLine, FinishLine, StateLine, encode

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000

ONE = """
seed = 7
run_for = "60h"
[[endpoints]]
name = "payroll"
responds = 503
[[traffic]]
to = "payroll"
every = "1h"
until = "1s"
"""

SENDER_OUTAGE = 'run_for = "1h"\n' + "".join(
    f"""
[[endpoints]]
name = "e{n}"
outages = [{{ from = "30m", to = "35m", refuses = true }}]
[[traffic]]
to = "e{n}"
every = "10s"
until = "50m"
"""
    for n in range(12)
)


@cache
def played(text: str) -> Played:
    """A scenario played once for all tests that look at it."""
    return play(read_scenario(text, source="scenario.toml"))


def attempts(one: Played) -> list[AttemptLine]:
    return [line for line in one.trace.lines if isinstance(line, AttemptLine)]


def states(one: Played) -> list[StateLine]:
    return [line for line in one.trace.lines if isinstance(line, StateLine)]


def finishes(one: Played) -> list[FinishLine]:
    return [line for line in one.trace.lines if isinstance(line, FinishLine)]


def as_json(one: Played) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in encode(one.trace.lines).splitlines()]
