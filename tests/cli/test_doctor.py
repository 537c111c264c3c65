"""``homing doctor``: each check with a status and a sentence, with and without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cli.terminal import Done, Terminal
from homing.server.settings import Settings
from homing.testing import KEY, running_server
from net.receiver import a_free_port
from web.outage import begin_outage


def statuses(done: Done) -> dict[str, str]:
    return {check["name"]: check["status"] for check in done.document["checks"]}


def test_a_server_that_is_well_passes(terminal: Terminal) -> None:
    done = terminal.well("doctor", "--json")
    found = statuses(done)
    assert set(found.values()) <= {"ok", "warning"}
    assert {
        "settings",
        "data",
        "disk",
        "store",
        "clock",
        "server",
        "outage",
        "ledger",
        "backlog",
    } <= {*found}
    listen: dict[str, Any] = next(
        one for one in done.document["settings"] if one["name"] == "listen"
    )
    assert listen["source"] == "HOMING_LISTEN"
    told = terminal.well("doctor").out
    assert "✓ server" in told
    assert "No errors found." in told


def test_frozen_endpoints_are_a_warning(terminal: Terminal) -> None:
    url = "http://127.0.0.1:1027/held"
    terminal.well("subscribe", url)
    terminal.well("endpoints", "freeze", url)
    done = terminal.well("doctor", "--json")
    assert statuses(done)["frozen"] == "warning"


def test_a_sender_outage_is_an_error_and_says_since_when_and_why(tmp_path: Path) -> None:
    with running_server() as server:
        begin_outage(server, lambda: server.client.status().outage.state == "confirmed")
        asked = Terminal(tmp_path).run("doctor", "--server", server.url, "--key", KEY, "--json")
    assert asked.code == 1
    (outage,) = [one for one in asked.document["checks"] if one["name"] == "outage"]
    assert outage["status"] == "error"
    assert "Sender outage since" in outage["sentence"]
    assert "hosts that were healthy fail to connect" in outage["sentence"]


def test_detection_that_is_off_is_told(tmp_path: Path) -> None:
    settings = Settings.of(listen="127.0.0.1:0", outage_detection=False)
    with running_server(settings) as server:
        assert server.client.status().outage.state == "off"
        asked = Terminal(tmp_path).run("doctor", "--server", server.url, "--key", KEY, "--json")
    (outage,) = [one for one in asked.document["checks"] if one["name"] == "outage"]
    assert (outage["status"], outage["sentence"]) == (
        "ok",
        "Sender-outage detection is off: failures count as they come.",
    )


def test_without_a_server_the_rest_is_still_looked_at(tmp_path: Path) -> None:
    done = Terminal(tmp_path).well("doctor", "--json")
    found = statuses(done)
    assert (found["settings"], found["store"], found["server"]) == ("ok", "unknown", "unknown")


def test_a_server_that_should_be_there_and_is_not_fails_the_check(terminal: Terminal) -> None:
    asked = terminal.run("doctor", "--server", f"http://127.0.0.1:{a_free_port()}", "--json")
    assert (asked.code, statuses(asked)["server"]) == (1, "error")
    moved = terminal.run("doctor", "--json", HOMING_LISTEN=f"127.0.0.1:{a_free_port()}")
    assert (moved.code, statuses(moved)["server"]) == (1, "error")
    denied = terminal.run("doctor", "--key", "a-wrong-key-of-some-length", "--json")
    assert (denied.code, statuses(denied)["access"]) == (1, "error")


def test_a_wrong_setting_is_the_first_thing_told(tmp_path: Path) -> None:
    done = Terminal(tmp_path).run("doctor", "--json", HOMING_LEASE_MS="900")
    assert (done.code, statuses(done)) == (1, {"settings": "error"})


def test_a_store_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "homing-data").mkdir(mode=0o700)
    (tmp_path / "homing-data" / "homing.db").write_text("something else, which is no database")
    done = Terminal(tmp_path).run("doctor", "--json")
    assert (done.code, statuses(done)["store"]) == (1, "error")
    gone = Terminal(tmp_path).run(
        "doctor", "--json", HOMING_DATABASE_URL=f"postgresql://127.0.0.1:{a_free_port()}/x"
    )
    assert (gone.code, statuses(gone)["store"]) == (1, "error")
