"""Deliberately broken builds, as controls: a run that does not find its own has found nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from homing.cli.main import main
from homing.engine.engine import Engine
from homing.engine.publish import Publisher, Told
from homing.errors import Unavailable
from homing.policy.admission import EventDraft
from homing.ports import Receipt
from homing.store import flow, sqlite


def acks_anyway() -> None:
    """Answers 202 though the store could not commit."""
    honest = Publisher.publish_then

    def publish_then(
        self: Publisher, drafts: Sequence[EventDraft], tell: Callable[[Told], None]
    ) -> None:
        def lie(told: Told) -> None:
            if isinstance(told, Unavailable):
                told = [Receipt(key=it.key or "?", deliveries=1, new=True) for it in drafts]
            tell(told)

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


def build(name: str) -> tuple[str, ...]:
    """What to run instead of the honest program."""
    assert name in BUILDS, name
    return (str(Path(__file__).resolve()), name)


BUILDS = {it.__name__: it for it in (acks_anyway, forgets_ids, stops_at_once)}

if __name__ == "__main__":
    os.environ["HOMING_WRITER"] = "thread"  # in this process, where the patch is
    BUILDS[sys.argv.pop(1)]()
    main()
