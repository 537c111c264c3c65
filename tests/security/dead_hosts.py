"""Scoreboard 34: the sender's outage against the receivers'. A server on an island, hosts that die.

``python -m security.dead_hosts '{"names": …}'`` inside namespaces of its own (``island.way_in``)
prints what it counted as a line of JSON; ``beside_dead_hosts`` is how others call it. Hosts die
as they do in the world: their packets are lost on the far side, kept connections fall silent and
new ones time out. Two failures in a row disable an endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from acceptance.running import HONEST, Line, Server
from security.island import Island, address_of, island, name_of, way_in
from security.part import Part, Toll

CAPPED = ("-m", "security.capped_sample")
RULES = "[health]\nrate_after_attempts = 1\nconsecutive_disable = 2\n"
WAIT_MAX_MS = 60_000.0
VERDICT_S = 17.0  # a connect times out after 5 s, and its failure waits 10 s for the verdict
LOOK_EVERY_S = 0.25


class Spec(Struct, frozen=True):
    """The parameters of a run."""

    stories: tuple[str, ...]
    argv: tuple[str, ...] = HONEST


def dead_host_parts(*, quick: bool, seed: int) -> list[Part]:
    """Shows what-homing-promises.md#failures-on-the-senders-side, of one tenant's hosts."""
    del seed
    if way_in() is None:
        print("NO NETWORK NAMESPACES ON THIS MACHINE: dead hosts are left out.")
        return []
    whole = Spec(stories=("60 of one", "26 of 200", "all of 200") if quick else tuple(STORIES))
    broken = Spec(stories=("60 of one", "26 of 200"), argv=CAPPED)
    return [
        Part(
            "dead hosts beside others",
            lambda _: beside_dead_hosts(whole),
            lambda _: beside_dead_hosts(broken),
        )
    ]


# --- tenants and their hosts ----------------------------------------------------------------


class Town:
    """Tenants, each with a URL on each of its hosts."""

    def __init__(self, at: Island, server: Server, toll: Toll, first_host: int) -> None:
        self.at, self.toll = at, toll
        self._line: Line = server.line()
        self._tenants: dict[int, str] = {}
        self.next_host = first_host
        self.dead: set[int] = set()
        self.outages = 0

    async def _ask(self, method: str, path: str, document: Any = None) -> Any:
        for _ in range(3):  # The server closes connections that are idle for long.
            with contextlib.suppress(OSError, EOFError):
                reply = await self._line.ask(method, path, document)
                assert reply.status < 300, reply.body
                return reply.json
        raise AssertionError("the server does not respond")

    async def settle_down(self, **tenants: int) -> list[list[int]]:
        """Make so many hosts for each tenant; each gets an event and responds."""
        self.outages = (await self._outage())["outages"]
        found = []
        for tenant, count in tenants.items():
            hosts = list(range(self.next_host, self.next_host + count))
            self.next_host += count
            found.append(hosts)
            for host in hosts:
                self._tenants[host] = tenant
                url = f"http://{name_of(host)}/ok/{host}"
                document = {"url": url, "types": [f"to.{host}"], "tenant": tenant}
                await self._ask("POST", "/v1/subscriptions", document)
        await self.send([host for hosts in found for host in hosts], tag="first")
        await self.arrived("first", sum(map(len, found)))
        return found

    async def send(self, hosts: list[int], *, tag: str = "") -> None:
        """Publish one event to each of these hosts."""
        for begin in range(0, len(hosts), 100):
            some = hosts[begin : begin + 100]
            data = {"tag": tag, "at": time.monotonic()}
            events = [
                {"type": f"to.{host}", "tenant": self._tenants[host], "data": data} for host in some
            ]
            await self._ask("POST", "/v1/events", events)

    async def arrived(self, tag: str, count: int) -> list[float]:
        lags: list[float] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * WAIT_MAX_MS / 1000):
                while len(lags) < count:
                    lags += await self.at.far.tell("lags", tag=tag)
                    await asyncio.sleep(LOOK_EVERY_S)
        if len(lags) < count:
            self.toll.blame(f"{tag}: {count - len(lags)} of {count} have not arrived")
        return lags

    async def wait_of(self, hosts: list[int], story: str) -> float:
        """How long the slowest delivery took to hosts that work, in milliseconds."""
        self.toll.fired += 1
        await self.send(hosts, tag=story)
        lag = max(await self.arrived(story, len(hosts)), default=2 * WAIT_MAX_MS)
        if lag > WAIT_MAX_MS:
            self.toll.blame(f"{story}: a delivery whose own URL works waited {lag:.0f} ms")
        return round(lag, 1)

    async def kill(self, hosts: list[int]) -> None:
        await self.at.far.tell("drop_packets", addresses=[address_of(it) for it in hosts])
        self.dead.update(hosts)

    async def heal(self, hosts: list[int]) -> None:
        addresses = [address_of(it) for it in hosts]
        await self.at.far.tell("drop_packets", addresses=addresses, stop=True)
        self.dead.difference_update(hosts)

    async def _outage(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self._ask("GET", "/v1/status"))["outage"]
        return found

    async def must_have_closed(self, times: int, story: str) -> None:
        found = (await self._outage())["outages"] - self.outages
        self.toll.figures[f"{story}_closed".replace(" ", "_")] = found
        if found != times:
            self.toll.blame(f"{story}: it closed {found} times, and {times} would be right")


