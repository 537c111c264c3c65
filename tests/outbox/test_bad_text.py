"""A row of an outbox whose text is no text is refused by itself, and the others are published."""

from __future__ import annotations

import pytest

from homing.store.outbox import open_outbox
from outbox.application import application
from outbox.test_same_id import target

pytestmark = pytest.mark.anyio

# SQLite takes any bytes as text; what is in a row, as SQL, and the field that is refused.
BAD = {
    "data not UTF-8": ("'a'", "CAST(x'22ff22' AS TEXT)", "NULL"),
    "data with a NUL": ("'a'", "CAST(x'310032' AS TEXT)", "NULL"),
    "type with a NUL": ("CAST(x'6100' AS TEXT)", "'1'", "NULL"),
    "type not UTF-8 behind a NUL": ("CAST(x'6100ff' AS TEXT)", "'1'", "NULL"),
    "key not UTF-8": ("'a'", "'1'", "CAST(x'61ff' AS TEXT)"),
    "key with a NUL": ("'a'", "'1'", "CAST(x'6100' AS TEXT)"),
}


@pytest.mark.parametrize("how", ["in the server", "beside it"])
async def test_a_row_that_is_no_text_does_not_stop_the_others(sqlite_app: str, how: str) -> None:
    async with target(how) as homing:
        with application(sqlite_app) as one:
            one.publish("a", "1", id="first")
            for name, values in BAD.items():
                row = ", ".join((f"'{name.replace(' ', '-')}'", *values))
                one.run(f"INSERT INTO homing_outbox (id, type, data, key) VALUES ({row})")
            one.publish("a", r'"\u0000"', id="last")
            await homing.drain(sqlite_app)
        assert await homing.data("first") == b"1"
        assert await homing.data("last") == rb'"\u0000"'
    outbox = open_outbox(sqlite_app)
    refused = await outbox.refused(limit=10)
    await outbox.close()
    assert [it.id for it in refused] == [name.replace(" ", "-") for name in BAD]
    assert all(it.reason for it in refused)
