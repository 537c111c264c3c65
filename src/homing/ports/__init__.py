"""The ports: what the engine needs from outside, a database, a sender and a clock.

Several store ports share one database: ``FlowStore`` is the hot path (publish, due, settle),
``AdminStore`` takes the changes of people, ``ViewStore`` serves their reads, ``KeyStore`` holds the
API keys. Each method is one transaction. A store that cannot commit raises ``StoreUnavailable``,
and nothing of the call is stored.
"""

from homing.ports.admin import AdminStore, CleanupJob, CleanupStep, ReplayFilter, ReplayJob
from homing.ports.clock import Clock, ClockMark, ClockState, ClockStore, Move
from homing.ports.encryption import Claim, EncryptionStore
from homing.ports.fleet import FleetStore, FleetView, Lease, Member, NotificationBus, Standing
from homing.ports.flow import (
    DueAnswer,
    DueAsk,
    EndpointStart,
    FlowStore,
    NewEvent,
    Receipt,
    Refusal,
    SettleBatch,
)
from homing.ports.keys import KeySession, KeyStore
from homing.ports.outbox import (
    Handed,
    HandOver,
    NotAllowed,
    NotNow,
    OutboxRow,
    OutboxStats,
    OutboxStore,
    PublishRows,
    RefusedRow,
    RowsRefused,
)
from homing.ports.sender import Answer, Request, Sender
from homing.ports.views import DeliveryFilter, DeliveryRow, EventRow, Ledger, Selection, ViewStore

__all__ = [
    "AdminStore",
    "Answer",
    "Claim",
    "CleanupJob",
    "CleanupStep",
    "Clock",
    "ClockMark",
    "ClockState",
    "ClockStore",
    "DeliveryFilter",
    "DeliveryRow",
    "DueAnswer",
    "DueAsk",
    "EncryptionStore",
    "EndpointStart",
    "EventRow",
    "FleetStore",
    "FleetView",
    "FlowStore",
    "HandOver",
    "Handed",
    "KeySession",
    "KeyStore",
    "Lease",
    "Ledger",
    "Member",
    "Move",
    "NewEvent",
    "NotAllowed",
    "NotNow",
    "NotificationBus",
    "OutboxRow",
    "OutboxStats",
    "OutboxStore",
    "PublishRows",
    "Receipt",
    "Refusal",
    "RefusedRow",
    "ReplayFilter",
    "ReplayJob",
    "Request",
    "RowsRefused",
    "Selection",
    "Sender",
    "SettleBatch",
    "Standing",
    "ViewStore",
]