# --- the stories ----------------------------------------------------------------------------


async def _sixty(town: Town) -> None:
    """All hosts of one tenant die while the other is quiet."""
    dead, well = await town.settle_down(dead=60, well=5)
    await town.kill(dead)
    waits = []
    for _ in range(3):
        await town.send(dead)
        await asyncio.sleep(VERDICT_S)
        waits.append(await town.wait_of(well, "60 of one"))
    town.toll.figures["60_of_one_wait_ms"] = max(waits)
    await town.must_have_closed(0, "60 of one")


async def _some_of_many(town: Town) -> None:
    (hosts,) = await town.settle_down(one=200)
    await town.kill(hosts[:26])
    await town.send(hosts[:26])
    await asyncio.sleep(VERDICT_S)
    waits = await town.wait_of(hosts[26:], "26 of 200")
    town.toll.figures["26_of_200_wait_ms"] = waits
    await town.must_have_closed(0, "26 of 200")


async def _all(town: Town, story: str, **tenants: int) -> None:
    hosts = [it for some in await town.settle_down(**tenants) for it in some]
    await town.kill(hosts)
    await town.send(hosts, tag=story)
    await asyncio.sleep(VERDICT_S)
    await town.must_have_closed(1, story)
    began = time.monotonic()
    await town.heal(hosts)
    town.toll.fired += len(await town.arrived(story, len(hosts)))
    healed_ms = round((time.monotonic() - began) * 1000)
    town.toll.figures[f"{story}_drained_ms".replace(" ", "_")] = healed_ms
    if healed_ms > WAIT_MAX_MS:
        town.toll.blame(f"{story}: delivered {healed_ms} ms after the outage")


async def _two_against_a_third(town: Town) -> None:
    """Hosts of two tenants die together: one outage begins, the third tenant ends it for good."""
    first, second, well = await town.settle_down(first=60, second=60, well=1)
    await town.kill(first + second)
    waits = []
    for _ in range(4):
        await town.send(first + second)
        await asyncio.sleep(VERDICT_S)
        waits.append(await town.wait_of(well, "two of three"))
    town.toll.figures["two_of_three_wait_ms"] = max(waits)
    await town.must_have_closed(1, "two of three")


STORIES: dict[str, Callable[[Town], Awaitable[None]]] = {
    "60 of one": _sixty,
    "26 of 200": _some_of_many,
    "all of 200": lambda town: _all(town, "all of 200", one=200),
    "all of four tenants": lambda town: _all(town, "all of four", a=50, b=50, c=50, d=50),
    "two of three": _two_against_a_third,
}


def _read_books(data: Path, toll: Toll, dead: set[int]) -> None:
    """Every endpoint that died for good is disabled, and no other has changed."""
    db = apsw.Connection(str(data / "homing.db"))
    states = dict(db.execute("SELECT url, state FROM endpoint"))
    died = {f"http://{name_of(host)}/ok/{host}" for host in dead}
    disabled = {url for url, state in states.items() if state != "enabled"}
    toll.figures["disabled"] = f"{toll.figures.get('disabled', '')} {len(disabled & died)}".strip()
    if died - disabled:
        toll.blame(f"{len(died - disabled)} of {len(died)} dead endpoints are not disabled")
    if disabled - died:
        toll.blame(f"{len(disabled - died)} endpoints are disabled and did not die")


async def inside(spec: Spec, folder: Path) -> Toll:
    """To be called on an island."""
    toll, first = Toll(), 0
    rules = folder / "homing.toml"
    rules.write_text(RULES)
    async with island(folder) as at:
        for number, story in enumerate(spec.stories):
            environ = {"HOMING_CONFIG": str(rules), "HOMING_GRACE_MS": "0"}
            data = folder / f"data{number}"
            server = Server(data, argv=spec.argv, environ=environ)
            await server.start()
            town = Town(at, server, toll, first)
            try:
                await STORIES[story](town)
            finally:
                await server.terminate()
            first = town.next_host
            _read_books(data, toll, town.dead if story in {"60 of one", "two of three"} else set())
            await town.heal(sorted(town.dead))
    return toll


async def beside_dead_hosts(spec: Spec) -> Toll:
    """Run it on an island of its own; there must be a way in."""
    way = way_in()
    assert way is not None
    process = await asyncio.create_subprocess_exec(
        *way,
        sys.executable,
        "-m",
        "security.dead_hosts",
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
    asyncio.run(main(Spec(**{name: tuple(value) for name, value in given.items()})))
