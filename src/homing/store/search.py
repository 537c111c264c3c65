"""The search of people: events by id and by payload field, endpoints by URL.

Every search is a number of seeks, or scans a bounded number of endpoints. The second value of a
result says whether everything was searched.
"""

from __future__ import annotations

from collections.abc import Sequence

from homing.model import Endpoint
from homing.ports.views import EventSummary
from homing.store import erasures, rows
from homing.store.tx import Row, Tx

TENANTS_MAX = 1_000  # that a search over all tenants visits
ENDPOINTS_MAX = 20_000  # that are searched for a part of a URL


async def events_by_key(
    tx: Tx, key: str, *, tenant: str | None, limit: int
) -> tuple[list[EventSummary], bool]:
    tenants, complete = await _tenants(tx, "search_event_tenants", tenant)
    found = await tx.many("search_events", [(one, key) for one in tenants])
    return await _newest(tx, found, limit), complete


async def events_by_field(
    tx: Tx, hashes: Sequence[bytes], *, tenant: str | None, limit: int
) -> list[EventSummary]:
    found: list[Row] = []
    for digest in hashes:
        tenants: list[str | None] = [tenant]
        if tenant is None:
            walked = await tx.all("search_field_tenants", hash=digest, limit=limit)
            tenants = [row[0] for row in walked]
        for one in tenants:
            found += await tx.all("search_field_events", hash=digest, tenant=one, limit=limit)
    return await _newest(tx, found, limit)


async def endpoints_by_url(
    tx: Tx, url: str, *, tenant: str | None, limit: int
) -> tuple[list[Endpoint], bool]:
    tenants, complete = await _tenants(tx, "search_endpoint_tenants", tenant)
    found = await tx.many("search_urls", [(one, url) for one in tenants])
    return _by_url(found[:limit]), complete


async def endpoints_by_part(
    tx: Tx, text: str, *, tenant: str | None, limit: int
) -> tuple[list[Endpoint], bool]:
    bounds = {"text": text, "scan_limit": ENDPOINTS_MAX, "limit": limit}
    if tenant is None:
        found = await tx.all("search_url_parts", **bounds)
        count = await tx.one("search_endpoint_count", limit=ENDPOINTS_MAX + 1)
    else:
        found = await tx.all("search_url_parts_of_tenant", tenant=tenant, **bounds)
        count = await tx.one("view_endpoint_count", tenant=tenant, limit=ENDPOINTS_MAX + 1)
    return _by_url(found), count is not None and count[0] <= ENDPOINTS_MAX


async def _tenants(tx: Tx, statement: str, tenant: str | None) -> tuple[list[str], bool]:
    """The tenants to visit, and whether these are all."""
    if tenant is not None:
        return [tenant], True
    found = [row[0] for row in await tx.all(statement, limit=TENANTS_MAX + 1)]
    return found[:TENANTS_MAX], len(found) <= TENANTS_MAX


async def _newest(tx: Tx, found: list[Row], limit: int) -> list[EventSummary]:
    hidden = await erasures.being_erased(tx)
    by_id = {  # One event may have several values.
        row[0]: EventSummary(*row[:-1])
        for row in found
        if not erasures.covers(hidden, row[1], row[-1])
    }
    return [by_id[number] for number in sorted(by_id, reverse=True)[:limit]]


def _by_url(found: list[Row]) -> list[Endpoint]:
    return sorted((rows.endpoint(row) for row in found), key=lambda it: (it.url, it.tenant))
