"""The signing keys of tenants: one row each, versions of the catalog, encrypted at rest."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from homing.errors import CannotDecrypt, Conflict, StaleCatalog
from homing.model import Secret, SigningKeys
from homing.policy.encryption import PREFIX, KeyRing
from homing.policy.signature import new_private_key
from homing.ports.erasures import Erasure, ErasureKind
from homing.store.admin import Admin
from homing.store.encryption import EncryptedAdmin, EncryptionKeys, FieldCipher, encrypt_existing
from homing.store.tx import Db

OLD, NEW = (bytes([fill]) * 32 for fill in (1, 2))
KEY = Secret(new_private_key(b"k" * 32))
OTHER = Secret(new_private_key(b"o" * 32), 5)


def encrypted(db: Db, *keys: bytes) -> EncryptedAdmin:
    return EncryptedAdmin(Admin(db), FieldCipher(KeyRing(keys)))


async def test_keys_are_set_replaced_and_read_by_version(db: Db) -> None:
    admin = Admin(db)
    first = await admin.set_signing_keys(SigningKeys("acme", (KEY,)))
    assert first.version == await admin.catalog_version() == 1
    other = await admin.set_signing_keys(SigningKeys("other", (OTHER,)))
    assert await admin.signing_keys_since(0) == [first, other]
    second = await admin.set_signing_keys(replace(first, keys=(OTHER, KEY)))
    assert await admin.signing_keys_since(2) == [second]
    assert await admin.signing_keys_since(3) == []


async def test_a_change_that_another_one_overtook_is_refused(db: Db) -> None:
    admin = Admin(db)
    first = await admin.set_signing_keys(SigningKeys("acme", (KEY,)))
    with pytest.raises(StaleCatalog):
        await admin.set_signing_keys(SigningKeys("acme", (OTHER,)))
    await admin.set_signing_keys(replace(first, keys=(OTHER, KEY)))
    with pytest.raises(StaleCatalog):
        await admin.set_signing_keys(replace(first, keys=(KEY,)))
    assert [it.keys for it in await admin.signing_keys_since(0)] == [(OTHER, KEY)]


async def test_an_erased_tenant_has_no_keys_and_gets_none_while_it_is_erased(db: Db) -> None:
    admin = Admin(db)
    await admin.set_signing_keys(SigningKeys("acme", (KEY,)))
    kept = await admin.set_signing_keys(SigningKeys("other", (KEY,)))
    erasure = Erasure(9, "acme", ErasureKind.TENANT, "", b"", 1, 9)
    await admin.begin_erasure(erasure, key=None, earlier=())
    assert await admin.signing_keys_since(0) == [kept]
    with pytest.raises(Conflict, match="being erased"):
        await admin.set_signing_keys(SigningKeys("acme", (KEY,)))


async def test_private_keys_are_encrypted_and_bound_to_their_tenant(db: Db) -> None:
    admin, raw = encrypted(db, OLD), Admin(db)
    made = await admin.set_signing_keys(SigningKeys("acme", (KEY, OTHER)))
    assert made.keys == (KEY, OTHER)
    assert await admin.signing_keys_since(0) == [made]
    (stored,) = await raw.signing_keys_since(0)
    assert [it.until for it in stored.keys] == [None, 5]
    assert all(it.value.startswith(PREFIX) for it in stored.keys)
    await raw.set_signing_keys(SigningKeys("other", stored.keys))
    with pytest.raises(CannotDecrypt):
        await admin.signing_keys_since(0)


async def test_a_new_encryption_key_encrypts_them_again_without_a_new_version(db: Db) -> None:
    made = await encrypted(db, OLD).set_signing_keys(SigningKeys("acme", (KEY,)))
    keys = EncryptionKeys(db)
    ring = KeyRing((NEW, OLD))
    await keys.claim_keys(ring.ids)
    await encrypt_existing(keys, ring)
    assert await encrypted(db, NEW).signing_keys_since(0) == [made]
