"""The commands on the page of the server's package on PyPI, typed as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from cli.terminal import Terminal

PAGE = Path(__file__).resolve().parents[2] / "packages" / "homing" / "README.md"


def test_the_commands_after_serve_go_well(terminal: Terminal) -> None:
    blocks = re.findall(r"^```\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    commands = [line for block in blocks for line in block.splitlines()]
    assert commands[:2] == ["pip install homing", "homing serve"]
    said = [terminal.well(*shlex.split(command)[1:]).out for command in commands[2:]]
    assert "it goes to 1 subscription" in said[1]
    assert "invoice.paid" in said[2]
