"""A deliberately broken build: our own trouble counts as the receiver's, and no outage is detected."""

from __future__ import annotations

from homing.cli.main import main
from homing.policy import outage, outcome

outcome.OURS = frozenset()
outage.verdict = lambda **_: outage.Verdict.THEIRS

if __name__ == "__main__":
    main()
