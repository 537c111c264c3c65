"""Tenants: which ones there are, for a caller of all of them."""

from __future__ import annotations

from homing.app.access import ADMINS, Caller, use_case
from homing.ports import Ledger, ViewStore


class Tenants:
    """The tenants that have had a delivery."""

    def __init__(self, views: ViewStore) -> None:
        self._views = views

    @use_case(ADMINS)
    async def page(self, _caller: Caller, *, text: str) -> list[Ledger]:
        """The totals of every tenant whose name contains this text, by name."""
        found = await self._views.ledger(tenant=None, scan_limit=1)
        return sorted((it for it in found if text in it.tenant), key=lambda it: it.tenant)
