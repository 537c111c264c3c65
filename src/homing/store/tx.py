"""One transaction as the store's operations see it, whichever engine carries it.

Operations (flow, admin, views) are written once, as coroutines over ``Tx``. On PostgreSQL they
really wait. On SQLite no method of ``Tx`` ever suspends, so the same coroutine runs to its end in
one ``send(None)``: inline in tests and simulation, on the writer's thread when serving.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

Row = tuple[Any, ...]


class Tx(Protocol):
    """Named statements of ``sql/*.sql``, run inside one transaction."""

    async def all(self, name: str, /, **params: Any) -> list[Row]:
        """Run a statement and give its rows."""

    async def one(self, name: str, /, **params: Any) -> Row | None:
        """Run a statement and give its first row."""

    async def many(self, name: str, rows: Sequence[Row], /) -> list[Row]:
        """Run a batch statement once for all rows; what it returns for them, in any order."""

    async def insert(self, table: str, rows: Iterable[Row], /) -> None:
        """Append rows with all the columns of a table, in the schema's order."""
