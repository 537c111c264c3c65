"""What the HTTP side is told at start, and the parts it stands on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct, field

from homing.engine.engine import Engine
from homing.engine.keys import KeyRing
from homing.model import Target
from homing.policy.quota import Quota
from homing.ports import AdminStore, ViewStore
from homing.web.metrics import More
from homing.web.ping import StorePing
from homing.web.quotas import Quotas
from homing.web.room import Room
from homing.web.simulation import Simulate
from homing.web.slices import Slices


class SettingShown(Struct, frozen=True):
    """A setting in force: its value as text, never a secret, and where it came from."""

    name: str
    value: str
    source: str
    sentence: str


class WebOptions(Struct, frozen=True):
    """The key of the API, the time, and what may be named in a subscription."""

    admin_key: str
    now: Callable[[], int]  # Unix milliseconds, of the clock that the engine goes by
    policies: frozenset[str]  # names that a subscription may give
    refuses: Callable[[Target], bool]  # whether this target may not be sent to
    hosts: frozenset[str] = frozenset()  # names that the dashboard answers to
    quota: Quota = Quota()  # of a tenant without one of its own
    tenant_quotas: Mapping[str, Quota] = MappingProxyType({})
    settings: tuple[SettingShown, ...] = ()  # what is in force, for the system page
    leaving: asyncio.Event = field(default_factory=asyncio.Event)  # set when the server stops
    more_metrics: More | None = None
    simulate: Simulate | None = None  # None: no simulator here
    api: bool = True  # False: this process only delivers, and tells how it is

    def __repr__(self) -> str:
        return "WebOptions(****)"


class Parts(Struct, frozen=True):
    """What every handler may use."""

    engine: Engine
    views: ViewStore
    admin: AdminStore
    ring: KeyRing
    quotas: Quotas
    options: WebOptions
    started_at: int = 0
    room: Room = field(default_factory=Room)  # for bodies
    ping: StorePing = field(default_factory=StorePing)
    # Look for room or for an equal one, then write: of two at a time both would find it so.
    subscribing: asyncio.Lock = field(default_factory=asyncio.Lock)
    slices: Slices = field(default_factory=Slices)  # of explaining filters
