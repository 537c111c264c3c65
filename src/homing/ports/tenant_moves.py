"""Tenants that move to or from another installation."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from homing.errors import TenantMoved, TenantMoving, Unavailable
from homing.languages.sentences import say


class MoveStep(StrEnum):
    """How far the move of a tenant is, according to the row of one installation."""

    LEAVING = "leaving"  # where it is: nothing is accepted or sent, its rows are being copied
    LEFT = "left"  # where it was: the copy is proved, the tenant belongs to the other installation
    MOVED = "moved"  # and its rows are removed here
    ARRIVING = "arriving"  # where it goes: its rows are being copied
    ARRIVED = "arrived"  # it is served here


class TenantMove(Struct, frozen=True):
    """A tenant that an installation does not serve, or not now."""

    tenant: str
    id: str
    step: MoveStep
    url: str = ""  # where its callers find it; "": not given

    @property
    def is_gone(self) -> bool:
        """Whether the tenant belongs to another installation."""
        return self.step in {MoveStep.LEFT, MoveStep.MOVED}

    @property
    def is_absent(self) -> bool:
        """Whether its subscriptions are not used here: it is gone, or not complete yet."""
        return self.step is not MoveStep.LEAVING

    def refusal(self) -> Unavailable:
        """The error for a caller of this tenant."""
        return refusal(self.tenant, self.step, self.url)


def refusal(tenant: str, step: str, url: str) -> Unavailable:
    """The error for a caller of a tenant that is not served here, or not now."""
    if step in {MoveStep.LEFT, MoveStep.MOVED}:
        if not url:
            return TenantMoved(
                say(
                    "The tenant {tenant} was moved to another installation, whose address the "
                    "operator knows: send the request there.",
                    tenant=tenant,
                )
            )
        return TenantMoved(
            say(
                "The tenant {tenant} was moved to {url}: send the request there.",
                tenant=tenant,
                url=url,
            )
        )
    return TenantMoving(
        say(
            "The tenant {tenant} is being moved to another installation. Send the request again "
            "in a moment, an event with the same id.",
            tenant=tenant,
        )
    )
