"""The audit log: who is acting, and the entries as they are stored.

A changing use case says who calls it with ``acting``. The store ports of a process are wrapped
(``store.audited``): a method that changes something gets a draft of its entry, and writes the entry
in the transaction of the change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from msgspec import Struct

from homing.policy.audit import AuditEntry, Head, Segment, Who
from homing.policy.sent_form import SentForm


class Acting:
    """The present call: who makes it, as which use case, and with which form."""

    __slots__ = ("action", "changed", "form", "must_live", "who")

    def __init__(
        self,
        who: Who,
        action: str,
        form: SentForm | None,
        must_live: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self.who, self.action, self.form = who, action, form
        self.must_live = must_live  # raises NotAuthorized once the caller's key has ended
        self.changed: tuple[str, ...] = ()  # hidden fields that the call sets to another value


_acting: ContextVar[Acting | None] = ContextVar("acting", default=None)


@contextmanager
def acting(
    who: Who,
    action: str,
    form: SentForm | None = None,
    must_live: Callable[[], Awaitable[None]] | None = None,
) -> Iterator[Acting]:
    """Changes made inside are those of this caller, asked for with this form."""
    present = Acting(who, action, form, must_live)
    token = _acting.set(present)
    try:
        yield present
    finally:
        _acting.reset(token)


def present_act() -> Acting | None:
    """The call that is being served; None outside of a changing use case."""
    return _acting.get()


async def must_still_act() -> None:
    """Raises NotAuthorized if the key, session or link of the present caller has ended.

    A change that has waited for somebody else, such as a receiver, asks before it goes on.
    """
    act = _acting.get()
    if act is not None and act.must_live is not None:
        await act.must_live()


def note_changed(*fields: str) -> None:
    """Say which secret fields the present call sets to another value."""
    act = _acting.get()
    if act is not None:
        act.changed = fields


class AuditFilter(Struct, frozen=True):
    """Which entries a list shows."""

    tenant: str | None = None
    who: str | None = None  # the name or id of a key, or a person
    key_id: int | None = None
    action: str | None = None  # or its beginning, like subscriptions
    object: str | None = None
    since: int | None = None
    until: int | None = None


class AuditStore(Protocol):
    """Entries are only added; whole segments are removed by retention."""

    async def log_key(self) -> str | None:
        """The key of the digests, encrypted; None: there is none yet."""

    async def set_log_key(self, key: str, *, before: str | None, mac: bytes | None) -> str:
        """Replace the key that was read ``before``; returns the one that is stored now.

        With ``mac``, the first head gets this signature in the same transaction, if it has none.
        """

    async def last_id(self) -> int:
        """The largest id of an entry; 0: there is none."""

    async def add_counted(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries of counted calls, those that are not there yet."""

    async def entries(
        self, conditions: AuditFilter, *, before_id: int | None, limit: int
    ) -> tuple[list[AuditEntry], int | None]:
        """Entries, newest first, and the next ``before_id``; a bounded number of rows is read."""

    async def head(self) -> Head | None:
        """None: somebody has removed it."""

    async def loose_entries(self, *, limit: int) -> list[AuditEntry]:
        """The entries that are in no segment, by id."""

    async def add_segment(
        self, segment: Segment, *, ids: Sequence[int], head: Head, seen: Head, epoch: int = 0
    ) -> bool:
        """Put these entries into a new segment; False if the head is not as it was ``seen``."""

    async def segments(self, *, after: int, limit: int) -> list[Segment]:
        """Segments in order of their numbers."""

    async def entries_of(self, number: int, *, after_id: int, limit: int) -> list[AuditEntry]:
        """The entries of a segment, by id."""

    async def stray_entries(self, *, limit: int) -> list[int]:
        """Ids of entries whose segment does not exist."""

    async def remove_segment(self, number: int, *, head: Head, seen: Head, epoch: int = 0) -> bool:
        """Remove the oldest segment with its entries; False if the head has changed."""
