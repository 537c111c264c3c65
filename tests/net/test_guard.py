"""What the guard says of a target, and to whom."""

from __future__ import annotations

from structlog.testing import capture_logs

from homing.net.guard import REFUSAL, Guard
from homing.policy.reach import Reach
from net.receiver import a_target


def test_every_refusal_is_the_same_and_only_the_log_knows_more() -> None:
    guard = Guard(Reach())
    with capture_logs() as logs:
        refusals = [
            guard.check(a_target(443, host="a.example"), ["10.0.0.1", "8.8.8.8"]),
            guard.check(a_target(443, host="a.example"), ["127.0.0.1"]),
            guard.check(a_target(443, host="a.example"), ["169.254.169.254"]),
            guard.check(a_target(22, host="a.example"), ["8.8.8.8"]),
        ]
    assert refusals == [REFUSAL] * 4
    assert "10.0.0.1" not in REFUSAL.detail
    assert logs[0]["addresses"] == "10.0.0.1 8.8.8.8"


def test_what_is_allowed_passes() -> None:
    assert Guard(Reach()).check(a_target(443, host="a.example"), ["8.8.8.8"]) is None
    assert Guard(Reach(loopback=True)).check(a_target(8080), ["127.0.0.1"]) is None
