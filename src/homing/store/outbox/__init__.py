"""Outboxes: a small table in the application's own database, read by the relay.

The relay always asks for all waiting rows, never for those after the last number it saw: numbers
are not in the order of commits, so a row with a low number may appear after one with a high one. A
row is deleted only after it was published. If the relay dies in between, the row is published again
with the same id, which is the same event.
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
