"""System: this process, the store, the settings in force and the ledger."""

from __future__ import annotations

import platform

from homing.web.dashboard.visit import Page, Right, Shown, Visit

BUCKETS = 256


async def system(visit: Visit) -> Shown:
    views, options = visit.parts.views, visit.parts.options
    settings = {it.name: it for it in options.settings}
    url = settings.get("database_url")
    return visit.show(
        "system.html",
        pulse=visit.parts.engine.pulse(),
        settings=options.settings,
        named=settings,
        store="PostgreSQL" if url is not None and url.value else "SQLite",
        store_bytes=await views.store_bytes(),
        ledgers=await views.ledger(tenant=None),
        python=platform.python_version(),
        started_at=visit.parts.started_at,
        buckets=BUCKETS,
    )


PAGES = (Page(path="/system", handler=system, right=Right.ADMIN),)
