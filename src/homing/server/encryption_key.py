"""The keys that seal secrets at rest: set, or kept in the data directory for its owner only.

Losing them is losing every token, secret and header value: they belong into a backup of their own.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import structlog

from homing.errors import BadSetting, StoreUnavailable
from homing.policy.seal import Sealer
from homing.policy.seal_keys import KEY_BYTES, read_keys
from homing.ports import SealStore
from homing.server.settings import SEAL_FILE, Settings
from homing.store.sealed import seal_what_is_open

_OWNER_ONLY = 0o600

log = structlog.get_logger("homing")


def any_sealer() -> Sealer:
    """For a store that ends with its process."""
    return Sealer((secrets.token_bytes(KEY_BYTES),))


def sealer_of(settings: Settings) -> Sealer:
    """With the keys that are set, else those that are kept, else a new one; raises BadSetting."""
    if settings.secret_key:
        keys = read_keys(settings.secret_key)
        assert keys is not None, "checked when the settings were read"
        return Sealer(keys)
    path = Path(settings.data) / SEAL_FILE
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = _read(path) or _make(path)
    except OSError as error:
        raise BadSetting(f"The secret key at {path} cannot be used: {error.strerror}.") from error
    keys = read_keys(text)
    if keys is None:
        raise BadSetting(
            f"The secret key at {path} is damaged: it must be base64 of {KEY_BYTES} bytes, one "
            "key per line. Put back the one that was there; without it no secret can be read."
        )
    return Sealer(keys)


@contextlib.contextmanager
def new_key_only_if_taken(settings: Settings) -> Iterator[None]:
    """A key that was just made and does not fit the database is not left lying there."""
    path = Path(settings.data) / SEAL_FILE
    there = settings.secret_key or path.exists()
    try:
        yield
    except BadSetting:
        if not there:
            path.unlink(missing_ok=True)
        raise


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & ~_OWNER_ONLY:
            os.fchmod(file.fileno(), _OWNER_ONLY)
            log.warning(
                "the secret key could be read by others; its mode is mended",
                path=str(path),
                was=f"{mode:04o}",
            )
        return file.read(16_384).strip()


def _make(path: Path) -> str:
    """A new key on disk, complete before it has its name; whoever comes first wins."""
    text = b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    draft = path.with_name(f"{SEAL_FILE}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _OWNER_ONLY)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        text = _read(path)
    finally:
        draft.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return text


async def claim(store: SealStore, sealer: Sealer) -> None:
    """Before anything is read: are these the keys of this database? Raises BadSetting."""
    answer = await store.claim_seal(sealer.ids)
    if answer.missing:
        raise BadSetting(
            f"The secrets of this database are sealed with the key {', '.join(answer.missing)}; "
            f"here is {', '.join(sealer.ids)}. Put the right {SEAL_FILE} into the data directory, "
            "or set secret_key; while keys change, give the new and the old one."
        )
    if not answer.done:
        count = await seal_what_is_open(store, sealer)
        if count:
            log.info("secrets are sealed with the current key", subscriptions=count)
    if await store.is_removal_due():
        await _remove_plaintext(store)


async def _remove_plaintext(store: SealStore) -> None:
    """Rewrite the database and log it; the server starts also where that is not possible."""
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
