"""The guard: an address that the operator does not allow is never dialled.

It checks addresses, not names, after every look-up and before every connection: a name that
resolves to a public address today and to 127.0.0.1 tomorrow is refused tomorrow. The attempt has
the same text for every refusal; the address and the rule are in the operator's log.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from homing.model import Failure, Target
from homing.net.trouble import Trouble
from homing.policy.reach import REFUSED, Reach

REFUSAL = Trouble(Failure.FORBIDDEN_ADDRESS, f"it {REFUSED}")

_log = structlog.get_logger("homing.net")


class Guard:
    """Decides which targets may be dialled."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def check_name(self, target: Target) -> Trouble | None:
        """None if the target may be dialled, as far as its name and port can tell."""
        why = self._reach.refuses(target)
        if not why:
            return None
        _log.info("target refused", host=target.host, port=target.port, addresses="", why=str(why))
        return REFUSAL

    def check(self, target: Target, addresses: Sequence[str]) -> Trouble | None:
        """None if every address of the target may be dialled, on its port."""
        why = self._reach.forbids(target, addresses)
        if not why:
            return None
        shown = " ".join(addresses)
        _log.info(
            "target refused", host=target.host, port=target.port, addresses=shown, why=str(why)
        )
        return REFUSAL
