"""A program with homing-client and nothing of the server: publish, receive, verify, outbox.

It is run by another Python than the tests, so it imports only the standard library and the client.
Arguments: the server's URL, its key, and the SQLite file whose outbox that server relays.
"""

import asyncio
import importlib.metadata
import importlib.util
import json
import queue
import sqlite3
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from homing_client import (
    AsyncHoming,
    Homing,
    NotVerified,
    Seen,
    Verified,
    __version__,
    outbox,
    verify,
)

WAIT_S = 120  # far longer than anything takes; a busy machine is no failure


class Receiver(BaseHTTPRequestHandler):
    """Puts every webhook into a queue and responds with 204."""

    arrived: "queue.Queue[tuple[dict[str, str], bytes]]" = queue.Queue()

    def do_POST(self) -> None:
        """Take one webhook."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.arrived.put((dict(self.headers.items()), body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


def receive(secret: str, seen: Seen) -> tuple[Verified, object]:
    """The next webhook, after its signature was checked."""
    headers, body = Receiver.arrived.get(timeout=WAIT_S)
    webhook = verify(headers, body, [secret])
    with seen.once(webhook.id) as new:
        assert new
    with seen.once(webhook.id) as new:
        assert not new
    try:
        verify(headers, body + b" ", [secret])
    except NotVerified:
        return webhook, json.loads(body)["data"]
    raise AssertionError("a changed body was accepted")


async def publish_on_asyncio(url: str, key: str) -> None:
    async with AsyncHoming(url, key) as homing:
        await homing.publish("invoice.sent", {"invoice": 2})


def main(url: str, key: str, shop: str) -> None:
    listener = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    homing, seen = Homing(url, key), Seen()
    hook = f"http://127.0.0.1:{listener.server_port}/hook"
    secret = homing.subscribe(hook, ["invoice.*"]).secret

    first = homing.publish("invoice.paid", {"invoice": 1}, id="invoice-1")
    again = homing.publish("invoice.paid", {"invoice": 1}, id="invoice-1")
    assert (first.deliveries, first.duplicate, again.duplicate) == (1, False, True)
    webhook, data = receive(secret, seen)
    assert (webhook.event_type, data) == ("invoice.paid", {"invoice": 1})

    asyncio.run(publish_on_asyncio(url, key))
    assert receive(secret, seen)[1] == {"invoice": 2}

    with sqlite3.connect(shop) as connection:
        outbox.publish(connection, "invoice.paid", {"invoice": 0})
        connection.rollback()
        outbox.publish(connection, "invoice.paid", {"invoice": 3})
    assert receive(secret, seen)[1] == {"invoice": 3}
    assert Receiver.arrived.empty()

    packages = {it.name for it in importlib.metadata.distributions()}
    print(
        json.dumps(
            {
                "version": __version__,
                "server": homing.status().version,
                "packages": sorted(packages),
                "has the server": importlib.util.find_spec("homing") is not None,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
