"""The order of acceptance: a number that each transaction takes that writes events or deliveries.

A transaction takes its number (``position``) after it has locked the keys and the streams that it
writes to. So of two transactions the one that began after the commit of the other has the higher
number, whatever the clocks of their processes say; two that run at the same time have one order for
everybody who reads them. Within a transaction the ids count: the order is (position, id).

Numbers do not become readable in their order: the lower one of two may be committed last. So a
bound "up to now" (``last``) is read when every process acts on the change that it belongs to: later
numbers are of transactions that have seen the change (``engine/grace_period``).
"""

from __future__ import annotations

from homing.store.tx import Tx

# For a move to another database, which runs plain SQL.
LAST = {"sqlite": "SELECT number FROM acceptance", "postgres": "SELECT last_value FROM acceptance"}
SET = {
    "sqlite": "UPDATE acceptance SET number = max(number, ?1)",
    "postgres": "SELECT setval('acceptance', greatest(nextval('acceptance'), $1::bigint))",
}


async def take(tx: Tx) -> int:
    """The number of this transaction; the locks of its keys and streams are held."""
    row = await tx.one("acceptance_take")
    assert row is not None
    return int(row[0])


async def last(tx: Tx) -> int:
    """The last number that was given."""
    row = await tx.one("acceptance_last")
    assert row is not None
    return int(row[0])


async def raise_above(tx: Tx, number: int = 0) -> None:
    """Give only numbers above all that were ever given, and above this one.

    A database that was restored, or a standby that was promoted, may not know the last ones. They
    are below its time in microseconds.
    """
    await tx.one("acceptance_hold")
    await tx.one("acceptance_raise", above=number)
