"""Tokens, secrets and header values are encrypted on their way into the store.

Values are encrypted in the process that signs, before they are passed to a port: neither the writer
process nor the database ever has the plain text or a key. The database has the names of the keys,
so that a start with other keys is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from homing.errors import BadSetting
from homing.model import NOT_BOUND, SPEC, Endpoint, Kind, Secret, SigningKeys, Subscription, show_id
from homing.policy.audit import KEY_BYTES, Head, head_mac
from homing.policy.encryption import NONCE_BYTES, KeyRing
from homing.policy.encryption_keys import key_id
from homing.policy.hash_keys import HashKey, HashKeys
from homing.policy.notices import Notice, NoticeTarget
from homing.ports import AdminStore, EncryptionStore, NewEvent, NoticeStore, ReplayJob, ViewStore
from homing.ports.audit import AuditStore
from homing.ports.encryption import Claim, Rewrite
from homing.ports.erasures import TenantChanges
from homing.store import erasures, rows
from homing.store.notices import read_target
from homing.store.tx import Db, Tx, transaction

PAGE = 500
HASH_KEY_BYTES = 32


class FieldCipher:
    """Encrypts and decrypts the secret fields of a subscription."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys
        self._hash_keys: dict[str, HashKey] = {}  # decrypted, by their names

    def encrypt(self, sub: Subscription) -> Subscription:
        def encrypt(text: str, field: str) -> str:
            nonce = secrets.token_bytes(NONCE_BYTES)
            return self._keys.encrypt(text, _context(sub, field), nonce)

        return _each(sub, encrypt)

    def decrypt(self, sub: Subscription) -> Subscription:
        return _each(sub, lambda text, field: self._keys.decrypt(text, _context(sub, field)))

    def is_current(self, sub: Subscription) -> bool:
        """Whether every secret field is encrypted with the first key."""
        return all(self._keys.is_current(text) for text in _texts(sub))

    def has_plaintext(self, sub: Subscription) -> bool:
        return not all(self._keys.is_encrypted(text) for text in _texts(sub))

    # --- signing keys of tenants -------------------------------------------------------------

    def encrypt_keys(self, it: SigningKeys) -> SigningKeys:
        def encrypt(key: Secret) -> Secret:
            nonce = secrets.token_bytes(NONCE_BYTES)
            return replace(key, value=self._keys.encrypt(key.value, _context_of(it), nonce))

        return replace(it, keys=tuple(map(encrypt, it.keys)))

    def decrypt_keys(self, it: SigningKeys) -> SigningKeys:
        def decrypt(key: Secret) -> Secret:
            return replace(key, value=self._keys.decrypt(key.value, _context_of(it)))

        return replace(it, keys=tuple(map(decrypt, it.keys)))

    def are_current_keys(self, it: SigningKeys) -> bool:
        """Whether every key is encrypted with the first key."""
        return all(self._keys.is_current(key.value) for key in it.keys)

    # --- targets of notices ------------------------------------------------------------------

    def encrypt_target(self, target: NoticeTarget) -> NoticeTarget:
        def encrypt(text: str, field: str) -> str:
            nonce = secrets.token_bytes(NONCE_BYTES)
            return self._keys.encrypt(text, f"{show_id('tgt', target.id)} {field}", nonce)

        address, secret = encrypt(target.address, "address"), encrypt(target.secret, "secret")
        return replace(target, address=address, secret=secret)

    def decrypt_target(self, target: NoticeTarget) -> NoticeTarget:
        def decrypt(text: str, field: str) -> str:
            return self._keys.decrypt(text, f"{show_id('tgt', target.id)} {field}")

        address, secret = decrypt(target.address, "address"), decrypt(target.secret, "secret")
        return replace(target, address=address, secret=secret)

    def is_current_target(self, target: NoticeTarget) -> bool:
        """Whether address and secret are encrypted with the first key."""
        return self._keys.is_current(target.address) and self._keys.is_current(target.secret)

    # --- keys of keyed hashes ----------------------------------------------------------------

    def encrypt_hash_key(self, key: HashKey) -> HashKey:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return replace(key, value=self._keys.encrypt(key.value, f"the hash key {key.name}", nonce))

    def decrypt_hash_keys(self, keys: Iterable[HashKey]) -> tuple[HashKey, ...]:
        """Each is decrypted once: a server may run on while another replaces the encryption key."""
        found = []
        for key in keys:
            if key.name not in self._hash_keys:
                value = self._keys.decrypt(key.value, f"the hash key {key.name}")
                self._hash_keys[key.name] = replace(key, value=value)
            found.append(self._hash_keys[key.name])
        return tuple(found)


def _texts(sub: Subscription) -> list[str]:
    """Every text of a subscription that is secret."""
    texts: list[str] = []

    def note(text: str, _field: str) -> str:
        texts.append(text)
        return text

    _each(sub, note)
    return texts


