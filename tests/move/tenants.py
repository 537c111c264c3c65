"""Two installations, tenants with something in every table, and what a tenant has in a database."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import asyncpg
import pytest

from cli.terminal import Terminal
from client.hooks import Hook, hook
from homing.server.database import open_stores
from homing.server.settings import load_settings
from homing.store import tenant_mover, tenant_rows
from postgres import Server
from stores import new_file

KEY = "hk_tenant-move-test-key"
SECRET = "aG9taW5nIHRlbmFudCBtb3ZlIHRlc3QgYSBrZXkgISE="
OTHER_SECRET = "YW5vdGhlciBrZXkgZm9yIHRoZSB0YXJnZXQgY2VsbCE="
ACME, GLOBEX = "acme", "globex"
WITHIN_S = 90.0


@dataclass
class Reply:
    """A response of a server."""

    status: int
    headers: dict[str, str]
    json: Any


def ask(
    port: int,
    method: str,
    path: str,
    document: Any = None,
    *,
    key: str = KEY,
    headers: dict[str, str] | None = None,
) -> Reply:
    body = None if document is None else json.dumps(document)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        sent = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        connection.request(method, path, body, {**sent, **(headers or {})})
        got = connection.getresponse()
        text = got.read()
        found = {name.lower(): value for name, value in got.getheaders()}
        return Reply(got.status, found, json.loads(text) if text else None)
    finally:
        connection.close()


def until(check: Callable[[], Any]) -> Any:
    """What ``check`` returns, once that is true."""
    ends_at = time.monotonic() + WITHIN_S
    while not (found := check()):
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.02)
    return found


@dataclass
class Cell:
    """An installation: its directory, its database and its server."""

    terminal: Terminal
    address: str

    @property
    def port(self) -> int:
        return self.terminal.port

    def ask(self, method: str, path: str, document: Any = None, *, key: str = KEY) -> Reply:
        return ask(self.port, method, path, document, key=key)

    def good(self, method: str, path: str, document: Any = None, *, key: str = KEY) -> Any:
        got = self.ask(method, path, document, key=key)
        assert got.status < 300, (method, path, got)
        return got.json

    @contextlib.contextmanager
    def serving(self) -> Iterator[Cell]:
        with self.terminal.serving():
            yield self

    @contextlib.contextmanager
    def killable(self) -> Iterator[Killable]:
        """Its server, which can be killed and started again."""
        server = Killable(self)
        try:
            yield server
        finally:
            server.stack.close()


class Killable:
    """A server of a cell."""

    def __init__(self, cell: Cell) -> None:
        self._cell, self.stack = cell, contextlib.ExitStack()
        self._going = self.stack.enter_context(cell.terminal.serving())

    def kill_and_start_again(self) -> None:
        self._going.process.kill()
        self.stack.close()
        self._going = self.stack.enter_context(self._cell.terminal.serving())


Databases = Callable[[], str]  # each call makes an empty database with the current schema


@pytest.fixture
def databases(postgres: Server) -> Iterator[Databases]:
    """PostgreSQL databases for as long as the test runs."""
    with contextlib.ExitStack() as stack, asyncio.Runner() as runner:

        def make() -> str:
            entered = postgres.migrated()
            address = runner.run(entered.__aenter__())
            stack.callback(lambda: runner.run(entered.__aexit__(None, None, None)))
            return address

        with stack:  # Before the runner ends.
            yield make


def make_cell(
    folder: Path, databases: Databases | None, *, nodes: str, secret: str = SECRET
) -> Cell:
    """An installation as a server leaves it that was started once; None: on SQLite."""
    (folder / "homing-data").mkdir(parents=True)
    more = {
        "HOMING_ADMIN_KEY": KEY,
        "HOMING_SECRET_KEY": secret,
        "HOMING_NODE_NUMBERS": nodes,
        "HOMING_SEARCH_FIELDS": "data.n",
        "HOMING_PUBLIC_URL": "http://localhost",
        "HOMING_LEASE_MS": "1500",  # A killed process is not waited for longer.
    }
    address = f"sqlite:{folder / 'homing-data'}"
    if databases is not None:
        address = more["HOMING_DATABASE_URL"] = databases()
    else:
        asyncio.run(new_file(folder / "homing-data" / "homing.db"))
    cell = Cell(Terminal(folder, more=more), address)
    with contextlib.chdir(folder), patch.dict(os.environ, cell.terminal.environ, clear=True):
        asyncio.run(_initialise())
    return cell


async def _initialise() -> None:
    stores = await open_stores(load_settings({}))
    if stores.fleet is not None:
        await stores.fleet.store.leave(stores.fleet.me.id)
    await stores.close()


def add_rows(address: str, tenant: str) -> None:
    """A tenant of one row."""
    text = "INSERT INTO ledger (tenant, node, accepted, delivered, dropped, cancelled)"
    _query(address, f"{text} VALUES ('{tenant}', 0, 0, 0, 0, 0)")


@dataclass
class Tenant:
    """What the API has told about a tenant."""

    name: str
    key: str
    manager: str
    stream: str  # its subscription without a URL
    cursor: str  # of its reader, which has acknowledged it
    events: list[str]


def fill(cell: Cell, name: str, good: Hook, bad: Hook) -> Tenant:
    """A tenant with something in every table."""
    whose = {"tenant": name}
    keys = [
        cell.good("POST", "/v1/keys", {"name": f"{name} {role}", "role": role, **whose})["key"]
        for role in ("publisher", "manager")
    ]
    common = {"types": ["order.*"], **whose}
    cell.good(
        "POST",
        "/v1/subscriptions",
        {"url": good.url, "token": f"token-{name}", "headers": {"x-one": "1"}, **common},
    )
    cell.good(
        "POST", "/v1/subscriptions", {"url": bad.url, "signature": "both", "order": "key", **common}
    )
    stream = cell.good("POST", "/v1/subscriptions", common)["id"]
    notices = {"kind": "webhook", "address": f"{good.url}/n", **whose}
    cell.good("POST", "/v1/notice-targets", notices)
    quiet = {"notices": ["certificate"], "quiet_hours": "22:00-07:00", "language": "ja"}
    cell.good("POST", "/v1/notice-targets", {**notices, **quiet})
    ids = [f"{name}-{number}" for number in range(9)]
    for number, event in enumerate(ids):
        document = {
            "id": event,
            "type": "order.paid",
            "key": f"order-{number % 3}",
            "data": {"n": number, "of": name},
        }
        got = cell.ask("POST", "/v1/events", document, key=keys[0])
        assert got.status == 202, got
    # One of each key is attempted at the bad URL, and all at the good one.
    until(lambda: _attempted(cell, name, len(ids) + 3))
    page = cell.good("GET", f"/v1/subscriptions/{stream}/events?limit=4", key=keys[1])
    cursor = page["events"][-1]["cursor"]
    cell.good("POST", f"/v1/subscriptions/{stream}/ack", {"cursor": cursor}, key=keys[1])
    done = cell.good("GET", f"/v1/deliveries?status=delivered&tenant={name}")["items"]
    cell.good("POST", f"/v1/deliveries/{done[0]['id']}/replay")
    subscription = cell.good("GET", f"/v1/subscriptions?tenant={name}")["items"][-1]["id"]
    cell.good("POST", f"/v1/subscriptions/{subscription}/test")
    job = cell.good("POST", "/v1/replays", {"filter": {"status": "delivered", **whose}})["id"]
    until(lambda: cell.good("GET", f"/v1/replays/{job}")["state"] == "done")
    erasure = cell.good("POST", "/v1/erasures", {"event": ids.pop(), **whose})["id"]
    until(lambda: cell.good("GET", f"/v1/erasures/{erasure}")["finished_at"])
    (failing,) = [
        it["id"]
        for it in cell.good("GET", f"/v1/endpoints?tenant={name}")["items"]
        if it["url"] == bad.url
    ]
    cell.good("POST", f"/v1/endpoints/{failing}/freeze")
    until(lambda: cell.good("GET", f"/v1/notices?tenant={name}")["items"][0]["status"] == "sent")
    # Only the deliveries to the frozen endpoint wait.
    until(lambda: ledger_of(cell, name)["pending"] == len(ids))
    return Tenant(name, keys[0], keys[1], stream, cursor, ids)


def ledger_of(cell: Cell, name: str) -> dict[str, int]:
    (found,) = cell.good("GET", f"/v1/ledger?tenant={name}")["items"]
    sums = dict(found)
    del sums["tenant"]
    finished = sum(sums[it] for it in ("delivered", "dropped", "cancelled", "superseded"))
    assert sums["accepted"] == finished + sums["pending"], sums
    return sums


def _attempted(cell: Cell, name: str, count: int) -> bool:
    found = cell.good("GET", f"/v1/deliveries?tenant={name}&limit=100")["items"]
    return len([it for it in found if it["attempts_made"] > 0]) >= count


# --- what is in a database, by queries of the tests' own -----------------------------------------

_ENDPOINTS = "SELECT id FROM endpoint WHERE tenant = 'TENANT'"
_SUBSCRIPTIONS = "SELECT id FROM subscription WHERE tenant = 'TENANT'"
_EVENTS = "SELECT id FROM event WHERE tenant = 'TENANT'"
QUERIES = {
    **{
        name: f"SELECT * FROM {name} WHERE tenant = 'TENANT'"
        for name in (
            "subscription",
            "endpoint",
            "event_key",
            "event",
            "pending",
            "history",
            "ledger",
            "api_key",
            "notice_target",
            "cause",
            "event_field",
            "erasure",
            "audit_entry",
            "pull_stream",
            "signing_keys",
        )
    },
    "attempt": f"SELECT * FROM attempt WHERE endpoint_id IN ({_ENDPOINTS})",
    "transition": f"SELECT * FROM transition WHERE endpoint_id IN ({_ENDPOINTS})",
    "cleanup_job": f"SELECT * FROM cleanup_job WHERE endpoint_id IN ({_ENDPOINTS})",
    "key_release": f"SELECT * FROM key_release WHERE endpoint_id IN ({_ENDPOINTS})",
    "replay_link": f"SELECT * FROM replay_link WHERE event_id IN ({_EVENTS})",
    "replay_job": 'SELECT * FROM replay_job WHERE filter LIKE \'%"tenant":"TENANT"%\'',
    "erased_key": "SELECT * FROM erased_key WHERE erasure_id IN"
    " (SELECT id FROM erasure WHERE tenant = 'TENANT')",
    "pull_entry": f"SELECT * FROM pull_entry WHERE subscription_id IN ({_SUBSCRIPTIONS})",
    "pull_reader": f"SELECT * FROM pull_reader WHERE subscription_id IN ({_SUBSCRIPTIONS})",
    "notice": "SELECT * FROM notice WHERE owner = 'TENANT'",
    "notice_overflow": "SELECT * FROM notice_overflow WHERE target_id IN"
    " (SELECT id FROM notice_target WHERE tenant = 'TENANT')",
    "rollup": f"SELECT * FROM rollup WHERE tenant = 'TENANT' OR endpoint_id IN ({_ENDPOINTS})",
    "rollup_hour": "SELECT * FROM rollup_hour"
    f" WHERE tenant = 'TENANT' OR endpoint_id IN ({_ENDPOINTS})",
}
# Each installation has its own version of the catalog, and signs its audit log itself.
OWN_COLUMNS = {
    "subscription": {"version"},
    "signing_keys": {"version"},
    "erasure": {"version"},
    "audit_entry": {"digest", "segment"},
}
STAYS = ("api_key", "audit_entry")  # in the source, after a move

Rows = dict[str, list[str]]


def rows_of(address: str, tenant: str) -> Rows:
    """Every row that a tenant has, as text."""
    found = {}
    for table, query in QUERIES.items():
        own = OWN_COLUMNS.get(table, set())
        rows = _query(address, query.replace("TENANT", tenant))
        kept = [sorted((k, v) for k, v in row.items() if k not in own) for row in rows]
        found[table] = sorted(map(repr, kept))
    return found


def query(address: str, text: str) -> list[dict[str, Any]]:
    return _query(address, text)


def _query(address: str, text: str) -> list[dict[str, Any]]:
    if address.startswith("sqlite:"):
        file = Path(address.removeprefix("sqlite:")) / "homing.db"
        with contextlib.closing(sqlite3.connect(file)) as db, db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(text).fetchall()]
    return asyncio.run(_fetch(address, text))


async def _fetch(address: str, text: str) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(address)
    try:
        return [dict(row) for row in await connection.fetch(text)]
    finally:
        await connection.close()


def counts(rows: Rows) -> dict[str, int]:
    return {table: len(found) for table, found in rows.items()}


def step_of(address: str, tenant: str) -> str | None:
    found = _query(address, f"SELECT step FROM tenant_move WHERE tenant = '{tenant}'")
    return str(found[0]["step"]) if found else None


# --- the command ---------------------------------------------------------------------------------


def arguments(source: Cell, target: Cell, tenant: str = ACME, *more: str) -> tuple[str, ...]:
    return ("move", "--from", source.address, "--to", target.address, "--tenant", tenant, *more)


def killed_at(source: Cell, target: Cell, step: str, number: int = 1, tenant: str = ACME) -> str:
    """Run the command in a process that is killed with SIGKILL; returns the step of its death.

    That is the Nth time of a step, or the next step if there are fewer. The process is a fork of
    this one, which has all modules already.
    """
    command = (*arguments(source, target, tenant), "--url", "http://there.example")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _run_until(step, number, write, source, command)
        finally:
            os._exit(99)
    os.close(write)
    with os.fdopen(read) as told:
        reached = told.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"it was not killed: {reached}"
    assert os.WTERMSIG(status) == signal.SIGKILL
    return reached


def _run_until(step: str, number: int, told: int, source: Cell, command: tuple[str, ...]) -> None:
    """Run the command in this process until it kills itself."""
    tenant_rows.PAGE_ROWS, tenant_rows.WINDOW_ROWS = 4, 3  # A few rows need many pages.
    tenant_rows.ENDPOINTS_AT_ONCE = 1
    begin, times = tenant_mover.TenantMover.__init__, 0
    steps = tenant_mover.STEPS

    def killing(self: tenant_mover.TenantMover, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)

        def progress(at: str, _done: int, _total: int) -> None:
            nonlocal times
            times += at == step
            if (at == step and times == number) or steps.index(at) > steps.index(step):
                os.write(told, at.encode())
                os.kill(os.getpid(), signal.SIGKILL)

        self._progress = progress

    tenant_mover.TenantMover.__init__ = killing  # type: ignore[method-assign]
    done = source.terminal.run(*command)
    os.write(told, f"{done.code} {done.out} {done.err}".encode())


@contextlib.contextmanager
def receivers() -> Iterator[tuple[Hook, Hook]]:
    """One that takes everything, and one that always fails."""
    with hook() as good, hook(status=500) as bad:
        yield good, bad
