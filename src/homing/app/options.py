"""What the use cases are told at start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct

from homing.app.simulation import Simulate
from homing.model import Target
from homing.policy.quota import Quota


class SettingShown(Struct, frozen=True):
    """A setting in force: its value as text, never a secret, and its source."""

    name: str
    value: str
    source: str
    sentence: str


class AppOptions(Struct, frozen=True):
    """The admin key, the time, the quotas, and the names that a subscription may give."""

    admin_key: str
    now: Callable[[], int]  # Unix milliseconds, of the engine's clock
    policies: frozenset[str]  # names that a subscription may give
    refuses: Callable[[Target], bool]  # whether this target may not be sent to
    quota: Quota = Quota()  # of a tenant without one of its own
    tenant_quotas: Mapping[str, Quota] = MappingProxyType({})
    settings: tuple[SettingShown, ...] = ()  # in force, for the system page
    simulate: Simulate | None = None  # None: this process has no simulator

    def __repr__(self) -> str:
        return "AppOptions(****)"
