"""System: this process, the store, the settings in force and the ledger."""

from __future__ import annotations

import platform
from collections import Counter
from string import ascii_uppercase

from msgspec import Struct

from homing.ports import Member, Standing
from homing.web.dashboard.visit import Page, Right, Shown, Visit

BUCKETS = 256
PENDING_LOOK = 10_000  # pending rows counted for the ledger
ROW = 32  # buckets in a row of the map


class Process(Struct, frozen=True):
    """A process of the fleet, and which buckets are its own."""

    member: Member
    mark: str
    buckets: int


class Cell(Struct, frozen=True):
    """A bucket on the map."""

    bucket: int
    mark: str  # of the process that holds it; empty: nobody
    colour: int


def fleet_of(standing: Standing | None) -> tuple[list[Process], list[Cell]]:
    """The processes and the map of buckets; both empty where one process has them all."""
    if standing is None:
        return [], []
    places = {it.id: place for place, it in enumerate(standing.members)}
    count = Counter(it.owner for it in standing.leases)
    processes = [
        Process(it, _mark(place), count[it.id]) for place, it in enumerate(standing.members)
    ]
    cells = [
        Cell(it.bucket, _mark(places[it.owner]), places[it.owner] % 6 + 1)
        if it.owner in places
        else Cell(it.bucket, "", 0)
        for it in standing.leases
    ]
    return processes, cells


def _mark(place: int) -> str:
    return ascii_uppercase[place] if place < len(ascii_uppercase) else str(place + 1)


async def system(visit: Visit) -> Shown:
    views, options = visit.parts.views, visit.parts.options
    settings = {it.name: it for it in options.settings}
    url = settings.get("database_url")
    fleet = visit.parts.engine.fleet
    processes, cells = fleet_of(None if fleet is None else fleet.standing)
    return visit.show(
        "system.html",
        pulse=visit.parts.engine.pulse(),
        settings=options.settings,
        named=settings,
        store="PostgreSQL" if url is not None and url.value else "SQLite",
        store_bytes=await views.store_bytes(),
        ledgers=await views.ledger(tenant=None, look=PENDING_LOOK),
        python=platform.python_version(),
        started_at=visit.parts.started_at,
        buckets=BUCKETS,
        row=ROW,
        processes=processes,
        cells=cells,
    )


PAGES = (Page(path="/system", handler=system, right=Right.ADMIN),)
