"""The short form of ``make fleet``: real processes, a real PostgreSQL, real faults."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from fleet.run import SHORT, run, say
from postgres import Server, fast_folder


@pytest.mark.long
def test_a_fleet_lives_through_kills_stops_and_restarts(tmp_path: Path) -> None:
    """On a server of its own: it is crashed, and others must not notice."""
    with tempfile.TemporaryDirectory(prefix="homing-fleet-", dir=fast_folder()) as place:
        server = Server(Path(place), vacuums=True)
        try:
            count = asyncio.run(run(SHORT, server, tmp_path, seed=7))
        finally:
            server.stop()
    say(count, seed=7, seconds=0)
    # How long it took is the machine's affair here; `make fleet` judges that, too.
    assert set(count.wrong) <= {"a stall"}, count.wrong