def _each(sub: Subscription, change: Callable[[str, str], str]) -> Subscription:
    """The subscription with ``change`` applied to every secret text."""
    values: dict[str, Any] = {}
    for name, field in SPEC.items():
        value = getattr(sub, name)
        if not field.secret or value is None:
            continue
        if field.kind is Kind.PAIRS:
            values[name] = tuple(
                (key, change(text, f"{field.option} {key}")) for key, text in value
            )
        else:
            values[name] = change(value, name)
    signing = tuple(Secret(change(it.value, "secret"), it.until) for it in sub.secrets)
    return replace(sub, secrets=signing, **values)


def _context(sub: Subscription, field: str) -> str:
    """The context of a text, bound into its ciphertext, which fits no other row or field."""
    return f"{show_id('sub', sub.id)} {field}"


def _context_of(it: SigningKeys) -> str:
    return f"a signing key of {it.tenant}"


# --- wrappers of the ports -------------------------------------------------------------------


class _Wrapper:
    """Calls the wrapped store for every method without secret fields."""

    def __init__(self, store: Any, fields: FieldCipher) -> None:
        self._store, self._fields = store, fields

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._store, method)
        setattr(self, method, found)  # The next call finds it directly.
        return found


class EncryptedAdmin(_Wrapper):
    """``AdminStore`` that encrypts and decrypts around another one."""

    _store: AdminStore

    async def subscriptions_since(
        self, version: int, *, after_id: int = NOT_BOUND, limit: int = NOT_BOUND
    ) -> list[Subscription]:
        found = await self._store.subscriptions_since(version, after_id=after_id, limit=limit)
        return [self._fields.decrypt(it) for it in found]

    async def create_subscription(
        self,
        subscription: Subscription,
        *,
        endpoint: Endpoint | None,
        backfill: ReplayJob | None = None,
        at_most: int = 0,
        seen: int | None = None,
    ) -> Subscription:
        encrypted = self._fields.encrypt(subscription)
        stored = await self._store.create_subscription(
            encrypted, endpoint=endpoint, backfill=backfill, at_most=at_most, seen=seen
        )
        return self._fields.decrypt(stored)

    async def change_subscription(
        self, subscription: Subscription, *, endpoint: Endpoint, cleanup_job_id: int
    ) -> Subscription:
        stored = await self._store.change_subscription(
            self._fields.encrypt(subscription), endpoint=endpoint, cleanup_job_id=cleanup_job_id
        )
        return self._fields.decrypt(stored)

    async def change_pair(
        self,
        subscription: Subscription,
        twin: Subscription,
        *,
        endpoint: Endpoint,
        cleanup_job_ids: tuple[int, int],
    ) -> Subscription:
        encrypt = self._fields.encrypt
        stored = await self._store.change_pair(
            encrypt(subscription), encrypt(twin), endpoint=endpoint, cleanup_job_ids=cleanup_job_ids
        )
        return self._fields.decrypt(stored)

    async def delete_pair(
        self,
        subscription: Subscription,
        twin: Subscription | None,
        *,
        now: int,
        cleanup_job_ids: tuple[int, int],
    ) -> Subscription:
        stored = await self._store.delete_pair(
            subscription, twin, now=now, cleanup_job_ids=cleanup_job_ids
        )
        return self._fields.decrypt(stored)

    async def delete_subscription(
        self, subscription_id: int, *, now: int, cleanup_job_id: int
    ) -> Subscription:
        stored = await self._store.delete_subscription(
            subscription_id, now=now, cleanup_job_id=cleanup_job_id
        )
        return self._fields.decrypt(stored)

    async def subscription_gone(
        self,
        subscription: Subscription,
        *,
        cleanup_job_id: int,
        notices: Sequence[NewEvent],
        for_people: Sequence[Notice],
        bucket: int,
        epoch: int = 0,
    ) -> Subscription:
        stored = await self._store.subscription_gone(
            self._fields.encrypt(subscription),
            cleanup_job_id=cleanup_job_id,
            notices=notices,
            for_people=for_people,
            bucket=bucket,
            epoch=epoch,
        )
        return self._fields.decrypt(stored)

    async def bound_gone(self, subscription_id: int) -> Subscription:
        return self._fields.decrypt(await self._store.bound_gone(subscription_id))

    async def tenant_changes(self, version: int) -> TenantChanges:
        found = await self._store.tenant_changes(version)
        return replace(found, hash_keys=self._fields.decrypt_hash_keys(found.hash_keys))

    async def signing_keys_since(self, version: int) -> list[SigningKeys]:
        return [
            self._fields.decrypt_keys(it) for it in await self._store.signing_keys_since(version)
        ]

    async def set_signing_keys(self, keys: SigningKeys) -> SigningKeys:
        stored = await self._store.set_signing_keys(self._fields.encrypt_keys(keys))
        return self._fields.decrypt_keys(stored)


