"""When silence is ours, and when it is one host's after all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.model import Failure
from homing.policy.gate import (
    HOST_AFTER_MS,
    GateRules,
    HostTrouble,
    Needed,
    Sign,
    Verdict,
    host_again,
    needed,
    sign,
    verdict,
)

RULES = GateRules()
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
        (None, Failure.OUR_DNS, False, Sign.UNREACHED),
        (None, Failure.OUR_NETWORK, True, Sign.UNREACHED),
        (None, Failure.OUR_LIMITS, True, Sign.UNREACHED),
        (None, Failure.TIMEOUT, False, Sign.SILENT),
        (None, Failure.RESET, False, Sign.SILENT),
        (None, Failure.TIMEOUT, True, Sign.NOTHING),  # it had connected
        (None, Failure.CLOSED, True, Sign.NOTHING),
        (None, Failure.TLS, True, Sign.NOTHING),
        (None, Failure.BAD_ANSWER, False, Sign.NOTHING),
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
    ("healthy", "hosts", "expected"),
    [
        (9, 9, None),
        (10, 4, None),
        (10, 5, Needed(6, 3)),
        (11, 5, Needed(6, 3)),
        (12, 12, Needed(7, 3)),
        (50, 5, Needed(26, 3)),
        (2_000, 300, Needed(26, 3)),
    ],
)
def test_most_of_at_least_ten_on_five_hosts(
    healthy: int, hosts: int, expected: Needed | None
) -> None:
    assert needed(healthy=healthy, hosts=hosts, rules=RULES) == expected


@pytest.mark.parametrize(
    ("failing", "hosts", "lives", "waited_ms", "expected"),
    [
        (5, 5, False, 0, Verdict.WAIT),
        (6, 2, False, 0, Verdict.WAIT),
        (6, 3, False, 0, Verdict.CLOSE),
        (6, 3, True, 0, Verdict.OURS),
        (6, 3, False, 60_000, Verdict.CLOSE),
        (5, 5, False, 9_999, Verdict.WAIT),
        (5, 5, False, 10_000, Verdict.THEIRS),
        (6, 2, True, 10_000, Verdict.THEIRS),
    ],
)
def test_the_verdict(
    failing: int, hosts: int, lives: bool, waited_ms: int, expected: Verdict
) -> None:
    found = verdict(
        failing=failing,
        hosts=hosts,
        need=Needed(6, 3),
        lives=lives,
        waited_ms=waited_ms,
        rules=RULES,
    )
    assert found is expected


def _seen(times: list[int], through: list[int]) -> list[bool]:
    """The same trouble at these times, something getting through at those."""
    trouble, theirs = None, []
    for now in times:
        at = max([one for one in through if one <= now], default=-1)
        trouble, after_all = host_again(trouble, now=now, through_at=at)
        theirs.append(after_all)
    return theirs


def test_ten_minutes_at_one_host_while_others_get_through_is_the_hosts_after_all() -> None:
    every = [n * 30 * SECOND for n in range(24)]
    found = _seen(every, [n * SECOND for n in range(720)])
    assert found.index(True) == every.index(10 * MINUTE)
    assert all(found[found.index(True) :])


def test_while_nobody_gets_through_it_stays_ours() -> None:
    assert not any(_seen([n * 30 * SECOND for n in range(500)], []))


def test_one_success_elsewhere_after_a_long_outage_proves_little() -> None:
    times = [n * MINUTE for n in range(60)]
    assert not any(_seen([*times, 59 * MINUTE + 2], [59 * MINUTE + 1]))


@given(st.lists(st.integers(1, 90_000), min_size=1, max_size=60))
def test_it_is_never_the_hosts_before_ten_minutes(steps: list[int]) -> None:
    trouble: HostTrouble | None = None
    now = 0
    for step in steps:
        trouble, theirs = host_again(trouble, now=now, through_at=now)
        assert theirs == (now >= HOST_AFTER_MS)
        now += step
