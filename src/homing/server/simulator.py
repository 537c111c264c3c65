"""Runs the simulations of the simulator page: each is a ``homing simulate`` in its own process.

A simulation keeps a processor busy, which the server needs itself. So simulations run in another
process, with a lower priority, one request at a time, and with a time limit. Each tenant has at
most one request in the queue: however often a tenant asks, all tenants take turns.
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

from homing.app.simulation import (
    SimulatedEndpoint,
    SimulationAsked,
    SimulationFigures,
    SimulationShown,
    StateChanged,
)
from homing.errors import TooMany, Unavailable
from homing.languages.language import LANGUAGES
from homing.languages.sentences import say
from homing.policy.health import HealthRules
from homing.policy.presets import PRESETS
from homing.policy.retry import Schedule

TIMEOUT_S = 60.0
WAIT_S = 60.0  # in the queue, before the request is refused
WAITING_MAX = 16
CACHED_MAX = 16
NICENESS = 10
NAME_MAX = 100
_COUNTED = {
    "rate_after_attempts",
    "consecutive_disable",
    "consecutive_freeze",
    "consecutive_freeze_always",
}

log = structlog.get_logger("homing.simulator")


class Simulator:
    """Simulates with the policies and rules of this server, and caches the latest results."""

    def __init__(
        self,
        schedules: Mapping[str, Schedule],
        rules: HealthRules,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._schedules, self._rules, self._timeout_s = schedules, rules, timeout_s
        self._running = asyncio.Lock()  # taken in the order of the requests
        self._requesters: set[str | None] = set()  # tenants; None: a user who sees all tenants
        self._cache: dict[SimulationAsked, SimulationShown] = {}

    async def __call__(
        self, asked: Sequence[SimulationAsked], tenant: str | None = None
    ) -> list[SimulationShown]:
        """The result of each scenario; ``tenant`` is that of the user, None: one who sees all.

        Raises TooMany while this tenant has another request, Unavailable if a simulation fails or
        takes too long.
        """
        new = [one for one in dict.fromkeys(asked) if one not in self._cache]
        found = {one: self._cache[one] for one in asked if one in self._cache}
        if new:
            async with self._turn(tenant):
                shown = await asyncio.gather(*(self._simulate(one) for one in new))
            found |= zip(new, shown, strict=True)
        for one in asked:
            self._remember(one, found[one])
        return [found[one] for one in asked]

    @contextlib.asynccontextmanager
    async def _turn(self, tenant: str | None) -> AsyncIterator[None]:
        if tenant in self._requesters:
            raise TooMany(say("Another simulation of yours is running. Try again in a moment."))
        if len(self._requesters) >= WAITING_MAX:
            raise TooMany(say("Too many simulations are running. Try again in a minute."))
        self._requesters.add(tenant)
        try:
            try:
                async with asyncio.timeout(WAIT_S):
                    await self._running.acquire()
            except TimeoutError:
                busy = say("Other simulations are running. Try again in a minute.")
                raise TooMany(busy) from None
            try:
                yield
            finally:
                self._running.release()
        finally:
            self._requesters.discard(tenant)

    def _remember(self, asked: SimulationAsked, shown: SimulationShown) -> None:
        self._cache.pop(asked, None)
        self._cache[asked] = shown
        if len(self._cache) > CACHED_MAX:
            self._cache.pop(next(iter(self._cache)))

    async def _simulate(self, asked: SimulationAsked) -> SimulationShown:
        rules = self._rules if asked.endpoint is None else asked.endpoint.rules
        text = scenario_text(asked, self._schedules[asked.policy], rules)
        with tempfile.TemporaryDirectory(prefix="homing-simulator-") as place:
            scenario, svg = Path(place) / "scenario.toml", Path(place) / "drawn.svg"
            _write(scenario, text)
            command = ("-m", "homing.cli.main", "simulate", str(scenario), "--json")
            drawing = ("--svg", str(svg), "--language", asked.language)
            output = await self._run(*command, *drawing)
            return await asyncio.to_thread(_read, output, svg)

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
                output, errors = await process.communicate()
        except TimeoutError:
            detail = say(
                "The simulation took more than {seconds} seconds. Use less traffic.",
                seconds=f"{self._timeout_s:g}",
            )
            raise Unavailable(detail) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            log.error("a simulation failed", stderr=errors[-2_000:].decode("utf-8", "replace"))
            raise Unavailable(say("The simulation failed; the server's log says why."))
        return output


def scenario_text(asked: SimulationAsked, schedule: Schedule, rules: HealthRules) -> str:
    """The scenario file of a request."""
    outage = {"responds": int(asked.does)} if asked.does.isdigit() else {asked.does: True}
    hit = {**outage, "fails": asked.percent / 100} if asked.percent < 100 else outage
    name = LANGUAGES[asked.language].text(say("the endpoint"))
    if asked.endpoint is not None:
        name = _name(asked.endpoint.url)
    outage_text = ", ".join(f"{name} = {_value(value)}" for name, value in hit.items())
    preset = PRESETS.get(schedule.name) == schedule
    policy = {
        "delays_ms": list(schedule.delays_ms),
        "anchor": schedule.anchor.value,
        "window_ms": schedule.window_ms,
        "jitter": schedule.jitter,
        "deadline_ms": schedule.deadline_ms,
        "retry_after": schedule.retry_after.value,
    }
    return "\n".join(
        [
            f"title = {_value(asked.policy)}",
            f"seed = {asked.seed}",
            f'run_for = "{asked.run_for_ms}ms"',
            *([f"policy = {_value(schedule.name)}"] if preset else _table("policy", policy)),
            *_table("health", _scaled(rules, asked.one_of)),
            "[[endpoints]]",
            f"name = {_value(name)}",
            "latency_ms = 40",
            f'outages = [{{ from = "{asked.from_ms}ms", to = "{asked.to_ms}ms", {outage_text} }}]',
            *([] if asked.endpoint is None else _start(asked.endpoint, asked.one_of)),
            *_traffic(asked, name),
            "",
        ]
    )


def _scaled(rules: HealthRules, one_of: int) -> dict[str, int]:
    """The rules for one of so many events: the limits of counters are divided."""
    values: dict[str, int] = msgspec.structs.asdict(rules)
    return {key: max(it // one_of, 1) if key in _COUNTED else it for key, it in values.items()}


def _start(endpoint: SimulatedEndpoint, one_of: int) -> list[str]:
    """The lines with the state and the counters of an endpoint."""
    counters = [
        f"{name} = {value // one_of}"
        for name, value in (
            ("attempts", endpoint.attempts),
            ("failures", endpoint.failures),
            ("consecutive_failures", endpoint.consecutive_failures),
        )
    ]
    counters += [
        f'{name} = "{age_ms}ms"'
        for name, age_ms in (
            ("first_attempt", endpoint.first_attempt_age_ms),
            ("last_success", endpoint.last_success_age_ms),
        )
        if age_ms is not None
    ]
    lines = [f"state = {_value(endpoint.state.value)}", f"counters = {{ {', '.join(counters)} }}"]
    if endpoint.deadline_ms is not None:
        lines.append(f'deadline = "{endpoint.deadline_ms}ms"')
    return lines


def _traffic(asked: SimulationAsked, name: str) -> list[str]:
    head = ["[[traffic]]", f"to = {_value(name)}"]
    if asked.every_ms:
        return [*head, f'every = "{asked.every_ms}ms"']
    lines: list[str] = []
    for begin, end, count in asked.hourly:
        every_ms = max((end - begin) * asked.one_of // count, 1)
        span = [f'from = "{begin}ms"', f'until = "{end}ms"', f'every = "{every_ms}ms"']
        lines += [*head, *span]
    return lines


def _table(name: str, values: Mapping[str, object]) -> list[str]:
    return [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in values.items())]


def _name(url: str) -> str:
    """The URL as a name of a scenario, which is short and printable."""
    text = "".join(it if it.isprintable() else "?" for it in url)
    return text if len(text) <= NAME_MAX else text[: NAME_MAX - 1] + "…"


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode()  # Text, numbers and lists are the same in TOML.


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class _Line(msgspec.Struct):
    kind: str


def _read(output: bytes, svg: Path) -> SimulationShown:
    """The changes of state among the lines, and the summary in the last line."""
    lines = output.splitlines()
    changes = tuple(
        msgspec.json.decode(line, type=StateChanged)
        for line in lines
        if b'"kind":"state"' in line and msgspec.json.decode(line, type=_Line).kind == "state"
    )
    figures = msgspec.json.decode(lines[-1], type=SimulationFigures)
    return SimulationShown(svg.read_text(encoding="utf-8"), figures, changes)
