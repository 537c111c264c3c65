"""The commands that the dashboard shows can be pasted into a terminal."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import typer

from homing.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r'command\("(homing (?:[^"\\]|\\.)*)"\)')


def shown_commands() -> list[str]:
    templates = (files("homing.web.dashboard") / "templates").iterdir()
    found = {it for page in templates for it in COMMAND.findall(page.read_text(encoding="utf-8"))}
    return sorted(it.replace('\\"', '"') for it in found)


def test_the_empty_pages_show_commands() -> None:
    assert len(shown_commands()) >= 5


@pytest.mark.parametrize("command", shown_commands())
def test_a_shown_command_has_arguments_that_the_cli_accepts(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    _, name, *arguments = shlex.split(command)
    root: Any = typer.main.get_command(app)
    with root.commands[name].make_context(name, arguments):  # raises UsageError
        pass
    assert all(Path(it).is_file() for it in arguments if it.endswith(".toml"))
