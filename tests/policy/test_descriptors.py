"""Descriptors are shared out: neither callers nor receivers can take them all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.descriptors import Shares, fitting, share_out

SLOTS = 832


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (262_144, Shares(8_192, 253_744)),
        (20_000, Shares(8_192, 11_600)),
        (4_096, Shares(2_800, 1_088)),
        (1_024, Shares(294, 588)),
        (64, Shares(14, 28)),
    ],
)
def test_what_each_side_may_hold(limit: int, expected: Shares) -> None:
    assert share_out(limit=limit, used=16, connections_max=8_192, slots=SLOTS) == expected


@given(
    st.integers(64, 300_000), st.integers(3, 40), st.integers(1, 200_000), st.integers(3, 10_000)
)
def test_together_they_leave_some_and_each_has_some(
    limit: int, used: int, connections_max: int, slots: int
) -> None:
    shares = share_out(limit=limit, used=used, connections_max=connections_max, slots=slots)
    assert 1 <= shares.connections <= connections_max
    assert shares.sockets >= 5
    assert shares.connections + shares.sockets + used < limit
    parts = [fitting(slots // 3, sockets=shares.sockets, slots=slots)] * 3
    assert min(parts) >= 1
    assert sum(parts) <= max(shares.sockets, 3)


def test_slots_stay_as_they_are_where_there_are_descriptors_for_them() -> None:
    assert fitting(512, sockets=SLOTS, slots=SLOTS) == 512
    assert fitting(512, sockets=416, slots=SLOTS) == 256
