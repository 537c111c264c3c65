"""What happens to events that do not match their types, by setting."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Check(StrEnum):
    """What happens to an event whose data does not match the schema of its type."""

    OFF = "off"  # It is not checked.
    WARN = "warn"
    REFUSE = "refuse"


class Unknown(StrEnum):
    """What happens to an event of a type that its tenant has not described."""

    ALLOW = "allow"
    REFUSE = "refuse"


class CheckRules(Struct, frozen=True):
    """How types without a ``check`` of their own are checked, and unknown types."""

    check: Check = Check.WARN
    unknown: Unknown = Unknown.ALLOW
