"""The sender's network fails for real: no receiver is blamed, and all is delivered after it."""

from __future__ import annotations

import pytest

from security.cutoff import Spec, cut_off
from security.island import Mood, dns_answer, way_in
from security.outages import NO_ISLAND

PATIENT_S = 120.0  # for a busy machine; nothing waits for it when all is well


@pytest.mark.skipif(way_in() is None, reason=NO_ISLAND)
async def test_without_a_route_and_without_names_nothing_is_spent() -> None:
    kinds = ("no route", "NXDOMAIN")
    spec = Spec(urls=60, kinds=kinds, out_s=1, healed_within_s=PATIENT_S, warm=False)
    toll = await cut_off(spec)
    assert not toll.bad, toll.first
    assert toll.fired
    assert (toll.figures["changed"], toll.figures["spent"]) == (0, 0)


def test_the_name_server_of_the_island_speaks_dns() -> None:
    asked = b"ab\x01\0\0\1\0\0\0\0\0\0\x04h251\x05hooks\0"
    four, six = asked + b"\0\1\0\1", asked + b"\0\x1c\0\1"
    response = dns_answer(four, Mood.WELL)
    assert response is not None
    assert response.startswith(b"ab\x81\x80\0\1\0\1")
    assert response.endswith(bytes((20, 1, 1, 2)))
    assert dns_answer(six, Mood.WELL) == b"ab\x81\x80\0\1\0\0\0\0\0\0" + six[12:]
    refused = dns_answer(four, Mood.NXDOMAIN)
    assert refused is not None
    assert refused[3] == 0x83
    assert dns_answer(four, Mood.DEAD) is None
