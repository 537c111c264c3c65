"""Several processes on one store: members, the owners of buckets, and notifications."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from homing.ports.clock import DatabaseTime


class Member(Struct, frozen=True):
    """A process of the fleet."""

    id: int  # a new one with every start
    node: int  # a part of the ids that it makes; unique among live processes
    name: str  # host and process id
    role: str  # "both", "api" or "deliver"
    delivers: bool  # whether it takes a share of the buckets; False when it leaves
    started_at: int
    expires_at: int  # by the database's clock; each heartbeat extends it


class Lease(Struct, frozen=True):
    """The owner of a bucket. The epoch is raised with every change of the owner."""

    bucket: int
    owner: int | None  # a process; its lease ends with the process's ``expires_at``
    epoch: int


class Acting(Struct, frozen=True):
    """A process that changes wait for."""

    id: int
    name: str
    version: int  # of the catalog: no group that it matched before is being written
    is_over: bool  # its heartbeat has stopped


class FleetState(Struct, frozen=True):
    """The result of a heartbeat."""

    time: DatabaseTime
    members: tuple[Member, ...]  # all live processes, including this one
    leases: tuple[Lease, ...]  # all 256, by bucket
    acts: bool = True  # changes wait for this process; False: it has been fenced

    @property
    def now(self) -> int:
        """The database's clock."""
        return self.time.ms


class FleetView(Struct, frozen=True):
    """The fleet for people: live processes and the owners of buckets."""

    now: int  # the database's clock
    members: tuple[Member, ...]
    leases: tuple[Lease, ...]

    def buckets_of(self, member_id: int) -> list[int]:
        return [it.bucket for it in self.leases if it.owner == member_id]


class FleetStore(Protocol):
    """Processes and leases. All times are of the database's clock."""

    async def join(
        self,
        *,
        name: str,
        role: str,
        delivers: bool,
        lease_ms: int,
        nodes: Sequence[int] = ...,
    ) -> Member:
        """Register a process with a new id and one of these nodes. Unavailable if all are taken."""

    async def time(self) -> DatabaseTime:
        """The database's clock, as exactly as a few statements can tell."""

    async def renew(self, member_id: int, *, delivers: bool, lease_ms: int) -> FleetState | None:
        """A heartbeat; None if this process was silent for so long that another took its node."""

    async def take(self, member_id: int, wanted: Mapping[int, int]) -> dict[int, int]:
        """Take wanted buckets, at these epochs, that have no live owner; their new epochs."""

    async def give(self, member_id: int, buckets: Sequence[int]) -> None:
        """Give up these buckets."""

    async def leave(self, member_id: int) -> None:
        """Give up all buckets and remove the process."""

    async def heal(self, member_id: int, *, epochs: Mapping[int, int], catalog: int) -> None:
        """After lost commits: free this process's buckets, and those with older epochs than these.

        Their epochs, and the version of the catalog, become higher than any that was seen.
        """

    async def recent(
        self, buckets: Sequence[int], *, from_id: int, upto_id: int
    ) -> list[tuple[int, int, int]]:
        """(bucket, endpoint, first position) of deliveries that were never attempted, by ids."""

    async def versions(self) -> dict[str, int]:
        """How often each topic has changed; "catalog" is one of them."""

    async def knows(self, member_id: int, version: int) -> None:
        """Record that this process acts on this version of the catalog."""

    async def act(self, member_id: int) -> int | None:
        """From now on changes wait for this process; its fence, with which its publishes are taken.

        It reads the catalog after this call, before it publishes. None: its heartbeat has stopped.
        """

    async def acting(self, *, but: int) -> list[Acting]:
        """The processes that changes wait for."""

    async def fence_ended(self, *, late: int = 0) -> list[int]:
        """Fence the processes whose heartbeat has stopped, and ``late``: nobody waits for them.

        What they publish is refused until they ``act`` again; those that are being written are
        waited for. Returns their ids.
        """

    async def oldest_snapshot(self) -> tuple[int, str]:
        """How long (ms) the oldest transaction has held back vacuum, and its owner."""

    async def raise_topic(self, topic: str) -> None:
        """Record that a topic has changed, for processes that poll."""


class NotificationBus(Protocol):
    """Messages from one process to all others, at once. They may get lost: processes also poll."""

    @property
    def live(self) -> bool:
        """Whether notifications are being received."""

    async def send(self, texts: Sequence[str]) -> None:
        """Send to all processes, including this one."""

    def listen(self, on_message: Callable[[str], None], gap: Callable[[], None]) -> None:
        """Receive; ``gap`` is called whenever listening begins: earlier ones were missed."""

    async def close(self) -> None: ...
