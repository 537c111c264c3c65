"""What every part of the engine stands on: stores, sender, clock, options, ids, subscriptions."""

from __future__ import annotations

from msgspec import Struct

from homing.engine.catalog import Catalog
from homing.engine.fan_out import FanOut
from homing.engine.fleet.ownership import BucketOwnership
from homing.engine.notices import Notices
from homing.engine.options import EngineOptions
from homing.model import Ids
from homing.ports import AdminStore, Clock, FlowStore, Sender, ViewStore


class Core(Struct, frozen=True):
    """Made once per engine."""

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
    ownership: BucketOwnership
