"""``homing demo``, played fast: all states of a URL, and nothing is lost."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from cli.terminal import HOMING, Terminal
from homing.cli.demo.rules import SPEED, demo_rules, demo_schedule, policy_lines
from homing.policy.presets import check_schedule


@pytest.mark.long
def test_a_url_is_disabled_frozen_and_enabled_again(tmp_path: Path) -> None:
    told = Terminal(tmp_path).process("demo", "--speed", "100000", "--json").lines
    *lines, summary = told
    dead = [one["sentence"] for one in lines if one["about"] == "dead"]
    changes = [one.split(" ")[0] for one in dead if " (was " in one]
    assert changes == ["Disabled", "Frozen", "Enabled"]
    assert any("Replaying all" in one for one in dead)
    ledger = summary["ledger"]
    assert ledger["accepted"] == sum(
        ledger[name] for name in ("delivered", "pending", "dropped", "cancelled")
    )
    assert ledger["delivered"] > 0


def test_ctrl_c_ends_it_with_a_summary(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    with terminal.going("demo", "--speed", "5000") as demo:
        assert demo.first.startswith("Homing demo")
        while "Disabled (was enabled)" not in demo.stdout.readline():
            pass
    assert demo.code == 0
    assert "deliveries and replays accepted" in demo.rest


def test_the_policy_of_the_demo_is_that_of_production_divided() -> None:
    rules, schedule = demo_rules(SPEED), demo_schedule(SPEED)
    check_schedule(schedule)
    assert (rules.probe_every_ms, rules.freeze_after_ms) == (120, 51_840)
    counts = (rules.rate_after_attempts, rules.consecutive_disable, rules.consecutive_freeze_always)
    assert counts == (10, 40, 1_000)
    assert (schedule.delays_ms[0], schedule.window_ms) == (16, 34_717)
    assert len(list(policy_lines(SPEED))) == 6


def on_a_terminal(command: list[str], terminal: Terminal, *, rows: int, columns: int) -> str:
    """All that a command writes to a terminal of this size."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environ = {**terminal.environ, "TERM": "xterm-256color"}
    environ.pop("COLUMNS")
    process = subprocess.Popen(
        command, cwd=terminal.place, env=environ, stdin=its, stdout=its, start_new_session=True
    )
    os.close(its)
    written = b""
    with contextlib.suppress(OSError):  # The terminal is gone with the last who had it open.
        while chunk := os.read(ours, 65_536):
            written += chunk
    os.close(ours)
    assert process.wait(60) == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


@pytest.mark.long
def test_on_a_terminal_it_is_a_picture(tmp_path: Path) -> None:
    command = [*HOMING, "demo", "--speed", "100000"]
    shown = on_a_terminal(command, Terminal(tmp_path), rows=40, columns=120)
    for word in (
        "what happens and why",
        "FROZEN",
        "history",
        "next probe in",
        "enabled → disabled",
    ):
        assert word in shown
