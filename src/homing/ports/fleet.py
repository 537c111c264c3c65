"""Many processes on one store: who is there, who holds which bucket, and word from one to all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class Member(Struct, frozen=True):
    """A process of the fleet."""

    id: int  # counted up with every start
    node: int  # in the ids that it makes: no other live process has it
    name: str  # host and process id
    role: str  # "both", "api" or "deliver"
    delivers: bool  # takes a share of the buckets; False when it leaves
    started_at: int
    expires_at: int  # by the database's clock; each heartbeat moves it


class Lease(Struct, frozen=True):
    """Who holds a bucket. The epoch goes up whenever the holder changes."""

    bucket: int
    owner: int | None  # a process; its lease ends with the process's ``expires_at``
    epoch: int


class Standing(Struct, frozen=True):
    """What a heartbeat answers."""

    now: int  # the database's clock
    members: tuple[Member, ...]  # alive, this one included
    leases: tuple[Lease, ...]  # all 256, by bucket


class FleetView(Struct, frozen=True):
    """The fleet for people: live processes and who holds which bucket."""

    now: int  # the database's clock
    members: tuple[Member, ...]
    leases: tuple[Lease, ...]

    def buckets_of(self, member_id: int) -> list[int]:
        return [it.bucket for it in self.leases if it.owner == member_id]


class FleetStore(Protocol):
    """Processes and leases. Times are the database's: clocks of machines are not compared."""

    async def join(self, *, name: str, role: str, delivers: bool, lease_ms: int) -> Member:
        """Take a number and a node. Unavailable when all 128 nodes are taken."""

    async def renew(self, member_id: int, *, delivers: bool, lease_ms: int) -> Standing | None:
        """A heartbeat; None if this process was away for so long that its node went to another."""

    async def take(self, member_id: int, wanted: Mapping[int, int]) -> dict[int, int]:
        """Of these buckets (with the epochs seen) those whose holder is gone: their new epochs."""

    async def give(self, member_id: int, buckets: Sequence[int]) -> None:
        """Let go of these."""

    async def leave(self, member_id: int) -> None:
        """Let go of everything, for good."""

    async def recent(
        self, buckets: Sequence[int], *, from_id: int, upto_id: int
    ) -> list[tuple[int, int]]:
        """(bucket, endpoint) that have deliveries never attempted with ids in this range."""

    async def versions(self) -> dict[str, int]:
        """Of each topic how often it has changed; "catalog" is among them."""

    async def knows(self, member_id: int, version: int) -> None:
        """This process has read the catalog up to this version."""

    async def behind(self, version: int, *, but: int) -> list[str]:
        """The names of those that are alive and send, and have not read it so far."""

    async def oldest_snapshot(self) -> tuple[int, str]:
        """Milliseconds for which somebody's transaction has held back vacuum, and whose."""

    async def raise_topic(self, topic: str) -> None:
        """Write down that a topic has changed, for processes that poll."""


class NotificationBus(Protocol):
    """Messages from one process to all others, at once. They may get lost: processes also poll."""

    @property
    def live(self) -> bool:
        """Whether word is being heard."""

    async def tell(self, texts: Sequence[str]) -> None:
        """To all, this process included."""

    def listen(self, heard: Callable[[str], None], gap: Callable[[], None]) -> None:
        """``gap`` is called whenever listening begins: what was told before was not heard."""

    async def close(self) -> None: ...
