"""Behaviour that both drivers guarantee to the operations."""

from __future__ import annotations

import asyncio

import pytest

from homing.errors import NotFound
from homing.store import rows
from homing.store.statements import parse, statements
from homing.store.tx import Db, Row, Tx
from store.build import Maker
from store.scene import Scene, count, every


async def test_an_operation_that_fails_leaves_nothing(db: Db) -> None:
    endpoint = Maker().endpoint()

    async def fail(tx: Tx) -> None:
        await tx.insert("endpoint", [rows.endpoint_row(endpoint)])
        raise NotFound

    with pytest.raises(NotFound):
        await db.run(fail)

    assert await count(db, "endpoint") == 0


@pytest.mark.parametrize("count", [1, 99, 230])
async def test_several_writes_are_done_as_one(db: Db, count: int) -> None:
    def ledger(accepted: int) -> Row:
        return ("acme", 1, accepted, 2, 3, 4, 5)

    async def write(tx: Tx) -> None:
        jobs = [(it, "cancel", 7, it, 0) for it in range(1, count + 1)]
        links = [(8, it) for it in range(count)]
        await tx.write([("cleanup_job", jobs), ("ledger_add", [ledger(5)]), ("replay_link", links)])
        await tx.write([("ledger_add", [ledger(6)]), ("replay_link", [])])

    async def read(tx: Tx) -> list[list[Row]]:
        return [await tx.all("view_ledger", limit=9), await tx.all("cleanup_jobs")]

    await db.run(write)
    ((tenant, *sums, _, _),), jobs = await db.run(read, read_only=True)

    assert (tenant, *sums) == ("acme", 11, 4, 6, 8, 10)
    assert [it[:4] for it in jobs] == [(it, "cancel", 7, it) for it in range(1, count + 1)]


@pytest.mark.parametrize("count", [10, 230])
async def test_a_write_with_a_repeated_key_leaves_nothing(db: Db, count: int) -> None:
    async def write(tx: Tx) -> None:
        rows = [(it, "cancel", 7, it, 0) for it in (*range(count), count - 1)]
        await tx.write([("replay_link", [(8, 9)]), ("cleanup_job", rows)])

    with pytest.raises(Exception, match=r"(?i)unique"):
        await db.run(write)

    assert await db.run(lambda tx: tx.all("cleanup_jobs")) == []


async def test_a_list_is_a_parameter_on_both_engines(db: Db) -> None:
    scene = await Scene(db).begin()
    cleanup_job_ids = [scene.make.id() for _ in range(3)]

    async def work(tx: Tx) -> list[Row]:
        await tx.insert("cleanup_job", [(it, "cancel", 7, 8, 0) for it in cleanup_job_ids])
        return await tx.all("cleanup_jobs")

    assert [row[0] for row in await db.run(work)] == cleanup_job_ids


async def test_the_tables_have_the_columns_that_rows_expects(db: Db) -> None:
    for table in rows.COLUMNS:
        assert await every(db, table) == []


async def test_statements_are_counted_and_rest_costs_none(db: Db) -> None:
    scene = await Scene(db).begin()
    before = db.statements
    await scene.deliver(2)
    assert before < db.statements <= before + 8

    after = db.statements
    for _ in range(10):
        await asyncio.sleep(0)
    assert db.statements == after


async def test_people_read_while_a_transaction_is_open(db: Db, store: str) -> None:
    if store == "sqlite-memory":
        return  # one connection, one at a time
    scene = await Scene(db).begin()
    await scene.deliver(2)

    async def look(tx: Tx) -> int:
        return len(await tx.all("subscriptions_page", after_id=0, limit=9))

    reading = [asyncio.ensure_future(db.run(look, view=True)) for _ in range(5)]
    writing = asyncio.ensure_future(scene.deliver(50))
    seen = await asyncio.gather(*reading)
    await writing

    assert seen == [1] * 5


async def test_who_stops_waiting_does_not_stop_the_others(db: Db) -> None:
    scene = await Scene(db).begin()
    given_up = asyncio.ensure_future(scene.deliver(5))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])

    deliveries = await scene.deliver(3)

    pending = {row[0] for row in await every(db, "pending")}
    assert {it.id for it in deliveries} <= pending
    assert len(pending) in {3, 8}, "whole or not at all"


def test_parameters_are_numbered_alike_for_both_engines() -> None:
    source = """
-- name: both
-- Why.
SELECT :b, ':no', x::text FROM t WHERE a = :a AND b = :b;

-- name: two [sqlite]
UPDATE t SET a = :a WHERE id = :id;

-- name: two [postgres]
UPDATE t SET a = it.a FROM unnest(:id::bigint[], :a::text[]) AS it (id, a) WHERE t.id = it.id;
"""
    light, heavy = parse(source, "sqlite"), parse(source, "postgres")
    assert light["both"].text == "SELECT ?1, ':no', x::text FROM t WHERE a = ?2 AND b = ?1"
    assert light["two"].params == heavy["two"].params == ("a", "id")
    assert "unnest($2::text::bigint[], $1::text[])" in heavy["two"].text


def test_arrays_of_integers_go_to_postgresql_as_text() -> None:
    statement = statements("postgres")["works"]
    assert list(statement.given([(1, None, -3), (7, 7, 7)])) == ["{1, NULL, -3}", "{7, 7, 7}"]
    asked = statements("postgres")["keys_known"]
    assert list(asked.given([("a",), ("b",)])) == [("a",), ("b",)]


def test_both_engines_have_the_same_statements() -> None:
    assert statements("sqlite").keys() == statements("postgres").keys()
