"""Every page, in the order of the navigation."""

from __future__ import annotations

from homing.web.dashboard.pages import bulk, deliveries, events, overview, subscriptions
from homing.web.dashboard.visit import Page

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *deliveries.PAGES,
    *bulk.PAGES,
    *events.PAGES,
    *subscriptions.PAGES,
)
