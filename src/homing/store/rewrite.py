"""Rewrites files that may hold old row versions: UPDATE and DELETE leave the old text in them.

SQLite keeps old text in free pages, in the gaps of pages of any table and in the write-ahead log,
so the whole file is rewritten. PostgreSQL keeps dead row versions in the files of one table, so
that table is rewritten. The row of ``plaintext_removal`` is removed only when the rewrite is on
disk: a process that is killed before that begins again at its next start.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw

from homing.ports.encryption import Rewrite
from homing.store.migrate import Execute

# About half a minute. A longer start could be killed by a supervisor each time, and never end.
REWRITE_BYTES_MAX = 4 << 30
BUSY_MS = 5_000
LOCK_TIMEOUT = "3s"  # While a rewrite waits for its lock, other processes wait behind it.

_DONE = "DELETE FROM plaintext_removal"
_TEMP_IN_FILE = 1
_HOWTO = "Follow docs/howto/encryption-keys.md, section Plaintext from before encryption."


def rewrite_file(path: str, *, bytes_max: int = REWRITE_BYTES_MAX) -> Rewrite:
    """Rewrite a SQLite file that no other process writes to meanwhile, and empty its log.

    VACUUM needs twice the size of the data: a temporary file without a name, and the log.
    """
    file = Path(path)
    try:
        with _opened(file) as connection:
            size = _data_bytes(connection)
            if size > bytes_max:
                return Rewrite(done=False, reason=f"The database has {size:,} bytes. {_HOWTO}")
            free = shutil.disk_usage(file.parent).free
            if free < 2 * size:
                reason = f"It needs {2 * size:,} bytes of free disk space; {free:,} are free."
                return Rewrite(done=False, reason=reason)
            connection.execute("VACUUM")
            ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if busy:
                return Rewrite(done=False, reason="Another program is reading the database file.")
            connection.execute(_DONE)
    except apsw.Error as error:
        # Only the kind of error: its text could quote a row.
        return Rewrite(done=False, reason=f"SQLite: {type(error).__name__}.")
    except OSError as error:
        return Rewrite(done=False, reason=f"{file.parent}: {error.strerror}.")
    return Rewrite(done=True)


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[apsw.Connection]:
    """A connection that overwrites deleted data and keeps temporary files beside the database.

    Other connections keep temporary files in memory, which is too small for a large copy.
    """
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.pragma("synchronous", "full")
        connection.pragma("secure_delete", True)
        connection.pragma("temp_store", _TEMP_IN_FILE)
        connection.pragma("temp_store_directory", str(file.parent.absolute()))
        yield connection
    finally:
        connection.pragma("temp_store_directory", "")
        connection.close()


def _data_bytes(connection: apsw.Connection) -> int:
    """The size of the file without its free pages, which are not copied."""
    pages = int(connection.pragma("page_count")) - int(connection.pragma("freelist_count"))
    return pages * int(connection.pragma("page_size"))


async def rewrite_table(run: Execute) -> Rewrite:
    """Rewrite the table of subscriptions on PostgreSQL, in the transaction that notes it.

    A transaction that began earlier, anywhere on the server, can still need the old row versions.
    CLUSTER then keeps them, and counts them among the rows of the table.
    """
    await run(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
    if not await run("SELECT id FROM plaintext_removal FOR UPDATE"):
        return Rewrite(done=True)  # Another process has done it.
    await run("CLUSTER subscription USING subscription_pkey")
    await run("ALTER TABLE subscription SET WITHOUT CLUSTER")
    ((kept, live),) = await run(
        "SELECT reltuples::bigint, (SELECT count(*) FROM subscription) FROM pg_class"
        " WHERE oid = 'subscription'::regclass"
    )
    if kept > live:
        return Rewrite(
            done=False,
            reason=f"An older transaction keeps {kept - live} old row versions (a backup, a"
            " replica or an idle session): end that transaction.",
        )
    await run(_DONE)
    return Rewrite(done=True)
