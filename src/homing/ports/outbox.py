"""The outbox in an application's database, read by the relay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from homing.errors import FieldProblem


class OutboxRow(Struct, frozen=True, gc=False):
    """An event that waits in an outbox."""

    number: int
    id: str
    tenant: str
    type: str
    data: bytes
    time: str | None
    key: str | None = None  # the object that the event is about


class RefusedRow(Struct, frozen=True):
    """A row that was refused for good; it stays until a person retries it."""

    number: int
    id: str
    tenant: str
    type: str
    refused_at: int
    reason: str


class RelayedRows(Struct, frozen=True):
    """The rows that were published, and those refused with a reason. The others keep waiting."""

    published: tuple[int, ...] = ()
    refused: tuple[tuple[int, str], ...] = ()


class OutboxStats(Struct, frozen=True):
    """How many rows wait in an outbox; counts have an upper bound."""

    waiting: int = 0
    refused: int = 0
    oldest_ms: int = 0  # how long the oldest row has waited, by that database's clock
    has_keys: bool = True  # False: a table of an older version, which takes no keys


class RowsRefused(Exception):
    """Publishing these rows will never work."""

    def __init__(self, problems: Sequence[FieldProblem], detail: str) -> None:
        super().__init__(detail)
        self.problems, self.detail = tuple(problems), detail


class NotNow(Exception):
    """Publishing does not work at the moment, whatever the rows."""

    def __init__(self, detail: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(detail)
        self.detail, self.retry_after_s = detail, retry_after_s


class NotAllowed(Exception):
    """The key may not publish all of these rows: it is bound to a tenant, or has another role."""


# Raises RowsRefused, NotAllowed or NotNow; when it returns, all of the rows are events.
PublishRows = Callable[[Sequence[OutboxRow]], Awaitable[None]]
RelayRows = Callable[[Sequence[OutboxRow]], Awaitable[RelayedRows]]


class OutboxStore(Protocol):
    """An outbox. Its methods raise StoreUnavailable while its database does not respond."""

    async def relay(self, take: RelayRows, *, limit: int, bytes_max: int) -> int:
        """Give up to ``limit`` waiting rows to ``take`` and store the result.

        Returns how many rows there were. If ``take`` raises, all of them keep waiting.
        """

    async def stats(self) -> OutboxStats: ...

    async def refused(self, *, limit: int) -> list[RefusedRow]:
        """Refused rows, oldest first."""

    async def retry(self, ids: Sequence[str] | None) -> int:
        """Let refused rows wait again, all of them or those with these ids; returns how many."""

    async def changed(self, *, within_s: float) -> None:
        """Return when rows may have been added, or after ``within_s``."""

    async def close(self) -> None: ...
