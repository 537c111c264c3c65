"""What a person sees and confirms before many deliveries are replayed or cancelled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from msgspec import Struct

from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import say
from homing.model import CauseKey, Status

CONFIRM_ABOVE = 1_000  # more deliveries than this are confirmed by typing their number
REPLAYED = (Status.DROPPED, Status.CANCELLED, Status.DELIVERED)  # the first by default
SHOWN_MAX = 20  # tenants, and causes, that are named; the rest is one sum
_SEPARATORS = re.compile(r"[\s,.'\u2019\u202f\u00a0]")

_T = TypeVar("_T", bound=Hashable)


class Group(Struct, frozen=True, array_like=True):
    """Deliveries of one status, tenant and cause of their last failure, counted."""

    status: Status
    tenant: str
    cause: CauseKey | None
    count: int


class Counted(Struct, frozen=True):
    """The groups of the deliveries that match; ``exact`` is false if there are more of them."""

    count: int
    exact: bool
    groups: tuple[Group, ...] = ()

    @property
    def by_status(self) -> tuple[tuple[Status, int], ...]:
        return _sums(self.groups, lambda it: it.status)

    @property
    def by_tenant(self) -> tuple[tuple[str, int], ...]:
        return _sums(self.groups, lambda it: it.tenant)

    @property
    def by_cause(self) -> tuple[tuple[CauseKey | None, int], ...]:
        return _sums(self.groups, lambda it: it.cause)

    @property
    def must_be_typed(self) -> bool:
        """Whether a person must type the number before anything is done."""
        return self.count > CONFIRM_ABOVE

    def of(self, status: Status) -> Counted:
        """Those of one status."""
        groups = tuple(it for it in self.groups if it.status is status)
        return Counted(sum(it.count for it in groups), self.exact, groups)


def _sums(groups: Sequence[Group], part: Callable[[Group], _T]) -> tuple[tuple[_T, int], ...]:
    """How many there are of each, the most first."""
    sums: Counter[_T] = Counter()
    for group in groups:
        sums[part(group)] += group.count
    return tuple(sums.most_common())


def status_or_default(status: Status | None, *, reason: object) -> Status | None:
    """The status of the deliveries that a person replays in bulk: if none is named, dropped.

    A reason names deliveries that were dropped or cancelled.
    """
    return REPLAYED[0] if status is None and reason is None else status


def check_typed(counted: Counted, typed: str) -> None:
    """Raises Invalid unless the number of deliveries was typed, where it must be."""
    if not counted.must_be_typed or _SEPARATORS.sub("", typed) == str(counted.count):
        return
    reason = say("must be {number}, the number of deliveries", number=str(counted.count))
    raise Invalid(problems=(FieldProblem("confirm", reason),))
