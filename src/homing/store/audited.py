"""Store ports whose changes leave an entry in the audit log.

A process wraps its ports once. From then on a changing method cannot be called outside of a
changing use case: that would be a change by nobody, and it raises an AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from homing.model import Ids
from homing.policy.audit import AuditDraft, entry_key
from homing.ports.audit import present_act

# The methods that make the changes of people and keys; each takes ``audit``.
AUDITED = frozenset(
    {
        # AdminStore
        "create_subscription",
        "change_subscription",
        "change_pair",
        "delete_pair",
        "delete_subscription",
        "set_signing_keys",
        "create_event_type",
        "change_event_type",
        "delete_event_type",
        "subscription_gone",
        "set_endpoint",
        "confirm_commit_losses",
        "cancel_delivery",
        "try_delivery_now",
        "replay",
        "save_backfill",
        "save_replay_job",
        "cancel_replay_job",
        "log_test",
        "begin_erasure",
        # KeyStore
        "create_key",
        "revoke_key",
        "open_session",
        "end_session",
        # NoticeStore
        "create_target",
        "change_target",
        "change_secret",
        "send_link_again",
        "delete_target",
        "confirm_target",
        # PortalStore
        "create_link",
        "open_link",
        "revoke_link",
        "revoke_links_of",
        "set_settings",
        # PullStore
        "remove_reader",
    }
)


class Auditor:
    """Makes the drafts of entries. ``now`` is set when the process has a clock."""

    def __init__(self, key: bytes, ids: Ids) -> None:
        self.key, self._ids = key, ids
        self.now: Callable[[], int] = lambda: 0

    def take_id(self) -> tuple[int, int]:
        """A new id, and the present time."""
        now = self.now()
        return self._ids.take(now), now

    def draft(self) -> AuditDraft:
        act = present_act()
        assert act is not None, "a change outside of a changing use case"
        number, now = self.take_id()
        key = entry_key(self.key, number)
        return AuditDraft(number, now, act.who, act.action, act.changed, key, act.form)

    def __repr__(self) -> str:
        return "Auditor(****)"


class Audited:
    """A store port; its changing methods get the draft of their entry."""

    def __init__(self, store: Any, auditor: Auditor) -> None:
        self._store, self._auditor = store, auditor

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._store, method)
        if method in AUDITED:
            found = self._audited(found)
        setattr(self, method, found)  # The next call finds it directly.
        return found

    def _audited(self, change: Callable[..., Any]) -> Callable[..., Any]:
        async def changing(*args: Any, **kwargs: Any) -> Any:
            return await change(*args, audit=self._auditor.draft(), **kwargs)

        return changing
