"""Plays what the simulator page asks for, in processes of their own: ``homing simulate``.

A simulation is work for a processor, and the server has other work. So it runs elsewhere, with a
lower priority, one question at a time, and not for long. One question of each tenant waits in line:
however often a tenant asks, the others take turns with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from homing.errors import TooMany, Unavailable
from homing.policy.health import HealthRules
from homing.policy.presets import PRESETS
from homing.policy.retry import Schedule
from homing.web.simulation import (
    SimulationAsked,
    SimulationFigures,
    SimulationShown,
    StateChanged,
)

TIMEOUT_S = 60.0
WAIT_S = 60.0  # in line, before a visitor is told to come back
WAITING_MOST = 16
KEPT_MOST = 16
NICENESS = 10

log = structlog.get_logger("homing.simulator")


class Simulator:
    """Answers with the policies and rules of this server; the latest answers are kept."""

    def __init__(
        self,
        schedules: Mapping[str, Schedule],
        rules: HealthRules,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._schedules, self._rules, self._timeout_s = schedules, rules, timeout_s
        self._playing = asyncio.Lock()  # Who waits for it gets it in the order of asking.
        self._askers: set[str | None] = set()  # tenants with a question; None: all tenants
        self._kept: dict[SimulationAsked, SimulationShown] = {}

    async def __call__(
        self, asked: Sequence[SimulationAsked], tenant: str | None = None
    ) -> list[SimulationShown]:
        """Raises TooMany while this tenant has another; Unavailable if it fails or takes too long.

        ``tenant`` is whose visitor asks; None: one who sees all tenants.
        """
        new = [one for one in dict.fromkeys(asked) if one not in self._kept]
        found = {one: self._kept[one] for one in asked if one in self._kept}
        if new:
            async with self._turn(tenant):
                shown = await asyncio.gather(*(self._play(one) for one in new))
            found |= zip(new, shown, strict=True)
        for one in asked:
            self._keep(one, found[one])
        return [found[one] for one in asked]

    @contextlib.asynccontextmanager
    async def _turn(self, tenant: str | None) -> AsyncIterator[None]:
        if tenant in self._askers:
            raise TooMany("Another simulation of yours is being played. Ask again in a moment.")
        if len(self._askers) >= WAITING_MOST:
            raise TooMany("Many simulations are being played. Ask again in a minute.")
        self._askers.add(tenant)
        try:
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._playing.acquire()
            except TimeoutError:
                raise TooMany(
                    "Other simulations are being played. Ask again in a minute."
                ) from None
            try:
                yield
            finally:
                self._playing.release()
        finally:
            self._askers.discard(tenant)

    def _keep(self, asked: SimulationAsked, shown: SimulationShown) -> None:
        self._kept.pop(asked, None)
        self._kept[asked] = shown
        if len(self._kept) > KEPT_MOST:
            self._kept.pop(next(iter(self._kept)))

    async def _play(self, asked: SimulationAsked) -> SimulationShown:
        text = scenario_text(asked, self._schedules[asked.policy], self._rules)
        with tempfile.TemporaryDirectory(prefix="homing-simulator-") as place:
            scenario, svg = Path(place) / "scenario.toml", Path(place) / "drawn.svg"
            _write(scenario, text)
            command = ("-m", "homing.cli.main", "simulate", str(scenario), "--json", "--svg")
            told = await self._run(*command, str(svg))
            return await asyncio.to_thread(_read, told, svg)

    async def _run(self, *arguments: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        try:
            async with asyncio.timeout(self._timeout_s):
                told, complaint = await process.communicate()
        except TimeoutError:
            detail = f"It was not over after {self._timeout_s:g} seconds. Ask for less traffic."
            raise Unavailable(detail) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            log.error("a simulation failed", said=complaint[-2_000:].decode("utf-8", "replace"))
            raise Unavailable("The simulation failed; the server's log says why.")
        return told


def scenario_text(asked: SimulationAsked, schedule: Schedule, rules: HealthRules) -> str:
    """The question as a scenario file."""
    outage = {"answers": int(asked.does)} if asked.does.isdigit() else {asked.does: True}
    hit = {**outage, "fails": asked.percent / 100} if asked.percent < 100 else outage
    told = ", ".join(f"{name} = {_value(value)}" for name, value in hit.items())
    preset = PRESETS.get(schedule.name) == schedule
    policy = {
        "delays_ms": list(schedule.delays_ms),
        "anchor": schedule.anchor.value,
        "window_ms": schedule.window_ms,
        "jitter": schedule.jitter,
        "deadline_ms": schedule.deadline_ms,
    }
    return "\n".join(
        [
            f"title = {_value(asked.policy)}",
            f"seed = {asked.seed}",
            f'run_for = "{asked.run_for_ms}ms"',
            *([f"policy = {_value(schedule.name)}"] if preset else _table("policy", policy)),
            *_table("health", msgspec.structs.asdict(rules)),
            "[[endpoints]]",
            'name = "the endpoint"',
            "latency_ms = 40",
            f'outages = [{{ from = "{asked.from_ms}ms", to = "{asked.to_ms}ms", {told} }}]',
            "[[traffic]]",
            'to = "the endpoint"',
            f'every = "{asked.every_ms}ms"',
            "",
        ]
    )


def _table(name: str, values: Mapping[str, object]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())]


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()  # Text, numbers and lists are the same in TOML.


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class _Line(msgspec.Struct):
    kind: str


def _read(told: bytes, svg: Path) -> SimulationShown:
    """The changes of state among the lines, and the summary, which is the last."""
    lines = told.splitlines()
    changes = tuple(
        msgspec.json.decode(line, type=StateChanged)
        for line in lines
        if b'"kind":"state"' in line and msgspec.json.decode(line, type=_Line).kind == "state"
    )
    figures = msgspec.json.decode(lines[-1], type=SimulationFigures)
    return SimulationShown(svg.read_text(encoding="utf-8"), figures, changes)
