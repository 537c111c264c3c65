"""Every operation of the API, in the order of the reference."""

from __future__ import annotations

from homing.web.api import (
    attempts,
    audit,
    causes,
    deliveries,
    endpoints,
    erasures,
    event_types,
    events,
    filters,
    keys,
    lost_commits,
    monitoring,
    notices,
    portal,
    pull,
    replays,
    search,
    secrets,
    signing_keys,
    status,
    subscriptions,
)
from homing.web.operation import Operation

OPERATIONS: tuple[Operation, ...] = (
    *events.OPERATIONS,
    *event_types.OPERATIONS,
    *subscriptions.OPERATIONS,
    *pull.OPERATIONS,
    *filters.OPERATIONS,
    *secrets.OPERATIONS,
    *signing_keys.OPERATIONS,
    *endpoints.OPERATIONS,
    *causes.OPERATIONS,
    *deliveries.OPERATIONS,
    *attempts.OPERATIONS,
    *replays.OPERATIONS,
    *erasures.OPERATIONS,
    *lost_commits.OPERATIONS,
    *search.OPERATIONS,
    *notices.OPERATIONS,
    *portal.OPERATIONS,
    *keys.OPERATIONS,
    *audit.OPERATIONS,
    *status.OPERATIONS,
    *monitoring.OPERATIONS,
)
