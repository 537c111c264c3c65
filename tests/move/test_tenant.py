"""``homing move --tenant``: one tenant goes to another installation, whole, and the others stay."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cli.terminal import HOMING
from client.hooks import hook
from homing.store import tenant_mover
from homing.store.migrate import Execute, RawSql
from homing.store.move import STAY, tables_of
from homing.store.postgres import PostgresDb
from homing.store.sqlite import Lock, SqliteDb
from homing.store.tenant_rows import AUDIT, INSTALLATION, LINKS, UNITS
from move.tenants import (
    ACME,
    GLOBEX,
    OTHER_SECRET,
    STAYS,
    Cell,
    Databases,
    Tenant,
    add_rows,
    arguments,
    ask,
    counts,
    databases,
    fill,
    killed_at,
    ledger_of,
    make_cell,
    query,
    receivers,
    rows_of,
    step_of,
    until,
)
from postgres import Server
from replicas import replicas

__all__ = ["databases"]  # a fixture
NODES = ("0-31", "32-63")


async def all_tables(db: RawSql) -> set[str]:
    return set(await tables_of(db)) | set(STAY)


async def test_every_table_is_either_of_tenants_or_of_the_installation(
    postgres: Server, tmp_path: Path
) -> None:
    of_tenants = {table for unit in (*UNITS, AUDIT, LINKS) for table in unit.tables}
    assert not of_tenants & INSTALLATION
    lite = await SqliteDb.open(tmp_path / "homing.db")
    async with postgres.migrated() as address:
        big = await PostgresDb.open(address)
        for db in (lite, big):
            known = await all_tables(db) - {"move_progress", "moved_away"}
            assert known == of_tenants | INSTALLATION
        await big.close()
    await lite.close()


def check_after(source: Cell, target: Cell, before: dict[str, dict[str, list[str]]]) -> None:
    """Row for row: the tenant is in the target, not in the source, and the others are as before."""
    there = rows_of(target.address, ACME)
    moves = [it for it in there["audit_entry"] if "tenants.move" in it]
    there["audit_entry"] = [it for it in there["audit_entry"] if it not in moves]
    assert len(moves) == 2, "it says once that it left, and once that it arrived"
    assert counts(there) == counts(before[ACME])
    assert there == before[ACME]
    left = {table: len(found) for table, found in rows_of(source.address, ACME).items() if found}
    assert set(left) == set(STAYS)
    assert rows_of(source.address, GLOBEX) == before[GLOBEX]
    assert (step_of(source.address, ACME), step_of(target.address, ACME)) == ("moved", "arrived")
    assert query(target.address, "SELECT * FROM tenant_move_progress") == []
    assert query(target.address, "SELECT * FROM tenant_move_ready") == []


def check_audit(cell: Cell) -> None:
    """Nothing was added, changed or removed; entries outside of segments are checked, too."""
    verified = cell.good("GET", "/v1/audit/verify")
    assert verified["problems"] == []
    assert [it for it in verified["segments"] if it["problems"]] == []


def check_served(cell: Cell, acme: Tenant) -> None:
    """The target serves the tenant, which goes on as if nothing had happened."""
    again = {"id": acme.events[0], "type": "order.paid", "key": "order-0"}
    again["data"] = {"n": 0, "of": ACME}  # type: ignore[assignment]
    before = ledger_of(cell, ACME)
    assert cell.ask("POST", "/v1/events", again, key=acme.key).status == 202
    other = {**again, "data": {"n": "another"}}
    assert cell.ask("POST", "/v1/events", other, key=acme.key).status == 409
    assert ledger_of(cell, ACME) == before
    path = f"/v1/subscriptions/{acme.stream}"
    page = cell.good("GET", f"{path}/events?after={acme.cursor}", key=acme.manager)
    assert [it["id"] for it in page["events"]] == acme.events[4:]
    reader = cell.good("GET", f"{path}/readers", key=acme.manager)
    assert len(reader["items"]) == 1
    check_audit(cell)


def check_the_proof(source: Cell, target: Cell) -> None:
    """A copy with one wrong number is not switched to."""
    query(target.address, f"UPDATE endpoint SET attempts = attempts + 1 WHERE tenant = '{ACME}'")
    done = source.terminal.run(*arguments(source, target))
    assert (done.code, "the copy has" in done.err) == (1, True), done
    assert step_of(source.address, ACME) == "leaving"


def filled(source: Cell) -> dict[str, Tenant]:
    with receivers() as (good, bad), source.serving():
        return {name: fill(source, name, good, bad) for name in (ACME, GLOBEX)}


def test_a_move_that_is_killed_at_every_step_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """From SQLite to SQLite: the long tests do the same with PostgreSQL and running servers."""
    source = make_cell(tmp_path / "one", None, nodes=NODES[0])
    target = make_cell(tmp_path / "two", None, nodes=NODES[1])
    tenants = filled(source)
    before = {name: rows_of(source.address, name) for name in tenants}
    empty = {table for table, found in before[ACME].items() if not found}
    assert empty <= {"cleanup_job", "key_release", "notice_overflow", "rollup_hour"}
    for step in tenant_mover.STEPS:
        assert killed_at(source, target, step) == step
        if step == "prove":
            check_the_proof(source, target)
    done = source.terminal.well(*arguments(source, target))
    assert "serves the tenant acme now" in done.out
    check_after(source, target, before)
    with target.serving():
        check_served(target, tenants[ACME])


@pytest.mark.long
def test_the_source_says_where_the_tenant_is(tmp_path: Path) -> None:
    source = make_cell(tmp_path / "one", None, nodes=NODES[0])
    target = make_cell(tmp_path / "two", None, nodes=NODES[1])
    tenants = filled(source)
    source.terminal.well(*arguments(source, target, ACME, "--url", "http://there.example"))
    with source.serving():
        told = source.ask("GET", "/v1/deliveries", key=tenants[ACME].manager)
        assert (told.status, told.json["code"]) == (503, "tenant_moved")
        assert "http://there.example" in told.json["detail"]
        assert int(told.headers["retry-after"]) > 0
        event = {"type": "order.paid", "data": {}}
        told = source.ask("POST", "/v1/events", event, key=tenants[ACME].key)
        assert (told.status, told.json["code"]) == (503, "tenant_moved")
        told = source.ask("POST", "/v1/subscriptions", {"types": ["*"], "tenant": ACME})
        assert (told.status, told.json["code"]) == (503, "tenant_moved")
        assert source.ask("POST", "/v1/events", event, key=tenants[GLOBEX].key).status == 202
        check_audit(source)


class Publishers:
    """One of the tenant, whose router is switched when the source says so, and one beside it."""

    def __init__(self, source: Cell, target: Cell, key: str) -> None:
        self._ports, self._source, self._target, self._key = [source.port], source, target, key
        self.accepted: list[str] = []
        self.refused: Counter[str] = Counter()
        self.beside: list[int] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=it) for it in (self._publish, self._publish_beside)
        ]
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        number = itertools.count()
        while not self._over.is_set():
            event = {"id": f"n-{next(number)}", "type": "a.b", "data": {"mine": True}}
            while not self._accepted(event):
                pass
            self.accepted.append(str(event["id"]))

    def _accepted(self, event: dict[str, Any]) -> bool:
        got = ask(self._ports[-1], "POST", "/v1/events", event, key=self._key)
        if got.status == 202:
            return True
        assert got.status == 503, got
        assert int(got.headers["retry-after"]) > 0
        self.refused[got.json["code"]] += 1
        if got.json["code"] == "tenant_moved":
            self._ports.append(self._target.port)
        return False

    def _publish_beside(self) -> None:
        event = {"type": "a.b", "data": {}, "tenant": GLOBEX}
        while not self._over.is_set():
            self.beside.append(ask(self._source.port, "POST", "/v1/events", event).status)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.long
def test_a_tenant_moves_between_running_servers_while_it_publishes(
    databases: Databases, tmp_path: Path
) -> None:
    source = make_cell(tmp_path / "one", databases, nodes=NODES[0])
    target = make_cell(tmp_path / "two", databases, nodes=NODES[1])
    with receivers() as (good, _), source.serving(), target.serving():
        for name in (ACME, GLOBEX):
            document = {"url": f"{good.url}/{name}", "types": ["*"], "tenant": name}
            source.good("POST", "/v1/subscriptions", document)
        made = {"name": "acme", "role": "publisher", "tenant": ACME}
        publishers = Publishers(source, target, source.good("POST", "/v1/keys", made)["key"])
        try:
            until(lambda: len(publishers.accepted) > 20)
            source.terminal.well(*arguments(source, target))
            there = len(publishers.accepted)
            until(lambda: len(publishers.accepted) > there + 20)
        finally:
            publishers.stop()
        until(lambda: ledger_of(target, ACME)["pending"] == 0)
        ledger = ledger_of(target, ACME)
        came = Counter(head["webhook-id"] for head, body in good.came if b"mine" in body)
    assert publishers.refused["tenant_moving"] > 0
    assert publishers.refused["tenant_moved"] > 0
    assert set(publishers.beside) == {202}, "the neighbour was not disturbed"
    sent = len(set(publishers.accepted))
    assert ledger["accepted"] == ledger["delivered"] == sent == len(came)
    assert sum(came.values()) == sent, "what was in flight was settled before the copy"


@pytest.mark.long
def test_acks_during_a_move_are_done_or_told_where_the_tenant_is(
    databases: Databases, tmp_path: Path
) -> None:
    source = make_cell(tmp_path / "one", databases, nodes=NODES[0])
    target = make_cell(tmp_path / "two", databases, nodes=NODES[1])
    over, seen = threading.Event(), Counter[int]()
    with receivers() as (good, bad), source.serving(), target.serving():
        tenant = fill(source, ACME, good, bad)
        path, cursor = f"/v1/subscriptions/{tenant.stream}/ack", {"cursor": tenant.cursor}

        def ack() -> None:
            while not over.is_set():
                seen[source.ask("POST", path, cursor, key=tenant.manager).status] += 1

        threads = [threading.Thread(target=ack) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: seen[200] > 20)
            source.terminal.well(*arguments(source, target))
            told = seen[503]
            until(lambda: seen[503] > told + 20)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert target.ask("POST", path, cursor, key=tenant.manager).status == 200
    assert seen.keys() == {200, 503}


@pytest.mark.long
def test_when_the_command_ends_all_servers_know_who_serves_the_tenant(
    databases: Databases, tmp_path: Path
) -> None:
    source = make_cell(tmp_path / "one", databases, nodes=NODES[0])
    target = make_cell(tmp_path / "two", databases, nodes=NODES[1])
    event = {"type": "order.paid", "data": {}}
    with receivers() as (good, bad), source.serving(), target.serving():
        key = fill(source, ACME, good, bad).key
        source.terminal.well(*arguments(source, target))
        assert target.ask("POST", "/v1/events", event, key=key).status == 202
        told = source.ask("POST", "/v1/events", event, key=key)
        assert (told.status, told.json["code"]) == (503, "tenant_moved")


@pytest.mark.long
def test_a_request_in_flight_is_waited_for_and_not_sent_again(
    databases: Databases, tmp_path: Path
) -> None:
    source = make_cell(tmp_path / "one", databases, nodes=NODES[0])
    target = make_cell(tmp_path / "two", databases, nodes=NODES[1])
    gate = threading.Event()
    with hook(gate=gate) as slow, source.serving(), target.serving():
        document = {"url": slow.url, "types": ["*"], "tenant": ACME, "deadline_ms": 30_000}
        source.good("POST", "/v1/subscriptions", document)
        source.good("POST", "/v1/events", {"type": "a.b", "data": {}, "tenant": ACME})
        until(lambda: slow.came)
        moving = source.terminal.start([*HOMING, *arguments(source, target)])
        until(lambda: step_of(source.address, ACME) == "leaving")
        event = {"type": "a.b", "data": {}, "tenant": ACME}
        until(lambda: source.ask("POST", "/v1/events", event).status == 503)
        assert not query(target.address, "SELECT * FROM endpoint")
        gate.set()
        assert moving.wait(90) == 0
        (done,) = target.good("GET", f"/v1/deliveries?tenant={ACME}")["items"]
        assert (done["status"], done["attempts_made"], len(slow.came)) == ("delivered", 1, 1)


@pytest.mark.long
def test_a_tenant_comes_back(tmp_path: Path) -> None:
    one = make_cell(tmp_path / "one", None, nodes=NODES[0])
    two = make_cell(tmp_path / "two", None, nodes=NODES[1])
    tenants = filled(one)
    before = rows_of(one.address, ACME)
    one.terminal.well(*arguments(one, two))
    one.terminal.well(*arguments(two, one))
    after = rows_of(one.address, ACME)
    assert len(after.pop("audit_entry")) == len(before.pop("audit_entry")) + 4
    assert after == before
    with one.serving():
        check_served(one, tenants[ACME])
    repeated = one.terminal.run(*arguments(two, one))
    assert (repeated.code, "acme now" in repeated.out) == (0, True), repeated.err


@pytest.mark.long
def test_a_move_is_given_up_before_its_switch_and_not_after_it(tmp_path: Path) -> None:
    source = make_cell(tmp_path / "one", None, nodes=NODES[0])
    target = make_cell(tmp_path / "two", None, nodes=NODES[1])
    tenants = filled(source)
    before = rows_of(source.address, ACME)
    assert killed_at(source, target, "prove", 3) == "prove"
    with source.serving():
        event = {"type": "order.paid", "data": {}}
        told = source.ask("POST", "/v1/events", event, key=tenants[ACME].key)
        assert (told.status, told.json["code"]) == (503, "tenant_moving")
        assert int(told.headers["retry-after"]) > 0
        path = f"/v1/subscriptions/{tenants[ACME].stream}"
        told = source.ask(
            "POST", f"{path}/ack", {"cursor": tenants[ACME].cursor}, key=tenants[ACME].manager
        )
        assert (told.status, told.json["code"]) == (503, "tenant_moving")
        told = source.ask("DELETE", path, key=tenants[ACME].manager)
        assert (told.status, told.json["code"]) == (503, "tenant_moving")
        assert source.ask("GET", path, key=tenants[ACME].manager).status == 200
    given_up = source.terminal.well(*arguments(source, target, ACME, "--cancel"))
    assert "was given up" in given_up.out
    assert rows_of(source.address, ACME) == before
    assert not any(rows_of(target.address, ACME).values())
    none = source.terminal.run(*arguments(source, target, ACME, "--cancel"))
    assert (none.code, "No move" in none.err) == (2, True)
    assert killed_at(source, target, "switch") == "switch"
    late = source.terminal.run(*arguments(source, target, ACME, "--cancel"))
    assert (late.code, "can only be finished" in late.err) == (2, True), late.err
    source.terminal.well(*arguments(source, target))
    assert step_of(source.address, ACME) == "moved"


@pytest.mark.long
def test_a_target_with_another_key_encrypts_with_its_own(tmp_path: Path) -> None:
    source = make_cell(tmp_path / "one", None, nodes=NODES[0])
    target = make_cell(tmp_path / "two", None, nodes=NODES[1], secret=OTHER_SECRET)
    tenants = filled(source)
    keys = tmp_path / "keys"
    wrong = source.terminal.run(*arguments(source, target))
    assert (wrong.code, "encrypted with the key" in wrong.err) == (2, True), wrong.err
    keys.write_text(OTHER_SECRET)
    source.terminal.well(*arguments(source, target, ACME, "--to-keys", str(keys)))
    encrypted = query(target.address, "SELECT token, secrets FROM subscription")
    old = query(source.address, "SELECT name FROM encryption_key")[0]["name"]
    assert encrypted
    assert not any(old in str(row) for row in encrypted)
    with receivers() as (good, _), target.serving():
        path = f"/v1/subscriptions?tenant={ACME}"
        first = target.good("GET", path)["items"][-1]["id"]
        target.good("PATCH", f"/v1/subscriptions/{first}", {"url": good.url})
        target.good("POST", f"/v1/subscriptions/{first}/test")
        assert good.came[-1][0]["authorization"] == f"Bearer token-{ACME}"
        check_served(target, tenants[ACME])


def test_what_cannot_move_is_refused_with_the_reason(
    databases: Databases, postgres: Server, tmp_path: Path
) -> None:
    source = make_cell(tmp_path / "one", None, nodes=NODES[0])
    target = make_cell(tmp_path / "two", databases, nodes=NODES[1])
    third = make_cell(tmp_path / "three", None, nodes="64-95")
    for cell in (source, third):
        add_rows(cell.address, ACME)
    add_rows(third.address, GLOBEX)
    lock = Lock(Path(source.address.removeprefix("sqlite:")) / "homing.db.lock")
    busy = source.terminal.run(*arguments(source, target))
    lock.release()
    assert (busy.code, "holds homing.db" in busy.err) == (2, True)
    empty = asyncio.run(postgres.make())
    mark = "&" if "?" in target.address else "?"
    same = f"{target.address}{mark}application_name=another"
    for source_address, target_address, tenant, reason in (
        (target.address, target.address, ACME, "the same database"),
        (target.address, same, ACME, "the same database"),
        (source.address, target.address, "nobody", "has no tenant nobody"),
        (source.address, empty, ACME, "has no schema yet"),
        (source.address, "sqlite:nothing", ACME, "There is no database"),
        (source.address, target.address, "no such", "--tenant must"),
    ):
        given = ("--from", source_address, "--to", target_address, "--tenant", tenant)
        done = source.terminal.run("move", *given)
        assert (done.code, reason in done.err) == (2, True), (given, done.err)
    assert killed_at(source, target, "mark the source") == "mark the source"
    for cells, reason in (
        ((source, third), "is being moved to"),
        ((third, target), "is being moved to the target from"),
        ((target, third), "is being moved to the source"),
        ((third, source), "is being moved from the target"),
    ):
        done = source.terminal.run(*arguments(*cells))
        assert (done.code, reason in done.err) == (2, True), (cells, done.err)
    source.terminal.well(*arguments(source, target))
    there = source.terminal.run(*arguments(third, target))
    assert (there.code, "has rows of the tenant acme" in there.err) == (2, True), there.err
    asyncio.run(_forget_a_migration(target.address))
    older = source.terminal.run(*arguments(third, target, GLOBEX))
    assert (older.code, "upgrade the installation first" in older.err) == (2, True), older.err


async def _forget_a_migration(address: str) -> None:
    db = await PostgresDb.open(address)
    await db.raw(lambda run: run("DELETE FROM migration WHERE number = 1"))
    await db.close()


def two_cells(folder: Path) -> tuple[Cell, Cell]:
    """Installations on SQLite; the first one has a tenant of one row."""
    source = make_cell(folder / "one", None, nodes=NODES[0])
    target = make_cell(folder / "two", None, nodes=NODES[1])
    add_rows(source.address, ACME)
    return source, target


def test_a_source_that_has_lost_the_mark_of_the_switch_is_switched_again(tmp_path: Path) -> None:
    """The copy is in use by now: it is neither made again nor removed."""
    source, target = two_cells(tmp_path)
    assert killed_at(source, target, "open the target") == "open the target"
    query(source.address, "UPDATE tenant_move SET step = 'leaving'")  # as in a lossy failover
    query(target.address, "UPDATE ledger SET accepted = 5, delivered = 5")  # It is served.

    late = source.terminal.run(*arguments(source, target, ACME, "--cancel"))
    assert (late.code, "can only be finished" in late.err) == (2, True), late.err
    source.terminal.well(*arguments(source, target))

    assert (step_of(source.address, ACME), step_of(target.address, ACME)) == ("moved", "arrived")
    assert query(target.address, "SELECT accepted FROM ledger") == [{"accepted": 5}]
    assert query(source.address, "SELECT accepted FROM ledger") == []


def test_a_source_that_has_lost_the_mark_of_leaving_is_not_switched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two_cells(tmp_path)
    prove = tenant_mover.TenantMover._prove

    async def lossy(self: tenant_mover.TenantMover) -> Any:
        proved = await prove(self)
        await self._source.db.raw(lambda run: run("DELETE FROM tenant_move"))
        return proved

    with monkeypatch.context() as patched:
        patched.setattr(tenant_mover.TenantMover, "_prove", lossy)
        done = source.terminal.run(*arguments(source, target))
    assert (done.code, "no longer has the mark of this move" in done.err) == (2, True), done.err
    assert step_of(target.address, ACME) == "arriving"

    source.terminal.well(*arguments(source, target))
    assert (step_of(source.address, ACME), step_of(target.address, ACME)) == ("moved", "arrived")


def test_a_source_that_has_lost_all_marks_is_reported_and_nothing_is_removed(
    tmp_path: Path,
) -> None:
    source, target = two_cells(tmp_path)
    source.terminal.well(*arguments(source, target))
    query(source.address, "DELETE FROM tenant_move")  # as after a restore of an old backup
    add_rows(source.address, ACME)

    done = source.terminal.run(*arguments(source, target))

    assert (done.code, "Both serve the tenant now" in done.err) == (2, True), done.err
    for cell in (source, target):
        assert len(query(cell.address, "SELECT * FROM ledger")) == 1


def test_nothing_is_removed_from_a_source_that_loses_its_mark_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = two_cells(tmp_path)
    copy_audit = tenant_mover.TenantMover._copy_audit

    async def lossy(self: tenant_mover.TenantMover) -> int:
        copied = await copy_audit(self)
        await self._source.db.raw(lambda run: run("DELETE FROM tenant_move"))
        return copied

    monkeypatch.setattr(tenant_mover.TenantMover, "_copy_audit", lossy)
    done = source.terminal.run(*arguments(source, target))
    assert (done.code, "Both serve the tenant now" in done.err) == (2, True), done.err
    assert len(query(source.address, "SELECT * FROM ledger")) == 1


def test_rows_are_removed_only_when_every_process_of_the_source_knows_that_the_tenant_has_left(
    databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not know it would find nothing, and answer 404 instead of 503."""
    source = make_cell(tmp_path / "one", databases, nodes=NODES[0])
    target = make_cell(tmp_path / "two", databases, nodes=NODES[1])
    add_rows(source.address, ACME)
    mover, known_at_removal = tenant_mover.TenantMover, list[tuple[int, int]]()
    copy_audit, remove = mover._copy_audit, mover._remove

    async def begin_slowly(self: tenant_mover.TenantMover) -> int:
        await self._source.db.raw(lambda run: run(SLOW_PROCESS))
        return await copy_audit(self)

    async def noted(self: tenant_mover.TenantMover, *args: Any, **more: Any) -> None:
        found = await self._source.db.raw(lambda run: run(KNOWS))
        known_at_removal.append(found[0])
        await remove(self, *args, **more)

    def catch_up() -> None:
        until(lambda: query(target.address, "SELECT 1 FROM tenant_move WHERE step = 'arrived'"))
        time.sleep(0.3)
        query(source.address, "UPDATE process SET catalog_version = 9000000000000 WHERE id = 77")

    monkeypatch.setattr(mover, "_copy_audit", begin_slowly)
    monkeypatch.setattr(mover, "_remove", noted)
    slow = threading.Thread(target=catch_up)
    slow.start()
    source.terminal.well(*arguments(source, target))
    slow.join()
    ((known, left),) = known_at_removal
    assert known >= left
    assert query(source.address, "SELECT * FROM ledger") == []


