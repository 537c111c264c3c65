"""``homing serve --processes N`` with real processes, a real PostgreSQL and real signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from acceptance.running import HONEST, KEY, SEAL, Line, Receiver, Server, children_of, is_there
from postgres import Server as Postgres

COUNT = 3
WITHIN_S = 90.0  # an upper bound only, for a busy machine


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not what():
            await asyncio.sleep(0.02)


def server_on(dsn: str, folder: Path, **environ: str) -> Server:
    return Server(
        folder / "data",
        environ={"HOMING_DATABASE_URL": dsn, **environ},
        options=("--allow-loopback", "--processes", str(COUNT)),
    )


def serving(server: Server) -> list[int]:
    """The ids of the serving processes."""
    assert server.process is not None
    return children_of(server.process.pid)


def everything(server: Server) -> list[int]:
    """The ids of the supervisor, the serving processes and their writer processes."""
    assert server.process is not None
    found = serving(server)
    return [server.process.pid, *found, *(one for pid in found for one in children_of(pid))]


async def metrics(server: Server) -> dict[str, float]:
    """Every sample of one scrape."""
    line = server.line()
    try:
        text = (await line.ask("GET", "/metrics")).body.decode()
    finally:
        line.close()
    samples = [it.rsplit(" ", 1) for it in text.splitlines() if not it.startswith("#")]
    return {name: float(value) for name, value in samples}


def of_each(found: dict[str, float], name: str) -> list[float]:
    return [value for key, value in found.items() if key.startswith(f"{name}{{")]


async def all_up(server: Server) -> None:
    """Until every process responds and owns its share."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            found = await metrics(server)
            up = of_each(found, "homing_process_up") == [1.0] * COUNT
            buckets = of_each(found, "homing_buckets")
            if up and sum(buckets) == 256 and min(buckets) > 0:
                return
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def running(server: Server, receiver: Receiver) -> AsyncIterator[Server]:
    """All processes are up, and there is a subscription."""
    await server.start()
    assert server.process is not None
    try:
        await all_up(server)
        made = await server.line().ask(
            "POST", "/v1/subscriptions", {"url": receiver.url, "types": ["*"]}
        )
        assert made.status == 201, made.body
        yield server
    finally:
        if server.process.returncode is None:
            assert await server.terminate() == 0


async def publish(line: Line, key: str) -> None:
    """Until it is accepted; a connection to a process that dies breaks."""
    event = {"type": "processes.test", "id": key, "data": 1}
    async with asyncio.timeout(WITHIN_S):
        while True:
            with contextlib.suppress(OSError, EOFError):
                if (await line.ask("POST", "/v1/events", event)).status == 202:
                    return
                line.close()
            await asyncio.sleep(0.01)


async def test_one_port_serves_all_processes_and_one_scrape_shows_them(
    postgres: Postgres, tmp_path: Path
) -> None:
    server = server_on(await postgres.make(), tmp_path)
    async with Receiver(tmp_path / "arrived").listening() as receiver, running(server, receiver):
        assert len(serving(server)) == COUNT
        lines = [server.line() for _ in range(12)]
        for number, line in enumerate(lines):
            await publish(line, f"event-{number}")
        await until(lambda: len(receiver.arrivals) == len(lines))
        found = await metrics(server)
        published = of_each(found, "homing_events_published_total")
        assert sum(published) == len(lines)
        assert "homing_pending" in found  # Of the whole database: it has no process.
        assert of_each(found, "homing_fleet_processes") == [COUNT] * COUNT
        for line in lines:
            line.close()


async def test_a_killed_process_is_started_again_and_everything_is_delivered(
    postgres: Postgres, tmp_path: Path
) -> None:
    server = server_on(await postgres.make(), tmp_path, HOMING_LEASE_MS="1500")
    async with Receiver(tmp_path / "arrived").listening() as receiver, running(server, receiver):
        lines = [server.line() for _ in range(6)]
        for turn in range(2):
            before = serving(server)
            work = [
                asyncio.create_task(publish(line, f"event-{turn}-{number}"))
                for number, line in enumerate(lines)
            ]
            os.kill(before[turn], signal.SIGKILL)
            await asyncio.gather(*work)
            await until(lambda before=before: len(set(serving(server)) - set(before)) == 1)  # type: ignore[misc]
            await all_up(server)
        for number, line in enumerate(lines):
            await publish(line, f"event-last-{number}")
        await until(lambda: len(receiver.arrivals) == 18)
        for line in lines:
            line.close()


