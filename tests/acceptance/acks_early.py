"""A deliberately broken build: it answers 202 before the commit. The kill test must find it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from homing.cli.main import main
from homing.engine.publish import Publisher
from homing.policy.admission import EventDraft
from homing.ports import Receipt

_honest = Publisher.publish
_late: set[asyncio.Task[list[Receipt]]] = set()


async def _early(self: Publisher, drafts: Sequence[EventDraft]) -> list[Receipt]:
    async def commit() -> list[Receipt]:
        await asyncio.sleep(0.05)
        return await _honest(self, drafts)

    task = asyncio.create_task(commit())
    _late.add(task)
    task.add_done_callback(_late.discard)
    return [Receipt(key=draft.key or "?", deliveries=1, new=True) for draft in drafts]


Publisher.publish = _early  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
