"""The objects that all parts of an engine share: stores, sender, clock, options, ids, catalog."""

from __future__ import annotations

from msgspec import Struct

from homing.engine.catalog import Catalog
from homing.engine.fan_out import FanOut
from homing.engine.fleet.ownership import BucketOwnership
from homing.engine.grace_period import GracePeriod
from homing.engine.notices import Notices, PeopleNotices
from homing.engine.options import EngineOptions
from homing.engine.tracing import Tracing
from homing.model import Ids
from homing.ports import AdminStore, Clock, FlowStore, Sender, ViewStore


class Core(Struct, frozen=True):
    """The shared objects of one engine."""

    flow: FlowStore
    admin: AdminStore
    views: ViewStore
    sender: Sender
    clock: Clock
    options: EngineOptions
    ids: Ids
    catalog: Catalog
    fan_out: FanOut
    notices: Notices
    people: PeopleNotices
    ownership: BucketOwnership
    grace: GracePeriod
    tracing: Tracing | None = None
