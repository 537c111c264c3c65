"""Backup and restore: online, verified, and never over something that is there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cli.terminal import Terminal
from homing.store.backup import BadCopy, check_copy, copy_database


def test_a_backup_of_a_running_server_is_restored_elsewhere(terminal: Terminal) -> None:
    terminal.well("publish", "kept.safe", '{"n": 1}', "--id", "kept-1")
    copied = terminal.well("backup", "copy.db", "--json").document
    assert copied["rows"]["event"] == 1
    file = terminal.place / "copy.db"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_size == copied["size_bytes"]
    again = terminal.run("backup", "copy.db")
    assert (again.code, "overwrites nothing" in again.err) == (2, True)
    running = terminal.run("restore", "copy.db")
    assert (running.code, "stop it first" in running.err) == (2, True)
    restored = terminal.well("restore", "copy.db", "--data", "elsewhere")
    assert "Verified: every page is intact; it contains 1 event" in restored.out
    twice = terminal.run("restore", "copy.db", "--data", "elsewhere")
    assert (twice.code, "overwrites nothing" in twice.err) == (2, True)

    assert "Copy secret.key into the same directory" in restored.out
    key = (terminal.place / "homing-data" / "secret.key").read_text()
    (terminal.place / "elsewhere" / "secret.key").write_text(key)
    other = Terminal(terminal.place, more={"HOMING_DATA": "elsewhere"})
    with other.serving():
        response = other.well("publish", "kept.safe", '{"n": 1}', "--id", "kept-1", "--json")
        assert response.document == {
            "id": "kept-1",
            "deliveries": 0,
            "duplicate": True,
            "warning": "",
        }
        changed = other.run("publish", "kept.safe", '{"n": 2}', "--id", "kept-1")
        assert changed.code == 1
    offline = other.well("backup", "offline.db", "--json").document
    assert offline["rows"]["event"] == 1
    assert not list(terminal.place.glob(".*.db*"))


def test_what_cannot_be_backed_up_is_said(terminal: Terminal) -> None:
    absent = terminal.run("backup", "b.db", "--data", "nothing-here")
    assert (absent.code, "There is no database" in absent.err) == (2, True)
    postgres = terminal.run("backup", "b.db", HOMING_DATABASE_URL="postgresql://h/d")
    assert (postgres.code, "pg_dump" in postgres.err) == (2, True)
    (terminal.place / "text.db").write_text("not a database, but long enough to be read as one")
    damaged = terminal.run("restore", "text.db", "--data", "fresh")
    assert (damaged.code, "not a database" in damaged.err) == (1, True)
    assert not (terminal.place / "fresh" / "homing.db").exists()


def test_a_damaged_copy_is_found(terminal: Terminal, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    good = tmp_path / "good.db"
    copy_database(terminal.place / "homing-data" / "homing.db", good, lambda *at: steps.append(at))
    assert steps[-1][0] == steps[-1][1] > 0
    assert check_copy(good)["event"] >= 0
    bad = tmp_path / "bad.db"
    shutil.copy(good, bad)
    content = bytearray(bad.read_bytes())
    content[8192:12288] = b"\xff" * 4096
    bad.write_bytes(content)
    with pytest.raises(BadCopy):
        check_copy(bad)