# A process of the source that has not read the catalog since the switch.
SLOW_PROCESS = (
    "INSERT INTO process (id, node, name, role, delivers, started_at, expires_at, catalog_version)"
    " VALUES (77, 77, 'slow', 'both', 1, 0, 9000000000000, 0)"
)
KNOWS = "SELECT p.catalog_version, m.version FROM process p, tenant_move m WHERE p.id = 77"


@pytest.mark.long
async def test_a_move_waits_until_the_standby_of_the_source_has_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(synchronous=False) as pair:
        await (await PostgresDb.open(pair.dsn())).close()
        address = f"postgresql://postgres@127.0.0.1:{pair.primary.port}/postgres"
        cells = await asyncio.to_thread(_cell_and_file, tmp_path, address)
        pair.log.cut()
        monkeypatch.setattr(tenant_mover, "STANDBYS_WAIT_S", 0.5)
        run = cells[0].terminal.run
        done = await asyncio.to_thread(run, *arguments(*cells))
        assert (done.code, "These standbys" in done.err) == (2, True), done.err
        assert "--cancel" in done.err
        assert step_of(cells[1].address, ACME) == "arriving"

        pair.log.mend()
        monkeypatch.setattr(tenant_mover, "STANDBYS_WAIT_S", 30.0)
        await asyncio.to_thread(cells[0].terminal.well, *arguments(*cells))

        await asyncio.to_thread(pair.primary.kill)
        await pair.promote()
        found = await pair.standby.execute("SELECT step FROM tenant_move")
        assert [row[0] for row in found] in (["left"], ["moved"])


