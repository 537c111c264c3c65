"""Secrets at rest: encrypted with a key that is not in the database, bound to their row."""

from __future__ import annotations

import inspect
import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from homing.errors import CannotDecrypt
from homing.model import Endpoint, Secret, Subscription
from homing.policy.encryption import PREFIX, KeyRing
from homing.policy.encryption_keys import key_id, read_keys
from homing.policy.receiver import set_gone
from homing.ports import Claim
from homing.store.admin import Admin
from homing.store.encryption import (
    EncryptedAdmin,
    EncryptedViews,
    EncryptionKeys,
    FieldCipher,
    encrypt_existing,
)
from homing.store.sqlite import SqliteDb
from homing.store.tx import Db, Row, Tx
from homing.store.views import Views
from store.build import Maker

OLD, NEW, OTHER = (bytes([fill]) * 32 for fill in (1, 2, 3))
PLANTED = ("whsec_UExBTlRFRFBMQU5URURQTEFOVEVE", "planted-token", "planted-header-value")


class Fronts:
    """The ports with one set of keys."""

    def __init__(self, db: Db, *keys: bytes) -> None:
        self.key_ring = KeyRing(keys)
        fields = FieldCipher(self.key_ring)
        self.admin, self.views = (
            EncryptedAdmin(Admin(db), fields),
            EncryptedViews(Views(db), fields),
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
        return await tx.all("subscriptions_page", after_id=0, limit=100)

    return await db.run(work, view=True)


def plain(sub: Subscription) -> tuple[object, ...]:
    return sub.secrets, sub.token, sub.headers


async def test_fields_are_encrypted_on_their_way_in_and_decrypted_on_their_way_out(db: Db) -> None:
    fronts = Fronts(db, OLD)
    subscription, endpoint = made()
    created = await fronts.admin.create_subscription(subscription, endpoint=endpoint)
    assert plain(created) == plain(subscription)
    (row,) = await stored(db)
    assert not any(word in str(row) for word in PLANTED)
    assert str(row).count(PREFIX) == 5
    (read,) = await fronts.admin.subscriptions_since(0)
    seen = await fronts.views.subscription(1)
    (listed,), _ = await fronts.views.subscriptions(tenant=None, before_id=None, limit=10)
    assert read == seen == listed == created
    changed = await fronts.admin.change_subscription(
        replace(created, token="planted-token-2"), endpoint=endpoint, cleanup_job_id=9
    )
    assert changed.token == "planted-token-2"
    assert "planted" not in str(await stored(db))
    twin = replace(changed, id=2, version=0)
    changed = await fronts.admin.change_pair(
        changed, twin, endpoint=endpoint, cleanup_job_ids=(11, 12)
    )
    assert plain((await fronts.admin.subscriptions_since(0))[-1]) == plain(changed)
    assert "planted" not in str(await stored(db))
    gone = await fronts.admin.delete_pair(changed, None, now=7, cleanup_job_ids=(13, 14))
    assert plain(gone) == plain(changed)
    gone = await fronts.admin.delete_subscription(2, now=7, cleanup_job_id=10)
    assert plain(gone) == plain(changed)
    assert "planted" not in str(await stored(db))


async def test_secrets_stay_encrypted_when_a_receiver_responds_with_410(db: Db) -> None:
    fronts = Fronts(db, OLD)
    subscription, endpoint = made()
    created = await fronts.admin.create_subscription(subscription, endpoint=endpoint)

    gone = await fronts.admin.subscription_gone(
        set_gone(created, now=5), cleanup_job_id=9, notices=(), for_people=(), bucket=1
    )
    bound = await fronts.admin.bound_gone(created.id)

    assert plain(gone) == plain(bound) == plain(created)
    text = str(await stored(db))
    assert not [it for it in PLANTED if it in text]


def test_every_method_with_secrets_encrypts_and_decrypts_them() -> None:
    """A new method of the store would otherwise write them, or return them, as they are."""
    secret = ("Subscription", "SigningKeys")
    for name, method in inspect.getmembers(Admin, inspect.iscoroutinefunction):
        kinds = " ".join(str(it) for it in inspect.get_annotations(method).values())
        if any(re.search(rf"\b{it}\b", kinds) for it in secret):
            assert name in vars(EncryptedAdmin), name


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
    with pytest.raises(CannotDecrypt) as caught:
        await Fronts(db, NEW).admin.subscriptions_since(0)
    assert key_id(OLD) in str(caught.value)
    assert not any(word in str(caught.value) for word in PLANTED)


async def test_what_was_stored_before_there_were_keys_is_read_and_then_encrypted(db: Db) -> None:
    subscription, endpoint = made()
    await Admin(db).create_subscription(subscription, endpoint=endpoint)
    fronts, encryption = Fronts(db, OLD), EncryptionKeys(db)
    (before,) = await fronts.admin.subscriptions_since(0)
    assert plain(before) == plain(subscription)
    assert await encryption.claim_keys(fronts.key_ring.ids) == Claim((), done=False)
    assert await encrypt_existing(encryption, fronts.key_ring) == 1
    assert "planted" not in str(await stored(db))
    (after,) = await fronts.admin.subscriptions_since(0)
    assert after == before
    assert await encryption.claim_keys(fronts.key_ring.ids) == Claim((), done=True)


async def test_a_key_is_replaced_while_the_old_one_still_opens(db: Db) -> None:
    encryption, before = EncryptionKeys(db), Fronts(db, OLD)
    await encryption.claim_keys(before.key_ring.ids)
    for number in (1, 2, 3):
        subscription, endpoint = made(number)
        await before.admin.create_subscription(subscription, endpoint=endpoint)
    await before.admin.delete_subscription(3, now=7, cleanup_job_id=10)
    await encrypt_existing(encryption, before.key_ring)
    during = Fronts(db, NEW, OLD)
    assert await encryption.claim_keys(during.key_ring.ids) == Claim((), done=False)
    assert len(await during.admin.subscriptions_since(0)) == 3
    assert await encrypt_existing(encryption, during.key_ring) == 3
    after = Fronts(db, NEW)
    assert await encryption.claim_keys(after.key_ring.ids) == Claim((), done=True)
    assert await after.admin.subscriptions_since(0) == await during.admin.subscriptions_since(0)
    assert await encryption.claim_keys(before.key_ring.ids) == Claim((key_id(NEW),), done=False)


async def test_a_process_with_other_keys_is_told_and_changes_nothing(db: Db) -> None:
    encryption = EncryptionKeys(db)
    assert not (await encryption.claim_keys([key_id(OLD)])).missing
    assert (await encryption.claim_keys([key_id(OTHER)])).missing == (key_id(OLD),)
    assert not (await encryption.claim_keys([key_id(OLD)])).missing


async def test_an_interrupted_encryption_goes_on_at_the_next_start(db: Db) -> None:
    subscription, endpoint = made()
    await Admin(db).create_subscription(subscription, endpoint=endpoint)
    encryption, key_ring = EncryptionKeys(db), KeyRing((OLD,))
    await encryption.claim_keys(key_ring.ids)  # and here it dies
    assert not (await encryption.claim_keys(key_ring.ids)).done
    assert await encrypt_existing(encryption, key_ring) == 1


async def test_what_is_changed_meanwhile_is_not_overwritten(db: Db) -> None:
    subscription, endpoint = made()
    await Admin(db).create_subscription(subscription, endpoint=endpoint)
    encryption, fronts = EncryptionKeys(db), Fronts(db, OLD)
    (read,) = await encryption.subscriptions_page(0, limit=9)
    await fronts.admin.change_subscription(
        replace(read, token="planted-newer"), endpoint=endpoint, cleanup_job_id=9
    )
    await encryption.reencrypt([FieldCipher(fronts.key_ring).encrypt(read)])
    (now,) = await fronts.admin.subscriptions_since(0)
    assert now.token == "planted-newer"


@given(st.text(max_size=200), st.binary(min_size=12, max_size=12))
def test_a_ciphertext_decrypts_for_its_row_only(text: str, nonce: bytes) -> None:
    key_ring = KeyRing((OLD,))
    encrypted = key_ring.encrypt(text, "sub_1 token", nonce)
    assert key_ring.decrypt(encrypted, "sub_1 token") == text
    assert key_ring.is_current(encrypted)
    for about in ("sub_2 token", "sub_1 secret", ""):
        with pytest.raises(CannotDecrypt):
            key_ring.decrypt(encrypted, about)


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_ciphertext_that_was_changed_does_not_decrypt(place: int, change: int) -> None:
    key_ring = KeyRing((OLD,))
    encrypted = key_ring.encrypt("some token of a receiver", "sub_1 token", bytes(12))
    head = f"{PREFIX}{key_id(OLD)}:"
    content = bytearray(urlsafe_b64decode(encrypted.removeprefix(head)))
    content[place % len(content)] ^= change
    with pytest.raises(CannotDecrypt):
        key_ring.decrypt(head + urlsafe_b64encode(content).decode(), "sub_1 token")
    with pytest.raises(CannotDecrypt):
        key_ring.decrypt(encrypted[: len(head) + place % len(content)], "sub_1 token")


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
    shown = repr(KeyRing((OLD, NEW)))
    assert shown == f"KeyRing({key_id(OLD)}, {key_id(NEW)})"
