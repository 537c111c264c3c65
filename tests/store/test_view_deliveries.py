"""Lists of deliveries: every condition and every page, without missing or doubled rows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from homing.model import Reason, Status, Subscription, bucket_of, id_time
from homing.ports import DeliveryFilter, DeliveryRow, NewEvent, SettleBatch
from homing.store import deliveries as lists
from homing.store.admin import Admin
from homing.store.flow import Flow
from homing.store.tx import Db
from homing.store.views import Views
from store.build import HOUR, NOW, Maker, put

KINDS = ("order.paid", "order.paid.late", "order", "orders.x")
ENDS = (
    None,
    (Status.DELIVERED, None),
    (Status.DROPPED, Reason.EXPIRED),
    (Status.CANCELLED, Reason.BY_PERSON),
    None,
)


class Scene:
    """Two tenants, three endpoints, forty events an hour apart; pending and finished in turn."""

    def __init__(self, db: Db) -> None:
        self.db, self.admin, self.views, self.make = db, Admin(db), Views(db), Maker()
        self.subscriptions: list[Subscription] = []
        self.events: list[NewEvent] = []
        self.rows: list[DeliveryRow] = []  # as a list shows them, newest first

    async def build(self, events: int = 40) -> Scene:
        for number, tenant in enumerate(("acme", "acme", "other")):
            endpoint = self.make.endpoint(f"https://e{number}.example/", tenant=tenant)
            self.subscriptions.append(
                await self.admin.create_subscription(
                    self.make.subscription(endpoint), endpoint=endpoint
                )
            )
        one, two, theirs = self.subscriptions
        finished = []
        for number in range(events):
            self.make.now = NOW + number * HOUR
            other = number % 4 == 3
            new = self.make.event(
                *((theirs,) if other else (one, two)),
                tenant="other" if other else "acme",
                kind=KINDS[number % len(KINDS)],
            )
            self.events.append(new)
            for delivery in new.deliveries:
                end = ENDS[(number + len(self.rows)) % len(ENDS)]
                self._expect(new, delivery.id, end)
                if end is not None:
                    finished.append(self.make.finished(delivery, *end))
        await put(self.db, events=self.events, finished=finished)
        self.rows.sort(key=lambda row: -row.delivery.id)
        return self

    def _expect(
        self, new: NewEvent, delivery_id: int, end: tuple[Status, Reason | None] | None
    ) -> None:
        delivery = next(it for it in new.deliveries if it.id == delivery_id)
        subscription = next(it for it in self.subscriptions if it.id == delivery.subscription_id)
        status, reason = end or (Status.PENDING, None)
        self.rows.append(
            DeliveryRow(
                delivery=delivery,
                status=status,
                reason=reason,
                finished_at=self.make.now if end else None,
                arrived=False,
                event_key=new.event.key,
                event_type=new.event.type,
                url=subscription.url,
            )
        )

    async def walk(
        self,
        conditions: DeliveryFilter,
        *,
        limit: int,
        between: Callable[[], Awaitable[None]] | None = None,
    ) -> list[DeliveryRow]:
        """All pages, one after the other."""
        found: list[DeliveryRow] = []
        before_id: int | None = None
        while True:
            page, cursor = await self.views.deliveries(conditions, before_id=before_id, limit=limit)
            assert len(page) <= limit
            found += page
            if cursor is None:
                return found
            assert before_id is None or cursor < before_id
            before_id = cursor
            if between is not None:
                await between()


def matches(row: DeliveryRow, conditions: DeliveryFilter) -> bool:
    """The conditions once more, written in Python."""
    it, kind = row.delivery, conditions.type
    if kind is not None and kind.endswith("*"):
        fits = row.event_type.startswith(kind[:-1])
    else:
        fits = kind in {None, "*", row.event_type}
    return (
        fits
        and conditions.tenant in {None, it.tenant}
        and conditions.status in {None, row.status}
        and conditions.reason in {None, row.reason}
        and conditions.event_key in {None, row.event_key}
        and (conditions.url or "").lower() in row.url
        and conditions.endpoint_id in {None, it.endpoint_id}
        and conditions.subscription_id in {None, it.subscription_id}
        and conditions.event_id in {None, it.event_id}
        and (conditions.since is None or id_time(it.id) >= conditions.since)
        and (conditions.until is None or id_time(it.id) < conditions.until)
        and (
            conditions.finished_since is None
            or (row.finished_at is not None and row.finished_at >= conditions.finished_since)
        )
        and (
            conditions.expires_before is None
            or (row.status is Status.PENDING and it.expires_at < conditions.expires_before)
        )
    )


def all_conditions(scene: Scene) -> list[DeliveryFilter]:
    single: list[dict[str, Any]] = [
        *({"status": it} for it in Status),
        *({"tenant": it} for it in ("acme", "other", "nobody")),
        *({"type": it} for it in ("order.paid", "order.*", "*", "nothing", "o%")),
        {"endpoint_id": scene.subscriptions[1].endpoint_id},
        {"subscription_id": scene.subscriptions[0].id},
        {"event_id": scene.events[6].event.id},
        {"event_id": 17},
        {"event_key": scene.events[6].event.key},
        {"reason": Reason.EXPIRED},
        {"type": "order*"},
        {"url": "A.Example"},
        {"since": NOW + 20 * HOUR},
        {"until": NOW + 20 * HOUR},
        {"finished_since": NOW + 60 * HOUR},
        {"expires_before": NOW + 70 * HOUR},
    ]
    pairs = [left | right for left in single for right in single if left.keys() != right.keys()]
    return [DeliveryFilter(), *(DeliveryFilter(**it) for it in (*single, *pairs))]


@pytest.mark.parametrize(("limit", "few"), [(7, 40), (7, 0), (500, 40), (500, 0)])
async def test_every_pair_of_conditions_shows_exactly_what_fits(
    db: Db, limit: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan limit so small that pages end before they are full; with and without endpoints."""
    monkeypatch.setattr(lists, "SCAN_MAX", 10)
    monkeypatch.setattr(lists, "ENDPOINTS_MAX", few)
    scene = await Scene(db).build()
    for conditions in all_conditions(scene):
        wanted = [row for row in scene.rows if matches(row, conditions)]
        assert await scene.walk(conditions, limit=limit) == wanted, conditions


