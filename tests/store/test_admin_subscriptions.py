"""Subscriptions are read as they were stored, and every change raises the catalog's version."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import NotFound, StaleCatalog
from homing.ports import AdminStore, CleanupJob
from homing.store.admin import Admin
from homing.store.tx import Db
from homing.store.views import Views
from store.build import NOW, Maker


async def test_a_new_catalog_has_version_zero_and_no_subscriptions(db: Db) -> None:
    admin: AdminStore = Admin(db)
    assert await admin.catalog_version() == 0
    assert await admin.subscriptions_since(0) == []


async def test_a_created_subscription_comes_back_as_it_was_given(db: Db) -> None:
    admin, make = Admin(db), Maker()
    endpoint = make.endpoint()
    given = make.subscription(endpoint, types=("a", "b.*"), description="nul \0 inside")
    created = await admin.create_subscription(given, endpoint=endpoint)
    assert created == replace(given, version=1)
    stored = replace(created, description="nul \ufffd inside")
    assert await admin.subscriptions_since(0) == [stored]
    assert await Views(db).subscription(given.id) == stored
    assert await Views(db).endpoint(endpoint.id) == endpoint


async def test_fields_that_a_newer_release_stored_survive_a_change_by_this_one(db: Db) -> None:
    admin, make = Admin(db), Maker()
    endpoint = make.endpoint()
    newer = {"colour": "red", "sizes": {"s": 1}}
    given = replace(make.subscription(endpoint), newer=newer)
    created = await admin.create_subscription(given, endpoint=endpoint)
    await admin.change_subscription(
        replace(created, active=False), endpoint=endpoint, cleanup_job_id=make.id()
    )
    (stored,) = await admin.subscriptions_since(1)
    assert stored.newer == newer
    assert not stored.active


async def test_a_second_subscription_at_the_same_url_shares_the_endpoint(db: Db) -> None:
    admin, make = Admin(db), Maker()
    first, second = make.endpoint(), make.endpoint()
    await admin.create_subscription(make.subscription(first), endpoint=first)
    created = await admin.create_subscription(make.subscription(second), endpoint=second)
    assert created.endpoint_id == first.id
    assert await Views(db).endpoint(second.id) is None


async def test_another_tenant_has_its_own_endpoint_at_the_same_url(db: Db) -> None:
    admin, make = Admin(db), Maker()
    ours, theirs = make.endpoint(), make.endpoint(tenant="other")
    await admin.create_subscription(make.subscription(ours), endpoint=ours)
    created = await admin.create_subscription(make.subscription(theirs), endpoint=theirs)
    assert created.endpoint_id == theirs.id


async def test_every_change_raises_the_version_by_one_and_stamps_its_row(db: Db) -> None:
    admin, make = Admin(db), Maker()
    endpoint = make.endpoint()
    first = await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    second = await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    changed = await admin.change_subscription(
        replace(first, active=False), endpoint=endpoint, cleanup_job_id=make.id()
    )
    gone = await admin.delete_subscription(second.id, now=NOW + 1, cleanup_job_id=make.id())
    assert [first.version, second.version, changed.version, gone.version] == [1, 2, 3, 4]
    assert await admin.catalog_version() == 4
    assert await admin.subscriptions_since(2) == [changed, gone]
    assert await admin.subscriptions_since(4) == []


async def test_a_change_replaces_everything_that_people_set(db: Db) -> None:
    admin, make = Admin(db), Maker()
    endpoint = make.endpoint()
    given = await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    wanted = replace(
        given, types=("x",), token=None, headers=(), policy=None, deadline_ms=None, active=False
    )
    changed = await admin.change_subscription(wanted, endpoint=endpoint, cleanup_job_id=make.id())
    assert changed == replace(wanted, version=2)
    assert await Views(db).subscription(given.id) == changed
    assert await admin.cleanup_jobs() == []


async def test_a_change_of_what_has_changed_since_it_was_read_is_refused(db: Db) -> None:
    admin, make = Admin(db), Maker()
    endpoint = make.endpoint()
    given = await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    changed = await admin.change_subscription(
        replace(given, types=("x",)), endpoint=endpoint, cleanup_job_id=make.id()
    )
    with pytest.raises(StaleCatalog):
        await admin.change_subscription(
            replace(given, active=False), endpoint=endpoint, cleanup_job_id=make.id()
        )
    assert await Views(db).subscription(given.id) == changed
    assert await admin.catalog_version() == 2, "what was refused raised nothing"


async def test_a_new_url_makes_an_endpoint_and_leaves_a_move_at_the_old_one(db: Db) -> None:
    admin, make = Admin(db), Maker()
    old, new = make.endpoint(), make.endpoint("https://b.example/in")
    given = await admin.create_subscription(make.subscription(old), endpoint=old)
    changed = await admin.change_subscription(
        replace(given, url=new.url), endpoint=new, cleanup_job_id=77
    )
    assert changed.endpoint_id == new.id
    assert await Views(db).endpoint(new.id) == new
    assert await admin.cleanup_jobs() == [CleanupJob(77, "move", given.id, old.id, 0, old.bucket)]


async def test_a_deleted_subscription_leaves_a_cancel_and_cannot_be_touched_again(db: Db) -> None:
    admin, make = Admin(db), Maker()
    endpoint = make.endpoint()
    given = await admin.create_subscription(make.subscription(endpoint), endpoint=endpoint)
    gone = await admin.delete_subscription(given.id, now=NOW + 5, cleanup_job_id=78)
    assert gone.deleted_at == NOW + 5
    assert await admin.cleanup_jobs() == [
        CleanupJob(78, "cancel", given.id, endpoint.id, 0, endpoint.bucket)
    ]
    with pytest.raises(NotFound):
        await admin.delete_subscription(given.id, now=NOW + 6, cleanup_job_id=79)
    with pytest.raises(NotFound):
        await admin.change_subscription(gone, endpoint=endpoint, cleanup_job_id=79)
    assert await admin.catalog_version() == 2, "what was refused raised nothing"
    assert len(await admin.cleanup_jobs()) == 1


async def test_an_unknown_subscription_is_not_found(db: Db) -> None:
    admin, make = Admin(db), Maker()
    endpoint = make.endpoint()
    with pytest.raises(NotFound):
        await admin.delete_subscription(5, now=NOW, cleanup_job_id=1)
    with pytest.raises(NotFound):
        await admin.change_subscription(
            make.subscription(endpoint), endpoint=endpoint, cleanup_job_id=1
        )
    assert await Views(db).endpoint(endpoint.id) is None


async def test_a_deletion_turns_the_moves_still_open_into_cancels(db: Db) -> None:
    admin, make = Admin(db), Maker()
    old, new = make.endpoint(), make.endpoint("https://b.example/in")
    given = await admin.create_subscription(make.subscription(old), endpoint=old)
    other = await admin.create_subscription(make.subscription(old), endpoint=old)
    await admin.change_subscription(given, endpoint=new, cleanup_job_id=1)
    await admin.change_subscription(other, endpoint=new, cleanup_job_id=2)
    await admin.delete_subscription(given.id, now=NOW, cleanup_job_id=3)
    assert [(it.kind, it.subscription_id, it.endpoint_id) for it in await admin.cleanup_jobs()] == [
        ("cancel", given.id, old.id),
        ("move", other.id, old.id),
        ("cancel", given.id, new.id),
    ]
