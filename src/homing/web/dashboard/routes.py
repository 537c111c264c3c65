"""All pages of the dashboard, in the order of its navigation."""

from __future__ import annotations

from homing.web.dashboard.pages import (
    audit,
    bulk,
    deliveries,
    endpoints,
    erasures,
    event_types,
    events,
    first_steps,
    incidents,
    keys,
    notices,
    overview,
    portal,
    search,
    simulator,
    subscriptions,
    system,
    tenants,
)
from homing.web.dashboard.request import Page

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *first_steps.PAGES,
    *search.PAGES,
    *incidents.PAGES,
    *endpoints.PAGES,
    *deliveries.PAGES,
    *bulk.PAGES,
    *events.PAGES,
    *event_types.PAGES,
    *subscriptions.PAGES,
    *notices.PAGES,
    *erasures.PAGES,
    *portal.PAGES,
    *keys.PAGES,
    *audit.PAGES,
    *simulator.PAGES,
    *tenants.PAGES,
    *system.PAGES,
)
