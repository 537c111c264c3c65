"""The ports: what the engine needs from outside, a database, a sender and a clock.

Several store ports share one database: ``FlowStore`` is the hot path (publish, due, settle),
``AdminStore`` takes the changes of people, ``ViewStore`` serves their reads, ``KeyStore`` holds the
API keys. Each method is one transaction. A store that cannot commit raises ``StoreUnavailable``,
and nothing of the call is stored.
"""

from homing.ports.admin import AdminStore, CleanupJob, CleanupStep, ReplayFilter, ReplayJob
from homing.ports.clock import Clock, ClockMark, ClockState, ClockStore, Move
from homing.ports.encryption import Claim, EncryptionStore
from homing.ports.fleet import FleetState, FleetStore, FleetView, Lease, Member, NotificationBus
from homing.ports.flow import (
    DueAsk,
    DueRows,
    EndpointStart,
    FlowStore,
    NewEvent,
    Receipt,
    Refusal,
    SettleBatch,
)
from homing.ports.keys import KeySession, KeyStore
from homing.ports.notices import Mail, Mailer, NoticeStore, TakenMessage
from homing.ports.outbox import (
    NotAllowed,
    NotNow,
    OutboxRow,
    OutboxStats,
    OutboxStore,
    PublishRows,
    RefusedRow,
    RelayedRows,
    RelayRows,
    RowsRefused,
)
from homing.ports.sender import Request, Response, Sender
from homing.ports.views import (
    CauseRow,
    DeliveryFilter,
    DeliveryRow,
    EventRow,
    Ledger,
    Selection,
    ViewStore,
)

__all__ = [
    "AdminStore",
    "CauseRow",
    "Claim",
    "CleanupJob",
    "CleanupStep",
    "Clock",
    "ClockMark",
    "ClockState",
    "ClockStore",
    "DeliveryFilter",
    "DeliveryRow",
    "DueAsk",
    "DueRows",
    "EncryptionStore",
    "EndpointStart",
    "EventRow",
    "FleetState",
    "FleetStore",
    "FleetView",
    "FlowStore",
    "KeySession",
    "KeyStore",
    "Lease",
    "Ledger",
    "Mail",
    "Mailer",
    "Member",
    "Move",
    "NewEvent",
    "NotAllowed",
    "NotNow",
    "NoticeStore",
    "NotificationBus",
    "OutboxRow",
    "OutboxStats",
    "OutboxStore",
    "PublishRows",
    "Receipt",
    "Refusal",
    "RefusedRow",
    "RelayRows",
    "RelayedRows",
    "ReplayFilter",
    "ReplayJob",
    "Request",
    "Response",
    "RowsRefused",
    "Selection",
    "Sender",
    "SettleBatch",
    "TakenMessage",
    "ViewStore",
]