async def test_a_plain_page_is_full_and_says_where_the_next_begins(db: Db) -> None:
    scene = await Scene(db).build()
    page, cursor = await scene.views.deliveries(DeliveryFilter(), before_id=None, limit=10)
    assert page == scene.rows[:10]
    assert cursor == scene.rows[9].delivery.id
    count = len(scene.rows)
    page, cursor = await scene.views.deliveries(DeliveryFilter(), before_id=None, limit=count)
    assert (len(page), cursor) == (count, None)


async def test_an_empty_store_has_an_empty_page(db: Db) -> None:
    for conditions in (DeliveryFilter(), DeliveryFilter(tenant="acme", type="a.*")):
        page = await Views(db).deliveries(conditions, before_id=None, limit=10)
        assert page == ([], None)


async def test_the_list_of_an_event_holds_its_replays(db: Db) -> None:
    scene = await Scene(db).build()
    new = scene.events[1]
    old = next(row for row in scene.rows if row.delivery.event_id == new.event.id and row.reason)
    replays = []
    for _ in range(5):
        fresh = replace(old.delivery, id=scene.make.id())
        replays.append(await scene.admin.replay(old.delivery.id, new=fresh))
    await scene.admin.cancel_delivery(replays[2].id, now=NOW)
    oldest_first = [*(it.id for it in new.deliveries), *(it.id for it in replays)]
    conditions = DeliveryFilter(event_id=new.event.id)
    found = await scene.walk(conditions, limit=2)
    assert [row.delivery.id for row in found] == oldest_first[::-1]
    assert [row.delivery.id for row in found if row.delivery.replay] == oldest_first[:1:-1]
    rows = await scene.views.event_deliveries(new.event.id, limit=100)
    assert rows == found[::-1]
    assert await scene.views.event_deliveries(new.event.id, limit=3) == rows[:3]
    assert await scene.views.event_deliveries(17, limit=3) == []
    assert [row.status for row in rows if row.delivery.id == replays[2].id] == [Status.CANCELLED]


async def test_a_single_delivery_is_shown_wherever_it_is(db: Db) -> None:
    scene = await Scene(db).build()
    for row in scene.rows:
        assert await scene.views.delivery(row.delivery.id) == row
    assert await scene.views.delivery(17) is None


# --- while rows move ------------------------------------------------------------------------


