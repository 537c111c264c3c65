"""Asks the store whether it answers: once for everybody who wants to know at that moment.

Readiness is asked without a key. However many ask, they hold one connection to the store.
"""

from __future__ import annotations

import asyncio

from homing.errors import HomingError, StoreUnavailable
from homing.ports import ViewStore

PING_WITHIN_S = 5.0


class StorePing:
    """The question under way, if there is one."""

    def __init__(self) -> None:
        self._asking: asyncio.Task[HomingError | None] | None = None

    async def __call__(self, views: ViewStore) -> None:
        """Returns once the store has answered; raises StoreUnavailable."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(_ask(views))
        if (problem := await asyncio.shield(self._asking)) is not None:
            raise problem


async def _ask(views: ViewStore) -> HomingError | None:
    try:
        async with asyncio.timeout(PING_WITHIN_S):
            await views.ping()
    except TimeoutError:
        return StoreUnavailable("It does not answer.")
    except HomingError as error:
        return error
    return None
