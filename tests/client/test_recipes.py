"""The recipes of the documents, run as they stand: a real Homing sends to real servers."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
import uvicorn

from cli.terminal import Terminal
from client.hooks import hook
from client.pages import blocks, run
from homing.testing import HomingServer
from homing_client import StillHandling

OLD = "whsec_" + b64encode(b"o" * 32).decode()
NEW = "whsec_" + b64encode(b"n" * 32).decode()
Served = contextlib.AbstractContextManager[str]


class Quiet(WSGIRequestHandler):
    """No lines on standard error."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


@contextlib.contextmanager
def wsgi(app: Any) -> Iterator[str]:
    with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook"
        finally:
            server.shutdown()


@contextlib.contextmanager
def fastapi(names: dict[str, Any]) -> Iterator[str]:
    config = uvicorn.Config(names["app"], log_config=None, lifespan="off")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
        finally:
            server.should_exit = True
            thread.join()


def flask(names: dict[str, Any]) -> Served:
    return wsgi(names["app"])


def django(names: dict[str, Any]) -> Served:
    import django as framework
    from django.conf import settings
    from django.core.handlers.wsgi import WSGIHandler
    from django.urls import path

    class Urls:
        urlpatterns = (path("hook", names["hook"]),)

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=Urls, LOGGING_CONFIG=None)
        framework.setup()
    return wsgi(WSGIHandler())


def refused(url: str, **headers: str) -> int:
    request = urllib.request.Request(url, b"{}", headers, method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    caught.value.close()
    return caught.value.code


@pytest.mark.parametrize("serve", [fastapi, flask, django], ids=["fastapi", "flask", "django"])
def test_a_recipe_verifies_handles_once_and_lets_a_failure_come_again(
    serve: Callable[[dict[str, Any]], Served],
    homing_server: HomingServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOMING_SECRETS", f"{OLD} {NEW}")
    page = f"receive-webhooks-with-{serve.__name__}.md"
    (code,) = blocks(page)
    names = run(code, page)
    handled: list[tuple[str | None, bytes]] = []
    trouble: list[Exception] = [RuntimeError("the first time fails")]

    def handle(event_type: str | None, body: bytes) -> None:
        if trouble:
            raise trouble.pop()
        handled.append((event_type, body))

    async def handle_async(event_type: str | None, body: bytes) -> None:
        handle(event_type, body)

    names["handle"] = handle_async if serve is fastapi else handle
    client = homing_server.client
    with serve(names) as url:
        client.subscribe(url, ["invoice.*"], secret=NEW)
        client.publish("invoice.paid", {"n": 17})
        homing_server.settle()
        assert handled == []
        homing_server.live_through(seconds=90)
        (row,) = client.deliveries(type="invoice.paid")
        assert [one.code for one in client.delivery(row.id).attempts] == [500, 204]
        assert [one[0] for one in handled] == ["invoice.paid"]
        assert b'"data":{"n":17}' in handled[0][1]
        client.replay_delivery(row.id)
        homing_server.settle()
        assert [one.status for one in client.deliveries(type="invoice.paid")] == ["delivered"] * 2
        assert len(handled) == 1
        trouble.append(StillHandling())
        client.publish("invoice.paid", {"n": 18})
        homing_server.settle()
        (last, *_) = client.deliveries(type="invoice.paid")
        assert client.delivery(last.id).attempts[0].code == 503
        assert refused(url) == 401


def test_the_pattern_for_a_database_pays_once() -> None:
    in_memory, in_database = blocks("receive-webhooks-in-python.md")
    receive = run(in_memory, "receive-webhooks-in-python.md")["receive"]
    order: list[str] = []
    for webhook_id in ("a", "b", "a"):
        receive(webhook_id, order)
    assert order == ["a", "b"]
    names = run(in_database, "receive-webhooks-in-python.md")
    db = sqlite3.connect(":memory:")
    db.executescript(names["SCHEMA"])
    for _ in range(2):
        names["pay"](db, "dlv_1", 17, 4200)
    with pytest.raises(sqlite3.IntegrityError):
        names["pay"](db, "dlv_2", 17, 4200)
    assert db.execute("SELECT count(*) FROM payments").fetchone() == (1,)
    assert db.execute("SELECT id FROM handled_webhooks").fetchall() == [("dlv_1",)]
    db.close()


async def test_the_page_about_publishing_publishes(
    homing_server: HomingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    page = "publish-events-from-python.md"
    *codes, with_fixture = [
        block.replace("http://127.0.0.1:8700", homing_server.url).replace("hk_…", homing_server.key)
        for block in blocks(page)
    ]
    names: dict[str, Any] = {"__name__": "recipe"}
    with hook(status=500) as receiver:
        homing_server.client.subscribe(receiver.url, ["invoice.*"])
        for code in codes:
            run(code, page, names)
        await names["main"]()
        homing_server.settle()
    names["homing"].close()
    types = [one.type for one in homing_server.client.events()]
    assert types.count("invoice.paid") == 4
    assert types.count("stock.counted") == 2_500
    assert homing_server.client.event("invoice-17-paid").type == "invoice.paid"
    out = capsys.readouterr().out
    assert "due" in out or "flight" in out
    assert callable(run(with_fixture, page)["test_an_invoice_is_announced"])


def test_the_page_about_publishing_shows_a_test_that_passes(homing_server: HomingServer) -> None:
    page = "publish-events-from-python.md"
    run(blocks(page)[-1], page)["test_an_invoice_is_announced"](homing_server)


def test_the_clients_page_on_pypi_publishes_receives_and_pays(
    homing_server: HomingServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = "../../packages/homing-client/README.md"
    given = {
        "http://127.0.0.1:8700": homing_server.url,
        "hk_…": homing_server.key,
        "whsec_…": OLD,
    }
    codes = blocks(page)
    for placeholder, value in given.items():
        codes = [code.replace(placeholder, value) for code in codes]
    publishing, receiving, paying = codes

    with hook() as receiver:
        homing_server.client.subscribe(receiver.url, ["invoice.*"], secret=OLD)
        run(publishing, page)["homing"].close()
        homing_server.settle()
    ((headers, body),) = receiver.came
    receive = run(receiving, page)["receive"]
    assert [receive(headers, body), receive(headers, body)] == [204, 204]
    assert receive(headers, body + b" ") == 401
    assert capsys.readouterr().out.count("invoice.paid b'") == 1

    Terminal(tmp_path).well("outbox", "install", "--database", f"sqlite:{tmp_path / 'shop.db'}")
    db = sqlite3.connect(tmp_path / "shop.db")
    db.execute("CREATE TABLE invoice (id INTEGER PRIMARY KEY, paid INTEGER)")
    run(paying, page)["pay"](db, 17)
    assert db.execute("SELECT type FROM homing_outbox").fetchall() == [("invoice.paid",)]
    db.close()
