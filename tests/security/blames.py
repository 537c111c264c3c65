"""A deliberately broken build: our own trouble counts as the receiver's, and no gate judges."""

from __future__ import annotations

from homing.cli.main import main
from homing.policy import gate, outcome

outcome.OURS = frozenset()
gate.verdict = lambda **_: gate.Verdict.THEIRS

if __name__ == "__main__":
    main()
