"""The check of an application's outbox, where one is set."""

from __future__ import annotations

import asyncio

from homing.cli.checks import Check, Verdict
from homing.cli.output import span
from homing.errors import HomingError
from homing.ports import OutboxLook
from homing.server.settings import Settings
from homing.store.outbox import open_outbox

LATE_MS = 60_000


def check_outbox(settings: Settings) -> list[Check]:
    """Whether somebody relays it, and whether rows need a person."""
    if not settings.outbox.url:
        return []
    try:
        look = asyncio.run(_look(settings.outbox.url))
    except HomingError as error:
        advice = "Is the address right, is the database there, has `homing outbox install` run?"
        return [Check("outbox", Verdict.WRONG, f"The outbox cannot be read: {error}", advice)]
    return [_judge(look)]


async def _look(address: str) -> OutboxLook:
    store = open_outbox(address)
    try:
        return await store.look()
    finally:
        await store.close()


def _judge(look: OutboxLook) -> Check:
    waits = f"{look.waiting:,} rows wait, the oldest for {span(look.oldest_ms)}"
    if look.refused:
        sentence = f"{look.refused:,} rows were refused for good; {look.waiting:,} wait."
        advice = "`homing outbox status` says why; mend it, then `homing outbox retry`."
        return Check("outbox", Verdict.LOOK, sentence, advice)
    if look.oldest_ms > LATE_MS:
        advice = "Does a server with outbox_url, or `homing relay`, run?"
        return Check("outbox", Verdict.LOOK, f"{waits}: nobody relays.", advice)
    return Check("outbox", Verdict.WELL, f"{waits}." if look.waiting else "Nothing waits.")
