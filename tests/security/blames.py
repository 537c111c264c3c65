"""A deliberately broken build: sender-side failures count for the receiver; no outage is found."""

from __future__ import annotations

from homing.cli.main import main
from homing.policy import outage, outcome

outcome.SENDER_FAILURES = frozenset()
outage.verdict = lambda **_: outage.Verdict.FAILED

if __name__ == "__main__":
    main()
