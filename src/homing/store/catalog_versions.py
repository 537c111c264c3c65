"""The version of the catalog: a change raises it, and no number is given in two histories.

A failover may lose changes that processes have read already. If the next change got the number of
a lost one, such a process would take what it has read for the newest state. So the catalog's row
names the database server that made the last change, by the time at which it was started. The first
change of another server (after a failover, a restore or a restart) raises the version by more
changes than can be lost, as often as the server's time says: two servers that follow the same one
hardly ever make the same step. The row also has the version that the server found, ``base``: what
a process has read beyond it is lost.
"""

from __future__ import annotations

from homing.ports import CATALOG_GAP
from homing.store.migrate import Execute
from homing.store.statements import statements
from homing.store.tx import Dialect, Tx


async def begin_change(tx: Tx, tenant: str) -> None:
    """Let no other change of this tenant be made until the commit."""
    await tx.one("name_lock", name=f"tenant {tenant}")


async def raise_catalog(tx: Tx) -> int:
    """Raise the version, as the last wait of a change: it writes what it has locked, and commits.

    No other change is given a version before this transaction ends: versions become readable in
    their order.
    """
    await tx.one("catalog_lock")
    row = await tx.one("catalog_raise", gap=CATALOG_GAP)
    assert row is not None
    return int(row[0])


async def raise_catalog_raw(run: Execute, dialect: Dialect) -> int:
    """The same in a transaction of plain SQL."""
    known = statements(dialect)
    await run(known["catalog_lock"].text)
    ((version,),) = await run(known["catalog_raise"].text, CATALOG_GAP)
    return int(version)


async def raise_catalog_above(tx: Tx, seen: int) -> None:
    """Raise the version above one that a process has seen, so that every process reads it all."""
    await tx.one("catalog_lock")
    await tx.all("catalog_heal", seen=seen, gap=CATALOG_GAP)
