"""Every page, in the order of the navigation."""

from __future__ import annotations

from homing.web.dashboard.pages import overview
from homing.web.dashboard.visit import Page

PAGES: tuple[Page, ...] = (*overview.PAGES,)
