"""Takes the pictures of docs/images: a server with receivers that work and some that fail.

After a change of the pages: ``make pictures``. It needs Chromium. The receivers listen on this
machine; the pictures show names for their addresses.
"""

from __future__ import annotations

import http.server
import shutil
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, Route, expect, sync_playwright

from homing.testing import HomingServer, running_server
from homing.web.dashboard.pages.simulator import DEFAULTS
from net.zoo import Zoo, issue

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTH = 1440
ROUNDS = 60  # one every minute
BROKEN_FROM = 36
BODIES = {
    404: b'{"error": "no such integration"}',
    503: b"<html><head><title>503 Service Temporarily Unavailable</title></head></html>",
}


@contextmanager
def receiver(status: Callable[[], int], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A receiver that responds with this status; its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            body = BODIES.get(status(), b"")
            self.send_response(status())
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Nothing: some handshakes fail on purpose."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def scene(server: HomingServer, stack: ExitStack) -> dict[str, str]:
    """An hour of traffic; the names to show for the addresses of the receivers."""
    client, now = server.client, [0]
    names: dict[str, str] = {}
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

    def subscribe(
        host: str, path: str, types: list[str], status: Callable[[], int], *, tls: bool = False
    ) -> str:
        context = Zoo(folder).server(issue("localhost")) if tls else None
        port = stack.enter_context(receiver(status, context))
        address = f"localhost:{port}" if tls else f"127.0.0.1:{port}"
        names[address] = host
        scheme = "https" if tls else "http"
        return client.subscribe(f"{scheme}://{address}{path}", types, description=host).endpoint

    def works() -> int:
        return 204

    def breaks() -> int:
        return 503 if now[0] >= BROKEN_FROM else 204

    subscribe("hooks.warehouse.example", "/orders", ["order.*"], works)
    subscribe("api.billing.example", "/v2/webhooks/invoices", ["invoice.*"], works)
    subscribe("crm.acme.example", "/integrations/homing", ["invoice.*", "order.placed"], breaks)
    subscribe(
        "erp.acme.example", "/inbound?customer=4711", ["order.*", "invoice.*"], works, tls=True
    )
    subscribe("partner.example", "/shipping", ["order.shipped"], lambda: 404)
    frozen = subscribe("old.acme.example", "/maintenance", ["invoice.sent"], works)
    client.freeze_endpoint(frozen)
    for turn in range(ROUNDS):
        now[0] = turn
        for number in range(6 + turn % 5):
            kind = ("order.placed", "invoice.paid", "order.paid", "invoice.sent")[number % 4]
            client.publish(kind, {"invoice": {"id": 4000 + 10 * turn + number}})
        if turn > ROUNDS - 5:
            client.publish("order.shipped", {"parcel": turn})
        server.live_through(minutes=1)
    return names


def take(
    page: Page, server: HomingServer, path: str, name: str, *, height: int, dark: bool
) -> None:
    page.emulate_media(color_scheme="dark" if dark else "light")
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.goto(server.url + path)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.wait_for_timeout(1_000)  # The charts are drawn.
    page.screenshot(path=IMAGES / name)


def main() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(running_server())
        names = scene(server, stack)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        page = browser.new_context(locale="en-GB").new_page()
        page.clock.set_fixed_time(server.clock.utc())

        def show_names(route: Route) -> None:
            response = route.fetch()
            text = response.text()
            for address, host in names.items():
                text = text.replace(address, host)
            route.fulfill(response=response, body=text)

        page.goto(f"{server.url}/sign-in")
        page.get_by_label("API key", exact=True).fill(server.key)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        for path in ("/", "/incidents", "/endpoints/*", "/simulator?*"):
            page.route(server.url + path, show_names)
        failing = next(it for it in server.client.endpoints() if names_of(it.url, names) == "erp")
        take(page, server, "/", "dashboard-overview.png", height=1080, dark=False)
        take(page, server, "/incidents", "dashboard-incidents.png", height=1000, dark=False)
        take(
            page,
            server,
            f"/endpoints/{failing.id}",
            "dashboard-endpoint.png",
            height=1080,
            dark=True,
        )
        outage = {"from": "1h", "to": "31h", "run_for": "3d", "every": "5m"}
        asked = urlencode({**DEFAULTS, **outage, "endpoint": failing.id})
        take(
            page, server, f"/simulator?{asked}", "dashboard-simulator.png", height=1080, dark=False
        )
        browser.close()


def names_of(url: str, names: dict[str, str]) -> str:
    """The first part of the host's name."""
    address = url.partition("://")[2].partition("/")[0]
    return names[address].partition(".")[0]


if __name__ == "__main__":
    main()
