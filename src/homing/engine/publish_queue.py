"""The publishes that wait for a commit: tenants take turns, and an excess of publishes is refused.

Where more is published than the store can write, the queue would grow for as long as that lasts,
and with it the wait of everybody. So a publish is refused while those of its tenant before it have
waited for a second and are more than its share of one commit. Whatever fits into the next commit is
never refused: during a short pause of the store, tenants that publish little are not refused.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, Protocol, TypeVar

from homing.errors import TooMany
from homing.languages.sentences import say
from homing.policy.admission import EventDraft

WAIT_MAX_MS = 1_000

_TOO_MANY = say(
    "More events of this tenant are published than can be written: publish more slowly."
)


class Waiting(Protocol):
    """A publish that waits."""

    tenant: str  # of its first event
    drafts: list[EventDraft]
    since: int


T = TypeVar("T", bound=Waiting)


class _Tenant(Generic[T]):
    """The publishes of one tenant, oldest first, and the number of their events."""

    __slots__ = ("events", "publishes")

    def __init__(self) -> None:
        self.publishes: deque[T] = deque()
        self.events = 0


class PublishQueue(Generic[T]):
    """Publishes by tenant, in turns."""

    def __init__(self, commit_events: int) -> None:
        self._commit_events = commit_events  # the most in one commit
        # The first has the next turn. A plain dict would scan its deleted entries.
        self._tenants: OrderedDict[str, _Tenant[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def check(self, name: str, now: int) -> None:
        """Raises TooMany for a publish of this tenant that would wait for too long."""
        tenant = self._tenants.get(name)
        if (
            tenant is not None
            and tenant.events * len(self._tenants) > self._commit_events
            and now - tenant.publishes[0].since > WAIT_MAX_MS
        ):
            raise TooMany(_TOO_MANY, after_ms=WAIT_MAX_MS)

    def append(self, waiting: T) -> None:
        self._counted(waiting).publishes.append(waiting)

    def put_back(self, waiting: T) -> None:
        """Make this publish the next one of its tenant."""
        self._counted(waiting).publishes.appendleft(waiting)

    def _counted(self, waiting: T) -> _Tenant[T]:
        """The tenant of a publish, with its events counted."""
        tenant = self._tenants.get(waiting.tenant)
        if tenant is None:
            tenant = self._tenants[waiting.tenant] = _Tenant()
        tenant.events += len(waiting.drafts)
        self._count += 1
        return tenant

    def next_events(self) -> int:
        """The number of events in the publish whose turn it is."""
        return len(next(iter(self._tenants.values())).publishes[0].drafts)

    def take(self) -> T:
        """Take off the publish whose turn it is."""
        tenant = next(iter(self._tenants.values()))
        waiting = tenant.publishes.popleft()
        tenant.events -= len(waiting.drafts)
        self._count -= 1
        if tenant.publishes:
            self._tenants.move_to_end(waiting.tenant)
        else:
            del self._tenants[waiting.tenant]
        return waiting
