"""What the dashboard asks for besides the lists: counts over time, and how much there is."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from homing.model import Endpoint, State

# Bounds of the histogram of lengths of time, in milliseconds; the last count is what is longer.
BOUNDS_MS = (2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000, 600_000)
MINUTE_MS = 60_000
HOUR_MS = 3_600_000


class Rollup(Struct, frozen=True):
    """What happened in one minute or hour: attempts by outcome, drops, lengths of time.

    Of an endpoint ``took`` counts how long its attempts took; of a tenant, or of all, from
    acceptance to delivered.
    """

    at: int
    delivered: int = 0
    failed: int = 0
    ours: int = 0
    dropped: int = 0
    took: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)


class Counts(Struct, frozen=True):
    """How many there are, each counted up to a limit."""

    enabled: int
    disabled: int
    frozen: int
    waiting: int  # pending, not yet attempted
    failing: int  # pending after a failed attempt
    limit: int  # a count that has reached it may be more


class Expiring(Struct, frozen=True):
    """Pending deliveries of one endpoint whose window ends soon."""

    endpoint_id: int
    url: str
    tenant: str
    state: State
    count: int
    first_at: int


class EndpointSort(StrEnum):
    """In which order endpoints are listed."""

    NEWEST = "newest"
    FAILING = "failing"  # most failures in a row first
    RATE = "rate"  # highest failure rate first
    SUCCESS = "success"  # longest without a success first
    URL = "url"


class BoardStore(Protocol):
    """Reads of the dashboard: each looks at a bounded number of rows."""

    async def rollups(
        self, *, endpoint_id: int | None, tenant: str | None, since: int, until: int
    ) -> list[Rollup]:
        """Minutes where they are kept, else hours, oldest first; what is empty is left out."""

    async def sparks(
        self, endpoint_ids: Sequence[int], *, since: int, until: int
    ) -> dict[int, list[Rollup]]:
        """The minutes of many endpoints."""

    async def counts(self, *, tenant: str | None, limit: int) -> Counts: ...

    async def expiring(self, *, tenant: str | None, before: int, limit: int) -> list[Expiring]:
        """By endpoint, soonest first, among the ``limit`` oldest pending deliveries."""

    async def find_endpoints(
        self,
        *,
        tenant: str | None,
        state: State | None,
        text: str,
        sort: EndpointSort,
        offset: int,
        limit: int,
    ) -> tuple[list[Endpoint], bool]:
        """Endpoints whose URL holds this text, and whether there are more."""

    async def waiting_of(self, endpoint_ids: Sequence[int], *, limit: int) -> dict[int, int]:
        """How many deliveries are pending at each, counted up to ``limit``."""

    async def store_bytes(self) -> int:
        """How large the database is."""
