"""The settings of a process that may be one of many: its part, and who writes for it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from homing.server.settings.reach import ReachSettings


class FleetSettings(ReachSettings, frozen=True, kw_only=True):
    """Mostly for PostgreSQL; SQLite serves one process."""

    writer: Annotated[
        Literal["process", "thread", "inline"],
        Meta(
            description="Where commits run: in a process of their own, or in the loop; SQLite's"
            " also in a thread."
        ),
    ] = "process"
    role: Annotated[
        Literal["both", "api", "deliver"],
        Meta(
            description="What this process does; on PostgreSQL any number of each share the work."
            " One that only delivers serves its health and metrics and no API."
        ),
    ] = "both"
    lease_ms: Annotated[
        int,
        Meta(
            ge=1_500,
            le=120_000,
            description="How long a process of a fleet may be silent before others do its work.",
            extra={"unit": "ms"},
        ),
    ] = 10_000
    listen_url: Annotated[
        str,
        Meta(
            description="The same database without a pooler, to hear of other processes' work at"
            " once; empty: database_url.",
            extra={"allowed": "empty, or postgresql://…"},
        ),
    ] = ""
    pooled: Annotated[
        bool, Meta(description="Whether database_url leads through PgBouncer in transaction mode.")
    ] = False
