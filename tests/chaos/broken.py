"""Deliberately broken builds, as controls: a run that does not find its own has found nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from msgspec.structs import replace

from homing.cli.main import main
from homing.engine.decide import Decision, Item
from homing.engine.engine import Engine, NoticeParts
from homing.engine.notice_sender import NoticeSender
from homing.engine.publish import Publisher, PublishResult
from homing.engine.settle import Settler
from homing.errors import StoreUnavailable, Unavailable
from homing.policy.admission import EventDraft
from homing.policy.notice_text import Message
from homing.policy.notices import Notice
from homing.ports import Receipt, SettleBatch
from homing.store import flow, sqlite
from homing.store.process.worker import WorkerProcess


def acks_anyway() -> None:
    """Responds with 202 though the store could not commit."""
    honest = Publisher.publish_then

    def publish_then(
        self: Publisher, drafts: Sequence[EventDraft], on_result: Callable[[PublishResult], None]
    ) -> None:
        def lie(told: PublishResult) -> None:
            if isinstance(told, Unavailable):
                told = [Receipt(key=it.key or "?", deliveries=1, new=True) for it in drafts]
            on_result(told)

        honest(self, drafts, lie)

    Publisher.publish_then = publish_then  # type: ignore[method-assign]


def forgets_ids() -> None:
    """Takes every event for a new one."""

    async def nothing(*_: Any) -> dict[tuple[str, str], tuple[bytes, int]]:
        return {}

    setattr(flow, "known_keys", nothing)  # noqa: B010 - it is imported there, not exported
    text = sqlite._INSERTS["event_key"]
    sqlite._INSERTS["event_key"] = text.replace("INSERT", "INSERT OR REPLACE", 1)


def stops_at_once() -> None:
    """Leaves without waiting for the attempts under way."""

    async def stop(self: Engine, *, grace_ms: int) -> NoReturn:
        os._exit(0)

    Engine.stop = stop  # type: ignore[method-assign]


def reports_later() -> None:
    """Writes the records of notices a moment after the commit of their change."""
    honest, stores = Decision.batch, []
    use = Engine._use

    def used(self: Engine, parts: NoticeParts) -> None:
        stores.append(parts.store)
        use(self, parts)

    async def write(notices: tuple[Notice, ...]) -> None:
        await asyncio.sleep(0.2)
        await stores[0].write_notices(notices)

    def batch(self: Decision, number: int, fences: Any = (), *, fence: int = 0) -> SettleBatch:
        made = honest(self, number, fences, fence=fence)
        if made.for_people:
            tasks.append(asyncio.ensure_future(write(made.for_people)))
        return replace(made, for_people=())

    tasks: list[asyncio.Future[None]] = []
    Engine._use = used  # type: ignore[method-assign]
    Decision.batch = batch  # type: ignore[method-assign]


def renames_messages() -> None:
    """Sends a message under a new name each time."""
    honest = NoticeSender._deliver

    async def deliver(self: NoticeSender, message: Message) -> str:
        return await honest(self, replace(message, id=self._ids.take(self._clock.now())))

    NoticeSender._deliver = deliver  # type: ignore[method-assign]


def settles_late() -> None:
    """Lets outcomes wait before they are written."""
    honest = Settler._settle

    async def settle(self: Settler, items: list[Item]) -> None:
        await asyncio.sleep(1)
        await honest(self, items)

    Settler._settle = settle  # type: ignore[method-assign]


def gives_outcomes_up() -> None:
    """Takes the outcomes of a writer that ended for written."""
    honest, ended = WorkerProcess.call, False

    async def call(self: WorkerProcess, port: str, method: str, *args: Any, **kwargs: Any) -> Any:
        nonlocal ended
        if ended and method == "settle":
            ended = False
            return frozenset()
        try:
            return await honest(self, port, method, *args, **kwargs)
        except StoreUnavailable:
            ended = True
            raise

    WorkerProcess.call = call  # type: ignore[method-assign]


def build(name: str) -> tuple[str, ...]:
    """What to run instead of the honest program."""
    assert name in BUILDS, name
    return (str(Path(__file__).resolve()), name)


BUILDS = {
    it.__name__: it
    for it in (
        acks_anyway,
        forgets_ids,
        stops_at_once,
        reports_later,
        renames_messages,
        settles_late,
        gives_outcomes_up,
    )
}

if __name__ == "__main__":
    os.environ.setdefault("HOMING_WRITER", "thread")  # in this process, where the patch is
    BUILDS[sys.argv.pop(1)]()
    main()