async def test_when_the_supervisor_is_killed_no_process_is_left(
    postgres: Postgres, tmp_path: Path
) -> None:
    server = server_on(await postgres.make(), tmp_path)
    async with Receiver(tmp_path / "arrived").listening() as receiver, running(server, receiver):
        pids = everything(server)
        assert len(pids) == 1 + 2 * COUNT
        server.kill()
        await server.gone()
        await until(lambda: not any(map(is_there, pids)))


@pytest.mark.parametrize(
    "to_all", [False, pytest.param(True, marks=pytest.mark.long)], ids=["supervisor", "group"]
)
@pytest.mark.long
async def test_sigterm_finishes_the_work_and_ends_with_0(
    postgres: Postgres, tmp_path: Path, to_all: bool
) -> None:
    """A service manager signals every process, so each one gets the signal twice."""
    dsn = await postgres.make()
    server = server_on(dsn, tmp_path)
    async with Receiver(tmp_path / "arrived", delay_s=0.5).listening() as receiver:
        async with running(server, receiver):
            pids = everything(server)
            line = server.line()
            for number in range(20):
                await publish(line, f"event-{number}")
            await until(lambda: receiver.in_flight > 0)
            if to_all:
                for pid in serving(server):
                    os.kill(pid, signal.SIGTERM)
            assert await server.terminate() == 0
            assert not any(map(is_there, pids))
        receiver.delay_s = 0.0
        again = server_on(dsn, tmp_path)
        await again.start()
        await until(lambda: len(receiver.arrivals) == 20)
        assert await again.terminate() == 0
    assert all(len(times) == 1 for times in receiver.arrivals.values())  # Nothing was cut off.


@pytest.mark.long
async def test_a_second_signal_ends_all_processes_at_once(
    postgres: Postgres, tmp_path: Path
) -> None:
    server = server_on(await postgres.make(), tmp_path, HOMING_GRACE_MS="600000")
    slow = Receiver(tmp_path / "arrived", delay_s=3_600)
    async with slow.listening() as receiver, running(server, receiver):
        pids = everything(server)
        await publish(server.line(), "event")
        await until(lambda: receiver.in_flight == 1)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        await until(lambda: len(serving(server)) == 1)  # The others had nothing to finish.
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(server.gone(), WITHIN_S) == 1
        await until(lambda: not any(map(is_there, pids)))


# --- refusals -------------------------------------------------------------------------------


async def _ends(folder: Path, *options: str, dsn: str = "") -> tuple[int | None, str, str]:
    """The exit code of a start that fails, and what it prints."""
    environ = {name: it for name, it in os.environ.items() if not name.startswith("HOMING_")}
    environ |= {"HOMING_ADMIN_KEY": KEY, "HOMING_SECRET_KEY": SEAL, "HOMING_DATABASE_URL": dsn}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *HONEST,
        *("serve", "--data", str(folder), "--listen", "127.0.0.1:0", *options),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), WITHIN_S)
    return process.returncode, out.decode(), errors.decode()


async def test_sqlite_is_refused_with_the_reason(tmp_path: Path) -> None:
    code, out, said = await _ends(tmp_path, "--processes", "2")
    assert (code, out) == (2, "")
    assert said == (
        "homing: A setting is wrong. processes = 2 (from --processes) must be 1 or auto: SQLite"
        " serves one process; set database_url for more.\n"
    )


async def test_a_wrong_setting_is_reported_once_and_ends_everything(
    postgres: Postgres, tmp_path: Path
) -> None:
    code, out, said = await _ends(tmp_path, "--processes", "3", dsn=postgres.dsn("nobody-made-it"))
    assert (code, out) == (2, "")
    assert len(re.findall("has no database", said)) == 1, said
    assert len(said.splitlines()) == 1, said


async def test_auto_on_sqlite_is_one_process_without_a_supervisor(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", options=("--processes", "auto"))
    await server.start()
    assert len(serving(server)) == 1  # its writer process
    found = await metrics(server)
    assert "homing_process_up" not in " ".join(found)
    assert found["homing_events_published_total"] == 0
    assert await server.terminate() == 0
