"""When silence is the sender's, and when it is one host's after all.

Promised: what-homing-promises.md#failures-on-the-senders-side.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.model import Failure
from homing.policy.outage import (
    HOST_AFTER_MS,
    HostFailures,
    Needed,
    OutageRules,
    Sign,
    Verdict,
    canaries,
    host_again,
    needed,
    sign,
    verdict,
)

RULES = OutageRules()
SECOND, MINUTE = 1_000, 60_000


@pytest.mark.parametrize(
    ("code", "failure", "dialled", "expected"),
    [
        (200, None, True, Sign.THROUGH),
        (500, None, True, Sign.THROUGH),
        (200, None, False, Sign.LIVES),
        (None, Failure.CONNECT_TIMEOUT, True, Sign.UNREACHED),
        (None, Failure.REFUSED, True, Sign.UNREACHED),
        (None, Failure.UNREACHABLE, True, Sign.UNREACHED),
        (None, Failure.DNS, False, Sign.UNREACHED),
        (None, Failure.SENDER_DNS, False, Sign.UNREACHED),
        (None, Failure.SENDER_NETWORK, True, Sign.UNREACHED),
        (None, Failure.SENDER_LIMITS, True, Sign.UNREACHED),
        (None, Failure.SENDER_PROXY, True, Sign.UNREACHED),
        (None, Failure.SENDER_TUNNEL, True, Sign.UNREACHED),
        (None, Failure.SENDER_CERTIFICATE, False, Sign.NOTHING),
        (None, Failure.TIMEOUT, False, Sign.SILENT),
        (None, Failure.RESET, False, Sign.SILENT),
        (None, Failure.TIMEOUT, True, Sign.NOTHING),  # it had connected
        (None, Failure.CLOSED, True, Sign.NOTHING),
        (None, Failure.TLS, True, Sign.NOTHING),
        (None, Failure.BAD_RESPONSE, False, Sign.NOTHING),
    ],
)
def test_what_the_end_of_an_attempt_tells_of_our_connection(
    code: int | None, failure: Failure | None, dialled: bool, expected: Sign
) -> None:
    assert sign(code, failure, dialled=dialled) is expected


@pytest.mark.parametrize("failure", list(Failure))
def test_every_failure_is_told(failure: Failure) -> None:
    assert sign(None, failure, dialled=True) in Sign
    assert sign(None, failure, dialled=False) not in {Sign.THROUGH, Sign.LIVES}


@pytest.mark.parametrize(
    ("healthy", "hosts", "tenants", "expected"),
    [
        (9, 9, 1, None),
        (10, 4, 1, None),
        (10, 5, 1, Needed(6, 3, 1)),
        (11, 5, 1, Needed(6, 3, 1)),
        (12, 12, 2, Needed(7, 3, 2)),
        (50, 5, 3, Needed(26, 3, 2)),
        (200, 200, 4, Needed(101, 3, 3)),
        (1_100, 300, 21, Needed(551, 3, 11)),
    ],
)
def test_most_of_all_endpoints_and_of_all_tenants(
    healthy: int, hosts: int, tenants: int, expected: Needed | None
) -> None:
    assert needed(healthy=healthy, hosts=hosts, tenants=tenants, rules=RULES) == expected


@given(st.integers(10, 10_000), st.integers(2, 10_000))
def test_where_there_are_several_tenants_one_alone_is_never_enough(
    healthy: int, tenants: int
) -> None:
    need = needed(healthy=healthy, hosts=5, tenants=min(tenants, healthy), rules=RULES)
    assert need is not None
    assert need.tenants >= 2


@pytest.mark.parametrize(
    ("failing", "hosts", "tenants", "lives", "alone_ms", "waited_ms", "expected"),
    [
        (5, 5, 2, False, 0, 0, Verdict.WAIT),
        (6, 2, 2, False, 0, 0, Verdict.WAIT),
        (60, 60, 1, False, 0, 0, Verdict.WAIT),
        (6, 3, 2, False, 0, 0, Verdict.OUTAGE),
        (6, 3, 2, True, 0, 0, Verdict.SENDER_ERROR),
        (6, 3, 2, False, 60_000, 60_000, Verdict.OUTAGE),
        (5, 5, 2, False, 9_999, 9_999, Verdict.WAIT),
        (5, 5, 2, False, 10_000, 10_000, Verdict.FAILED),
        (5, 5, 2, False, 9_999, 59_999, Verdict.WAIT),
        (5, 5, 2, False, 0, 60_000, Verdict.FAILED),
        (6, 2, 2, True, 10_000, 10_000, Verdict.FAILED),
        (60, 60, 1, False, 10_000, 10_000, Verdict.FAILED),
    ],
)
def test_the_verdict(
    failing: int,
    hosts: int,
    tenants: int,
    lives: bool,
    alone_ms: int,
    waited_ms: int,
    expected: Verdict,
) -> None:
    found = verdict(
        failing=failing,
        hosts=hosts,
        tenants=tenants,
        need=Needed(6, 3, 2),
        lives=lives,
        waited_ms=waited_ms,
        alone_ms=alone_ms,
        rules=RULES,
    )
    assert found is expected


def test_with_too_few_healthy_endpoints_the_failures_are_the_receivers() -> None:
    found = verdict(
        failing=99,
        hosts=99,
        tenants=9,
        need=None,
        lives=False,
        waited_ms=10_000,
        alone_ms=10_000,
        rules=RULES,
    )
    assert found is Verdict.FAILED


@given(st.integers(0, 100_000))
def test_in_ten_rounds_of_five_seconds_every_waiting_host_has_its_canary(waiting: int) -> None:
    assert RULES.canary_turn_ms + 2 * RULES.canary_every_ms <= MINUTE
    rounds = RULES.canary_turn_ms // RULES.canary_every_ms
    found = canaries(waiting, RULES)
    assert found * rounds >= waiting
    assert found <= max(3, waiting // rounds + 1)


def _seen(times: list[int], through: list[int]) -> list[bool]:
    """The same trouble at these times, something getting through at those."""
    failures, theirs = None, []
    for now in times:
        at = max([one for one in through if one <= now], default=-1)
        failures, after_all = host_again(failures, now=now, through_at=at)
        theirs.append(after_all)
    return theirs


def test_ten_minutes_at_one_host_while_others_get_through_is_the_hosts_after_all() -> None:
    every = [n * 30 * SECOND for n in range(24)]
    found = _seen(every, [n * SECOND for n in range(720)])
    assert found.index(True) == every.index(10 * MINUTE)
    assert all(found[found.index(True) :])


def test_while_nobody_gets_through_it_stays_a_sender_error() -> None:
    assert not any(_seen([n * 30 * SECOND for n in range(500)], []))


def test_one_success_elsewhere_after_a_long_outage_proves_little() -> None:
    times = [n * MINUTE for n in range(60)]
    assert not any(_seen([*times, 59 * MINUTE + 2], [59 * MINUTE + 1]))


@given(st.lists(st.integers(1, 90_000), min_size=1, max_size=60))
def test_it_is_never_the_hosts_before_ten_minutes(steps: list[int]) -> None:
    failures: HostFailures | None = None
    now = 0
    for step in steps:
        failures, theirs = host_again(failures, now=now, through_at=now)
        assert theirs == (now >= HOST_AFTER_MS)
        now += step


def test_with_detection_off_no_number_of_failures_is_an_outage() -> None:
    rules = OutageRules(detects=False)
    assert needed(healthy=1_100, hosts=300, tenants=21, rules=rules) is None
