"""Text that a database cannot hold raises an error of the tree that names its column."""

from __future__ import annotations

from typing import Any

import pytest

from homing.errors import UnstorableText
from homing.policy.text import TEXT_RULE, is_storable, storable
from homing.store.rows import COLUMNS
from homing.store.tx import Db, Row, Tx

pytestmark = pytest.mark.anyio

HALF = "a\ud800b"
NUL = "a\0b"


def bad_texts(db: Db) -> tuple[str, ...]:
    """The texts that this database cannot hold: SQLite holds NUL."""
    return (HALF, NUL) if db.dialect == "postgres" else (HALF,)


def key_row(number: int, name: str) -> Row:
    given: dict[str, Any] = dict.fromkeys(COLUMNS["api_key"])
    given |= {"id": number, "prefix": f"p{number}", "hash": b"h", "name": name, "role": "viewer"}
    return tuple((given | {"created_at": 1}).values())


@pytest.mark.parametrize("count", [1, 150])
async def test_an_insert_names_the_column(db: Db, count: int) -> None:
    for bad in bad_texts(db):

        async def write(tx: Tx, bad: str = bad) -> None:
            await tx.insert("api_key", [key_row(n, bad) for n in range(count)])

        with pytest.raises(UnstorableText) as caught:
            await db.run(write)
        assert list(caught.value.problems) == [("name", TEXT_RULE)]


async def test_a_batch_names_the_parameter(db: Db) -> None:
    for bad in bad_texts(db):

        async def write(tx: Tx, bad: str = bad) -> None:
            await tx.many("key_remove", [("a", "b", 1), ("a", bad, 2)])

        with pytest.raises(UnstorableText) as caught:
            await db.run(write)
        assert [it.field for it in caught.value.problems] == ["key"]


@pytest.mark.parametrize("read", [True, False])
async def test_a_list_names_the_parameter(db: Db, read: bool) -> None:
    for bad in bad_texts(db):

        async def look(tx: Tx, bad: str = bad) -> Any:
            return await tx.all("keys_page_of", before_id=9, tenant=bad, limit=9)

        with pytest.raises(UnstorableText) as caught:
            await db.run(look, view=read)
        assert [it.field for it in caught.value.problems] == ["tenant"]


async def test_the_next_transaction_works(db: Db) -> None:
    async def write(tx: Tx) -> None:
        await tx.insert("api_key", [key_row(1, "good"), key_row(2, HALF)])

    with pytest.raises(UnstorableText):
        await db.run(write)

    async def again(tx: Tx) -> list[Row]:
        await tx.insert("api_key", [key_row(1, "good")])
        return await tx.all("keys_page", before_id=9, limit=9)

    assert len(await db.run(again)) == 1


def test_good_text_is_left_as_it_is() -> None:
    for good in ("", "plain", "é", "😀", "\x01\x7f", "\ufffd", "\ue000"):
        assert is_storable(good)
        assert storable(good) is good
    for bad in (NUL, HALF, "é\0", "\udfff"):
        assert not is_storable(bad)
        assert is_storable(storable(bad))
        assert len(storable(bad)) == len(bad)
