"""Erasures, the audit log and retention of one tenant cost the same beside a large neighbour."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from homing.model import Cause, CauseKey, Failure, Lane, Status
from homing.policy.erasure import ErasedIds
from homing.policy.keys import Role
from homing.policy.portal import PortalLink
from homing.ports import ReplayFilter
from homing.ports.audit import AuditFilter
from homing.ports.erasures import Erasure, ErasureKind
from homing.store import rows
from homing.store.admin import Admin
from homing.store.audit import Audit
from homing.store.flow import Flow
from homing.store.keys import Keys
from homing.store.portal import Portal
from homing.store.tx import Db, Row, Tx
from homing.store.views import Views
from store.build import NOW, Maker
from store.costs import grown, measured

FEW, MANY = 1_000, 15_000
OWN = 12  # events of a small tenant
STEP = 5
DAY = 86_400_000
IDS = ErasedIds((b"k",))
LINK = PortalLink(
    id=0,
    tenant="",
    role=Role.VIEWER,
    subject="",
    hash=b"",
    made_by="a",
    key_id=None,
    created_at=NOW,
    opens_until=NOW + 1,
    session_ms=1,
)
VALUE = b"v" * 16  # The events of all tenants have this value.

pytestmark = pytest.mark.parametrize("store", ["sqlite-memory", "postgres"], indirect=True)


class Town:
    """A large neighbour, and small tenants that are all alike."""

    def __init__(self, db: Db) -> None:
        self.db, self.make = db, Maker()
        self._numbers = itertools.count(1)
        self._keys: dict[str, str] = {}  # of one event of each tenant

    async def add(self, tenant: str, count: int) -> None:
        """Add so many rows of a tenant to each table."""
        content = dict(self._content(tenant, count))

        async def work(tx: Tx) -> None:
            for table, found in content.items():
                await tx.insert(table, found)

        await self.db.run(work)
        if self.db.dialect == "postgres":  # As autovacuum would.
            raw: Any = getattr(self.db, "raw")  # noqa: B009 - both drivers have it
            await raw(lambda execute: execute("ANALYZE"))

    def _content(self, tenant: str, count: int) -> Iterator[tuple[str, list[Row]]]:
        make, number = self.make, next(self._numbers)
        urls = [f"https://{n}.example/{number}" for n in range(max(2, count // 4))]
        endpoints = [make.endpoint(url, tenant=tenant) for url in urls]
        subscriptions = [make.subscription(it) for it in endpoints]
        to, at = itertools.cycle(subscriptions), itertools.cycle(endpoints)
        events = [make.event(next(to), tenant=tenant, key=f"{number}-{n}") for n in range(count)]
        self._keys[tenant] = events[0].event.key
        deliveries = [new.deliveries[0] for new in events]
        done = deliveries[::2]
        yield "endpoint", [rows.endpoint_row(it) for it in endpoints]
        yield "subscription", [rows.subscription_row(it) for it in subscriptions]
        yield "event", [rows.event_row(it) for it in events]
        yield "event_key", [rows.event_key_row(it) for it in events]
        yield "event_field", [(it.event.id, 0, VALUE, tenant) for it in events]
        yield "pending", [rows.pending_row(it) for it in deliveries[1::2]]
        finished = [make.finished(it, Status.DROPPED) for it in done]
        yield "history", [rows.history_row(it) for it in finished]
        tests = [replace(make.attempt(it), delivery_id=make.id(), lane=Lane.TEST) for it in done]
        attempts = [*(make.attempt(it) for it in done), *tests]
        yield "attempt", [rows.attempt_row(it) for it in attempts]
        yield "transition", [rows.transition_row(make.transition(next(at))) for _ in events]
        key = CauseKey(Failure.RESET, "", None)
        causes = [Cause(make.id(), tenant, next(at).id, key, NOW, NOW, 1, 1, 1, 1) for _ in events]
        yield "cause", [rows.cause_row(it) for it in causes]
        yield "ledger", [(tenant, number, count, 0, len(done), 0, 0)]
        streams = [make.id() for _ in range(2)]
        yield "pull_stream", [(it, tenant, count, 0) for it in streams]
        places = enumerate(events, 1)
        yield "pull_entry", [(it, n, new.event.id) for n, new in places for it in streams]
        yield "pull_reader", [(it, "reader", 0, NOW, None) for it in streams]
        yield from self._of_people(tenant, count)

    def _of_people(self, tenant: str, count: int) -> Iterator[tuple[str, list[Row]]]:
        make = self.make
        filters = ReplayFilter(tenant=tenant, event_id=make.id())
        jobs = [replace(make.job(filters), state="done") for _ in range(count)]
        yield "replay_job", [rows.replay_job_row(it) for it in jobs]
        targets = [make.id() for _ in range(count // 2)]
        middle: Row = ("email", "a", "", b"", "", b"", "[]", "", "")
        end: Row = (NOW, NOW, None, 0, 0, 0, "", None, "en")
        yield "notice_target", [(it, tenant, *middle, *end) for it in targets]
        # Every second one is for the operator.
        about: Row = ("frozen", NOW, tenant, 1, "https://a.example/", "{}", "sent", "", 0, NOW)
        yield (
            "notice",
            [(target, make.id(), owner, *about) for owner in (tenant, "") for target in targets],
        )
        yield (
            "api_key",
            [
                (
                    number,
                    f"hk_{number}",
                    number.to_bytes(8, "big"),
                    "a",
                    "viewer",
                    tenant,
                    NOW,
                    None,
                    None,
                    NOW,
                )
                for number in (make.id() for _ in range(count))
            ],
        )
        link: Row = ("viewer", "", b"", "a", None, NOW, NOW, 1, None, None, None, NOW, NOW)
        yield "portal_link", [(make.id(), tenant, *link) for _ in range(count)]
        done: Row = ("event", "", b"", NOW, 0, 1, 0, 1, 1, 0, NOW, 0)
        yield "erasure", [(make.id(), tenant, *done) for _ in range(count)]
        who: Row = (NOW, tenant, 7, "a key", tenant, "", "", "keys.create")
        yield (
            "audit_entry",
            [
                (make.id(), *who, f"{tenant}-{n % 4}", "", "{}", "", 1, b"", n % 2)
                for n in range(count)
            ],
        )

    async def run_erasures_of_others(self, count: int) -> None:
        """Add erasures of other tenants that are not finished."""
        found = [
            (self.make.id(), f"n{n}", "field", "", b"", NOW, 0, 0, 0, 0, 0, 0, None, 0)
            for n in range(count)
        ]

        async def work(tx: Tx) -> None:
            await tx.insert("erasure", found)

        await self.db.run(work)

    # --- what is measured --------------------------------------------------------------------

    async def work_of(self, tenant: str) -> None:
        """Everything that reads or removes rows of one tenant."""
        admin, views, flow, audit = Admin(self.db), Views(self.db), Flow(self.db), Audit(self.db)
        for conditions in (
            AuditFilter(tenant=tenant),
            AuditFilter(tenant=tenant, who="nobody", since=NOW - DAY),
            AuditFilter(tenant=tenant, object=f"{tenant}-1"),
        ):
            await audit.entries(conditions, before_id=None, limit=STEP)
        await audit.loose_entries(limit=STEP)
        await audit.stray_entries(limit=STEP)
        await audit.last_id()
        await Keys(self.db).keys(tenant=tenant, before_id=None, limit=STEP)
        portal = Portal(self.db)
        await portal.links(tenant=tenant, before_id=None, limit=STEP)
        new = replace(LINK, id=self.make.id(), tenant=tenant)
        assert await portal.create_link(new, max_live=STEP, now=NOW, forget_before=0)
        await portal.revoke_links_of(tenant, now=NOW)
        await portal.settings(tenant)
        await admin.erasures(tenant=tenant, before_id=None, limit=STEP)
        await admin.tenant_changes(1)
        await flow.remove_history(before=NOW - DAY, limit=STEP)
        await flow.next_tenant(tenant)

        key = self._keys[tenant]
        assert await views.event(key, tenant=tenant) is not None
        hashes = [it.hash for it in IDS.of(tenant, key)]
        await self._erase(
            self._erasure(tenant, ErasureKind.EVENT, hashes[0]), key, hashes, once=True
        )
        await self._erase(self._erasure(tenant, ErasureKind.FIELD, VALUE), once=True)
        await flow.remove_history_of(tenant, before=NOW + DAY, after_key="", limit=STEP)
        await self._erase(self._erasure(tenant, ErasureKind.TENANT, b""))

    def _erasure(self, tenant: str, kind: ErasureKind, subject: bytes) -> Erasure:
        return Erasure(self.make.id(), tenant, kind, "", subject, NOW)

    async def _erase(
        self, new: Erasure, key: str | None = None, hashes: Any = (), *, once: bool = False
    ) -> None:
        admin = Admin(self.db)
        begun = await admin.begin_erasure(new, key=key, earlier=hashes)
        begun = await admin.bound_erasure(begun.id)
        events, after_key = await admin.erasable(begun, after_key="", limit=STEP)
        while events:
            hashed = [(it, IDS.of(it.tenant, it.key)[0]) for it in events]
            await admin.erase_events(begun.id, hashed, limit=STEP)
            if once:
                break
            events, after_key = await admin.erasable(begun, after_key=after_key or "", limit=STEP)
        await admin.hide_erased(begun.id, more=False)
        if begun.kind is ErasureKind.TENANT:
            while not (await admin.erase_rest_of_tenant(begun, limit=STEP)).done:
                pass
        await admin.finish_erasure(begun, now=NOW)


async def test_the_work_of_a_tenant_costs_the_same_beside_a_neighbour_with_15_times_as_much(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = Town(db)
    await town.add("big", FEW)
    await town.run_erasures_of_others(3)
    for tenant in ("one", "two", "three"):
        await town.add(tenant, OWN)
    await town.work_of("one")  # Once before: a row of counts is made only at first.
    few = await measured(db, lambda: town.work_of("two"), monkeypatch)

    await town.add("big", MANY - FEW)
    await town.run_erasures_of_others(300)
    many = await measured(db, lambda: town.work_of("three"), monkeypatch)
    named = "audit_scan_of_tenant audit_scan_of_object keys_page_of tenants_being_erased"
    named += " tenants_erased_since whole_tenants_erased_since erasures_running_of erasures_remove"
    named += " erasable_by_key erasable_by_field keys_of_tenant events_needed erase_pending"
    named += " erase_history erase_links erase_jobs_of_event erase_endpoints_of erase_notices_of"
    named += " erase_notices_for erase_targets_of erase_api_keys_of erase_jobs_of_tenant"
    named += " portal_links_page_of portal_links_live portal_links_past portal_links_revoke_of"
    named += " erase_portal_links_of erase_portal_settings_of"
    assert set(named.split()) <= few.keys()
    assert not grown(few, many)
