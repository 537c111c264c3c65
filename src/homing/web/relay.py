"""Publishes outbox rows inside a server: with the checks of a request, without HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw
from msgspec.json import encode

from homing.app.publishing import Publishing
from homing.errors import HomingError
from homing.policy.admission import DEFAULT_TENANT
from homing.ports import NotNow, OutboxRow, PublishRows, RowsRefused
from homing.web.api.publish import read_drafts

PERMANENT = frozenset((400, 409, 413, 422))  # the row is wrong: a later try cannot succeed


def publish_here(publishing: Publishing) -> PublishRows:
    """A function that publishes outbox rows in this process."""

    async def publish(rows: Sequence[OutboxRow]) -> None:
        try:
            drafts = read_drafts(encode([_event(row) for row in rows]), DEFAULT_TENANT, lines=False)
            await publishing.publish_rows(drafts)
        except HomingError as error:
            if error.http_status in PERMANENT:
                raise RowsRefused(error.problems, f"{error.http_status} {error}") from error
            raise NotNow(str(error)) from error

    return publish


def _event(row: OutboxRow) -> dict[str, object]:
    event: dict[str, object] = {
        "id": row.id,
        "tenant": row.tenant,
        "type": row.type,
        "data": Raw(row.data),
    }
    if row.time is not None:
        event["time"] = row.time
    if row.key is not None:
        event["key"] = row.key
    return event
