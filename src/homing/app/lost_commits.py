"""Commits that a failover of the database has lost: what may be missing, and its confirmation."""

from __future__ import annotations

from msgspec import Struct

from homing.app.access import ADMINS, Caller, use_case
from homing.engine.engine import Engine
from homing.policy.commit_loss import CommitLoss

__all__ = ["CommitLoss", "Losses", "LostCommits"]


class Losses(Struct, frozen=True):
    """The losses that no operator has confirmed, newest first."""

    losses: tuple[CommitLoss, ...]
    holding: bool  # publishes are refused until an operator confirms


class LostCommits:
    """Lost commits of the whole installation."""

    def __init__(self, engine: Engine) -> None:
        self._losses = engine.losses

    @use_case(ADMINS)
    def page(self, _caller: Caller) -> Losses:
        """The losses that processes have noticed and no operator has confirmed."""
        return Losses(self._losses.unconfirmed, self._losses.holding)

    @use_case(ADMINS, changes=True)
    async def confirm(self, _caller: Caller) -> list[CommitLoss]:
        """Confirm all losses: they are no longer shown, and publishes are accepted again."""
        return await self._losses.confirm()
