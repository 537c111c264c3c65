"""People at a fleet of real processes: what one of them has answered holds at all of them."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

import pytest

from fleet.house import Process, Receiver
from postgres import Server, fast_folder

URLS = 20
EVENTS = 600


async def _people(server: Server, folder: Path) -> None:
    dsn = await server.make()
    crew = [Process(dsn, folder, "both", number) for number in range(2)]
    async with Receiver(delay_s=0.2).listening() as receiver:
        try:
            for process in crew:
                await process.start()
            one, other = (it.line() for it in crew)
            site, made = f"http://127.0.0.1:{receiver.port}", []
            for number in range(URLS):
                asked = {"url": f"{site}/h/{number}", "types": [f"t.{number}"]}
                made.append((await one.ask("POST", "/v1/subscriptions", asked)).json["id"])
                at = f"/v1/subscriptions/{made[-1]}"
                changed = await other.ask("PATCH", at, {"description": "known at once"})
                assert (changed.status, changed.json["description"]) == (200, "known at once")
            batch = [{"type": f"t.{n % URLS}", "data": n} for n in range(EVENTS)]
            assert (await one.ask("POST", "/v1/events", batch)).status == 202
            responded: dict[str, float] = {}
            for number, id_ in enumerate(made):
                line = (one, other)[number % 2]
                assert (await line.ask("DELETE", f"/v1/subscriptions/{id_}")).status == 204
                responded[f"/h/{number}"] = time.time()
            await asyncio.sleep(1)
        finally:
            assert await asyncio.gather(*(it.end() for it in crew if it.process)) == [0, 0]
    assert 0 < len(receiver.arrivals) < EVENTS
    assert len({it.who for it in receiver.arrivals}) == 2  # Both had a share.
    late = [it for it in receiver.arrivals if it.sent > responded[it.path]]
    assert not late


@pytest.mark.long
def test_what_one_process_has_answered_holds_at_all(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="homing-people-", dir=fast_folder()) as place:
        server = Server(Path(place))
        try:
            asyncio.run(_people(server, tmp_path))
        finally:
            server.stop()
