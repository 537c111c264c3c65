"""Commits that a failover has lost: noticed, written down, shown, and confirmed by an operator.

Every process compares what it knows to be committed with the database (``store/marks``), when it
connects again and once a second. Each loss becomes a row that all processes read; until an
operator has confirmed it, pages, metrics and the API show it, and with ``hold`` publishes are
refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from homing.engine.core import Core
from homing.errors import CommitsLost, DatabaseBehind, HomingError
from homing.languages.sentences import say
from homing.policy.commit_loss import CommitLoss, missing_text, span_of
from homing.policy.notices import NoticeKind, text_facts

log = structlog.get_logger("homing.commit_losses")

AGAIN_MS = 500
_HELD = say(
    "Publishing is held because the setting on_lost_commits is hold. An operator looks at the page"
    " System or at `homing lost-commits list`, and goes on with `homing lost-commits confirm`."
)


class CommitLosses:
    """The losses that nobody has confirmed."""

    def __init__(self, core: Core, *, process: str, started_at: int) -> None:
        self._core, self._admin = core, core.admin
        self._process, self._started_at = process, started_at
        self._hold = core.options.hold_after_lost_commits
        self._waiting: list[CommitLoss] = []  # noticed here and not written down yet
        self._stored: tuple[CommitLoss, ...] = ()
        self.noticed = 0  # by this process
        self.on_notice: Callable[[NoticeKind, dict[str, Any]], None] = _no_notice

    @property
    def unconfirmed(self) -> tuple[CommitLoss, ...]:
        return (*self._waiting, *self._stored)

    @property
    def holding(self) -> bool:
        """Whether publishes are refused."""
        return self._hold and bool(self.unconfirmed)

    def check(self) -> None:
        """Raises CommitsLost while publishes are refused."""
        if self.holding:
            raise CommitsLost(_HELD)

    def add(self, error: DatabaseBehind) -> CommitLoss:
        """Note a loss at once; ``write`` stores it."""
        now = self._core.clock.now()
        if error.kind in {"publish", "settle"}:
            begun, upto = span_of(seen=error.seen, found=error.found, started_at=self._started_at)
        else:
            begun, upto = None, now
        loss = CommitLoss(self._core.ids.take(now), now, self._process, error.kind, begun, upto)
        self._waiting.append(loss)
        self.noticed += 1
        missing = missing_text(loss)
        log.critical(
            "the database has lost commits: a failover went to a standby that did not have them",
            kind=loss.kind,
            missing=str(missing),
        )
        facts: dict[str, Any] = {**text_facts("text", missing), "kind": loss.kind}
        self.on_notice(NoticeKind.COMMITS_LOST, facts)
        return loss

    async def write(self) -> None:
        """Store the noticed losses; raises StoreUnavailable."""
        for loss in tuple(self._waiting):
            await self._admin.add_commit_loss(loss)
            self._stored = (loss, *self._stored)
            self._waiting.remove(loss)
        self._core.ownership.notify_peers("commit_losses")

    async def read(self) -> None:
        """Read the losses that nobody has confirmed yet; raises StoreUnavailable."""
        self._stored = tuple(await self._admin.commit_losses())

    async def read_again(self) -> None:
        """As ``read``, however many tries it takes."""
        while True:
            try:
                await self.read()
            except HomingError as error:
                log.debug("lost commits could not be read; trying again", error=str(error))
                await asyncio.sleep(AGAIN_MS / 1000)
            else:
                return

    async def confirm(self) -> list[CommitLoss]:
        """Confirm all losses; publishes are accepted again when this returns."""
        confirmed = await self._admin.confirm_commit_losses(now=self._core.clock.now())
        self._stored = ()
        self._core.ownership.notify_peers("commit_losses")
        return confirmed


def _no_notice(_kind: NoticeKind, _facts: dict[str, Any]) -> None:
    """There is nobody to send notices to."""
