"""Names whose servers do not respond, for real: the receivers of other tenants are not charged."""

from __future__ import annotations

import pytest

from security.island import SILENT, Mood, dns_answer, way_in
from security.outages import NO_ISLAND
from security.silent_names import Spec, beside_silent_names


@pytest.mark.skipif(way_in() is None, reason=NO_ISLAND)
async def test_silent_names_of_one_tenant_cost_the_others_nothing() -> None:
    toll = await beside_silent_names(Spec(dead=60, hosts=20, turns=1, turn_s=1.0))
    assert toll.fired, "no look-up was left without a response"
    assert (toll.figures["others_failed"], toll.figures["others_sender_error"]) == (0, 0)


def test_the_name_server_is_silent_for_some_names_only() -> None:
    length = bytes((len(SILENT) + 1,))
    asked = b"ab\x01\0\0\1\0\0\0\0\0\0" + length + SILENT.encode() + b"7\x05hooks\0\0\1\0\1"
    assert dns_answer(asked, Mood.WELL) is None
