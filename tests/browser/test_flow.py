"""Deliveries, events, subscriptions and the simulator in a real browser, as people use them."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from browser.conftest import SHOTS
from browser.person import Person
from client.hooks import Hook, hook
from homing.testing import HomingServer

PAYLOAD = "\"'><img src=x onerror=alert(1)><script>alert(2)</script>{{7*7}}"
PLAY_MS = 60_000  # A simulation is a process, and the machine may be busy.
EXCERPT = b"<script>alert(3)</script><img src=x onerror=alert(4)>"


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


@pytest.fixture
def hostile() -> Iterator[str]:
    """A receiver that responds with script, in its headers and its body; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(500, "<script>alert(5)</script>")
            self.send_header("x-note", EXCERPT.decode())
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(EXCERPT)))
            self.end_headers()
            self.wfile.write(EXCERPT)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_person_subscribes_publishes_and_watches_it_delivered(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    person.sign_in()
    page.get_by_role("link", name="Subscriptions", exact=True).click()
    person.sees("No subscriptions yet")
    page.get_by_role("link", name="New subscription").first.click()
    page.get_by_label("URL", exact=True).fill("ftp://nowhere")
    expect(page.locator("[data-problem=url]")).not_to_be_empty()  # as one types
    page.get_by_label("URL", exact=True).fill(receiver.url)
    expect(page.locator("[data-problem=url]")).to_be_empty()
    page.get_by_label("Types").fill("invoice.*")
    page.get_by_role("button", name="Create").click()
    first = page.locator("#secret code").inner_text()
    assert first.startswith("whsec_")
    person.confirms("Rotate the secret…", "Rotate the signing secret?", "Rotate")
    expect(page.locator("#secret code")).not_to_have_text(first)
    person.sees("one valid until")
    page.get_by_role("link", name="Events", exact=True).click()
    page.get_by_role("button", name="Publish a test event…").click()
    page.get_by_label("Type", exact=True).fill("invoice.paid")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_role("heading", name="invoice.paid")).to_be_visible()
    server.settle()
    expect(page.locator("#deliveries .badge")).to_have_text("delivered")  # live
    assert len(receiver.came) == 1
    page.locator("#deliveries a").click()
    expect(page.locator("#explanation")).to_contain_text("Delivered")


