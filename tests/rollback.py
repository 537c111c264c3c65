"""A database that loses its last commits, as a standby does that had not received them."""

from __future__ import annotations

from homing.store.sqlite import SqliteDb


class Standby:
    """What a standby has received of a database in memory."""

    def __init__(self, db: SqliteDb) -> None:
        self._db = db
        self._image = db._writer.image()

    def receive(self) -> None:
        """Everything so far."""
        self._image = self._db._writer.image()

    def promote(self) -> None:
        """From now on the database is as the standby has it: later commits are lost."""
        self._db._writer.load(self._image)
