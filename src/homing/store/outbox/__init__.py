"""Outboxes: a small table in the application's own database, read by the relay.

Whether a row waits is asked of the table itself, never of a number that was seen last: a sequence
is not the order of commits, and a row with a low number may appear after one with a high number.
A row is deleted only after its publish was confirmed. If the relay dies in between, the row is
published again with the same id, which is the same event.
"""

from homing.store.outbox.install import EXAMPLES, install_postgres, install_sqlite, install_text
from homing.store.outbox.opening import open_outbox, outbox_kind, sqlite_path

__all__ = [
    "EXAMPLES",
    "install_postgres",
    "install_sqlite",
    "install_text",
    "open_outbox",
    "outbox_kind",
    "sqlite_path",
]
