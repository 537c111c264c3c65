"""What SQLite says of a server's data after the server has ended."""

from __future__ import annotations

from pathlib import Path

import apsw


def integrity(data: Path) -> str:
    """``ok``, or the first thing that is wrong."""
    connection = apsw.Connection(str(data / "homing.db"))
    try:
        return str(connection.pragma("integrity_check"))
    finally:
        connection.close()
