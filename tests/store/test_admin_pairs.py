"""A subscription and the twin that sends its old version are changed and deleted in one commit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import NotFound, StaleCatalog
from homing.model import Endpoint, Format, Subscription, Workfront
from homing.policy.workfront import twin_after, twin_of
from homing.store.admin import Admin
from homing.store.tx import Db
from homing.store.views import Views
from store.build import NOW, Maker


class Pair:
    """A subscription whose version was just changed, and its twin, in a store."""

    def __init__(self, db: Db) -> None:
        self.admin, self.views, self.make = Admin(db), Views(db), Maker()
        self.old, self.new = self.make.endpoint(), self.make.endpoint("https://b.example/in")
        self.main: Subscription
        self.twin: Subscription

    async def created(self) -> Subscription:
        given = self.make.subscription(self.old)
        given = replace(given, format=Format.WORKFRONT, workfront=Workfront())
        return await self.admin.create_subscription(given, endpoint=self.old)

    async def made(self) -> Pair:
        first = await self.created()
        changed = replace(first, workfront=Workfront("v1", NOW))
        stands_in = twin_of(first, None, new_id=self.make.id(), now=NOW)
        await self.change(changed, stands_in, self.old)
        return self

    async def change(self, main: Subscription, twin: Subscription, at: Endpoint) -> None:
        ids = (self.make.id(), self.make.id())
        self.main = await self.admin.change_pair(main, twin, endpoint=at, cleanup_job_ids=ids)
        found = await self.views.subscription(twin.id)
        assert found is not None
        self.twin = found

    async def delete(self, main: Subscription, twin: Subscription | None) -> None:
        ids = (self.make.id(), self.make.id())
        await self.admin.delete_pair(main, twin, now=NOW + 9, cleanup_job_ids=ids)


async def test_both_are_written_with_one_version(db: Db) -> None:
    pair = await Pair(db).made()
    assert pair.main.version == pair.twin.version == 2
    assert pair.twin.workfront == Workfront("v2", None, twin_of=pair.main.id, until=NOW + 300_000)
    assert (pair.twin.secrets, pair.twin.token) == (pair.main.secrets, pair.main.token)
    assert await pair.admin.subscriptions_since(1) == sorted(
        (pair.main, pair.twin), key=lambda it: it.id
    )


async def test_the_pending_of_both_follow_to_a_new_url(db: Db) -> None:
    pair = await Pair(db).made()
    moved = replace(pair.main, url=pair.new.url, token="new")
    await pair.change(moved, twin_after(moved, pair.twin, now=0), pair.new)
    assert (pair.twin.url, pair.twin.endpoint_id, pair.twin.token) == (
        pair.new.url,
        pair.new.id,
        "new",
    )
    cleanup_jobs = {
        (it.kind, it.subscription_id, it.endpoint_id) for it in await pair.admin.cleanup_jobs()
    }
    assert cleanup_jobs == {
        ("move", pair.main.id, pair.old.id),
        ("move", pair.twin.id, pair.old.id),
    }


@pytest.mark.parametrize("what", ["main", "twin", "twin deleted"])
async def test_a_pair_that_was_changed_meanwhile_is_left_as_it_is(db: Db, what: str) -> None:
    pair = await Pair(db).made()
    if what == "twin deleted":
        await pair.admin.delete_subscription(pair.twin.id, now=NOW, cleanup_job_id=pair.make.id())
    else:
        one = pair.main if what == "main" else pair.twin
        other = replace(one, description="changed by another process")
        await pair.admin.change_subscription(
            other, endpoint=pair.old, cleanup_job_id=pair.make.id()
        )
    version = await pair.admin.catalog_version()
    moved = replace(pair.main, url=pair.new.url)
    with pytest.raises(StaleCatalog):
        await pair.change(moved, twin_after(moved, pair.twin, now=0), pair.new)
    with pytest.raises(StaleCatalog):
        await pair.delete(pair.main, pair.twin)
    assert await pair.admin.catalog_version() == version
    kept = await pair.views.subscription(pair.main.id)
    assert kept is not None
    assert (kept.url, kept.deleted_at) == (pair.old.url, None)


async def test_both_are_deleted_in_one_commit(db: Db) -> None:
    pair = await Pair(db).made()
    await pair.delete(pair.main, pair.twin)
    found = [await pair.views.subscription(it.id) for it in (pair.main, pair.twin)]
    assert [it and it.deleted_at for it in found] == [NOW + 9, NOW + 9]
    cleanup_jobs = {(it.kind, it.subscription_id) for it in await pair.admin.cleanup_jobs()}
    assert cleanup_jobs == {("cancel", pair.main.id), ("cancel", pair.twin.id)}
    with pytest.raises(NotFound):
        await pair.delete(pair.main, None)


async def test_a_twin_that_another_process_makes_is_not_left_behind(db: Db) -> None:
    """The version of the subscription is checked: making a twin raises it."""
    pair = Pair(db)
    seen = await pair.created()
    changed = replace(seen, workfront=Workfront("v1", NOW))
    await pair.change(changed, twin_of(seen, None, new_id=pair.make.id(), now=NOW), pair.old)
    with pytest.raises(StaleCatalog):
        await pair.delete(seen, None)
