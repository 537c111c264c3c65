"""Planted secrets are looked for everywhere: responses, logs, metrics, disk, command lines."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acceptance.running import HONEST, KEY, Receiver, Server
from homing.cli.hide_secrets import secret_places
from postgres import Server as Postgres

SECRET = "whsec_" + base64.b64encode(b"planted-signing-secret-01").decode()
ROTATED = "whsec_" + base64.b64encode(b"planted-signing-secret-02").decode()
TOKEN, HEADER, SHORT = "planted-token-value-03", "planted-header-value-04", "pl05"
PLANTED = (SECRET, ROTATED, TOKEN, HEADER)
PATIENCE_S = 30.0


@pytest.fixture(params=["sqlite-file", "postgres"])
def postgres_or_not(request: pytest.FixtureRequest) -> Postgres | None:
    return request.getfixturevalue("postgres") if request.param == "postgres" else None


def found_in(text: str, words: tuple[str, ...] = PLANTED) -> list[str]:
    return [word for word in words if word in text or word.removeprefix("whsec_") in text]


def command_lines() -> str:
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(process.read_bytes().replace(b"\0", b" ").decode("latin-1"))
        except OSError:
            continue
    return "\n".join(lines)


async def test_no_secret_is_found_anywhere(
    postgres_or_not: Postgres | None, tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    environ = {
        "HOMING_LOG_LEVEL": "debug",
        "HOMING_LOG_FORMAT": "json",
        "HOMING_SECRET_KEY": "",  # the file, also on PostgreSQL
    }
    if postgres_or_not is not None:
        environ["HOMING_DATABASE_URL"] = await postgres_or_not.make()
    server = Server(tmp_path / "data", environ=environ, argv=("-c", _LOGGED, str(log)))
    await server.start()
    told: list[str] = []

    async def ask(method: str, path: str, document: Any = None) -> Any:
        reply = await line.ask(method, path, document)
        told.append(f"{reply.status} {reply.headers} {reply.body.decode()}")
        return reply.json if reply.body else None

    async with Receiver(tmp_path / "seen.txt", status=500).listening() as receiver:
        line = server.line()
        body = {
            "url": receiver.url,
            "types": ["*"],
            "token": TOKEN,
            "secret": SECRET,
            "headers": {"x-planted": HEADER, "x-short": SHORT},
        }
        made = await ask("POST", "/v1/subscriptions", body)
        assert made["secret"] == SECRET  # Shown once, to whoever made it.
        told.clear()
        one = f"/v1/subscriptions/{made['id']}"
        await ask("POST", "/v1/events", {"type": "a.b", "data": 1})
        await ask("POST", f"{one}/test")
        assert (await ask("POST", f"{one}/secret/rotate", {"secret": ROTATED}))["secret"] == ROTATED
        told.pop()
        for wrong in (
            {**body, "types": [1]},
            {**body, "secret": SECRET + "!"},
            {**body, "token": TOKEN + "\n"},
            {**body, "headers": {"x-planted": HEADER + "\n", "host": HEADER}},
            {**body, "deadline_ms": 1},
        ):
            await ask("POST", "/v1/subscriptions", wrong)
            await ask("PATCH", one, {**wrong, "deadline_ms": 1})
            await ask("POST", f"{one}/secret/rotate", {"secret": SECRET + "!", "overlap_ms": 1})
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        while True:
            (delivery,) = (await ask("GET", "/v1/deliveries?type=a.b"))["items"]
            detail = await ask("GET", f"/v1/deliveries/{delivery['id']}")
            if detail["attempts"]:
                break
            assert loop.time() < end
            await asyncio.sleep(0.05)
        shown = await ask("GET", one)
        assert shown["token"] == "****" + TOKEN[-4:]
        assert shown["headers"] == {"x-planted": "****" + HEADER[-4:], "x-short": "****"}
        for path in ("/v1/subscriptions", "/v1/endpoints", "/v1/attempts", "/v1/events"):
            await ask("GET", path)
        told.append((await line.ask("GET", "/metrics")).body.decode())
        lines = command_lines()
        line.close()
    assert "serve" in lines
    assert not found_in(lines, (*PLANTED, KEY))
    assert await server.terminate() == 0
    assert not found_in("\n".join(told))
    logged = log.read_text()
    assert '"event"' in logged
    assert not found_in(logged, (*PLANTED, KEY))
    files = [file for file in (tmp_path / "data").rglob("*") if file.is_file()]
    assert {file.name for file in files} >= {"secret.key"}
    for file in files:
        assert not found_in(file.read_bytes().decode("latin-1")), file
    assert (tmp_path / "data" / "secret.key").stat().st_mode & 0o777 == 0o600
    if postgres_or_not is not None:
        assert not found_in(await _dump(environ["HOMING_DATABASE_URL"]))


async def _dump(url: str) -> str:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        tables = (
            "subscription",
            "endpoint",
            "attempt",
            "event",
            "encryption_key",
            "api_key",
            "history",
        )
        found = [await connection.fetch(f"SELECT * FROM {table}") for table in tables]
        return str(found)
    finally:
        await connection.close()


# What goes to standard error goes to a file; all else is as `python -m homing.cli.main` does it.
_LOGGED = """
import os, sys
log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.dup2(log, 2)
from homing.cli.main import main
main()
"""


def test_secret_flags_are_starred_in_the_process_list(tmp_path: Path) -> None:
    looking = (
        "import sys; from pathlib import Path; from homing.cli.hide_secrets import hide_secrets;"
        "hide_secrets(); print(Path('/proc/self/cmdline').read_text().split(chr(0))[3:-1])"
    )
    words = ["--token", TOKEN, f"--secret={SECRET}", "a.b", "--key", KEY, "--token="]
    run = subprocess.run(
        [sys.executable, "-c", looking, *words], capture_output=True, text=True, check=True
    )
    stars = ["--token", "*" * len(TOKEN), "--secret=" + "*" * len(SECRET), "a.b", "--key"]
    assert run.stdout.strip() == str([*stars, "*" * len(KEY), "--token="])


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        (b"homing\0serve\0", []),
        (b"homing\0--key\0abc\0", [b"abc"]),
        (b"homing\0--key=abc\0--data\0x\0", [b"abc"]),
        (b"homing\0--key\0--token\0x\0", [b"--token"]),
        (b"homing\0--header\0a: b\0--header=c: d=e\0", [b"a: b", b"c: d=e"]),
        (b"homing\0--key", []),
    ],
)
def test_only_the_values_of_secret_flags_are_hidden(line: bytes, hidden: list[bytes]) -> None:
    assert [line[at : at + size] for at, size in secret_places(line)] == hidden


def test_the_honest_command_is_the_one_that_hides() -> None:
    assert HONEST == ("-m", "homing.cli.main")
