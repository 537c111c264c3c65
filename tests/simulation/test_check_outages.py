"""Which failures the watch calls a possible sender outage, where the engine may and where not."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from homing.policy.outage import OutageRules
from homing.sim.world import Hit
from simulation.check_outages import OutageChecks, host_of
from simulation.mix import draw
from simulation.reference import Change, Flight, Reference

RULES = OutageRules(endpoints_min=2, hosts_min=2)


class Watch:
    """The watch over one process, and endpoints that have all just succeeded."""

    def __init__(self, tenants: str) -> None:
        self.now = 1_000_000
        mix = draw(0, 100)
        options = msgspec.structs.replace(
            mix.options, outage=RULES, fresh_slots=512, retry_slots=256
        )
        numbers = dict.fromkeys(tenants, mix.numbers[mix.tenants[0]])
        mix = replace(mix, options=options, tenants=tuple(tenants), numbers=numbers)
        self.reference = Reference(mix=mix, clock=lambda: self.now)
        self.checks = OutageChecks(self.reference, lambda _kind: None)
        self.reference.begin_life(1, 1, self.checks, guard=0)
        for number, tenant in enumerate(tenants):
            self.reference.endpoint(
                number,
                tenant=tenant,
                url=f"https://host{number}.example/",
                bucket=0,
                changed=Change(1, self.now, by_person=True),
                at=self.now,
                guard_passed=0,
            )
            self.reference.endpoints[number].succeeded(self.now)

    def ends(self, endpoint: int, how: int | str, *, dialled: bool = True) -> Flight:
        """An attempt ends, a moment after the last one."""
        self.now += 10
        url = self.reference.endpoints[endpoint].url
        hit = Hit(self.now, url, b"", b"", 1_000, life=1)
        flight = Flight(hit, self.now, endpoint, 0, 1, probe=False, lane="fresh")
        flight.finished_at = self.now
        flight.code = how if isinstance(how, int) else None
        flight.failure = how if isinstance(how, str) else None
        self.checks.responded(flight, host_of(url), dialled=dialled)
        if flight.code == 200:
            self.reference.endpoints[endpoint].succeeded(self.now)
        return flight


@pytest.mark.parametrize("code", [200, 500])
@pytest.mark.parametrize("dialled", [True, False], ids=["dialled", "kept"])
def test_an_endpoint_that_responded_itself_is_evidence_when_it_falls_again(
    code: int, *, dialled: bool
) -> None:
    watch = Watch("aaa")
    watch.ends(0, "refused")
    watch.ends(0, code, dialled=dialled)
    watch.ends(2, 200)

    again = watch.ends(0, "refused")
    watch.ends(1, "sender_dns")

    assert again.maybe_sender_error


def test_an_endpoint_that_is_still_down_after_another_responded_is_no_evidence() -> None:
    watch = Watch("aaa")
    watch.ends(0, "refused")
    watch.ends(2, 200)

    again, other = watch.ends(0, "refused"), watch.ends(1, "refused")

    assert not again.maybe_sender_error
    assert not other.maybe_sender_error


@pytest.mark.parametrize("failure", ["refused", "sender_dns"])
def test_one_tenant_is_enough_while_the_other_has_only_endpoints_that_are_down(
    failure: str,
) -> None:
    watch = Watch("abb")
    watch.ends(0, failure)
    watch.ends(1, 200)

    watch.ends(1, "refused")

    assert watch.ends(2, "refused").maybe_sender_error


@pytest.mark.parametrize("failure", ["refused", "sender_dns"])
def test_one_tenant_is_not_enough_once_the_other_has_succeeded_again(failure: str) -> None:
    watch = Watch("abb")
    watch.ends(0, failure)
    watch.ends(1, 200)
    watch.ends(0, 200)

    watch.ends(1, "refused")

    assert not watch.ends(2, "refused").maybe_sender_error


def test_one_tenant_is_enough_while_the_other_succeeded_only_when_the_clock_was_ahead() -> None:
    watch = Watch("aab")
    watch.reference.endpoints[2].succeeded(watch.now + 3_600_000)
    watch.ends(0, "dns")

    assert watch.ends(1, "dns").maybe_sender_error


def test_what_fell_after_the_response_that_ended_an_outage_is_remembered() -> None:
    watch = Watch("abab")
    watch.ends(2, 200)
    watch.ends(0, "refused")
    watch.ends(1, "refused")  # An outage may have begun …
    watch.now += RULES.quiet_ms
    watch.ends(2, 200)  # … and this may end it.
    watch.ends(3, "reset")
    watch.now += RULES.stay_ms + 3 * RULES.quiet_ms

    assert watch.ends(2, "timeout").maybe_sender_error


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000], ids=["right", "ahead"])
def test_only_a_success_of_the_last_round_makes_an_endpoint_surely_healthy(ahead_ms: int) -> None:
    watch = Watch("ab")
    watch.reference.endpoints[1].succeeded(watch.now + ahead_ms)
    watch.checks.begin(watch.now, 1)

    flights = watch.ends(0, "refused"), watch.ends(1, "refused")

    assert [it.surely_sender_error for it in flights] == [not ahead_ms] * 2