def _cell_and_file(folder: Path, address: str) -> tuple[Cell, Cell]:
    source = make_cell(folder / "one", lambda: address, nodes=NODES[0])
    add_rows(source.address, ACME)
    return source, make_cell(folder / "two", None, nodes=NODES[1])


def test_a_second_move_at_the_same_time_is_refused(databases: Databases, tmp_path: Path) -> None:
    source = make_cell(tmp_path / "one", databases, nodes=NODES[0])
    target = make_cell(tmp_path / "two", databases, nodes=NODES[1])
    add_rows(source.address, ACME)
    side = tenant_mover.Side(None, None, "one", source.address)  # type: ignore[arg-type]

    async def hold(run: asyncio.Event, held: threading.Event) -> None:
        async with tenant_mover._locked(side, ACME):
            held.set()
            await run.wait()

    loop = asyncio.new_event_loop()
    run, held = asyncio.Event(), threading.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(hold(run, held),))
    thread.start()
    assert held.wait(60)
    second = source.terminal.run(*arguments(source, target))
    loop.call_soon_threadsafe(run.set)
    thread.join()
    loop.close()
    assert (second.code, "Another `homing move`" in second.err) == (2, True), second.err
    source.terminal.well(*arguments(source, target))


@pytest.mark.long
def test_ids_that_both_installations_have_made_are_refused(tmp_path: Path) -> None:
    source = make_cell(tmp_path / "one", None, nodes="0-127")
    target = make_cell(tmp_path / "two", None, nodes="0-127")
    filled(source)
    with target.serving():
        target.good("POST", "/v1/events", {"type": "a.b", "data": {}, "tenant": GLOBEX})
    (taken,) = query(source.address, f"SELECT min(id) AS id FROM event WHERE tenant = '{ACME}'")
    asyncio.run(_rename(target.address, taken["id"]))
    refused = source.terminal.run(*arguments(source, target))
    assert (refused.code, "node_numbers" in refused.err) == (2, True), refused.err
    source.terminal.well(*arguments(source, target, ACME, "--cancel"))


