"""One transaction as the store's operations see it, whichever engine carries it.

Operations (flow, admin, views) are written once, as coroutines over ``Tx``. On PostgreSQL they
really wait. On SQLite no method of ``Tx`` ever suspends, so the same coroutine runs to its end in
one ``send(None)``: inline in tests and simulation, on the writer's thread when serving.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

from homing.errors import StoreUnavailable
from homing.ports.seals import Rewrite

Row = tuple[Any, ...]
Dialect = Literal["sqlite", "postgres"]
T = TypeVar("T")


class Tx(Protocol):
    """Named statements of ``sql/*.sql``, run inside one transaction.

    A list given as a parameter arrives as a JSON array on SQLite (``json_each(:ids)``) and as an
    array on PostgreSQL (``ANY(:ids::bigint[])``).
    """

    async def all(self, name: str, /, **params: Any) -> list[Row]:
        """Run a statement and give its rows."""

    async def one(self, name: str, /, **params: Any) -> Row | None:
        """Run a statement and give its first row."""

    async def many(self, name: str, rows: Sequence[Row], /) -> list[Row]:
        """Run a batch statement once for all rows; what it returns for them, in any order.

        A row's values stand in the order in which the SQLite text first names its parameters.
        """

    async def insert(self, table: str, rows: Iterable[Row], /) -> None:
        """Append rows with all the columns of a table, in the schema's order.

        Where another process may have just written the same key, RunAgain is raised.
        """


def to_its_end(step: Awaitable[T]) -> T:
    """The result of a coroutine that waits for nothing."""
    coroutine = cast("Coroutine[Any, Any, T]", step)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    coroutine.close()
    raise AssertionError("an operation waited for something else than its transaction")


class Mark(NamedTuple):
    """Which batch a transaction writes, so that a commit whose reply was lost is recognised."""

    node: int
    kind: str
    number: int


class RunAgain(Exception):
    """Another process came first: the transaction is undone and the operation run once more."""


class AlreadyWritten(StoreUnavailable):
    """This was written before; what came of it is not known."""


class Db(Protocol):
    """A database that runs operations, each in one transaction."""

    dialect: Dialect

    @property
    def statements(self) -> int:
        """How many have been executed so far."""

    async def run(
        self,
        operation: Callable[[Tx], Awaitable[T]],
        *,
        mark: Mark | None = None,
        read: bool = False,
        look: bool = False,
    ) -> T:
        """Commit what the operation does, or nothing of it.

        The operation may be run more than once: it must not change anything but the database.
        With ``read`` it only reads, for people, and never delays a commit. With ``look`` it only
        reads, briefly, for the hot path. Raises StoreUnavailable when the database cannot do it,
        AlreadyWritten for a batch whose answer was lost with the process that had written it.
        """

    async def remove_days(self, *, before: int, limit: int) -> int:
        """Remove whole days past retention where rows are kept by day; about how many rows went.

        At most ``limit`` rows are touched one by one.
        """

    async def rewrite(self) -> Rewrite:
        """Rewrite what may hold old versions of subscriptions, so that only current rows remain."""

    async def close(self) -> None: ...
