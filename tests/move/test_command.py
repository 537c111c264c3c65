"""``homing move`` as an operator uses it: stop, move, serve, and everything is there."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from cli.terminal import Terminal
from client.hooks import hook
from homing.policy.bucket_shares import BUCKETS
from homing.store.at_work import at_work
from homing.store.inspect import inspect_fleet
from homing_client import Homing
from postgres import Server

KEY = "hk_move-test-key-012345"


def test_an_installation_goes_on_on_postgresql(postgres: Server, tmp_path: Path) -> None:
    address = asyncio.run(postgres.make())
    terminal = Terminal(tmp_path, more={"HOMING_ADMIN_KEY": KEY})
    url = f"http://127.0.0.1:{terminal.port}"
    with terminal.serving(), Homing(url, KEY) as client, hook(status=500) as receiver:
        client.subscribe(receiver.url, ["invoice.*"])
        made = [client.publish("invoice.paid", {"n": n}, id=f"n-{n}") for n in range(3)]
        assert {receipt.deliveries for receipt in made} == {1}
        while 0 in {one.attempts_made for one in client.deliveries()}:
            time.sleep(0.01)
        at_work = terminal.run("move", "--to", address)
        assert (at_work.code, "holds homing.db" in at_work.err) == (2, True)
        before = client.ledger()
    done = terminal.well("move", "--to", address)
    assert "3 events, 3 pending" in done.out
    assert "counts and checksums are equal" in done.out
    again = terminal.run("move", "--to", address)
    assert (again.code, "must be empty" in again.err) == (2, True)
    there = Terminal(tmp_path, terminal.port, {**terminal.more, "HOMING_DATABASE_URL": address})
    with there.serving(), Homing(url, KEY) as client:
        assert client.ledger() == before
        assert client.publish("invoice.paid", {"n": 1}, id="n-1").id == "n-1"
        (last, *_) = client.deliveries(event="n-2")
        detail = client.delivery(last.id)
        assert (last.status, detail.attempts[0].code) == ("pending", 500)
        assert client.ledger() == before
        busy = terminal.run("move", "--from", address, "--to", "sqlite:elsewhere")
        assert (busy.code, "Stop them first" in busy.err) == (2, True)
    back = terminal.run("move", "--from", address, "--to", "sqlite:elsewhere")
    assert (back.code, "3 events, 3 pending" in back.out) == (0, True), back.err


@pytest.mark.long
def test_nobody_waits_for_a_process_that_left_in_order_or_could_not_start(
    postgres: Server, tmp_path: Path
) -> None:
    address = asyncio.run(postgres.make())
    more = {"HOMING_ADMIN_KEY": KEY, "HOMING_DATABASE_URL": address}
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    terminal = Terminal(tmp_path / "first", more=more)
    with terminal.serving():
        pass
    stranger = Terminal(tmp_path / "second", more=more)  # It has another key for the secrets.
    refused = stranger.run("serve")
    assert (refused.code, "encrypted with the key" in refused.err) == (2, True), refused.err
    facts = asyncio.run(inspect_fleet(address))
    assert facts.processes == ()
    assert facts.free == BUCKETS
    assert asyncio.run(at_work(address)) == []


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    for arguments, code, told in (
        ((), 2, "The target is missing"),
        (("--to", "sqlite:x"), 2, "There is no database"),
        (("--from", "mysql://x", "--to", "sqlite:x"), 2, "sqlite:DIR or postgresql://"),
        (("--from", "sqlite:x", "--to", "sqlite:x"), 2, "the same database"),
        (("--from", "postgresql://127.0.0.1:1/x", "--to", "sqlite:x"), 1, "PostgreSQL"),
    ):
        done = terminal.run("move", *arguments)
        assert (done.code, told in done.err) == (code, True), (arguments, done.err)
