"""The customer portal in Chromium: embedded by another site without third-party cookies, and alone.

The example application of ``examples/customer-portal`` runs as a process of its own and speaks
https, as the portal does. The two have different sites, and the browser blocks third-party cookies.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, FrameLocator, Page, expect

from browser.conftest import PATIENCE_MS
from browser.https import Certificate, forwarding, listening
from browser.person import Person
from client.hooks import Hook, hook
from homing.server.settings import Settings
from homing.server.settings.groups import (
    DeliverySettings,
    ListenSettings,
    NoticeSettings,
    ReachSettings,
)
from homing.testing import HomingServer, running_server

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "customer-portal" / "app.py"
BLOCKED = {"profile": {"cookie_controls_mode": 1, "block_third_party_cookies": True}}
FILTER = '[{"field": "data.total", "op": "gt", "value": 100}]'


def png(red: int, green: int, blue: int) -> str:
    """A small picture as a data URL."""
    size = 24
    rows = b"".join(b"\0" + bytes((red, green, blue)) * size for _ in range(size))
    parts = b""
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    for kind, content in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
        check = struct.pack(">I", zlib.crc32(kind + content))
        parts += struct.pack(">I", len(content)) + kind + content + check
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()


# --- embedded by another site -----------------------------------------------------------------


class Site:
    """A portal and an application on two sites."""

    def __init__(self, server: HomingServer, portal_port: int, app_port: int) -> None:
        self.server = server
        self.portal = f"https://hooks.localhost:{portal_port}"
        self.app = f"https://app.localhost:{app_port}"
        self.stranger = f"https://stranger.localhost:{app_port}"  # the same pages, not allowed


@contextmanager
def example(certificate: Certificate, server: HomingServer, key: str) -> Iterator[int]:
    """The example application as a process; its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    environ = {
        **os.environ,
        "HOMING_SERVER": server.url,
        "HOMING_KEY": key,
        "LISTEN": f"127.0.0.1:{port}",
        "TLS_CERTIFICATE": str(certificate.file),
        "TLS_KEY": str(certificate.key_file),
    }
    process = subprocess.Popen([sys.executable, str(EXAMPLE)], env=environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert b"listening" in process.stdout.readline()
        yield port
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    names = ("hooks.localhost", "app.localhost", "stranger.localhost", "other.localhost")
    return Certificate(tmp_path_factory.mktemp("tls"), *names)


@pytest.fixture
def site(certificate: Certificate) -> Iterator[Site]:
    listener = listening()
    port = int(listener.getsockname()[1])
    settings = Settings(
        listen=ListenSettings(address="127.0.0.1:0"),
        reach=ReachSettings(allow_loopback=True),
        delivery=DeliverySettings(grace_ms=1_000),
        notices=NoticeSettings(public_url=f"https://hooks.localhost:{port}"),
    )
    with running_server(settings) as server:
        made = server.client.create_key("shop", "manager", tenant="acme")
        to = server.url.removeprefix("http://")
        with (
            forwarding(listener, certificate, to),
            example(certificate, server, made.key) as app_port,
        ):
            yield Site(server, port, app_port)


@pytest.fixture
def strict(chromium: Browser, certificate: Certificate, tmp_path: Path) -> Iterator[BrowserContext]:
    """Chromium that blocks third-party cookies, as its setting says it."""
    profile = tmp_path / "profile" / "Default"
    profile.mkdir(parents=True)
    (profile / "Preferences").write_text(json.dumps(BLOCKED))
    options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    context = chromium.browser_type.launch_persistent_context(
        profile.parent,
        executable_path=next(
            path
            for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser")
            if Path(path).exists()
        ),
        args=[*options, f"--ignore-certificate-errors-spki-list={certificate.pin}"],
        viewport={"width": 1440, "height": 900},
        locale="en-GB",
    )
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield context
    context.close()


@contextmanager
def cookie_page(context: ssl.SSLContext) -> Iterator[int]:
    """A page whose frame, of another site, sets two cookies and then says which came back."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            body = f"<p>{self.headers.get('cookie', 'none')}"
            if self.path == "/outer":
                host = f"https://other.localhost:{server.server_port}"
                body = f"<iframe src='{host}/set'></iframe>"
            elif self.path == "/set":
                self.send_header("set-cookie", "plain=1; Secure; SameSite=None")
                self.send_header("set-cookie", "apart=1; Secure; SameSite=None; Partitioned")
                body = "<script>location = '/seen'</script>"
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_this_browser_blocks_third_party_cookies_and_keeps_partitioned_ones(
    strict: BrowserContext, certificate: Certificate
) -> None:
    with cookie_page(certificate.context()) as port:
        page = strict.new_page()
        page.goto(f"https://app.localhost:{port}/outer")
        expect(page.frame_locator("iframe").locator("p")).to_have_text("apart=1")


def confirm(frame: FrameLocator, button: str, label: str) -> None:
    frame.get_by_role("button", name=button, exact=True).click()
    frame.get_by_role("dialog").get_by_role("button", name=label, exact=True).click()


def open_shop(page: Page, site: Site) -> FrameLocator:
    page.goto(site.app)
    frame = page.frame_locator("iframe")
    expect(frame.get_by_role("heading", name="Endpoints", level=1)).to_be_visible()
    return frame


def test_another_site_embeds_the_portal_without_third_party_cookies(
    strict: BrowserContext, site: Site
) -> None:
    site.server.client.change_portal(
        tenant="acme", name="Acme", frame_ancestors=[site.app], logo=png(200, 30, 30)
    )
    page = strict.new_page()
    complaints: list[str] = []
    page.on("console", lambda it: complaints.append(it.text) if "Security" in it.text else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    frame = open_shop(page, site)
    (cookie,) = [it for it in strict.cookies() if it["name"] == "__Host-homing_portal"]
    assert cookie.get("partitionKey"), cookie
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "None")
    expect(frame.locator(".portal-name img")).to_be_visible()
    expect(frame.locator("#live")).to_have_attribute("data-state", "live")

    with hook() as receiver:
        frame.get_by_role("link", name="New endpoint").first.click()
        frame.get_by_label("URL", exact=True).fill(receiver.url)
        frame.get_by_label("Types").fill("order.*")
        frame.get_by_label("Filters").fill(FILTER)
        frame.get_by_role("button", name="Create").click()
        expect(frame.locator("#secret pre")).to_contain_text("whsec_")
        first = frame.locator("#secret pre").inner_text()
        confirm(frame, "Send a test event…", "Send it")
        expect(frame.get_by_text("Your endpoint responded with 204")).to_be_visible()
        confirm(frame, "Rotate the secret…", "Rotate")
        expect(frame.get_by_text("Secret rotated.")).to_be_visible()
        assert frame.locator("#secret pre").inner_text() != first
        confirm(frame, "Pause…", "Pause")
        expect(frame.locator("#paused")).to_be_visible()
        confirm(frame, "Resume…", "Resume")
        expect(frame.locator("#paused")).to_have_count(0)
        site.server.client.publish("order.paid", {"total": 250}, tenant="acme")
        site.server.settle()
        assert len(receiver.came) == 2
        frame.get_by_role("link", name="Deliveries", exact=True).click()
        frame.get_by_role("link", name="order.paid").click()
        expect(frame.get_by_role("heading", name="order.paid")).to_be_visible()
        frame.get_by_role("link", name="Incidents", exact=True).click()
        expect(frame.get_by_text("Nothing fails now")).to_be_visible()

    (link,) = [it for it in site.server.client.portal_links(tenant="acme") if it.state == "open"]
    site.server.client.revoke_portal_link(link.id)
    expect(frame.get_by_text("This access was withdrawn.")).to_be_visible()  # with no click
    expect(page.locator("body")).to_have_attribute("data-closed", "This access was withdrawn.")
    assert not complaints


@pytest.mark.long
def test_a_site_that_is_not_listed_shows_nothing_of_the_portal(
    strict: BrowserContext, site: Site
) -> None:
    site.server.client.change_portal(tenant="acme", name="Acme", frame_ancestors=[site.app])
    page = strict.new_page()
    refused: list[str] = []
    page.on("console", lambda it: refused.append(it.text) if "frame-ancestors" in it.text else None)
    page.goto(site.stranger)
    page.wait_for_load_state()
    for _ in range(200):
        if refused:
            break
        page.wait_for_timeout(50)
    assert refused
    expect(page.frame_locator("iframe").get_by_text("Acme")).to_have_count(0)
    states = {it.state for it in site.server.client.portal_links(tenant="acme")}
    assert states == {"waiting"}, "the link was not opened"


# --- every page, wide and narrow --------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as found:
        yield found


@pytest.mark.long
def test_every_page_of_the_portal_fits_and_has_no_barrier(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    client, page = server.client, person.page
    with hook(status=503) as broken:
        made = client.subscribe(receiver.url, ["order.*", "invoice.paid"], tenant="acme")
        client.subscribe(f"{broken.url}/orders/of/a/rather/long/path", ["*"], tenant="acme")
        for number in range(4):
            client.publish("order.paid", {"number": number, "total": 99.5}, tenant="acme")
        server.settle()
    client.create_event_type(
        "order.paid",
        description="An order was paid.",
        schema={"type": "object", "properties": {"total": {"type": "number"}}},
        sample={"number": 1, "total": 99.5},
        tenant="acme",
    )
    client.change_portal(
        tenant="acme",
        name="Acme Logistics",
        logo=png(250, 200, 40),
        accent_color="#ffd400",
        header_color="#16324f",
    )
    url = client.create_portal_link(tenant="acme", role="manager", subject="ada@acme.example").url
    page.goto(url)
    expect(page.get_by_role("heading", name="Endpoints", level=1)).to_be_visible()
    failing = next(it.id for it in client.deliveries(tenant="acme") if it.status == "pending")
    for name, path, seen in (
        ("endpoints", "/portal/endpoints", "order.*"),
        ("endpoint", f"/portal/endpoints/{made.id}", "Latest deliveries"),
        ("endpoint-new", "/portal/endpoints/new", "New endpoint"),
        ("deliveries", "/portal/deliveries", "503 Service Unavailable"),
        ("delivery", f"/portal/deliveries/{failing}", "Request headers"),
        ("incidents", "/portal/incidents", "503"),
        ("event-types", "/portal/event-types", "An order was paid."),
        ("event-type", "/portal/event-types/order.paid", "Sample of the data"),
        ("verify", "/portal/verify", "webhook-signature"),
        ("missing", "/portal/deliveries/dlv_0000000000001", "There is nothing here."),
    ):
        person.open(path)
        person.sees(seen)
        person.finds_no_barrier()
        person.keeps(f"portal-{name}")
    page.goto(url)
    person.sees("This link was opened already")
    person.finds_no_barrier()
    person.keeps("portal-used")


@pytest.mark.long
def test_a_person_sets_the_looks_and_makes_a_link_on_the_dashboard(
    person: Person, server: HomingServer, tmp_path: Path
) -> None:
    page = person.page
    logo = tmp_path / "logo.png"
    logo.write_bytes(base64.b64decode(png(20, 120, 60).partition(",")[2]))
    person.sign_in()
    person.open("/customer-portal?tenant=acme")
    person.sees("No links yet")
    page.get_by_label("Name").fill("Acme")
    page.get_by_label("Colour of links and buttons").fill("#0a7d4f")
    page.get_by_label("Logo", exact=True).set_input_files(logo)
    expect(page.locator("#p-logo-url")).not_to_have_value("")
    page.get_by_label("Sites that may show").fill("https://app.example.com")
    page.get_by_role("button", name="Save").click()
    person.sees_toast("Saved.")
    stored = server.client.portal(tenant="acme")
    assert (stored.name, stored.accent_color) == ("Acme", "#0a7d4f")
    assert stored.logo is not None
    assert stored.logo.type == "image/png"
    page.get_by_role("button", name="New link…").click()
    page.get_by_label("Who gets it").fill("ada@acme.example")
    person.finds_no_barrier()
    page.get_by_role("button", name="Make the link").click()
    url = page.locator("#secret pre").inner_text()
    assert "/portal/open/plk_" in url
    person.finds_no_barrier()
    person.keeps("customer-portal")
    other = page.context.new_page()
    other.goto(url)
    expect(other.get_by_role("heading", name="Endpoints", level=1)).to_be_visible()
    page.reload()
    person.confirms("Revoke…", dialog="Revoke this link?", confirm="Revoke")
    expect(other.get_by_text("This access was withdrawn.")).to_be_visible()
