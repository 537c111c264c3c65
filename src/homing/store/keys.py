"""The API keys in the database: their hashes, never the keys."""

from __future__ import annotations

from collections.abc import Sequence

from homing.model import show_id
from homing.policy.audit import AuditDraft
from homing.policy.keys import ApiKey, Role
from homing.ports import KeySession
from homing.store import audit as audit_log
from homing.store import erasures
from homing.store.tx import Db, Row, Tx, transaction

LINKS = "link"  # the holder of rows that are no sessions, but links that have opened one
PAST_AT_ONCE = 100  # old sessions that a new session removes at most
TOP_ID = (1 << 63) - 1  # above every id


class Keys:
    """``KeyStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def key_versions(self) -> tuple[int, int]:
        return await self._db.run(_versions, read_only=True)

    @transaction(read_only=True)
    async def live_keys(self, tx: Tx) -> tuple[int, list[ApiKey]]:
        version, _ = await _versions(tx)  # First: later changes are read next time.
        return version, [_key(row) for row in await tx.all("keys_live")]

    @transaction()
    async def create_key(
        self, tx: Tx, key: ApiKey, *, max_keys: int, audit: AuditDraft | None = None
    ) -> bool:
        if key.tenant is not None:
            await erasures.refuse_while_erased(tx, key.tenant)
        await tx.all("keys_raise")
        row = await tx.one("keys_count")
        assert row is not None
        if row[0] >= max_keys:
            return False
        await tx.insert("api_key", [_row(key)])
        await audit_log.write(
            tx, audit, tenant=key.tenant, object_id=show_id("key", key.id), after=key
        )
        return True

    @transaction()
    async def revoke_key(
        self, tx: Tx, key_id: int, *, now: int, audit: AuditDraft | None = None
    ) -> ApiKey | None:
        await tx.all("keys_raise")
        row = await tx.one("key_revoke", id=key_id, now=now)
        if row is None:
            return None
        key = _key(row)
        await audit_log.write(
            tx, audit, tenant=key.tenant, object_id=show_id("key", key.id), before=key
        )
        return key

    @transaction(read_only=True)
    async def keys(
        self, tx: Tx, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[ApiKey], int | None]:
        bounds = {"before_id": TOP_ID if before_id is None else before_id, "limit": limit + 1}
        if tenant is None:
            found = await tx.all("keys_page", **bounds)
        else:
            found = await tx.all("keys_page_of", tenant=tenant, **bounds)
        page = [_key(row) for row in found[:limit]]
        return page, page[-1].id if len(found) > limit else None

    @transaction()
    async def keys_used(self, tx: Tx, used: Sequence[tuple[int, int]]) -> None:
        for number, at in used:
            await tx.all("key_used", id=number, at=at)

    # --- sessions of the dashboard -----------------------------------------------------------

    @transaction()
    async def open_session(
        self,
        tx: Tx,
        session: KeySession,
        *,
        max_sessions: int,
        too_old: int,
        link: str | None = None,
        audit: AuditDraft | None = None,
    ) -> list[str] | None:
        await tx.all("sessions_past", before=too_old, limit=PAST_AT_ONCE)
        if link is not None:
            used = {"id": f"link {link}", "holder": LINKS, "since": session.since}
            if await tx.one("link_use", **used) is None:
                return None
        await tx.one("name_lock", name=f"sessions of {session.holder}")
        await tx.insert("key_session", [(session.id, session.holder, session.since)])
        beyond = await tx.all(
            "sessions_beyond",
            holder=session.holder,
            limit=PAST_AT_ONCE,
            max_sessions=max_sessions,
        )
        if beyond:
            await tx.all("sessions_raise")
        for row in beyond:
            await tx.all("session_end", id=row[0])
        if audit is not None:
            await _log_session(tx, audit)
        return [row[0] for row in beyond]

    @transaction()
    async def end_session(
        self, tx: Tx, session_id: str, *, audit: AuditDraft | None = None
    ) -> None:
        await tx.all("sessions_raise")
        if audit is not None and await tx.one("session_there", id=session_id) is not None:
            await _log_session(tx, audit)
        await tx.all("session_end", id=session_id)

    @transaction(read_only=True)
    async def has_session(self, tx: Tx, session_id: str) -> bool:
        return await tx.one("session_there", id=session_id) is not None


async def _log_session(tx: Tx, audit: AuditDraft) -> None:
    """Write the audit entry of a sign-in or a sign-out; the id of a session stays secret."""
    key_id = audit.who.key_id
    object_id = "" if key_id is None else show_id("key", key_id)
    await audit_log.write(tx, audit, tenant=audit.who.tenant, object_id=object_id)


async def _versions(tx: Tx) -> tuple[int, int]:
    row = await tx.one("key_version")
    assert row is not None
    return int(row[0]), int(row[1])


def _row(key: ApiKey) -> Row:
    return (
        key.id,
        key.prefix,
        key.hash,
        key.name,
        key.role,
        key.tenant,
        key.created_at,
        key.expires_at,
        key.last_used_at,
        key.revoked_at,
    )


def _key(row: Row) -> ApiKey:
    return ApiKey(
        id=row[0],
        prefix=row[1],
        hash=bytes(row[2]),
        name=row[3],
        role=Role(row[4]),
        tenant=row[5],
        created_at=row[6],
        expires_at=row[7],
        last_used_at=row[8],
        revoked_at=row[9],
    )
