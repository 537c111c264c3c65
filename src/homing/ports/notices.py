"""Notices to people: their targets, the records that wait, and how messages are sent by e-mail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from homing.languages.language import ENGLISH
from homing.policy.notices import Notice, NoticeKind, NoticeRecord, NoticeTarget


class TakenMessage(Struct, frozen=True):
    """The records that one message carries; they belong to it for good."""

    id: int
    notices: tuple[Notice, ...]
    more: dict[NoticeKind, int]  # further changes that were only counted


class NoticeStore(Protocol):
    """Targets and records. Records of a transition are written by the commit that makes it.

    A target that is created or deleted raises the version of the catalog. A method with an
    ``epoch`` raises LostLeases on another epoch of bucket 0 (0: no lease is needed).
    """

    async def create_target(
        self, target: NoticeTarget, *, address: bytes, secret: bytes, now: int
    ) -> int:
        """Store it with the hashes of its address and secret; returns the catalog's version.

        Raises TooMany if one of the limits of targets is reached.
        """

    async def change_target(self, target: NoticeTarget) -> NoticeTarget | None:
        """Replace its name, kinds, quiet hours and language; None if it is deleted."""

    async def change_secret(self, target: NoticeTarget, *, secret: bytes) -> bool:
        """Replace its secret by the one of ``target``, with its hash; False if it is deleted."""

    async def send_link_again(self, target_id: int, *, message_id: int, now: int) -> bool:
        """Send again its confirmation, as this message; False if it is confirmed or deleted.

        Raises TooMany.
        """

    async def delete_target(self, target_id: int, *, now: int) -> int | None:
        """The version of the catalog; None if it is deleted already. Its records are skipped."""

    async def confirm_target(self, token: str, *, now: int) -> NoticeTarget | None:
        """The target that this token confirms; None if there is none."""

    async def target(self, target_id: int) -> NoticeTarget | None: ...

    async def targets(
        self, *, tenant: str | None, before_id: int | None, limit: int
    ) -> tuple[list[NoticeTarget], int | None]:
        """Targets, newest first, and the next ``before_id``."""

    async def notices(
        self, *, owner: str | None, target_id: int | None, before_id: int | None, limit: int
    ) -> tuple[list[NoticeRecord], int | None]:
        """Records, newest first, and the next ``before_id``."""

    async def write_notices(self, notices: Sequence[Notice]) -> None:
        """Write records of changes that no other commit makes; those that exist are left."""

    async def write_reminders(
        self, *, days: int, bound_id: int, ids: Sequence[int], now: int, epoch: int = 0
    ) -> bool:
        """Write reminders for endpoints whose transition is older than ``bound_id``.

        It reads as many transitions as there are ``ids`` for reminders; False: no others follow.
        """

    async def targets_to_send(self, *, after_id: int, limit: int) -> list[NoticeTarget]:
        """Targets with waiting records or an unsent confirmation, in order of id."""

    async def take_message(
        self, target_id: int, *, message_id: int, epoch: int = 0
    ) -> TakenMessage | None:
        """The message that is being sent to a target, else a new one with all that waits.

        None if nothing waits. A message keeps its id and records until it has arrived.
        """

    async def message_sent(
        self, target_id: int, message_id: int, *, now: int, due_at: int, epoch: int = 0
    ) -> None:
        """The message has arrived; the next is not sent before ``due_at``."""

    async def message_failed(
        self, target_id: int, message_id: int, *, error: str, due_at: int, epoch: int = 0
    ) -> None: ...


class Mail(Struct, frozen=True):
    """An e-mail in plain text."""

    to: str
    subject: str
    text: str
    message_id: str  # without < >
    at: int  # its date
    language: str = ENGLISH.code

    def __repr__(self) -> str:
        return f"Mail({self.message_id})"


class Mailer(Protocol):
    """Sends e-mails through the operator's server."""

    async def send(self, mail: Mail) -> str:
        """Empty if the server took it, otherwise the reason why not, for people."""

    async def close(self) -> None: ...