class EncryptedViews(_Wrapper):
    """``ViewStore`` that decrypts the results of another one."""

    _store: ViewStore

    async def subscriptions(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[Subscription], int | None]:
        found, after = await self._store.subscriptions(
            tenant=tenant, before_id=before_id, limit=limit
        )
        return [self._fields.decrypt(it) for it in found], after

    async def subscription(self, subscription_id: int) -> Subscription | None:
        found = await self._store.subscription(subscription_id)
        return None if found is None else self._fields.decrypt(found)


class EncryptedNotices(_Wrapper):
    """``NoticeStore`` that encrypts and decrypts the addresses and secrets of targets."""

    _store: NoticeStore

    async def create_target(
        self, target: NoticeTarget, *, address: bytes, secret: bytes, now: int
    ) -> int:
        encrypted = self._fields.encrypt_target(target)
        return await self._store.create_target(encrypted, address=address, secret=secret, now=now)

    async def change_target(self, target: NoticeTarget) -> NoticeTarget | None:
        return self._decrypted(await self._store.change_target(target))

    async def change_secret(self, target: NoticeTarget, *, secret: bytes) -> bool:
        return await self._store.change_secret(self._fields.encrypt_target(target), secret=secret)

    async def confirm_target(self, token: str, *, now: int) -> NoticeTarget | None:
        return self._decrypted(await self._store.confirm_target(token, now=now))

    async def target(self, target_id: int) -> NoticeTarget | None:
        return self._decrypted(await self._store.target(target_id))

    async def targets(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[NoticeTarget], int | None]:
        found, after = await self._store.targets(tenant=tenant, before_id=before_id, limit=limit)
        return [self._fields.decrypt_target(it) for it in found], after

    async def targets_to_send(self, *, after_id: int, limit: int) -> list[NoticeTarget]:
        found = await self._store.targets_to_send(after_id=after_id, limit=limit)
        return [self._fields.decrypt_target(it) for it in found]

    def _decrypted(self, target: NoticeTarget | None) -> NoticeTarget | None:
        return None if target is None else self._fields.decrypt_target(target)


# --- the audit log ---------------------------------------------------------------------------

_LOG_KEY = "the key of the audit log"
# At the end of a key with which the first head of the log was signed. Whoever has the database
# cannot remove this mark, so a head without a signature is never signed again. Earlier versions
# skip a space when they read the key.
_SIGNED = " "


async def log_key(store: AuditStore, keys: KeyRing) -> bytes:
    """The key of the audit log, which is stored encrypted; it is made at the first start.

    The first head is signed in the same transaction.
    """
    stored = await store.log_key()
    text = secrets.token_hex(KEY_BYTES) if stored is None else _log_key_text(stored, keys)
    if stored is None or not keys.is_current(stored) or not text.endswith(_SIGNED):
        mac = None if text.endswith(_SIGNED) else head_mac(bytes.fromhex(text), Head())
        text = text.removesuffix(_SIGNED) + _SIGNED
        encrypted = keys.encrypt(text, _LOG_KEY, secrets.token_bytes(NONCE_BYTES))
        stored = await store.set_log_key(encrypted, before=stored, mac=mac)
    return bytes.fromhex(_log_key_text(stored, keys))


def _log_key_text(stored: str, keys: KeyRing) -> str:
    """The key in hexadecimal digits; raises BadSetting for one that was not encrypted by us."""
    if not keys.is_encrypted(stored):
        raise BadSetting(
            "The key of the audit log is not encrypted: somebody has replaced it in the database. "
            "Restore the table audit_head from a backup."
        )
    return keys.decrypt(stored, _LOG_KEY)


async def hash_keys(store: EncryptionStore, fields: FieldCipher) -> HashKeys:
    """The keys of keyed hashes; the first start of an installation makes its own."""
    stored = await store.hash_keys()
    if not stored:
        key = secrets.token_bytes(HASH_KEY_BYTES)
        made = fields.encrypt_hash_key(HashKey(key_id(key), key.hex()))
        stored = await store.make_hash_key(made)  # That of another process, if it was first.
    return HashKeys(fields.decrypt_hash_keys(stored))


# --- keys -----------------------------------------------------------------------------------


