"""Which processes of Homing work on a PostgreSQL, for those who must not disturb them."""

from __future__ import annotations

from homing.errors import StoreUnavailable
from homing.store.connect import connect
from homing.store.postgres_refusals import CONNECTION_ERRORS, refusal_text

# Behind a pooler, sessions do not have the name of Homing: processes are found by heartbeats.
_PROCESSES = """
    SELECT name FROM process
    WHERE expires_at > (extract(epoch FROM clock_timestamp()) * 1000)::bigint ORDER BY id
"""
_SESSIONS = """
    SELECT DISTINCT application_name FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'homing%'
    AND pid <> pg_backend_pid()
"""


async def at_work(dsn: str) -> list[str]:
    """The processes of Homing on this PostgreSQL, by heartbeats, or else by sessions."""
    try:
        connection = await connect(dsn, statement_cache_size=0)
        try:
            if await connection.fetchval("SELECT to_regclass('process') IS NOT NULL"):
                found = [str(row[0]) for row in await connection.fetch(_PROCESSES)]
                if found:
                    return found
            return [str(row[0]) for row in await connection.fetch(_SESSIONS)]
        finally:
            await connection.close(timeout=5)
    except CONNECTION_ERRORS as error:
        raise StoreUnavailable(refusal_text(error, dsn)) from error
