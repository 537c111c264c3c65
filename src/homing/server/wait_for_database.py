"""A start that waits for its database: who starts both at once need not care for the order.

Only ``wiring`` uses it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
import uvicorn

from homing.errors import StoreUnavailable

T = TypeVar("T")

log = structlog.get_logger("homing")

PAUSES_S = (0.2, 0.5, 1.0, 2.0)
SAY_EVERY = 10  # tries


async def until_there(
    begin: Callable[[], Awaitable[T]],
    listener: socket.socket,
    make_server: Callable[[], uvicorn.Server],
) -> T | None:
    """What ``begin`` gives once the database answers; None where we were told to end before.

    Meanwhile the server of ``make_server`` says on a copy of the socket that we are not ready.
    """
    try:
        return await begin()
    except StoreUnavailable as error:
        log.warning("waiting for the database: it does not answer", error=str(error))
    server = make_server()
    door = asyncio.create_task(server.serve(sockets=[listener.dup()]))
    tries = 0
    try:
        while True:
            await asyncio.wait([door], timeout=PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            if door.done():
                return None
            tries += 1
            try:
                begun = await begin()
            except StoreUnavailable as error:
                if tries % SAY_EVERY == 0:
                    log.warning("still waiting for the database", error=str(error), tries=tries)
            else:
                log.info("the database is there", tries=tries)
                return begun
    finally:
        server.should_exit = True
        await door