def test_a_person_finds_a_dropped_delivery_by_search_and_replays_it(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    receiver.status = 500
    server.client.subscribe(receiver.url, ["invoice.*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.client.publish("invoice.sent", {"id": 8})
    server.live_through(hours=49)
    receiver.status = 204
    person.sign_in()
    person.open("/deliveries")
    page.get_by_label("Search deliveries").focus()
    page.keyboard.type("status:dropped type:invoice.paid since:3d")
    person.presses("Enter")
    row = page.locator("tr[data-row]")
    expect(row).to_have_count(1)
    page.locator("h1").click()
    person.presses("j", "Enter")
    expect(page.locator("h1 .badge")).to_have_text("dropped")
    person.keeps("delivery-dropped")
    person.presses("r")
    expect(page.get_by_role("dialog", name="Replay this delivery?")).to_be_visible()
    person.presses("Escape")
    person.confirms("Replay…", "Replay this delivery?", "Replay it")
    person.sees("started by a person")
    endpoint = next(server.client.endpoints())
    server.client.enable_endpoint(endpoint.id)
    server.live_through(minutes=11)
    expect(page.locator("#explanation")).to_contain_text("Delivered")


def test_a_page_has_one_clock_which_is_the_viewers(
    chromium: Browser, server: HomingServer, receiver: Hook
) -> None:
    receiver.status = 500
    server.client.subscribe(receiver.url, ["invoice.*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.live_through(hours=5)
    (delivery,) = server.client.deliveries()
    context = chromium.new_context(timezone_id="Asia/Kathmandu", locale="en-US")
    person = Person(context.new_page(), server, shots=SHOTS)
    person.sign_in()
    person.open(f"/deliveries/{delivery.id}")
    explanation = person.page.locator("#explanation")
    due = person.page.locator("dt:text-is('Due') + dd").inner_text()
    assert re.search(r"\d:\d\d:\d\d (AM|PM)$", due)
    expect(explanation).to_contain_text(f"is due at {due};")
    said = explanation.evaluate(
        "it => [...it.childNodes].filter(n => n.nodeName === '#text').map(n => n.data).join('')"
    )
    assert not re.search(r"\d\d:\d\d|UTC", said)
    person.keeps("delivery-in-another-zone")
    server.client.freeze_endpoint(delivery.endpoint)
    person.open(f"/endpoints/{delivery.endpoint}")
    for time in person.page.locator(".head-text time").all():
        expect(time).to_have_text(re.compile("AM|PM"))
    person.keeps("endpoint-in-another-zone")
    context.close()


def test_a_viewer_is_offered_nothing_and_refused_all(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    made = server.client.subscribe(receiver.url, ["*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.settle()
    person.sign_in(server.client.create_key("looker", "viewer", tenant="default").key)
    delivery = next(server.client.deliveries()).id
    offers = re.compile("Replay|Cancel|Publish|Edit|Delete|Rotate|Send|New|Enable|Freeze")
    for path in (
        "/incidents",
        "/deliveries",
        f"/deliveries/{delivery}",
        "/events",
        "/subscriptions",
        f"/subscriptions/{made.id}",
        f"/endpoints/{made.endpoint}",
    ):
        person.open(path)
        expect(page.locator("main").get_by_role("button", name=offers)).to_have_count(0)
        expect(page.locator("main").get_by_role("link", name=offers)).to_have_count(0)
    token = page.locator("input[name=csrf]").first.input_value()
    for path in (
        f"/deliveries/{delivery}/replay",
        "/events",
        "/subscriptions",
        f"/subscriptions/{made.id}/delete",
        f"/subscriptions/{made.id}/rotate",
        f"/endpoints/{made.endpoint}/freeze",
    ):
        response = page.request.post(server.url + path, form={"csrf": token}, max_redirects=0)
        assert response.status == 403, path
    for path in ("/subscriptions/new", "/simulator", "/system", "/bulk?q="):
        assert page.request.get(server.url + path).status == 403, path


@pytest.mark.long
def test_script_from_outside_is_text_in_every_field_on_every_page(
    person: Person, server: HomingServer, hostile: str
) -> None:
    client, page = server.client, person.page
    made = client.subscribe(
        f"{hostile}/?q=<script>alert(8)</script>",
        ["*"],
        description=PAYLOAD,
        headers={"x-team": PAYLOAD},
        token="t-<script>alert(9)</script>",
        tenant="acme",
    )
    event = client.publish("invoice.paid", {PAYLOAD: PAYLOAD, "list": [PAYLOAD]}, tenant="acme")
    server.live_through(minutes=3)
    key = client.create_key(PAYLOAD, "manager", tenant="acme").key
    person.sign_in(key)
    delivery = next(it for it in client.deliveries(tenant="acme") if it.type == "invoice.paid")
    nasty = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E"
    for path in (
        "/",
        "/incidents",
        "/endpoints",
        f"/endpoints?q={nasty}",
        f"/endpoints/{made.endpoint}",
        "/deliveries",
        f"/deliveries?q={nasty}",
        f"/deliveries/{delivery.id}",
        f"/bulk?q={nasty}",
        "/events",
        f"/events?q={nasty}",
        f"/events/acme/{event.id}",
        "/subscriptions",
        f"/subscriptions/{made.id}",
        f"/subscriptions/{made.id}/edit",
        f"/simulator?policy={nasty}&from={nasty}&compare={nasty}",
        f"/{nasty}",
    ):
        person.open(path)
        expect(page.locator("h1").first).to_be_visible()
        assert page.locator("img[src=x]").count() == 0, path
        assert page.locator("script:not([src])").count() == 0, path
    person.open(f"/deliveries/{delivery.id}")
    expect(page.locator("main")).to_contain_text(EXCERPT.decode())  # it is there, as text
    assert not person.alerts


@pytest.mark.long
def test_the_pages_of_the_flow_stand_wide_and_narrow_without_barriers(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    client = server.client
    person.sign_in()
    for path in ("deliveries", "events", "subscriptions"):
        person.open(f"/{path}")
        person.keeps(f"{path}-empty")
    made = client.subscribe(
        f"{receiver.url}/billing", ["invoice.*"], description="Billing", signature="both"
    )
    with hook(503) as bad:
        client.subscribe(f"{bad.url}/payroll", ["payroll.*", "invoice.paid"])
        for number in range(12):
            event = client.publish("invoice.paid", {"id": number, "customer": {"country": "SE"}})
        server.live_through(minutes=30)
    failing = next(it for it in client.deliveries() if it.status == "pending")
    simulated = "policy=workfront&compare=standard-webhooks&run_for=12h&from=1h&to=5h"
    for name, path in (
        ("deliveries", "/deliveries"),
        ("delivery", f"/deliveries/{failing.id}"),
        ("bulk", "/bulk?q=status%3Apending"),
        ("events", "/events"),
        ("event", f"/events/default/{event.id}"),
        ("subscriptions", "/subscriptions"),
        ("subscription", f"/subscriptions/{made.id}"),
        ("subscription-form", f"/subscriptions/{made.id}/edit"),
        ("simulator", f"/simulator?{simulated}&does=503&percent=100&every=1m&seed=7"),
    ):
        person.open(path)
        expect(person.page.get_by_role("heading", level=1)).to_be_visible()
        person.finds_no_barrier()
        person.keeps(name)


@pytest.mark.long
def test_a_person_plays_an_outage_and_shares_its_address(
    person: Person, server: HomingServer
) -> None:
    page = person.page
    person.sign_in()
    page.get_by_role("link", name="Simulator", exact=True).click()
    page.get_by_label("Down until").fill("1h")
    page.get_by_role("button", name="Simulate").click()
    person.sees('Must be later than "Down from".')
    page.get_by_label("Down until").fill("4h")
    page.get_by_label("Simulated time").fill("6h")
    page.get_by_role("button", name="Simulate").click()
    picture = page.locator("img.sim-picture")
    expect(picture).to_be_visible(timeout=PLAY_MS)
    assert picture.evaluate("it => it.naturalWidth") > 1000, "the picture can be drawn"
    person.sees("Results")
    page.set_viewport_size({"width": 390, "height": 900})
    page.reload()
    expect(page.get_by_role("link", name="Simulator", exact=True)).to_be_in_viewport(ratio=1)
    person.sees("Disabled (was enabled)")
    address = page.url
    assert "to=4h" in address
    page.goto(address)
    expect(picture).to_be_visible()
