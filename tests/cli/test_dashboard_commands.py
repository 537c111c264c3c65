"""The commands that the dashboard and the command line show can be pasted into a terminal."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from homing.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r'command\("(homing (?:[^"\\]|\\.)*)"\)')


def shown_commands() -> list[str]:
    templates = (ROOT / "src" / "homing" / "web" / "dashboard" / "templates").rglob("*.html")
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


QUOTED = re.compile(r"(?<!`)`(homing [a-z][^`{}]*)`(?!`)")


def quoted_commands() -> list[str]:
    """The commands in the messages of the command line."""
    found = set()
    for file in (ROOT / "src" / "homing" / "cli").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(QUOTED.findall(node.value))
    return sorted(it for it in found if not re.search(r"[A-Z…]{2,}", it))  # no placeholders


@pytest.mark.parametrize("command", quoted_commands())
def test_a_command_in_a_message_has_the_arguments_that_it_needs(command: str) -> None:
    assert len(quoted_commands()) > 8
    words = shlex.split(command)[1:]
    known: Any = typer.main.get_command(app)
    while hasattr(known, "commands") and words and words[0] in known.commands:
        known, words = known.commands[words[0]], words[1:]
    with known.make_context("homing", words):  # raises UsageError
        pass