async def encrypt_existing(store: EncryptionStore, keys: KeyRing) -> int:
    """Encrypt every secret with the first key, if it is not; return how many subscriptions changed.

    A subscription that is changed meanwhile is skipped: the change has encrypted it.
    """
    fields, done, after_id = FieldCipher(keys), 0, 0
    while page := await store.subscriptions_page(after_id, limit=PAGE):
        old = [it for it in page if not fields.is_current(it)]
        plaintext = any(fields.has_plaintext(it) for it in old)
        encrypted = [fields.encrypt(fields.decrypt(it)) for it in old]
        await store.reencrypt(encrypted, plaintext=plaintext)
        done, after_id = done + len(old), page[-1].id
    after_id = 0
    while targets := await store.targets_page(after_id, limit=PAGE):
        outdated = [it for it in targets if not fields.is_current_target(it)]
        await store.reencrypt_targets(
            [(it, fields.encrypt_target(fields.decrypt_target(it))) for it in outdated]
        )
        after_id = targets[-1].id
    after = ""
    while found := await store.signing_keys_page(after, limit=PAGE):
        await store.reencrypt_signing_keys(
            [
                fields.encrypt_keys(fields.decrypt_keys(it))
                for it in found
                if not fields.are_current_keys(it)
            ]
        )
        after = found[-1].tenant
    stored = await store.hash_keys()
    await store.reencrypt_hash_keys(
        [fields.encrypt_hash_key(it) for it in fields.decrypt_hash_keys(stored)]
    )
    await store.all_encrypted(keys.ids[0])
    return done


class EncryptionKeys:
    """``EncryptionStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    @transaction()
    async def claim_keys(self, tx: Tx, names: Sequence[str]) -> Claim:
        await tx.one(
            "name_lock", name="first start"
        )  # Two processes that start for the first time take turns.
        known: dict[str, int] = dict(await tx.all("encryption_keys"))
        missing = tuple(name for name in known if name not in names)
        if missing:
            return Claim(missing, done=False)
        if names[0] not in known:
            await tx.all("encryption_key_add", name=names[0])
        return Claim((), done=known == {names[0]: 1})

    @transaction(read_only=True)
    async def subscriptions_page(self, tx: Tx, after_id: int, *, limit: int) -> list[Subscription]:
        found = await tx.all("subscriptions_page", after_id=after_id, limit=limit)
        return [rows.subscription(row) for row in found]

    @transaction()
    async def reencrypt(
        self, tx: Tx, subscriptions: Sequence[Subscription], *, plaintext: bool = False
    ) -> None:
        if plaintext:
            await tx.all("plaintext_removal_due")
        for subscription in subscriptions:
            row = rows.subscription_row(subscription)
            values = dict(zip(rows.COLUMNS["subscription"], row, strict=True))
            await tx.all("subscription_reencrypt", **values)

    @transaction(read_only=True)
    async def targets_page(self, tx: Tx, after_id: int, *, limit: int) -> list[NoticeTarget]:
        found = await tx.all("notice_targets_all", after_id=after_id, limit=limit)
        return [read_target(row) for row in found]

    @transaction()
    async def reencrypt_targets(
        self, tx: Tx, targets: Sequence[tuple[NoticeTarget, NoticeTarget]]
    ) -> None:
        for old, new in targets:
            await tx.all(
                "notice_target_reencrypt",
                id=new.id,
                address=new.address,
                secret=new.secret,
                old_secret=old.secret,
            )

    @transaction(read_only=True)
    async def signing_keys_page(self, tx: Tx, after: str, *, limit: int) -> list[SigningKeys]:
        found = await tx.all("signing_keys_page", after=after, limit=limit)
        return [rows.signing_keys(row) for row in found]

    @transaction()
    async def reencrypt_signing_keys(self, tx: Tx, keys: Sequence[SigningKeys]) -> None:
        for it in keys:
            values = zip(rows.COLUMNS["signing_keys"], rows.signing_keys_row(it), strict=True)
            await tx.all("signing_keys_reencrypt", **dict(values))

    @transaction(read_only=True)
    async def hash_keys(self, tx: Tx) -> list[HashKey]:
        return await erasures.hash_keys(tx)

    @transaction()
    async def make_hash_key(self, tx: Tx, key: HashKey) -> list[HashKey]:
        await tx.one(
            "name_lock", name="first start"
        )  # Of the processes that start at once, one makes it.
        if not await erasures.hash_keys(tx):
            await tx.all("hash_key_add", name=key.name, value=key.value)
        return await erasures.hash_keys(tx)

    @transaction()
    async def reencrypt_hash_keys(self, tx: Tx, keys: Sequence[HashKey]) -> None:
        for it in keys:
            await tx.all("hash_key_reencrypt", name=it.name, value=it.value)

    @transaction()
    async def all_encrypted(self, tx: Tx, name: str) -> None:
        await tx.all("encryption_key_encrypts_all", name=name)
        await tx.all("encryption_keys_remove_others", name=name)

    @transaction(read_only=True)
    async def is_removal_due(self, tx: Tx) -> bool:
        return await tx.one("plaintext_removal") is not None

    async def remove_plaintext(self) -> Rewrite:
        return await self._db.rewrite()
