"""The relay of an application's outbox inside a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from homing.app.publishing import Publishing
from homing.engine.relay import Relay, RelayOptions
from homing.ports import Clock
from homing.server.settings import Settings
from homing.store.outbox import open_outbox
from homing.web.relay import publish_here

RELAY_CLOSE_S = 1.0


def make_relay(
    settings: Settings, publishing: Publishing, clock: Clock, random: Callable[[], float]
) -> Relay | None:
    """The relay of the application's outbox; None if there is none to relay here."""
    if not settings.outbox.url or not settings.fleet.serves_api:
        return None
    return Relay(
        open_outbox(settings.outbox.url),
        publish_here(publishing),
        clock=clock,
        random=random,
        options=RelayOptions(poll_ms=settings.outbox.poll_ms),
    )


@contextlib.asynccontextmanager
async def relaying(relay: Relay | None, grace_ms: int) -> AsyncIterator[None]:
    """Run the relay; at the end the current batch is finished, if its database responds."""
    if relay is None:
        yield
        return
    task = asyncio.create_task(relay.run())
    try:
        yield
    finally:
        relay.stop()
        # Half of the grace period: the other half is for attempts in flight.
        await asyncio.wait([task], timeout=grace_ms / 2000)
        task.cancel()
        await asyncio.wait([task], timeout=RELAY_CLOSE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELAY_CLOSE_S):
                await relay.close()
