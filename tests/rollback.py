"""A database that loses its last commits, as a standby does that had not received them."""

from __future__ import annotations

from homing.store.migrate import Execute
from homing.store.sqlite import SqliteDb


class Standby:
    """What a standby has received of a database in memory."""

    def __init__(self, db: SqliteDb) -> None:
        self._db = db
        self._image = db._writer.image()
        self._server = 0

    def receive(self) -> None:
        """Everything so far."""
        self._image = self._db._writer.image()

    def promote(self) -> None:
        """From now on the database is as the standby has it: later commits are lost.

        As on PostgreSQL, its rows were written by another server.
        """
        self._db._writer.load(self._image)
        self._server += 1
        server = self._server

        async def serve(run: Execute) -> None:
            await run("UPDATE catalog SET server = ?", server)

        self._db._writer.raw(serve)
