"""Erasures: what people asked to erase, and how far its removal is."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from homing.policy.hash_keys import HashKey
from homing.ports.tenant_moves import TenantMove


class ErasureKind(StrEnum):
    """What an erasure erases."""

    EVENT = "event"  # one event, by the id that its publisher gave it or that Homing made
    FIELD = "field"  # the events that have a value at a payload field
    TENANT = "tenant"  # everything that a tenant has


class Erasure(Struct, frozen=True):
    """A stored erasure; it has nothing of what it erases."""

    id: int
    tenant: str
    kind: ErasureKind
    path: str  # the payload field, or ""
    subject: bytes  # keyed hashes of the event's id, or of the field's value
    created_at: int
    event_id: int = 0  # of an erasure of one event
    version: int = 0  # of the catalog: a process that has read it sends no erased data; 0: not yet
    more: bool = False  # other events match, too: they are not part of this erasure
    events: int = 0
    deliveries: int = 0
    cancelled: int = 0  # of these deliveries, those that were pending
    finished_at: int | None = None  # None: rows or files may still have some of it
    upto_position: int = 0  # what was accepted later is no part of it


class Erasable(Struct, frozen=True):
    """An event that can be erased."""

    event_id: int
    tenant: str
    key: str
    last_id: int  # of its deliveries
    deliveries: int
    accepted_at: int
    content_hash: bytes


class TenantChanges(Struct, frozen=True):
    """What a process must know of erasures and moves to act on a version of the catalog."""

    since: dict[str, int]  # by tenant: the version of its last erasure
    everything: dict[str, int]  # by tenant: the version with which all that it had was erased
    ids: bool  # the ids of erased events are remembered
    moves: tuple[TenantMove, ...] = ()  # tenants that are not served here, or not now
    hash_keys: tuple[HashKey, ...] = ()  # those of tenants that moved in included
