"""The short form of ``make fleet``: real processes, a real PostgreSQL, real faults."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from fleet.run import SHORT, run, say
from postgres import Server


def test_a_fleet_lives_through_kills_stops_and_restarts(tmp_path: Path) -> None:
    """On a server of its own: it is crashed, and others must not notice."""
    with tempfile.TemporaryDirectory(prefix="homing-fleet-") as place:
        server = Server(Path(place))
        try:
            count = asyncio.run(run(SHORT, server, tmp_path, seed=7))
        finally:
            server.stop()
    say(count, SHORT, 7, 0)
    assert count.good, count
    assert count.acknowledged > 0
    assert {"SIGKILL", "SIGSTOP", "restart of PostgreSQL"} <= count.faults.keys()
    # What a killed or stopped process had sent and not settled: no more than it has slots.
    assert count.duplicated <= 16 * SHORT.urls * (SHORT.kills + SHORT.stops)
