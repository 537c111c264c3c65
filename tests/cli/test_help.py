"""The command itself: it starts at once, completes in a shell, and speaks without colours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.terminal import Terminal
from homing.cli.arguments import read_seconds
from homing.cli.errors import Usage
from homing.cli.output import ago, plain, span

HEAVY = (
    "asyncio",
    "rich.console",
    "structlog",
    "starlette",
    "apsw",
    "asyncpg",
    "cryptography",
    "homing.app",
    "homing_client",
)


def test_help_is_there_at_once() -> None:
    """By what is imported, not by a clock: a busy machine is no failure."""
    script = (
        "import sys; import homing.cli.main; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.strip() == "[]"


def test_a_server_starts_without_what_only_a_terminal_needs() -> None:
    """Rich would come with structlog, and is a quarter of all that is imported."""
    script = (
        "import sys; from homing.cli.import_structlog import import_structlog_alone as alone; "
        "alone(); import homing.server.serve; print('rich' in sys.modules); "
        "import rich.console; alone(); print('rich' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == ["False", "True"]


def test_every_command_is_listed_and_can_be_completed(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    listed = terminal.well("--help").out
    for name in ("serve", "demo", "listen", "publish", "endpoints", "doctor", "backup", "restore"):
        assert f"  {name} " in listed
    shell = {"_HOMING_COMPLETE": "complete_bash", "COMP_WORDS": "homing end", "COMP_CWORD": "1"}
    ran = subprocess.run(
        [Path(sys.executable).with_name("homing")],
        env={**terminal.environ, **shell},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.stdout.split() == ["endpoints"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("3s", 3.0), ("1.5m", 90.0), ("2h", 7_200.0)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert read_seconds(text, "--for") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "3", "s", "-3s", "3 weeks"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(Usage, match="must be a duration"):
        read_seconds(text, "--for")


def test_times_are_said_in_one_unit() -> None:
    assert [span(ms) for ms in (12, 5_000, 240_000, 10_800_000, 172_800_000, 864_000_000)] == [
        "12 ms",
        "5 s",
        "4 min",
        "3 h",
        "48 h",
        "10 days",
    ]
    assert ago("2026-01-01T00:00:00.000Z", now=1_767_225_612_000) == "12 s ago"
    assert ago("2026-01-01T00:00:12.000Z", now=1_767_225_600_000) == "in 12 s"
    assert ago(None, now=0) == ""


def test_text_from_outside_cannot_steer_a_terminal() -> None:
    assert plain("a\x1b[31mb\nc") == "a\\x1b[31mb\\nc"
    assert plain(None) == ""
