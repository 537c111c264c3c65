"""Scoreboard 11 for real: a server on an island whose network fails in seven ways.

``python -m security.cutoff '{"urls": 2000, …}'`` inside namespaces of its own (``island.way_in``)
prints what it counted as a line of JSON; ``cut_off`` is how others call it. The health rules are so
strict that two failures in a row would disable an endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from acceptance.running import HONEST, Line, Server
from security.island import NEAR, NETWORK, Island, Mood, island, name_of, way_in
from security.part import Toll

BLAMES = ("-m", "security.blames")
RULES = "[health]\nrate_after_attempts = 1\nconsecutive_disable = 2\n"
HEALED_WITHIN_S = 60.0
LOOK_EVERY_S = 0.25
QUIET_S = 1.0  # after it none of the connections that the far side has ended is left


class Spec(Struct, frozen=True):
    """The parameters of a run."""

    urls: int
    kinds: tuple[str, ...]
    out_s: float
    healed_within_s: float = HEALED_WITHIN_S
    warm: bool = True  # kept connections are there when it begins
    argv: tuple[str, ...] = HONEST


# --- the ways to be cut off -----------------------------------------------------------------


@contextlib.asynccontextmanager
async def _no_route(at: Island, _: int) -> AsyncIterator[None]:
    """Let kept connections, if there are any, fall silent."""
    at.route(there=False)
    yield
    at.route(there=True)


@contextlib.asynccontextmanager
async def _swallowed(at: Island, _: int) -> AsyncIterator[None]:
    at.route(there=False)
    at.ip("route", "add", "blackhole", NETWORK)
    yield
    at.ip("route", "del", "blackhole", NETWORK)
    at.route(there=True)


def _names(mood: Mood) -> Callable[[Island, int], AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def out(at: Island, _: int) -> AsyncIterator[None]:
        await at.far.tell("hang_up")  # Kept connections ask for no name.
        at.names.mood = mood
        yield
        at.names.mood = Mood.WELL

    return out


@contextlib.asynccontextmanager
async def _dropped(at: Island, _: int) -> AsyncIterator[None]:
    await at.far.tell("hang_up")
    await at.far.tell("deaf", to=NEAR)
    yield
    await at.far.tell("hear", to=NEAR)


@contextlib.asynccontextmanager
async def _no_descriptors(at: Island, pid: int) -> AsyncIterator[None]:
    """Idle connections are closed, and the lowest free number is beyond the limit."""
    await at.far.tell("hang_up")
    await asyncio.sleep(QUIET_S)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(one) for one in os.listdir(f"/proc/{pid}/fd")}
    lowest = next(n for n in range(len(used) + 1) if n not in used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


KINDS: dict[str, Callable[[Island, int], AbstractAsyncContextManager[None]]] = {
    "no route": _no_route,
    "route swallows": _swallowed,
    "DNS dead": _names(Mood.DEAD),
    "SERVFAIL": _names(Mood.SERVFAIL),
    "NXDOMAIN": _names(Mood.NXDOMAIN),
    "connects dropped": _dropped,
    "no descriptors": _no_descriptors,
}


# --- the run --------------------------------------------------------------------------------


class Run:
    """One server, all its URLs, one outage after the other."""

    def __init__(self, spec: Spec, at: Island, server: Server) -> None:
        self._spec, self._at, self._server = spec, at, server
        self._line: Line = server.line()  # Kept: out of descriptors nobody else gets in.
        self._published = 0
        self.spans: dict[str, tuple[int, int]] = {}  # kind → from, to
        self.healed_s: dict[str, float] = {}
        self.toll = Toll()

    async def _ask(self, method: str, path: str, document: Any = None) -> Any:
        for _ in range(3):
            with contextlib.suppress(OSError, EOFError):
                reply = await self._line.ask(method, path, document)
                assert reply.status < 300, reply.body
                return reply.json
        raise AssertionError("the server does not respond")

    async def subscribe(self) -> None:
        for n in range(self._spec.urls):
            document = {"url": f"http://{name_of(n)}/ok/{n}", "types": ["*"]}
            await self._ask("POST", "/v1/subscriptions", document)

    async def publish(self) -> None:
        self._published += 1
        event = {"id": f"e{self._published}", "type": "cut.off", "data": self._published}
        await self._ask("POST", "/v1/events", event)

    async def undelivered(self) -> int:
        """How many deliveries are not done, by the server's ledger."""
        ledger = await self._ask("GET", "/v1/ledger")
        done = sum(int(one["delivered"]) for one in ledger["items"])
        return self._published * self._spec.urls - done

    async def drained(self, within_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while await self.undelivered():
                    await asyncio.sleep(LOOK_EVERY_S)
        return not await self.undelivered()

    async def outage(self, kind: str) -> None:
        """Publish before, during and after an outage, and wait until all is delivered."""
        await self.publish()
        if not await self.drained(self._spec.healed_within_s):
            self.toll.blame(f"before {kind}: {await self.undelivered()} are not delivered")
        assert self._server.process is not None
        if not self._spec.warm:
            await self._at.far.tell("hang_up")
        began = int(time.time() * 1000)
        async with KINDS[kind](self._at, self._server.process.pid):
            for _ in range(2):
                await self.publish()
                ends = time.monotonic() + self._spec.out_s / 2
                while time.monotonic() < ends:
                    await self._ask("GET", "/v1/ledger")
                    await asyncio.sleep(LOOK_EVERY_S)
        healed = time.monotonic()
        if not await self.drained(self._spec.healed_within_s):
            left = await self.undelivered()
            self.toll.blame(f"{kind}: {left} are not delivered {healed_s(healed)} s after it")
        self.healed_s[kind] = healed_s(healed)
        self.spans[kind] = (began, int(time.time() * 1000))

    async def arrived(self) -> None:
        books = await self._at.far.tell("books")
        wanted = self._published * self._spec.urls
        self.toll.figures["delivered"] = f"{books['distinct']}/{wanted}"
        self.toll.figures["twice"] = books["requests"] - books["distinct"]
        if books["distinct"] != wanted:
            self.toll.blame(f"{books['distinct']} of {wanted} have arrived")


def healed_s(since: float) -> float:
    return round(time.monotonic() - since, 1)


def read_books(data: Path, run: Run) -> None:
    """Check the database after the server has ended."""
    toll, db = run.toll, apsw.Connection(str(data / "homing.db"))

    def count(sql: str, *values: object) -> int:
        return int(db.execute(sql, values).get)

    rows = "(SELECT retry, t0 FROM history UNION ALL SELECT retry, t0 FROM pending)"
    spent = count(f"SELECT count(*) FROM {rows} WHERE retry > 0 OR t0 IS NOT NULL")
    failed = count("SELECT count(*) FROM attempt WHERE outcome = 'failed'")
    changed = count("SELECT count(*) FROM endpoint WHERE state <> 'enabled' OR failures > 0")
    changed += count("SELECT count(*) FROM transition")
    for kind, span in run.spans.items():
        sender_errors = (
            "SELECT count(*) FROM attempt"
            " WHERE outcome = 'sender_error' AND started_at BETWEEN ? AND ?"
        )
        fired = count(sender_errors, *span)
        toll.fired += fired
        if not fired:
            toll.blame(f"{kind}: nothing met it")
        kinds = "SELECT failure, count(*) FROM attempt WHERE started_at BETWEEN ? AND ?"
        kinds += " AND outcome <> 'delivered' GROUP BY failure"
        met = " ".join(f"{failure}:{n}" for failure, n in db.execute(kinds, span))
        toll.figures[kind.replace(" ", "_")] = f"{run.healed_s[kind]}s({met})"
    toll.figures |= {"changed": changed, "spent": spent}
    if changed or spent or failed:
        toll.blame(f"{changed} endpoints changed, {spent} retries spent, {failed} failed attempts")


async def inside(spec: Spec, folder: Path) -> Toll:
    """To be called on an island."""
    rules = folder / "homing.toml"
    rules.write_text(RULES)
    async with island(folder) as at:
        server = Server(folder / "data", argv=spec.argv, environ={"HOMING_CONFIG": str(rules)})
        await server.start()
        run = Run(spec, at, server)
        try:
            await run.subscribe()
            for kind in spec.kinds:
                await run.outage(kind)
            await run.arrived()
        finally:
            await server.terminate()
        read_books(server.data, run)
    run.toll.figures = {"urls": spec.urls, **run.toll.figures}
    return run.toll


async def cut_off(spec: Spec) -> Toll:
    """Run it on an island of its own; there must be a way in."""
    way = way_in()
    assert way is not None
    process = await asyncio.create_subprocess_exec(
        *way,
        sys.executable,
        "-m",
        "security.cutoff",
        json.dumps({name: getattr(spec, name) for name in spec.__struct_fields__}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    told, said = await process.communicate()
    assert process.returncode == 0, said.decode()[-2_000:]
    return Toll(**json.loads(told))


async def main(spec: Spec) -> None:
    with tempfile.TemporaryDirectory() as name:
        toll = await inside(spec, Path(name))
    print(json.dumps(asdict(toll)))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    asyncio.run(
        main(Spec(**{**given, "kinds": tuple(given["kinds"]), "argv": tuple(given["argv"])}))
    )
