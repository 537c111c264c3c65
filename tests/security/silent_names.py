"""Scoreboard 32, names that never resolve: other tenants' deliveries are as quick as without them.

``python -m security.silent_names '{"dead": 200, …}'`` inside namespaces of its own
(``island.way_in``) prints what it counted as a line of JSON; ``beside_silent_names`` is how others
call it. The name server of the island does not respond for one tenant's names. The other tenant has
so many hosts that a connection is never used twice: each of its deliveries needs a look-up.
Quiet and loud turns alternate, and their latencies are compared (``part.Latencies``).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import apsw
from msgspec import Struct

from acceptance.running import HONEST, Server
from security.island import SILENT, ZONE, Island, island, name_of, way_in
from security.neighbours import Town
from security.part import Latencies, Part, Toll, undisturbed

ONE_QUEUE = ("-m", "security.one_queue")
SETTINGS = "[policies.rarely]\ndelays_ms = [86400000]\n[health]\nrate_after_attempts = 1000000\n"
ARRIVE_WITHIN_S = 30.0
LOOK_UPS_END_S = 12.0  # The C library gives up after ten seconds.
SAMPLES_MIN = 20


class Spec(Struct, frozen=True):
    """The parameters of a run."""

    dead: int
    hosts: int
    turns: int
    turn_s: float = 5.0
    argv: tuple[str, ...] = HONEST
    rest_s: float = LOOK_UPS_END_S


def silent_name_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#lanes-and-fairness, of look-ups."""
    del seed
    if way_in() is None:
        print("NO NETWORK NAMESPACES ON THIS MACHINE: silent names are left out.")
        return []
    whole = Spec(dead=200, hosts=400, turns=4 if quick else 8)
    broken = Spec(dead=200, hosts=400, turns=1, argv=ONE_QUEUE)
    return [
        Part(
            "neighbours: silent names",
            lambda _: beside_silent_names(whole),
            lambda _: beside_silent_names(broken),
        )
    ]


async def _subscribe(at: Town, spec: Spec) -> None:
    for n in range(spec.hosts):
        await _subscribe_one(at, "ok", f"http://{name_of(n)}/ok/{n}", f"ok.{n}", "default")
    at.healthy = spec.hosts
    for n in range(spec.dead):
        await _subscribe_one(at, "dead", f"http://{SILENT}{n}.{ZONE}/ok/x", "dead", "noisy")


async def _subscribe_one(at: Town, kind: str, url: str, type_: str, tenant: str) -> None:
    document = {"url": url, "types": [type_], "tenant": tenant, "policy": "rarely"}
    made = await at.ask("POST", "/v1/subscriptions", document)
    at.endpoints.setdefault(kind, []).append(made["endpoint"])


async def _make_noise(at: Town, here: Island, spec: Spec) -> None:
    """Until look-ups hang."""
    before = here.names.silent
    await at.each("dead", "enable")
    events = [{"type": "dead", "tenant": "noisy", "data": n} for n in range(4)]
    await at.ask("POST", "/v1/events", events)
    async with asyncio.timeout(60):
        while here.names.silent < before + min(spec.dead, SAMPLES_MIN):
            await asyncio.sleep(0.02)


async def inside(spec: Spec, folder: Path) -> Toll:
    """To be called on an island."""
    toll = Toll()
    settings = folder / "homing.toml"
    settings.write_text(SETTINGS)
    with undisturbed(toll):
        async with island(folder) as here:
            environ = {"HOMING_CONFIG": str(settings), "HOMING_GRACE_MS": "0"}
            server = Server(folder / "data", argv=spec.argv, environ=environ)
            await server.start()
            try:
                await _turns(Town(server, here.far, server.line()), here, spec, toll)
            except TimeoutError:
                toll.blame(f"events of the other tenant were not there after {ARRIVE_WITHIN_S} s")
            finally:
                await server.terminate()
            toll.fired = here.names.silent
    _read_books(toll, server.data / "homing.db")
    return toll


async def _turns(at: Town, here: Island, spec: Spec, toll: Toll) -> None:
    lags = Latencies()
    await _subscribe(at, spec)
    await at.offer("first", 1.0)
    for n in range(spec.turns):
        lags.quiet.append(await at.offer(f"quiet {n}", spec.turn_s))
        await _make_noise(at, here, spec)
        async with asyncio.timeout(spec.turn_s + ARRIVE_WITHIN_S):
            lags.loud.append(await at.offer(f"loud {n}", spec.turn_s))
        await at.each("dead", "freeze")
        await asyncio.sleep(spec.rest_s if n + 1 < spec.turns else 0)
    lags.judge(toll)


def _read_books(toll: Toll, path: Path) -> None:
    """No receiver of the other tenant was charged, and none of its attempts was made twice."""
    db = apsw.Connection(str(path))
    other = "endpoint_id IN (SELECT id FROM endpoint WHERE tenant = 'default')"
    for outcome in ("failed", "sender_error"):
        count = f"SELECT count(*) FROM attempt WHERE outcome = '{outcome}' AND {other}"
        found = int(db.execute(count).get)
        toll.figures[f"others_{outcome}"] = found
        if found:
            toll.blame(f"{found} attempts of the other tenant were {outcome}")


async def beside_silent_names(spec: Spec) -> Toll:
    """Run it on an island of its own; there must be a way in."""
    way = way_in()
    assert way is not None
    process = await asyncio.create_subprocess_exec(
        *way,
        sys.executable,
        "-m",
        "security.silent_names",
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
    asyncio.run(main(Spec(**{**given, "argv": tuple(given["argv"])})))
