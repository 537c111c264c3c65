"""The keys of the API in the database: their hashes, never the keys."""

from __future__ import annotations

from collections.abc import Sequence

from homing.policy.keys import ApiKey, Role
from homing.ports import KeySession
from homing.store.tx import Db, Row, Tx

PAST_AT_ONCE = 100  # sessions that are removed by one that begins
TOP_ID = (1 << 63) - 1  # above every id


class Keys:
    """``KeyStore`` on a database."""

    def __init__(self, db: Db) -> None:
        self._db = db

    async def key_versions(self) -> tuple[int, int]:
        return await self._db.run(_versions, look=True)

    async def live_keys(self) -> tuple[int, list[ApiKey]]:
        async def work(tx: Tx) -> tuple[int, list[ApiKey]]:
            version, _ = await _versions(tx)  # First: what comes between is read again next time.
            return version, [_key(row) for row in await tx.all("keys_live")]

        return await self._db.run(work, look=True)

    async def create_key(self, key: ApiKey, *, most: int) -> bool:
        async def work(tx: Tx) -> bool:
            await tx.all("keys_raise")
            row = await tx.one("keys_count")
            assert row is not None
            if row[0] >= most:
                return False
            await tx.insert("api_key", [_row(key)])
            return True

        return await self._db.run(work)

    async def revoke_key(self, key_id: int, *, now: int) -> ApiKey | None:
        async def work(tx: Tx) -> ApiKey | None:
            await tx.all("keys_raise")
            row = await tx.one("key_revoke", id=key_id, now=now)
            return _key(row) if row else None

        return await self._db.run(work)

    async def keys(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[ApiKey], int | None]:
        async def work(tx: Tx) -> tuple[list[ApiKey], int | None]:
            found = await tx.all(
                "keys_page",
                tenant=tenant,
                before_id=TOP_ID if before_id is None else before_id,
                limit=limit + 1,
            )
            page = [_key(row) for row in found[:limit]]
            return page, page[-1].id if len(found) > limit else None

        return await self._db.run(work, look=True)

    async def keys_used(self, used: Sequence[tuple[int, int]]) -> None:
        async def work(tx: Tx) -> None:
            for number, at in used:
                await tx.all("key_used", id=number, at=at)

        await self._db.run(work)

    # --- sessions of the dashboard -----------------------------------------------------------

    async def open_session(self, session: KeySession, *, most: int, too_old: int) -> list[str]:
        async def work(tx: Tx) -> list[str]:
            await tx.all("sessions_past", before=too_old, limit=PAST_AT_ONCE)
            await tx.insert("key_session", [(session.id, session.holder, session.since)])
            beyond = await tx.all(
                "sessions_beyond", holder=session.holder, limit=PAST_AT_ONCE, most=most
            )
            if beyond:
                await tx.all("sessions_raise")
            for row in beyond:
                await tx.all("session_end", id=row[0])
            return [row[0] for row in beyond]

        return await self._db.run(work)

    async def end_session(self, session_id: str) -> None:
        async def work(tx: Tx) -> None:
            await tx.all("sessions_raise")
            await tx.all("session_end", id=session_id)

        await self._db.run(work)

    async def has_session(self, session_id: str) -> bool:
        async def work(tx: Tx) -> bool:
            return await tx.one("session_there", id=session_id) is not None

        return await self._db.run(work, look=True)


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
