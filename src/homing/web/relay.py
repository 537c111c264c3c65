"""The relay inside a server: rows go through the same checks as a request, without the request."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw
from msgspec.json import encode

from homing.engine.engine import Engine
from homing.engine.relay import NotNow, PublishRows, RowsRefused
from homing.errors import HomingError
from homing.policy.admission import DEFAULT_TENANT, check_events
from homing.ports import OutboxRow
from homing.web.api.publish import read_drafts

FOR_GOOD = frozenset((400, 409, 413, 422))  # the row's own fault: no later try will do better


def publish_here(engine: Engine) -> PublishRows:
    """Publish rows by this engine."""

    async def publish(rows: Sequence[OutboxRow]) -> None:
        try:
            drafts = read_drafts(encode([_sent(row) for row in rows]), DEFAULT_TENANT, lines=False)
            check_events(drafts)
            await engine.publish(drafts)
        except HomingError as error:
            if error.http_status in FOR_GOOD:
                raise RowsRefused(error.problems, f"{error.http_status} {error}") from error
            raise NotNow(str(error)) from error

    return publish


def _sent(row: OutboxRow) -> dict[str, object]:
    sent: dict[str, object] = {
        "id": row.id,
        "tenant": row.tenant,
        "type": row.type,
        "data": Raw(row.data),
    }
    return sent if row.time is None else {**sent, "time": row.time}
