"""The search of people: exact ids, payload fields, URLs and parts of them, within bounds."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.model import Endpoint
from homing.ports import NewEvent, SettleBatch
from homing.ports.views import EventSummary
from homing.store import search
from homing.store.tx import Db
from homing.store.views import Views
from store.build import HOUR, NOW, Maker, put
from store.scene import Scene, count, every

LATER = NOW + 100 * HOUR
ONE, TWO = b"1" * 16, b"2" * 16


def with_fields(new: NewEvent, *fields: bytes) -> NewEvent:
    return replace(new, fields=fields)


def summary(new: NewEvent) -> EventSummary:
    it = new.event
    return EventSummary(it.id, it.tenant, it.key, it.type, it.accepted_at)


# --- events by id ---------------------------------------------------------------------------


async def test_an_event_is_found_by_its_id_in_its_tenant_or_in_all(db: Db) -> None:
    views, make = Views(db), Maker()
    ours, theirs = make.event(key="k"), make.event(key="k", tenant="other")
    await put(db, events=[ours, theirs, make.event(key="K"), make.event(key="k%")])

    async def found(key: str, tenant: str | None) -> tuple[list[EventSummary], bool]:
        return await views.events_by_key(key, tenant=tenant, limit=5)

    assert await found("k", "acme") == ([summary(ours)], True)
    assert await found("k", "other") == ([summary(theirs)], True)
    assert await found("k", None) == ([summary(theirs), summary(ours)], True)
    assert await found("k", " ") == ([], True)
    assert await found("%", None) == ([], True)


async def test_a_search_over_all_tenants_says_when_it_did_not_visit_all(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "TENANTS_MAX", 3)
    views, make = Views(db), Maker()
    endpoints = [make.endpoint(tenant=f"t{number}") for number in range(4)]
    await put(db, events=[make.event(key="k", tenant=it.tenant) for it in endpoints])
    await put(db, endpoints=endpoints)
    events, complete = await views.events_by_key("k", tenant=None, limit=9)
    assert ([it.tenant for it in events], complete) == (["t2", "t1", "t0"], False)
    found, complete = await views.endpoints_by_url(endpoints[0].url, tenant=None, limit=9)
    assert ([it.tenant for it in found], complete) == (["t0", "t1", "t2"], False)


# --- payload fields -------------------------------------------------------------------------


async def test_publishing_stores_payload_fields_and_a_search_finds_them(db: Db) -> None:
    scene = await Scene(db).begin()
    views, make = Views(db), scene.make
    both = with_fields(make.event(scene.sub), ONE, TWO)
    one = with_fields(make.event(), ONE)
    none = with_fields(make.event())
    theirs = with_fields(make.event(tenant="other"), ONE)
    await scene.publish([both, one], [none, theirs])

    async def found(*hashes: bytes, tenant: str | None = "acme") -> list[EventSummary]:
        return await views.events_by_field(hashes, tenant=tenant, limit=5)

    assert await found(ONE) == [summary(one), summary(both)]
    assert await found(ONE, TWO) == [summary(one), summary(both)]
    assert await found(TWO) == [summary(both)]
    assert await found(ONE, tenant=None) == [summary(theirs), summary(one), summary(both)]
    assert await found(ONE, tenant=" ") == []
    assert await found(b"3" * 16, tenant=None) == []
    assert await found(tenant=None) == []


async def test_a_search_by_field_reads_no_more_than_it_shows(db: Db) -> None:
    scene = await Scene(db).begin()
    events = [with_fields(scene.make.event(), ONE) for _ in range(30)]
    others = [with_fields(scene.make.event(tenant=f"t{n}"), ONE) for n in range(30)]
    await scene.publish(events, others)
    views = Views(db)
    newest = await views.events_by_field([ONE], tenant="acme", limit=4)
    assert newest == [summary(it) for it in events[:-5:-1]]
    before = db.statements
    assert len(await views.events_by_field([ONE], tenant=None, limit=4)) == 4
    assert db.statements - before <= 12


async def test_an_event_without_fields_writes_no_row(db: Db) -> None:
    scene = await Scene(db).begin()
    await scene.deliver(3)
    assert await count(db, "event_field") == 0


async def test_a_refused_or_repeated_event_stores_no_fields(db: Db) -> None:
    scene = await Scene(db).begin()
    first = with_fields(scene.make.event(key="a"), ONE)
    await scene.publish([first])
    await scene.publish([with_fields(scene.make.event(key="a"), ONE)])
    await scene.publish([with_fields(scene.make.event(key="a", data=b"2"), TWO)])
    assert await every(db, "event_field") == [(first.event.id, 0, ONE, "acme")]


async def test_fields_go_with_their_event(db: Db) -> None:
    scene = await Scene(db).begin()
    old = [with_fields(scene.make.event(), ONE, TWO) for _ in range(7)]
    waiting = with_fields(scene.make.event(scene.sub), ONE)
    await scene.publish(old, [waiting])
    while await scene.flow.remove_history(before=LATER, limit=3):
        pass
    assert await every(db, "event_field") == [(waiting.event.id, 0, ONE, "acme")]
    await scene.flow.settle(
        SettleBatch(number=9, finished=(scene.make.finished(waiting.deliveries[0]),))
    )
    while await scene.flow.remove_history(before=LATER, limit=3):
        pass
    assert await count(db, "event_field") == 0


async def test_the_fields_of_a_notice_are_stored_with_it(db: Db) -> None:
    scene = await Scene(db).begin()
    notice = with_fields(scene.make.event(kind="homing.endpoint.frozen"), ONE)
    await scene.flow.settle(SettleBatch(number=9, notices=(notice,)))
    assert await every(db, "event_field") == [(notice.event.id, 0, ONE, "acme")]


# --- endpoints ------------------------------------------------------------------------------


async def scene_of_urls(db: Db) -> tuple[Views, list[Endpoint]]:
    make = Maker()
    endpoints = [
        make.endpoint("https://acme.example/in"),
        make.endpoint("https://hooks.acme.example/IN?a=100%25_"),
        make.endpoint("https://other.example/in"),
        make.endpoint("https://acme.example/in", tenant="other"),
    ]
    await put(db, endpoints=endpoints)
    return Views(db), endpoints


async def test_an_endpoint_is_found_by_its_url(db: Db) -> None:
    views, (ours, _, _, theirs) = await scene_of_urls(db)
    url = ours.url
    assert await views.endpoints_by_url(url, tenant="acme", limit=5) == ([ours], True)
    assert await views.endpoints_by_url(url, tenant=None, limit=5) == ([ours, theirs], True)
    assert await views.endpoints_by_url(url, tenant=None, limit=1) == ([ours], True)
    assert await views.endpoints_by_url(url, tenant=" ", limit=5) == ([], True)
    assert await views.endpoints_by_url(url[:-1], tenant=None, limit=5) == ([], True)


async def test_an_endpoint_is_found_by_a_part_of_its_url(db: Db) -> None:
    views, (ours, hooks, other, theirs) = await scene_of_urls(db)

    async def found(text: str, tenant: str | None = "acme", limit: int = 5) -> list[Endpoint]:
        endpoints, complete = await views.endpoints_by_part(text, tenant=tenant, limit=limit)
        assert complete
        return endpoints

    assert await found("acme") == [ours, hooks]
    assert await found("acme", None) == [ours, theirs, hooks]
    assert await found("acme", " ") == []
    assert await found(".example/in") == [ours, hooks, other]
    assert len(await found("e", None, limit=2)) == 2
    assert await found("%25_") == [hooks]
    for nothing in ("a%e", "%25%25", "acme_example", "'", "\\"):
        assert await found(nothing, None) == []


async def test_a_part_is_searched_in_a_bounded_number_of_endpoints(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "ENDPOINTS_MAX", 3)
    views, make = Views(db), Maker()
    endpoints = [make.endpoint(f"https://h{number}.example/") for number in range(5)]
    await put(db, endpoints=endpoints)
    found, complete = await views.endpoints_by_part("h", tenant=None, limit=9)
    assert (found, complete) == (endpoints[2:], False)
    found, complete = await views.endpoints_by_part("h", tenant="acme", limit=9)
    assert (len(found), complete) == (3, False)
