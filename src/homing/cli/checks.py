"""What a check of ``homing doctor`` finds."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Verdict(StrEnum):
    """How bad it is."""

    WELL = "well"
    LOOK = "look"  # worth a look, and not wrong by itself
    WRONG = "wrong"
    UNKNOWN = "unknown"  # it could not be looked at


class Check(Struct, frozen=True):
    """What was looked at, what was found, and what to do about it."""

    name: str
    verdict: Verdict
    sentence: str
    advice: str = ""
