"""``make rolling``: an older version and this one serve together on a migrated PostgreSQL.

Two wheels are built: of the commit before the newest migration (or of ``--old``) and of HEAD. Three
servers of the old version run under load. The first new server migrates the schema while they go
on. Both versions then work side by side for a minute: one old server is stopped with SIGTERM, one
is killed, one goes on to the end. Counts what was acknowledged, and of that what was lost or sent
twice. A delivery may be sent twice only if it was in flight when its server was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from acceptance.running import SEAL, Server
from fleet.house import LEASE_MS, fetch
from fleet.judge import Facts
from fleet.load import Load
from homing.model import show_id
from postgres import Server as Postgres
from postgres import fast_folder

URLS = 40
RATE = 60  # events per second
ALONE_S = 5.0  # before the first new server, and after the last old one
SETTLED_WITHIN_S = 120.0


@dataclass
class Member(Server):
    """A server of one version."""

    number: int = 0
    version: str = ""


@dataclass
class Receiver:
    """Responds with 200 and counts the requests of each delivery."""

    deliveries: Counter[str] = field(default_factory=Counter)
    events: set[str] = field(default_factory=set)
    port: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                head = dict(line.split(": ", 1) for line in lines[1:] if line)
                body = json.loads(await reader.readexactly(int(head["content-length"])))
                self.deliveries[head["homing-delivery"]] += 1
                self.events.add(body["id"])
                await asyncio.sleep(0.02)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Receiver]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1_000)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


@dataclass
class Count:
    """What is printed."""

    old: str = ""
    new: str = ""
    schemas: str = ""
    together_s: float = 0.0
    acknowledged: int = 0
    lost: int = 0
    buckets_of_old: int = 0  # in the middle of the time together
    buckets_of_new: int = 0
    in_flight_at_the_kill: int = 0
    sent_twice: int = 0
    sent_twice_without_cause: int = 0
    left_pending: int = 0
    exit_codes: list[int] = field(default_factory=list)  # of the servers that were stopped

    @property
    def good(self) -> bool:
        return (
            self.acknowledged > 0
            and not (self.lost or self.sent_twice_without_cause or self.left_pending)
            and not any(self.exit_codes)
            and self.buckets_of_old > 0
            and self.buckets_of_new > 0
        )


# --- the two versions -----------------------------------------------------------------------


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def before_newest_migration() -> str:
    """The commit before the one that last changed the schema."""
    return git("rev-parse", git("log", "-1", "--format=%H", "--", "src/homing/store/schema") + "^")


def install(commit: str, folder: Path) -> Path:
    """Build the wheels of a commit and install them into a directory of their own."""
    source, wheels, target = folder / "source", folder / "wheels", folder / "installed"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], check=True, input=archive)
    packages = [source, *(source / "packages").glob("*client")]
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    for package in packages:
        words = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels))
        subprocess.run([*pip, *words, str(package)], check=True)
    built = [str(it) for it in wheels.glob("*.whl")]
    subprocess.run([*pip, "install", "--no-deps", "--target", str(target), *built], check=True)
    return target


# --- the run --------------------------------------------------------------------------------


class Story:
    """One run."""

    def __init__(self, dsn: str, folder: Path, versions: dict[str, Path]) -> None:
        self._dsn, self._folder, self._versions = dsn, folder, versions
        self._receiver, self._facts = Receiver(), Facts()
        self._running: list[Member] = []
        self._made = 0
        self.count = Count()

    async def run(self, *, together_s: float) -> Count:
        async with self._receiver.listening():
            first, killed, last = [await self._start("old") for _ in range(3)]
            await self._subscribe(first)
            load = Load(self._running, self._facts, urls=URLS, seed=1)
            finished = asyncio.Event()
            loading = asyncio.create_task(load.run(rate=RATE, seconds=0, until=finished.is_set))
            await asyncio.sleep(ALONE_S)
            before = await self._schema()
            await self._start("new")
            began = time.monotonic()
            self.count.schemas = f"{before} → {await self._schema()}"
            await asyncio.sleep(together_s / 3)
            await self._stop(first)
            await self._start("new")
            await asyncio.sleep(together_s / 3)
            await self._count_buckets()
            may_repeat = await self._kill(killed)
            await self._start("new")
            await asyncio.sleep(together_s / 3)
            self.count.together_s = time.monotonic() - began
            await self._stop(last)
            await asyncio.sleep(ALONE_S)
            finished.set()
            await loading
            await self._settle()
            for member in list(self._running):
                await self._stop(member)
        self._judge(may_repeat)
        return self.count

    async def _start(self, version: str) -> Member:
        self._made += 1
        member = Member(
            self._folder / f"data-{self._made}",
            environ={
                "PYTHONPATH": str(self._versions[version]),
                "HOMING_DATABASE_URL": self._dsn,
                "HOMING_SECRET_KEY": SEAL,
                "HOMING_LEASE_MS": str(LEASE_MS),
            },
            number=self._made,
            version=version,
        )
        await member.start()
        self._running.append(member)
        return member

    async def _stop(self, member: Member) -> None:
        self._running.remove(member)
        self.count.exit_codes.append(await member.terminate())

    async def _kill(self, member: Member) -> set[str]:
        """Kill a server; returns the deliveries that may come again: arrived, and not settled."""
        self._running.remove(member)
        member.kill()
        await member.gone()
        rows = await fetch(self._dsn, "SELECT id FROM pending")
        unsettled = {show_id("dlv", row[0]) for row in rows} & self._receiver.deliveries.keys()
        self.count.in_flight_at_the_kill = len(unsettled)
        return unsettled

    async def _count_buckets(self) -> None:
        text = "SELECT p.name, count(*) FROM lease l JOIN process p ON p.id = l.owner GROUP BY 1"
        buckets = {int(row[0].rpartition(":")[2]): row[1] for row in await fetch(self._dsn, text)}
        for member in self._running:
            assert member.process is not None
            owned = buckets.get(member.process.pid, 0)
            if member.version == "old":
                self.count.buckets_of_old += owned
            else:
                self.count.buckets_of_new += owned

    async def _subscribe(self, member: Member) -> None:
        line = member.line()
        for number in range(URLS):
            url = f"http://127.0.0.1:{self._receiver.port}/{number}"
            made = await line.ask(
                "POST", "/v1/subscriptions", {"url": url, "types": [f"t.{number}"]}
            )
            assert made.status == 201, made.body
        line.close()

    async def _schema(self) -> int:
        return int((await fetch(self._dsn, "SELECT max(number) FROM migration"))[0][0])

    async def _settle(self) -> None:
        """Until everything acknowledged has arrived and is settled."""
        ends_at = time.monotonic() + SETTLED_WITHIN_S
        while time.monotonic() < ends_at:
            self.count.left_pending = int(
                (await fetch(self._dsn, "SELECT count(*) FROM pending"))[0][0]
            )
            if not self.count.left_pending and self._facts.acked.keys() <= self._receiver.events:
                return
            await asyncio.sleep(0.5)

    def _judge(self, may_repeat: set[str]) -> None:
        count, acked = self.count, self._facts.acked
        twice = {it for it, times in self._receiver.deliveries.items() if times > 1}
        count.acknowledged = len(acked)
        count.lost = len(acked.keys() - self._receiver.events)
        count.sent_twice, count.sent_twice_without_cause = len(twice), len(twice - may_repeat)


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__, prog="make rolling")
    parser.add_argument("--old", default="", help="the commit of the old version")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long both run together")
    given = parser.parse_args()
    commits = {"old": given.old or before_newest_migration(), "new": "HEAD"}
    with tempfile.TemporaryDirectory(prefix="homing-rolling-", dir=fast_folder()) as folder:
        versions = {
            version: install(commit, Path(folder) / version) for version, commit in commits.items()
        }
        postgres = Postgres(Path(folder) / "postgres", vacuums=True)

        async def run() -> Count:
            story = Story(await postgres.make(), Path(folder), versions)
            return await story.run(together_s=given.seconds)

        try:
            count = asyncio.run(run())
        finally:
            postgres.stop()
    count.old, count.new = (git("rev-parse", "--short", it) for it in commits.values())
    for name, value in vars(count).items():
        print(f"{name.replace('_', ' '):28} {value}")
    print("GOOD" if count.good else "WRONG")
    return count.good


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
