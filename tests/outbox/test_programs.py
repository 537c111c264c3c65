"""``homing outbox``, ``homing relay`` and the relay inside ``homing serve``, as people use them."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest

from cli.terminal import Terminal
from homing_client import Homing
from net.receiver import a_free_port
from outbox.application import application
from outbox.houses import KEY, house


def until_empty(address: str) -> None:
    with application(address) as one:
        until = time.monotonic() + 60
        while any(row[3] is None for row in one.rows()):
            assert time.monotonic() < until
            time.sleep(0.01)


def test_a_server_relays_by_itself(app: str, tmp_path: Path) -> None:
    with application(app) as one, house(tmp_path, HOMING_OUTBOX_URL=app) as home:
        keys = {one.publish("invoice.paid", f'{{"n":   {n}}}') for n in range(5)}
        taken = one.publish("invoice.paid", "1", id="mine")
        until_empty(app)
        again = [one.publish("invoice.paid", "1", id="mine") for _ in range(2)]
        until_empty(app)
        assert again == [taken, taken]
        assert set(home.events()) == {*keys, "mine"}
        assert bytes(home.client.event(min(keys)).data).startswith(b'{"n":   ')
        one.publish("invoice.paid", "2", id="mine")  # the same id with another content
        until_empty(app)
        ((key, _, _, reason),) = one.rows()
        assert (key, "another content" in reason) == ("mine", True)
        shown = home.terminal.well("outbox", "status")
        assert "No rows are waiting." in shown.out
        assert "another content" in shown.out
        document = home.terminal.well("outbox", "status", "--json").document
        assert document["outbox"]["refused"] == 1
        until = time.monotonic() + 60
        while "homing_outbox_parked 1.0" not in home.client.metrics():
            assert time.monotonic() < until
            time.sleep(0.05)
        metrics = home.client.metrics()
        assert "homing_outbox_refused_total 1.0" in metrics
        assert "homing_outbox_lag_seconds 0.0" in metrics
        assert home.terminal.well("outbox", "retry", "mine", "--json").document == {"retried": 1}


@pytest.mark.long
def test_a_relay_of_its_own_waits_for_a_server_and_then_goes_on(
    sqlite_app: str, tmp_path: Path
) -> None:
    port = a_free_port()
    terminal = Terminal(tmp_path, more={"HOMING_ADMIN_KEY": KEY})
    with application(sqlite_app) as one:
        key = one.publish("invoice.paid", "1")
        nobody = terminal.run("relay", "--database", sqlite_app, "--until-empty")
        assert (nobody.code, "could not be reached" in nobody.err) == (3, True)
        assert len(one.rows()) == 1
        with terminal.going("relay", "--database", sqlite_app, "--metrics", str(port)):
            page = ""
            while "homing_outbox_waiting 1.0" not in page:
                page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            with terminal.serving():
                until_empty(sqlite_app)
                with Homing(f"http://127.0.0.1:{terminal.port}", KEY) as client:
                    assert client.event(key).type == "invoice.paid"


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
def test_the_sql_can_be_printed_for_ones_own_migrations(kind: str, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    address = "postgresql://nobody/nothing" if kind == "postgres" else "sqlite:absent.db"
    said = terminal.well("outbox", "install", "--database", address, "--print-sql").out
    assert "CREATE TABLE IF NOT EXISTS homing_outbox" in said
    assert ("homing_publish(" in said) is (kind == "postgres")
    assert not (tmp_path / "absent.db").exists()


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    assert terminal.run("outbox", "status").code == 2
    for address, code, told in (
        ("mysql://x", 2, "postgresql://… or sqlite:PATH"),
        ("postgresql://127.0.0.1:1/x", 1, "outbox"),
        ("sqlite:absent.db", 1, "cannot be opened"),
    ):
        done = terminal.run("outbox", "status", "--database", address)
        assert (done.code, told in done.err) == (code, True), done.err
    installed = terminal.well("outbox", "install", "--database", "sqlite:app.db")
    assert "INSERT INTO homing_outbox" in installed.out
    assert (
        "No rows are waiting."
        in terminal.well("outbox", "status", "--database", "sqlite:app.db").out
    )
    bad = terminal.run("serve", "--outbox-url", "mysql://secret@x")
    assert (bad.code, "secret" in bad.err) == (2, False)
