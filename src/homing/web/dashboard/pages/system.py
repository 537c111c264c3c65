"""System: this process, its fleet, the database, the settings, and totals per tenant."""

from __future__ import annotations

import platform
from collections import Counter
from string import ascii_uppercase

from msgspec import Struct

from homing.app.lost_commits import LostCommits
from homing.app.status import Status
from homing.languages.sentences import say
from homing.policy.commit_loss import missing_text
from homing.ports import FleetState, Member
from homing.web.dashboard.request import Page, PageRequest, Shown
from homing.web.response import Response

BUCKETS = 256
ROW = 32  # buckets in a row of the map


class Process(Struct, frozen=True):
    """A process of the fleet and the number of its buckets."""

    member: Member
    mark: str
    buckets: int


class Cell(Struct, frozen=True):
    """A bucket on the map."""

    bucket: int
    mark: str  # of its owner; empty: none
    colour: int


def fleet_of(standing: FleetState | None) -> tuple[list[Process], list[Cell]]:
    """The processes and the map of buckets; both empty if one process owns all buckets."""
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


async def system(request: PageRequest) -> Shown:
    found = await request.app.status.system(request.caller)
    settings = {it.name: it for it in found.settings}
    url = settings.get("database_url")
    processes, cells = fleet_of(found.fleet)
    return request.show(
        "system.html",
        pulse=found.pulse,
        settings=found.settings,
        named=settings,
        store="PostgreSQL" if url is not None and url.value else "SQLite",
        store_bytes=found.store_bytes,
        ledgers=found.ledgers,
        python=platform.python_version(),
        started_at=found.started_at,
        buckets=BUCKETS,
        row=ROW,
        processes=processes,
        cells=cells,
        losses=request.app.lost_commits.page(request.caller),
        missing_text=missing_text,
    )


async def confirm_lost_commits(request: PageRequest) -> Response:
    confirmed = await request.app.lost_commits.confirm(request.caller)
    said = say("There was nothing to confirm.")
    if confirmed:
        said = say("Confirmed. Events are accepted.")
    return request.done(said, to="/system")


PAGES = (
    Page(path="/system", handler=system, use_case=Status.system),
    Page(
        path="/system/lost-commits",
        handler=confirm_lost_commits,
        method="POST",
        use_case=LostCommits.confirm,
    ),
)