class Traffic:
    """Settle pending rows, first those near the reader's position, and publish new ones."""

    def __init__(self, scene: Scene, rows: list[DeliveryRow]) -> None:
        self._scene, self._flow = scene, Flow(scene.db)
        self._pending = [row.delivery for row in rows]
        self._rng = random.Random(7)
        self._number = 0
        self.moved = 0
        self.over = False

    async def settle_some(self) -> None:
        count = min(len(self._pending), 40)
        taken = [self._pending.pop(self._rng.randrange(len(self._pending))) for _ in range(count)]
        self._number += 1
        finished = tuple(self._scene.make.finished(it) for it in taken)
        await self._flow.settle(SettleBatch(number=self._number, finished=finished))
        self.moved += count
        new = self._scene.make.event(self._scene.subscriptions[0])
        await self._flow.publish([[new]], number=self._number)

    async def flow(self) -> None:
        while not self.over and self._pending:
            await self.settle_some()
            await asyncio.sleep(0)


async def counts(db: Db, events: int) -> tuple[Scene, list[DeliveryRow]]:
    """Many pending deliveries, of which those of one endpoint are excluded."""
    scene = await Scene(db).build(events=0)
    one, two, _ = scene.subscriptions
    scene.events = [scene.make.event(one, two) for _ in range(events)]
    await put(db, events=scene.events)
    page, cursor = await scene.views.deliveries(DeliveryFilter(), before_id=None, limit=2 * events)
    assert cursor is None
    return scene, page


@pytest.mark.parametrize(
    ("path", "few"),
    [
        ("id", 40),
        ("endpoint", 40),
        ("type", 40),
        ("tenant", 40),
        ("tenant", 0),
        ("subscription", 40),
        ("subscription", 0),
    ],
)
async def test_a_walk_sees_every_row_once_while_rows_are_settled_between_its_pages(
    db: Db, path: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "SCAN_MAX", 150)
    monkeypatch.setattr(lists, "ENDPOINTS_MAX", few)
    scene, rows = await counts(db, events=1_000)
    one = scene.subscriptions[0]
    conditions = {
        "id": DeliveryFilter(),
        "endpoint": DeliveryFilter(endpoint_id=one.endpoint_id),
        "tenant": DeliveryFilter(tenant="acme"),
        "subscription": DeliveryFilter(subscription_id=one.id),
        "type": DeliveryFilter(type="order.*"),
    }[path]
    wanted = [row.delivery.id for row in rows if matches(row, conditions)]
    traffic = Traffic(scene, rows)
    found = await scene.walk(conditions, limit=60, between=traffic.settle_some)
    assert [row.delivery.id for row in found] == wanted
    assert traffic.moved >= 600
    statuses = {row.status for row in found}
    assert statuses == {Status.PENDING, Status.DELIVERED}


@pytest.mark.parametrize("conditions", [DeliveryFilter(), DeliveryFilter(tenant="acme")])
async def test_a_walk_sees_every_row_once_while_rows_are_settled_at_the_same_time(
    db: Db, conditions: DeliveryFilter
) -> None:
    scene, rows = await counts(db, events=1_500)
    wanted = [row.delivery.id for row in rows]
    traffic = Traffic(scene, rows)

    async def breathe() -> None:
        await asyncio.sleep(0)

    async def walk() -> list[DeliveryRow]:
        found: list[DeliveryRow] = []
        while traffic.moved < len(wanted) // 2:  # again and again, until much has moved
            found = await scene.walk(conditions, limit=40, between=breathe)
            seen = [row.delivery.id for row in found]
            assert seen == sorted(set(seen), reverse=True)
            assert set(seen) >= set(wanted)
        traffic.over = True
        return found

    await asyncio.gather(walk(), traffic.flow())
    assert traffic.moved >= len(wanted) // 2


async def test_a_walk_by_endpoint_shows_a_delivery_at_the_endpoint_where_it_is(db: Db) -> None:
    scene, _ = await counts(db, events=3)
    one = scene.subscriptions[0]
    moved = scene.make.endpoint("https://moved.example/")
    await scene.admin.change_subscription(
        replace(one, url=moved.url), endpoint=moved, cleanup_job_id=scene.make.id()
    )
    (cleanup_job,) = await scene.admin.cleanup_jobs()
    await scene.admin.run_cleanup_job(
        cleanup_job, target=moved, except_ids=frozenset(), now=NOW, limit=100
    )
    found = await scene.walk(DeliveryFilter(endpoint_id=moved.id), limit=2)
    assert len(found) == 3
    assert {row.url for row in found} == {moved.url}
    assert {row.delivery.bucket for row in found} == {bucket_of("acme", moved.url)}
    assert await scene.walk(DeliveryFilter(endpoint_id=one.endpoint_id), limit=2) == []
