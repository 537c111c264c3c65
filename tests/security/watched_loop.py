"""``homing serve`` with an event loop that records every turn that takes long.

A line is the time at its end (monotonic), how long it took, and how much CPU the process used in
it: a turn in which the machine was busy with something else used little.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import uvloop

from homing.cli.main import main

FILE = "WATCHED_LOOP_FILE"
EVERY_S = 0.001
LONG_S = 0.005


class _Watch:
    def __init__(self, loop: asyncio.AbstractEventLoop, file: Path) -> None:
        self._loop, self._file = loop, file.open("a", buffering=1)
        self._at, self._cpu = time.monotonic(), time.process_time()
        loop.call_soon(self.tick)

    def tick(self) -> None:
        at, cpu = time.monotonic(), time.process_time()
        took = at - self._at - EVERY_S
        if took >= LONG_S:
            self._file.write(f"{at:.6f} {took:.6f} {cpu - self._cpu:.6f}\n")
        self._at, self._cpu = at, cpu
        self._loop.call_later(EVERY_S, self.tick)


def _watched_loop() -> asyncio.AbstractEventLoop:
    loop = _new_loop()
    _Watch(loop, Path(os.environ[FILE]))
    return loop


_new_loop = uvloop.new_event_loop
if FILE in os.environ:  # Who only imports the name of the variable keeps their loop.
    uvloop.new_event_loop = _watched_loop  # type: ignore[assignment]

if __name__ == "__main__":
    main()
