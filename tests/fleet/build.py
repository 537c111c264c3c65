"""``homing serve`` as a fleet's run starts it: each request says who sent it, and when.

Also deliberately broken builds, as controls: a run that does not find its own has found nothing.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from homing.cli.main import main
from homing.engine.fleet.membership import Fleet
from homing.engine.fleet.ownership import FOR_EVER, BucketOwnership
from homing.engine.publish import Publisher, PublishResult
from homing.net.sender import HttpSender
from homing.policy.admission import EventDraft
from homing.ports import Receipt, Request, Response
from homing.store import leases

MARK = "x-fleet"
HONEST = "honest"


def mark(label: str) -> None:
    """A header with the name of this process and the moment at which the attempt began."""
    honest = HttpSender.send

    def send(self: HttpSender, request: Request, done: Callable[[Response], None]) -> None:
        line = f"{MARK}: {label} {time.time():.6f}\r\n".encode()
        honest(self, replace(request, header_block=request.header_block + line), done)

    HttpSender.send = send  # type: ignore[method-assign]


def acks_early() -> None:
    """Responds with 202 before the commit."""
    honest = Publisher.publish_then

    def early(
        self: Publisher, drafts: Sequence[EventDraft], on_result: Callable[[PublishResult], None]
    ) -> None:
        asyncio.get_running_loop().call_later(0.5, honest, self, drafts, lambda _: None)
        on_result([Receipt(key=it.key or "?", deliveries=1, new=True) for it in drafts])

    Publisher.publish_then = early  # type: ignore[method-assign]


def asks_for_no_epoch() -> None:
    """The store takes what is written under any epoch."""

    async def hold(_tx: Any, _fences: Any) -> None:
        return

    setattr(leases, "hold", hold)  # noqa: B010
    os.environ["HOMING_WRITER"] = "inline"  # in this process, where the patch is


def settles_unfenced() -> None:
    """A settle does not say under which leases it was made."""

    def fences(self: BucketOwnership, buckets: Iterable[int]) -> tuple[tuple[int, int], ...]:
        return ()

    BucketOwnership.fences = fences  # type: ignore[method-assign]


def never_lapses() -> None:
    """Goes on sending whatever becomes of its leases."""
    honest = Fleet._beat_once

    def lose(_self: Fleet, _buckets: Iterable[int]) -> None:
        return

    async def beat_once(self: Fleet) -> None:
        await honest(self)
        self._ownership.extend(FOR_EVER)

    Fleet._beat_once = beat_once  # type: ignore[method-assign]
    setattr(Fleet, "lose", lose)  # noqa: B010


BUILDS: dict[str, Callable[[], None]] = {
    it.__name__: it for it in (acks_early, asks_for_no_epoch, settles_unfenced, never_lapses)
}


def argv(build: str, label: str) -> tuple[str, ...]:
    """What to run."""
    assert build == HONEST or build in BUILDS, build
    return (str(Path(__file__).resolve()), build, label)


if __name__ == "__main__":
    chosen, name = sys.argv[1:3]
    del sys.argv[1:3]
    if chosen != HONEST:
        BUILDS[chosen]()
    mark(name)
    main()
