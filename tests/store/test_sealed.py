"""Secrets at rest: sealed with a key that is not in the database, bound to their row."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.errors import CannotOpen
from homing.model import Endpoint, Secret, Subscription
from homing.policy.seal import MARK, Sealer
from homing.policy.seal_keys import key_id, read_keys
from homing.ports import Claim
from homing.store.admin import Admin
from homing.store.sealed import Envelopes, SealedAdmin, SealedViews, seal_what_is_open
from homing.store.seals import Seals
from homing.store.sqlite import SqliteDb
from homing.store.tx import Db, Row, Tx
from homing.store.views import Views
from store.build import Maker

OLD, NEW, OTHER = (bytes([fill]) * 32 for fill in (1, 2, 3))
PLANTED = ("whsec_UExBTlRFRFBMQU5URURQTEFOVEVE", "planted-token", "planted-header-value")


class Fronts:
    """The ports with one set of keys."""

    def __init__(self, db: Db, *keys: bytes) -> None:
        self.sealer = Sealer(keys)
        envelopes = Envelopes(self.sealer)
        self.admin, self.views = (
            SealedAdmin(Admin(db), envelopes),
            SealedViews(Views(db), envelopes),
        )


def made(number: int = 1) -> tuple[Subscription, Endpoint]:
    make = Maker()
    endpoint = replace(make.endpoint(f"https://{number}.example/"), id=1_000 + number)
    secret, token, value = PLANTED
    subscription = replace(
        make.subscription(endpoint),
        id=number,
        secrets=(Secret(secret, 5), Secret(secret)),
        token=token,
        headers=(("x-a", value), ("x-b", value)),
    )
    return subscription, endpoint


async def stored(db: Db) -> list[Row]:
    async def work(tx: Tx) -> list[Row]:
        return await tx.all("seal_page", after_id=0, limit=100)

    return await db.run(work, read=True)


def plain(sub: Subscription) -> tuple[object, ...]:
    return sub.secrets, sub.token, sub.headers


async def test_what_goes_in_is_sealed_and_comes_out_as_it_was(db: Db) -> None:
    fronts = Fronts(db, OLD)
    subscription, endpoint = made()
    created = await fronts.admin.create_subscription(subscription, endpoint=endpoint)
    assert plain(created) == plain(subscription)
    (row,) = await stored(db)
    assert not any(word in str(row) for word in PLANTED)
    assert str(row).count(MARK) == 5
    (read,) = await fronts.admin.subscriptions_since(0)
    seen = await fronts.views.subscription(1)
    (listed,), _ = await fronts.views.subscriptions(tenant=None, before_id=None, limit=10)
    assert read == seen == listed == created
    changed = await fronts.admin.change_subscription(
        replace(created, token="planted-token-2"), endpoint=endpoint, chore_id=9
    )
    assert changed.token == "planted-token-2"
    assert "planted" not in str(await stored(db))
    twin = replace(changed, id=2, version=0)
    changed = await fronts.admin.change_pair(changed, twin, endpoint=endpoint, chore_ids=(11, 12))
    assert plain((await fronts.admin.subscriptions_since(0))[-1]) == plain(changed)
    assert "planted" not in str(await stored(db))
    gone = await fronts.admin.delete_pair(changed, None, now=7, chore_ids=(13, 14))
    assert plain(gone) == plain(changed)
    gone = await fronts.admin.delete_subscription(2, now=7, chore_id=10)
    assert plain(gone) == plain(changed)
    assert "planted" not in str(await stored(db))


async def test_what_lies_on_disk_holds_no_secret(tmp_path: Path) -> None:
    db = await SqliteDb.open(tmp_path / "homing.db")
    fronts = Fronts(db, OLD)
    subscription, endpoint = made()
    await fronts.admin.create_subscription(subscription, endpoint=endpoint)
    await db.close()
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert not any(word.encode() in content for word in PLANTED), file
        assert OLD not in content


async def test_without_the_key_nothing_opens(db: Db) -> None:
    subscription, endpoint = made()
    await Fronts(db, OLD).admin.create_subscription(subscription, endpoint=endpoint)
    with pytest.raises(CannotOpen) as caught:
        await Fronts(db, NEW).admin.subscriptions_since(0)
    assert key_id(OLD) in str(caught.value)
    assert not any(word in str(caught.value) for word in PLANTED)


async def test_what_was_stored_before_there_were_keys_is_read_and_then_sealed(db: Db) -> None:
    subscription, endpoint = made()
    await Admin(db).create_subscription(subscription, endpoint=endpoint)
    fronts, seals = Fronts(db, OLD), Seals(db)
    (before,) = await fronts.admin.subscriptions_since(0)
    assert plain(before) == plain(subscription)
    assert await seals.claim_seal(fronts.sealer.ids) == Claim((), done=False)
    assert await seal_what_is_open(seals, fronts.sealer) == 1
    assert "planted" not in str(await stored(db))
    (after,) = await fronts.admin.subscriptions_since(0)
    assert after == before
    assert await seals.claim_seal(fronts.sealer.ids) == Claim((), done=True)


async def test_a_key_is_replaced_while_the_old_one_still_opens(db: Db) -> None:
    seals, before = Seals(db), Fronts(db, OLD)
    await seals.claim_seal(before.sealer.ids)
    for number in (1, 2, 3):
        subscription, endpoint = made(number)
        await before.admin.create_subscription(subscription, endpoint=endpoint)
    await before.admin.delete_subscription(3, now=7, chore_id=10)
    await seal_what_is_open(seals, before.sealer)
    during = Fronts(db, NEW, OLD)
    assert await seals.claim_seal(during.sealer.ids) == Claim((), done=False)
    assert len(await during.admin.subscriptions_since(0)) == 3
    assert await seal_what_is_open(seals, during.sealer) == 3
    after = Fronts(db, NEW)
    assert await seals.claim_seal(after.sealer.ids) == Claim((), done=True)
    assert await after.admin.subscriptions_since(0) == await during.admin.subscriptions_since(0)
    assert await seals.claim_seal(before.sealer.ids) == Claim((key_id(NEW),), done=False)


async def test_a_process_with_other_keys_is_told_and_changes_nothing(db: Db) -> None:
    seals = Seals(db)
    assert not (await seals.claim_seal([key_id(OLD)])).missing
    assert (await seals.claim_seal([key_id(OTHER)])).missing == (key_id(OLD),)
    assert not (await seals.claim_seal([key_id(OLD)])).missing


async def test_an_interrupted_sealing_goes_on_at_the_next_start(db: Db) -> None:
    subscription, endpoint = made()
    await Admin(db).create_subscription(subscription, endpoint=endpoint)
    seals, sealer = Seals(db), Sealer((OLD,))
    await seals.claim_seal(sealer.ids)  # and here it dies
    assert not (await seals.claim_seal(sealer.ids)).done
    assert await seal_what_is_open(seals, sealer) == 1


async def test_what_is_changed_meanwhile_is_not_overwritten(db: Db) -> None:
    subscription, endpoint = made()
    await Admin(db).create_subscription(subscription, endpoint=endpoint)
    seals, fronts = Seals(db), Fronts(db, OLD)
    (read,) = await seals.sealed_page(0, limit=9)
    await fronts.admin.change_subscription(
        replace(read, token="planted-newer"), endpoint=endpoint, chore_id=9
    )
    await seals.seal_again([Envelopes(fronts.sealer).seal(read)])
    (now,) = await fronts.admin.subscriptions_since(0)
    assert now.token == "planted-newer"


@given(st.text(max_size=200), st.binary(min_size=12, max_size=12))
def test_a_seal_opens_for_its_row_only(text: str, nonce: bytes) -> None:
    sealer = Sealer((OLD,))
    sealed = sealer.seal(text, "sub_1 token", nonce)
    assert sealer.open(sealed, "sub_1 token") == text
    assert sealer.is_current(sealed)
    for about in ("sub_2 token", "sub_1 secret", ""):
        with pytest.raises(CannotOpen):
            sealer.open(sealed, about)


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_seal_that_was_touched_does_not_open(place: int, change: int) -> None:
    sealer = Sealer((OLD,))
    sealed = sealer.seal("some token of a receiver", "sub_1 token", bytes(12))
    head = f"{MARK}{key_id(OLD)}:"
    content = bytearray(urlsafe_b64decode(sealed.removeprefix(head)))
    content[place % len(content)] ^= change
    with pytest.raises(CannotOpen):
        sealer.open(head + urlsafe_b64encode(content).decode(), "sub_1 token")
    with pytest.raises(CannotOpen):
        sealer.open(sealed[: len(head) + place % len(content)], "sub_1 token")


@pytest.mark.parametrize(
    "text",
    ["short", b64encode(bytes(31)).decode(), b64encode(bytes(33)).decode(), "é" * 44],
)
def test_what_is_no_key_is_not_taken_for_one(text: str) -> None:
    assert read_keys("") is None
    assert read_keys(" , ") is None
    assert read_keys(text) is None
    assert read_keys(f"{b64encode(OLD).decode()},{text}") is None


def test_keys_are_read_from_lines_and_lists_and_never_shown() -> None:
    texts = [b64encode(key).decode() for key in (OLD, NEW)]
    assert read_keys(",".join(texts)) == read_keys("\n".join(texts)) == (OLD, NEW)
    assert read_keys(f"{texts[0]} {texts[0]}") == (OLD,)
    shown = repr(Sealer((OLD, NEW)))
    assert shown == f"Sealer({key_id(OLD)}, {key_id(NEW)})"
