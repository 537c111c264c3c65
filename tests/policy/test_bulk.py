"""What a person sees and confirms before many deliveries are replayed or cancelled."""

from __future__ import annotations

import pytest

from homing.errors import Invalid
from homing.model import CauseKey, Reason, Status
from homing.policy.bulk import Counted, Group, check_typed, status_or_default

BUSY = CauseKey("http_status", "", 503)
COUNTED = Counted(
    1_250,
    exact=True,
    groups=(
        Group(Status.DROPPED, "acme", BUSY, 700),
        Group(Status.DROPPED, "blue", BUSY, 300),
        Group(Status.CANCELLED, "acme", None, 250),
    ),
)


def test_groups_are_summed_by_status_tenant_and_cause_the_most_first() -> None:
    assert COUNTED.by_status == ((Status.DROPPED, 1_000), (Status.CANCELLED, 250))
    assert COUNTED.by_tenant == (("acme", 950), ("blue", 300))
    assert COUNTED.by_cause == ((BUSY, 1_000), (None, 250))
    assert COUNTED.of(Status.CANCELLED).count == 250
    assert COUNTED.of(Status.DELIVERED).count == 0


@pytest.mark.parametrize("typed", ["1250", " 1250 ", "1,250", "1.250", "1 250", "1'250"])
def test_the_number_confirms_as_people_write_it(typed: str) -> None:
    check_typed(COUNTED, typed)


@pytest.mark.parametrize("typed", ["", "1000", "125", "12500", "yes", "٢"])
def test_anything_else_does_not(typed: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_typed(COUNTED, typed)
    (problem,) = refused.value.problems
    assert (problem.field, problem.reason) == ("confirm", "must be 1250, the number of deliveries")


def test_up_to_a_thousand_nothing_is_typed() -> None:
    check_typed(Counted(1_000, exact=True), "")
    assert not Counted(1_000, exact=True).must_be_typed
    assert Counted(1_001, exact=True).must_be_typed


@pytest.mark.parametrize(
    ("status", "reason", "taken"),
    [
        (None, None, Status.DROPPED),
        (Status.DELIVERED, None, Status.DELIVERED),
        (None, Reason.GONE, None),  # It names dropped or cancelled ones itself.
    ],
)
def test_without_a_status_only_dropped_deliveries_are_replayed(
    status: Status | None, reason: Reason | None, taken: Status | None
) -> None:
    assert status_or_default(status, reason=reason) is taken
