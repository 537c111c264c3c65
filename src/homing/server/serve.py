"""``homing serve`` from start to stop, and a server inside another program.

With ``processes`` above 1, ``supervisor`` starts processes that each serve as described here.

SIGTERM and SIGINT stop a server in this order: it says that it is not ready and goes on serving for
``drain_ms``, takes no new connections, finishes the requests in progress, starts no new attempts,
waits for attempts in flight and settles them, and closes the store. ``shutdown`` limits how long
that may take.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

import structlog
import uvloop

from homing.engine.options import EngineOptions
from homing.errors import StoreUnavailable
from homing.ports import Clock
from homing.server.http_server import HttpConfig, HttpServer, open_listener, own_address, url_of
from homing.server.open_files import raise_limit
from homing.server.settings import Settings
from homing.server.shutdown import EXIT_UNSETTLED, Shutdown
from homing.server.siblings import Siblings
from homing.server.supervisor import process_count, supervise
from homing.server.wiring import Running, running
from homing.web.connections import ConnectionLimit
from homing.web.waiting import waiting

T = TypeVar("T")

log = structlog.get_logger("homing")

RETRY_PAUSES_S = (0.2, 0.5, 1.0, 2.0)  # between attempts to open the database; the last repeats
LOG_EVERY = 10  # attempts


def serve(
    settings: Settings,
    *,
    admin_key: str,
    ready: Callable[[str], None],
    sources: Mapping[str, str] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; ``ready`` is called with the address.

    Exits with 1 if some outcomes could not be written within the grace period.
    """
    siblings = None
    if (count := process_count(settings)) > 1:
        siblings = supervise(settings, count, ready=ready)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        settled = runner.run(_serve(settings, admin_key, ready, sources, raise_limit(), siblings))
    if not settled:
        raise SystemExit(EXIT_UNSETTLED)


async def _serve(
    settings: Settings,
    admin_key: str,
    ready: Callable[[str], None],
    sources: Mapping[str, str] | None,
    descriptors_max: int,
    siblings: Siblings | None,
) -> bool:
    """Serve until a signal; False if some outcomes could not be written."""
    shutdown = Shutdown(grace_ms=settings.delivery.grace_ms, drain_ms=settings.listen.drain_ms)
    shutdown.handle_signals(supervised=siblings is not None)
    if siblings is not None:
        siblings.take_signals()
    _tune_garbage_collector()
    async with contextlib.AsyncExitStack() as stack:
        listener = siblings.listener if siblings else open_listener(settings.listen)
        stack.enter_context(listener)

        async def start() -> Running:
            parts = running(
                settings,
                admin_key=admin_key,
                sources=sources,
                descriptors_max=descriptors_max,
                shutdown=shutdown,
                siblings=siblings,
                own=own_address(listener),
            )
            return await stack.enter_async_context(parts)

        if settings.database.url:
            connections_max = min(settings.listen.connections_max, descriptors_max // 2)
            may_respond = siblings is None or siblings.was_alone
            waited = wait_for_database(
                start, listener if may_respond else None, connections_max=connections_max
            )
            parts = await shutdown.unless_requested(waited)
        else:
            parts = await shutdown.unless_requested(start())
        if parts is None:
            return True
        gc.freeze()  # The catalog and the queues, too, live as long as the process.
        server = HttpServer(parts.config, end_streams=parts.end_streams, siblings=siblings)
        shutdown.unfinished = parts.engine.unfinished
        shutdown.on_request(lambda: setattr(server, "should_exit", True), drain=server.drain)
        if siblings is None:
            ready(url_of(listener))
        await server.serve(sockets=[listener])
    return shutdown.all_settled


async def wait_for_database(
    start: Callable[[], Awaitable[T]], listener: socket.socket | None, *, connections_max: int
) -> T | None:
    """The result of ``start``, which is called again until the database responds.

    So server and database may be started in any order. Meanwhile a second HTTP server on a copy of
    the socket responds that this process is alive and not ready; None if that server ends. Without
    a socket other processes respond.
    """
    try:
        return await start()
    except StoreUnavailable as error:
        log.warning("waiting for the database: it does not respond", error=str(error))
    server = HttpServer(HttpConfig(waiting, ConnectionLimit(connections_max)))
    sockets = [] if listener is None else [listener.dup()]
    meanwhile = asyncio.create_task(server.serve(sockets=sockets))
    tries = 0
    try:
        while True:
            pause_s = RETRY_PAUSES_S[min(tries, len(RETRY_PAUSES_S) - 1)]
            await asyncio.wait([meanwhile], timeout=pause_s)
            if meanwhile.done():
                return None
            tries += 1
            try:
                started = await start()
            except StoreUnavailable as error:
                if tries % LOG_EVERY == 0:
                    log.warning("still waiting for the database", error=str(error), tries=tries)
            else:
                log.info("the database responds", tries=tries)
                return started
    finally:
        server.should_exit = True
        await meanwhile


def _tune_garbage_collector() -> None:
    """Exempt the loaded modules, which live as long as the process, and collect rarely.

    Values on the hot path form no cycles. The cycles that the collector finds belong to closed
    connections and can wait. With the default thresholds it took a tenth of the event loop's time.
    Called before the start: a collection after it would look at every subscription and endpoint,
    while deliveries wait.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@contextlib.asynccontextmanager
async def serving(
    settings: Settings,
    *,
    admin_key: str,
    options: EngineOptions | None = None,
    clock: Clock | None = None,
    in_memory: bool = False,
) -> AsyncIterator[tuple[str, Running]]:
    """A server inside another program, which keeps its signal handlers: its URL and its parts."""
    with open_listener(settings.listen) as listener:
        async with running(
            settings,
            admin_key=admin_key,
            options=options,
            clock=clock,
            in_memory=in_memory,
            own=own_address(listener),
        ) as parts:
            server = HttpServer(parts.config, end_streams=parts.end_streams)
            task = asyncio.create_task(server.serve(sockets=[listener]))
            try:
                yield url_of(listener), parts
            finally:
                server.should_exit = True
                await task
