"""One transaction as the store's operations see it, on either database.

Operations (flow, admin, views) are written once, as coroutines over ``Tx``. On PostgreSQL they
suspend. On SQLite no method of ``Tx`` ever suspends, so the same coroutine runs to its end in one
``send(None)``: inline (tests, simulation), on a thread, or in the writer process.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import (
    Any,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
)

from homing.errors import FieldProblem, StoreUnavailable, UnstorableText
from homing.policy.text import TEXT_RULE, is_storable
from homing.ports.encryption import Rewrite

Row = tuple[Any, ...]
Write = tuple[str, Sequence[Row]]  # rows for a table, or for a batch statement without a result
Dialect = Literal["sqlite", "postgres"]
T = TypeVar("T")


class Tx(Protocol):
    """Named statements of ``sql/*.sql``, run inside one transaction.

    A list given as a parameter arrives as a JSON array on SQLite (``json_each(:ids)``) and as an
    array on PostgreSQL (``ANY(:ids::bigint[])``).
    """

    async def all(self, name: str, /, **params: Any) -> list[Row]:
        """Run a statement and return its rows."""

    async def one(self, name: str, /, **params: Any) -> Row | None:
        """Run a statement and return its first row."""

    async def many(self, name: str, rows: Sequence[Row], /) -> list[Row]:
        """Run a batch statement once for all rows; return its rows, in any order.

        A row's values are in the order in which the SQLite text first names its parameters.
        """

    async def insert(self, table: str, rows: Iterable[Row], /) -> None:
        """Append rows with all the columns of a table, in the schema's order.

        Raises RunAgain if another process may have just written the same key.
        """

    async def write(self, writes: Sequence[Write], /) -> None:
        """Do several writes that need not see each other: few rows are one statement on PostgreSQL.

        Raises RunAgain as ``insert`` does.
        """


def run_sync(step: Awaitable[T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    coroutine = cast("Coroutine[Any, Any, T]", step)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast("T", stop.value)
    coroutine.close()
    raise AssertionError("an operation waited for something other than its transaction")


class Mark(NamedTuple):
    """Which batch a transaction writes, so that a commit whose reply was lost is recognised."""

    node: int
    kind: str
    number: int
    fence: int = 0  # of a publish; raises Fenced if the process has a newer one


class RunAgain(Exception):
    """Another process wrote first: the transaction is undone and the operation is run again."""


class AlreadyWritten(StoreUnavailable):
    """This batch was written before; its result is not known."""


class Db(Protocol):
    """A database that runs operations, each in one transaction."""

    dialect: Dialect

    @property
    def statements(self) -> int:
        """How many statements have been executed so far."""

    async def run(
        self,
        operation: Callable[[Tx], Awaitable[T]],
        *,
        mark: Mark | None = None,
        read_only: bool = False,
        view: bool = False,
    ) -> T:
        """Commit the changes of an operation, or none of them.

        The operation may be run more than once: it must not change anything but the database.
        With ``read_only`` it only reads, briefly, for the hot path. With ``view`` it only reads,
        for people, and never delays a commit. Raises StoreUnavailable if the database cannot do
        it, AlreadyWritten for a batch whose reply was lost with the process that had written it.
        """

    async def check_marks(self, node: int) -> None:
        """Raises DatabaseBehind if batches of this node that were committed are missing."""

    async def remove_days(self, *, before: int, limit: int) -> int:
        """Remove whole days past retention if rows are kept by day; returns about how many rows.

        At most ``limit`` rows are removed one by one.
        """

    async def empty_log(self) -> bool:
        """Empty the write-ahead log of SQLite; False if it cannot be emptied now."""

    async def rewrite(self) -> Rewrite:
        """Rewrite the files that may hold old row versions of subscriptions."""

    async def close(self) -> None: ...


Owner = TypeVar("Owner", bound="OnDatabase")
P = ParamSpec("P")
_Operation = Callable[Concatenate[Owner, Tx, P], Awaitable[T]]
_Method = Callable[Concatenate[Owner, P], Coroutine[Any, Any, T]]


class OnDatabase(Protocol):
    """A store port on a database."""

    _db: Db


def transaction(
    *, read_only: bool = False, view: bool = False
) -> Callable[[_Operation[Owner, P, T]], _Method[Owner, P, T]]:
    """Make a method that takes a ``Tx`` one that runs in a transaction of its own (``Db.run``)."""

    def decorate(operation: _Operation[Owner, P, T]) -> _Method[Owner, P, T]:
        @functools.wraps(operation)
        async def run(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return await self._db.run(
                lambda tx: operation(self, tx, *args, **kwargs), read_only=read_only, view=view
            )

        return run

    return decorate


# --- text that a database refused -----------------------------------------------------------


def check_storable(names: Iterable[str], values: Iterable[Any]) -> None:
    """Raises UnstorableText with the columns or parameters whose text cannot be stored."""
    problems = [
        FieldProblem(name, TEXT_RULE)
        for name, value in zip(names, values, strict=False)
        if not all(map(is_storable, _texts(value)))
    ]
    if problems:
        raise UnstorableText(problems=tuple(problems))


def check_rows(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """As ``check_storable``, for the rows of a batch."""
    check_storable(names, zip(*rows, strict=True))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | frozenset | set):
        for one in value:
            yield from _texts(one)
