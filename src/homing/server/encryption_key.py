"""The keys that encrypt secrets in the database: a setting, or a file in the data directory.

Without them every token, secret and header value is lost: they need a backup of their own.
"""

from __future__ import annotations

import contextlib
import secrets
from base64 import b64encode
from collections.abc import Iterator

import structlog

from homing.errors import BadSetting, StoreUnavailable
from homing.policy.encryption import KeyRing
from homing.policy.encryption_keys import KEY_BYTES, read_keys
from homing.ports import EncryptionStore
from homing.ports.audit import AuditStore
from homing.server.key_files import DIRECTORY_MODE, create_key_file, read_key_file
from homing.server.settings import ENCRYPTION_KEY_FILE, Settings
from homing.store.encryption import encrypt_existing, log_key

log = structlog.get_logger("homing")


def temporary_keys() -> KeyRing:
    """With a random key, for a store that ends with its process."""
    return KeyRing((secrets.token_bytes(KEY_BYTES),))


def keys_of(settings: Settings) -> KeyRing:
    """With the keys of the settings, else of the file, else a new key; raises BadSetting."""
    if settings.security.secret_key:
        keys = read_keys(settings.security.secret_key)
        assert keys is not None, "checked when the settings were read"
        return KeyRing(keys)
    path = settings.database.directory / ENCRYPTION_KEY_FILE
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        text = read_key_file(path) or create_key_file(path, _new_key())
    except OSError as error:
        raise BadSetting(f"The secret key at {path} cannot be used: {error.strerror}.") from error
    keys = read_keys(text)
    if keys is None:
        raise BadSetting(
            f"The secret key at {path} is damaged: it must be base64 of {KEY_BYTES} bytes, one "
            "key per line. Put back the original file; without it no secret can be decrypted."
        )
    return KeyRing(keys)


@contextlib.contextmanager
def new_key_only_if_taken(settings: Settings) -> Iterator[None]:
    """Remove a key file that was created just now and does not fit the database."""
    path = settings.database.directory / ENCRYPTION_KEY_FILE
    existed = settings.security.secret_key or path.exists()
    try:
        yield
    except BadSetting:
        if not existed:
            path.unlink(missing_ok=True)
        raise


def _new_key() -> str:
    return b64encode(secrets.token_bytes(KEY_BYTES)).decode()


async def claim(store: EncryptionStore, audit: AuditStore, key_ring: KeyRing) -> None:
    """Check that the keys fit this database, before anything is read; raises BadSetting."""
    claimed = await store.claim_keys(key_ring.ids)
    if claimed.missing:
        raise BadSetting(
            f"The secrets of this database are encrypted with the key {', '.join(claimed.missing)};"
            f" the key here is {', '.join(key_ring.ids)}. Put the right {ENCRYPTION_KEY_FILE} into"
            " the data directory, or set secret_key; while keys change, give the new and the old"
            " one."
        )
    if not claimed.done:
        await log_key(audit, key_ring)  # Encrypts it again, too.
        count = await encrypt_existing(store, key_ring)
        if count:
            log.info("secrets have been encrypted with the current key", subscriptions=count)
    if await store.is_removal_due():
        await _remove_plaintext(store)


async def _remove_plaintext(store: EncryptionStore) -> None:
    """Rewrite the database and log the result; the server starts even if that fails."""
    log.info("rewriting the database to remove plaintext secrets from before encryption")
    try:
        done, reason = await store.remove_plaintext()
    except StoreUnavailable as error:
        done, reason = False, str(error)
    if done:
        log.info("no plaintext secret from before encryption is left in the database files")
    else:
        log.warning(
            "plaintext secrets from before encryption may still be in the database files;"
            " the next start tries again to remove them",
            reason=reason,
        )
