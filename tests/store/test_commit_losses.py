"""Lost commits in the store: what is written down about them, and how leases and versions heal."""

from __future__ import annotations

from homing.model import id_floor
from homing.policy.commit_loss import CommitLoss, missing_text, span_of
from homing.ports import CATALOG_GAP
from homing.store.admin import Admin
from homing.store.leases import Leases
from homing.store.tx import Db
from store.build import NOW

LEASE = 10_000
ONE = CommitLoss(1, NOW, "a:1", "publish", NOW - 900, NOW - 10)
TWO = CommitLoss(2, NOW + 1, "b:2", "catalog", None, NOW)


async def test_losses_are_listed_until_they_are_confirmed(db: Db) -> None:
    admin = Admin(db)
    await admin.add_commit_loss(ONE)
    await admin.add_commit_loss(TWO)
    await admin.add_commit_loss(ONE)  # Once more, because its reply was lost.
    assert await admin.commit_losses() == [TWO, ONE]

    confirmed = await admin.confirm_commit_losses(now=NOW + 5)

    assert {(it.id, it.confirmed_at) for it in confirmed} == {(1, NOW + 5), (2, NOW + 5)}
    assert await admin.commit_losses() == []
    assert await admin.confirm_commit_losses(now=NOW + 6) == []


async def test_each_change_of_the_losses_raises_their_topic(db: Db) -> None:
    admin, leases = Admin(db), Leases(db, lambda: NOW)
    await admin.add_commit_loss(ONE)
    first = (await leases.versions())["commit_losses"]
    await admin.confirm_commit_losses(now=NOW)
    assert (await leases.versions())["commit_losses"] > first


async def test_healed_buckets_are_free_and_their_epochs_are_new(db: Db) -> None:
    leases = Leases(db, lambda: NOW)
    me = await leases.join(name="a:1", role="both", delivers=True, lease_ms=LEASE)
    taken = await leases.take(me.id, dict.fromkeys(range(4), 0))
    other = await leases.join(name="b:2", role="both", delivers=True, lease_ms=LEASE)
    theirs = await leases.take(other.id, {8: 0, 9: 0})
    version = (await leases.versions())["catalog"]

    high = NOW + 90
    await leases.heal(me.id, epochs={0: high, 1: 0, 8: 0, 9: high - 20}, catalog=version + 7)

    standing = await leases.renew(me.id, delivers=True, lease_ms=LEASE)
    assert standing is not None
    found = {it.bucket: (it.owner, it.epoch) for it in standing.leases}
    assert found[0] == (None, high + 1)  # Somebody has seen it.
    assert found[1] == (None, taken[1] + 1)
    assert found[2] == (me.id, taken[2])  # It was not asked for.
    assert found[8] == (other.id, theirs[8])
    assert found[9] == (None, high - 19)  # An epoch of another process was lost.
    assert (await leases.versions())["catalog"] >= version + 7 + CATALOG_GAP


def test_the_times_of_a_loss_come_from_the_numbers_of_batches() -> None:
    seen, found = id_floor(NOW), id_floor(NOW - 500)
    assert span_of(seen=seen, found=found, started_at=NOW - 1_000) == (NOW - 500, NOW)
    # The last batch that is there is of an earlier process, or there is none.
    assert span_of(seen=seen, found=found, started_at=NOW - 100) == (None, NOW)
    assert span_of(seen=seen, found=None, started_at=NOW) == (None, NOW)


def test_every_kind_of_loss_has_its_sentence() -> None:
    for kind in ("publish", "settle", "catalog", "leases"):
        text = missing_text(CommitLoss(1, NOW, "a:1", kind, None, NOW))
        assert text.startswith("Process a:1: ")
        assert text.endswith(".")
