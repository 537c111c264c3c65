"""Two cells behind the HAProxy example: a tenant moves from one to the other while it publishes."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.programs import DEPLOY, find, needs, output_of
from move.tenants import (
    ACME,
    GLOBEX,
    Databases,
    Reply,
    arguments,
    ask,
    databases,
    ledger_of,
    make_cell,
    receivers,
    until,
)
from net.receiver import a_free_port

__all__ = ["databases"]  # a fixture


class Router:
    """A running HAProxy with the example, on ports of this machine and without TLS."""

    def __init__(self, folder: Path, *, one: int, two: int) -> None:
        self.port, self._socket, self._map = a_free_port(), folder / "admin.sock", folder / "map"
        self._map.write_text("nobody cell_two\n")
        text = (DEPLOY / "haproxy" / "cells.cfg").read_text()
        text = text.replace("maxconn 20000", "maxconn 100")
        text = re.sub(r"bind :443 .*", f"bind 127.0.0.1:{self.port}", text)
        text = text.replace("/run/haproxy/admin.sock", str(self._socket))
        text = text.replace("/etc/haproxy/cells.map", str(self._map))
        for label, port in (("one", one), ("two", two)):
            text = re.sub(rf"(server {label}_a) \S+", rf"\1 127.0.0.1:{port}", text)
            text = re.sub(rf"    server {label}_b .*\n", "", text)
        self._file = folder / "haproxy.cfg"
        self._file.write_text(text)
        output_of("haproxy", "-c", "-f", self._file)

    @contextlib.contextmanager
    def running(self) -> Iterator[Router]:
        process = subprocess.Popen([find("haproxy") or "haproxy", "-db", "-f", self._file])
        try:
            until(lambda: self._ready(ACME) and self._ready(GLOBEX))
            yield self
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    def _ready(self, tenant: str) -> bool:
        with contextlib.suppress(OSError):
            return self.ask(tenant, "GET", "/readyz").status == 200
        return False

    def ask(self, tenant: str, method: str, path: str, document: Any = None, **more: str) -> Reply:
        return ask(self.port, method, path, document, headers={"homing-tenant": tenant}, **more)

    def switch(self, tenant: str, cell: str) -> None:
        """As the comment in the example says it, without a reload."""
        self._say(f"add map {self._map} {tenant} {cell}\n")

    def _say(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self._socket))
            line.sendall(command.encode())
            return line.recv(10_000).decode()


@pytest.mark.long
@needs("haproxy")
def test_a_tenant_moves_to_another_cell_behind_a_router(
    databases: Databases, tmp_path: Path
) -> None:
    one = make_cell(tmp_path / "one", databases, nodes="0-31")
    two = make_cell(tmp_path / "two", databases, nodes="32-63")
    router = Router(tmp_path, one=one.port, two=two.port)
    accepted: list[str] = []
    refused: Counter[str] = Counter()
    over = threading.Event()

    def publish(key: str) -> None:
        for number in itertools.count():
            event = {"id": f"n-{number}", "type": "a.b", "data": {"mine": True}}
            while (got := router.ask(ACME, "POST", "/v1/events", event, key=key)).status != 202:
                assert got.status == 503, got
                assert int(got.headers["retry-after"]) > 0
                refused[got.json["code"]] += 1
            accepted.append(str(event["id"]))
            if over.is_set():
                return

    with receivers() as (good, _), one.serving(), two.serving(), router.running():
        document = {"url": good.url, "types": ["*"], "tenant": ACME}
        assert router.ask(ACME, "POST", "/v1/subscriptions", document).status == 201
        made = {"name": "acme", "role": "publisher", "tenant": ACME}
        key = router.ask(ACME, "POST", "/v1/keys", made).json["key"]
        thread = threading.Thread(target=publish, args=(key,))
        thread.start()
        try:
            until(lambda: len(accepted) > 20)
            one.terminal.well(*arguments(one, two))
            until(lambda: refused["tenant_moved"] > 0)
            router.switch(ACME, "cell_two")
            there = len(accepted)
            until(lambda: len(accepted) > there + 20)
        finally:
            over.set()
            thread.join()
        until(lambda: ledger_of(two, ACME)["pending"] == 0)
        ledger = ledger_of(two, ACME)
        came = Counter(head["webhook-id"] for head, body in good.came if b"mine" in body)
        neighbour = {"type": "a.b", "data": {}, "tenant": GLOBEX}
        assert router.ask(GLOBEX, "POST", "/v1/events", neighbour).status == 202
        assert one.good("GET", f"/v1/events?tenant={GLOBEX}")["items"]
        host = {"host": f"{ACME}.hooks.example.com"}
        by_host = ask(router.port, "GET", "/v1/subscriptions", key=key, headers=host)
        assert by_host.json["code"] == "forbidden", "cell two knows the key: it may only publish"
    sent = len(set(accepted))
    assert ledger["accepted"] == ledger["delivered"] == sent == len(came) == sum(came.values())
