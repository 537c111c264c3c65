"""A server without requests hardly wakes, and still stops at once."""

from __future__ import annotations

import asyncio

import uvicorn

from homing.sim.loop import run_virtual
from homing.web.limits import LimitedServer


class _Server(LimitedServer):
    def __init__(self) -> None:
        super().__init__(uvicorn.Config("nothing", log_config=None))
        self.seen: list[int] = []

    async def on_tick(self, counter: int) -> bool:
        self.seen.append(counter)
        return await super().on_tick(counter)


def test_an_idle_server_wakes_once_a_second_and_exits_at_once() -> None:
    async def story() -> None:
        server, loop = _Server(), asyncio.get_running_loop()
        task = asyncio.create_task(server.main_loop())
        await asyncio.sleep(3.5)
        assert server.seen == [0, 10, 20, 30]  # in uvicorn's ticks of a tenth of a second
        before = loop.time()
        server.should_exit = True
        await task
        assert loop.time() == before

    run_virtual(story())
