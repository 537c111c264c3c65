"""Overview: how all is, and what needs a person."""

from __future__ import annotations

from homing.web.dashboard.visit import Page, Shown, Visit


async def overview(visit: Visit) -> Shown:
    ledgers = await visit.parts.views.ledger(tenant=visit.tenant())
    return visit.show("overview.html", ledgers=ledgers)


PAGES = (Page(path="/", handler=overview),)