async def _rename(address: str, number: int) -> None:
    db = await SqliteDb.open(Path(address.removeprefix("sqlite:")) / "homing.db")

    async def write(run: Execute) -> None:
        await run("UPDATE event SET id = ?1, last_id = ?1", number)
        await run("UPDATE event_key SET event_id = ?1", number)

    await db.raw(write)
    await db.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_killed_in_many_batches_and_with_its_servers(
    kind: str, databases: Databases, tmp_path: Path
) -> None:
    """To a PostgreSQL whose server runs, and from one whose server runs, too; both are killed."""
    running = kind == "postgres"
    source = make_cell(tmp_path / "one", databases if running else None, nodes=NODES[0])
    target = make_cell(tmp_path / "two", databases, nodes=NODES[1])
    tenants = filled(source)
    steps = tenant_mover.STEPS
    many = {"copy": (1, 2, 4, 8, 16, 32), "prove": (1, 9), "remove": (1, 2, 4, 8, 16, 32)}
    killed: list[str] = []
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(target.killable())]
        if running:
            servers.append(stack.enter_context(source.killable()))
        before: dict[str, dict[str, list[str]]] = {}
        for step in steps:
            for number in many.get(step, (1,)):
                killed.append(killed_at(source, target, step, number))
                if step == "wait":
                    before = {name: rows_of(source.address, name) for name in tenants}
            if step in {"wait", "copy", "switch", "open the target"}:
                for server in servers:
                    server.kill_and_start_again()
        done = source.terminal.well(*arguments(source, target))
        assert "acme now" in done.out
        assert set(killed) == set(steps)
        check_after(source, target, before)
        check_served(target, tenants[ACME])
        check_audit(source) if running else None
