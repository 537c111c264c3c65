"""How a process of a fleet starts: it waits for its database, and serves what its role serves."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.running import Reply
from fleet.house import Process
from postgres import Server, fast_folder


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One that may be stopped."""
    with tempfile.TemporaryDirectory(prefix="homing-start-", dir=fast_folder()) as place:
        server = Server(Path(place))
        yield server
        server.stop()


async def _asked(process: Process, method: str, path: str, document: object = None) -> Reply:
    line = process.line()
    try:
        return await line.ask(method, path, document)
    finally:
        line.close()


async def _open(process: Process) -> None:
    """Until its door is open; it may not be ready."""
    async with asyncio.timeout(60):
        while True:
            try:
                await _asked(process, "GET", "/healthz")
            except OSError:
                await asyncio.sleep(0.05)
            else:
                return


def _one_or_more(dsn: str, folder: Path, processes: str) -> Process:
    return Process(dsn, folder, "both", 0, environ={"HOMING_PROCESSES": processes})


async def _waits_until_it_is_there(server: Server, folder: Path, processes: str) -> None:
    process = _one_or_more(await server.make(), folder, processes)
    await server.halt()
    started = asyncio.create_task(process.start())
    try:
        await _open(process)
        ready = await _asked(process, "GET", "/readyz")
        published = await _asked(process, "POST", "/v1/events", {"type": "a", "data": 1})
        assert (ready.status, published.status) == (503, 503)
        assert published.json["code"] == "store_unavailable"
        assert published.headers["retry-after"] == "2"
        assert not started.done()

        await server.resume()
        await asyncio.wait_for(started, 60)
        assert (await _asked(process, "GET", "/readyz")).status == 200
        published = await _asked(process, "POST", "/v1/events", {"type": "a", "data": 1})
        assert published.status == 202
        log = (folder / "both-0.log").read_text()
        assert "waiting for the database: it does not respond" in log
        assert "the database responds" in log
    finally:
        assert await process.end() == 0


@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_it_waits_for_a_database_that_is_not_there_yet(
    server: Server, tmp_path: Path, processes: str
) -> None:
    asyncio.run(_waits_until_it_is_there(server, tmp_path, processes))


async def _ends_while_it_waits(server: Server, folder: Path, processes: str) -> int:
    process = _one_or_more(await server.make(), folder, processes)
    await server.halt()
    started = asyncio.create_task(process.start())
    try:
        await _open(process)
        return await process.end()
    finally:
        await started
        await server.resume()


@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_sigterm_ends_the_wait_in_good_order(
    server: Server, tmp_path: Path, processes: str
) -> None:
    assert asyncio.run(_ends_while_it_waits(server, tmp_path, processes)) == 0


async def _no_such_database(server: Server, folder: Path) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "homing.cli.main", "serve", "--listen", "127.0.0.1:0", "--data", str(folder)),
        env={**os.environ, "HOMING_DATABASE_URL": server.dsn("nobody-made-this")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, errors.decode()


def test_a_database_that_nobody_made_is_a_wrong_setting(server: Server, tmp_path: Path) -> None:
    code, said = asyncio.run(_no_such_database(server, tmp_path))

    assert code == 2
    assert "database_url" in said
    assert "has no database" in said


async def _only_tells_how_it_is(server: Server, folder: Path) -> None:
    outbox = {"HOMING_OUTBOX_URL": f"sqlite:{folder / 'shop.db'}"}  # Left to those that publish.
    process = Process(await server.make(), folder, "deliver", 0, environ=outbox)
    await process.start()
    try:
        for path in ("/healthz", "/readyz", "/metrics", "/v1/status"):
            assert (await _asked(process, "GET", path)).status == 200, path
        told = (await _asked(process, "GET", "/metrics")).body.decode()
        assert "homing_buckets 256.0" in told
        assert "homing_buckets_lost_total 0.0" in told
        assert "homing_outbox" not in told
        assert "homing_fleet_processes 1.0" in told
        age = next(it for it in told.splitlines() if it.startswith("homing_heartbeat_age_seconds"))
        assert 0 <= float(age.split()[1]) < 60
        for method, path in (
            ("POST", "/v1/events"),
            ("GET", "/v1/subscriptions"),
            ("GET", "/"),
            ("GET", "/openapi.json"),
        ):
            reply = await _asked(process, method, path, {"type": "a", "data": 1})
            assert (reply.status, reply.json["code"]) == (404, "no_such_path"), path
            assert "only delivers" in reply.json["detail"]
    finally:
        assert await process.end() == 0


def test_one_that_delivers_serves_its_health_and_nothing_else(
    server: Server, tmp_path: Path
) -> None:
    asyncio.run(_only_tells_how_it_is(server, tmp_path))
