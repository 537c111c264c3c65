"""``homing workfront sample``: for a receiver by curl, or for ``homing publish``."""

from __future__ import annotations

import json
from pathlib import Path

from cli.terminal import Terminal

URL = "http://127.0.0.1:1027/workfront"  # nobody listens there


def test_samples_can_be_published(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    with terminal.serving():
        made = terminal.well(
            "workfront", "sample", "PROJ.UPDATE", "--event", "--count", "3", "--user", "anna"
        )
        lines = made.out.splitlines()
        assert [json.loads(line)["data"]["userId"] for line in lines] == ["anna"] * 3
        terminal.well("subscribe", URL, "PROJ.*", "--format", "workfront")
        (tmp_path / "samples").write_text(made.out)
        told = terminal.well("publish", "--file", "samples")
        assert "3" in told.out + told.err


def test_a_message_is_printed_in_one_line(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    told = terminal.well("workfront", "sample", "TASK.CREATE", "--version", "v1", "--seed", "7")
    (line,) = told.out.splitlines()
    message = json.loads(line)
    assert (message["eventType"], message["eventVersion"]) == ("CREATE", "v1")
    assert (message["newState"]["objCode"], message["oldState"]) == ("TASK", {})


def test_a_wrong_name_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    refused = Terminal(tmp_path).run("workfront", "sample", "PORJ.UPDATE")
    assert refused.code == 2
    assert refused.out == ""
    assert "Did you mean PROJ.UPDATE?" in refused.err
