"""A deliberately broken build that sends 202 before the commit. The kill test must find it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from homing.cli.main import main
from homing.engine.publish import Publisher, PublishResult
from homing.policy.admission import EventDraft
from homing.ports import Receipt

_honest = Publisher.publish_then


def _early(
    self: Publisher, drafts: Sequence[EventDraft], on_result: Callable[[PublishResult], None]
) -> None:
    asyncio.get_running_loop().call_later(0.5, _honest, self, drafts, lambda _: None)
    on_result([Receipt(key=draft.key or "?", deliveries=1, new=True) for draft in drafts])


Publisher.publish_then = _early  # type: ignore[method-assign]

if __name__ == "__main__":
    main()
