"""Why a URL fails, and what to do: the tasks of people who are on call, counted in clicks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from browser.person import Person
from client.hooks import Hook, hook
from homing.policy.health import HealthRules
from homing.server.settings import Settings
from homing.testing import HomingServer, running_server


@pytest.fixture
def server() -> Iterator[HomingServer]:
    """One that disables after a few failures."""
    settings = Settings.of(
        listen="127.0.0.1:0",
        allow_loopback=True,
        grace_ms=1_000,
        health=HealthRules(rate_after_attempts=9),
        search_fields=("data.invoice.id",),
    )
    with running_server(settings) as server:
        yield server


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


def test_why_an_invoice_did_not_arrive_and_its_replay_take_three_clicks(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page, client = person.page, server.client
    receiver.status = 503
    made = client.subscribe(receiver.url, ["invoice.*"])
    for number in (4710, 4711, 4712):
        client.publish("invoice.paid", {"invoice": {"id": number}})
    server.live_through(hours=49)  # All three are dropped.
    receiver.status, receiver.came[:] = 204, []
    client.enable_endpoint(made.endpoint)
    person.sign_in()

    person.presses("/")
    page.keyboard.type("data.invoice.id:4711")
    person.presses("Enter")
    delivery = page.locator("#deliveries tr[data-row]")
    expect(delivery).to_contain_text("503 Service Unavailable")  # why
    delivery.get_by_role("link").click()
    expect(page.locator("#explanation")).to_contain_text("503 Service Unavailable")
    person.confirms("Replay…", "Replay this delivery?", "Replay it")
    person.sees("started by a person")
    server.live_through(minutes=1)
    expect(page.locator("#explanation")).to_contain_text("Delivered")
    ((_, body),) = receiver.came
    assert b"4711" in body
    assert person.clicks() <= 3


def test_which_urls_fail_now_why_and_since_when_takes_one_click(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page, client = person.page, server.client
    receiver.status = 503
    client.subscribe(receiver.url, ["*"])
    client.subscribe(receiver.url.replace("http:", "https:"), ["*"])  # It does not speak TLS.
    page.clock.set_fixed_time(server.clock.utc())
    client.publish("invoice.paid", {"id": 7})
    server.live_through(minutes=5)
    person.sign_in()
    expect(page.locator("#attention")).to_contain_text("503 Service Unavailable")
    page.get_by_role("link", name="Incidents", exact=True).click()
    incidents = page.locator("article.incident")
    expect(incidents).to_have_count(2)
    http = incidents.filter(has_text="503 Service Unavailable")
    tls = incidents.filter(has_text="TLS: the server does not speak TLS")
    began = page.evaluate(
        "new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' })"
        f".format({server.clock.now() - 5 * 60_000})"
    )
    for incident in (http, tls):
        expect(incident).to_contain_text("127.0.0.1")
        expect(incident).to_contain_text(f"Every attempt has failed since {began}")
        expect(incident).to_contain_text("1 delivery waits for a retry")
    assert person.clicks() <= 1


@pytest.mark.long
def test_what_failed_until_a_fix_is_replayed_with_four_clicks(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page, client = person.page, server.client
    receiver.status = 500
    made = client.subscribe(receiver.url, ["*"])
    began = server.clock.utc()
    for number in range(3):
        client.publish("invoice.paid", {"id": number})
    server.live_through(hours=49)  # All three are dropped.
    receiver.status, receiver.came[:] = 204, []
    client.enable_endpoint(made.endpoint)
    client.publish("invoice.paid", {"id": 3})
    server.settle()
    assert len(receiver.came) == 1
    page.clock.set_fixed_time(server.clock.utc())
    person.sign_in()

    page.get_by_role("link", name="Incidents", exact=True).click()
    person.sees("Nothing fails now")
    row = page.locator("tr[data-row]")
    expect(row).to_contain_text("500 Internal Server Error")
    row.get_by_role("button", name="Replay…").click()
    dialog = page.get_by_role("dialog", name="Replay dropped deliveries?")
    expect(dialog).to_contain_text("3 dropped deliveries will be replayed")  # since it began
    assert person.clicks() == 2
    since = dialog.get_by_label("Dropped since")
    since.fill(f"{server.clock.utc() - timedelta(minutes=10):%Y-%m-%dT%H:%M}")
    expect(dialog).to_contain_text("nothing to replay")
    since.fill(f"{began - timedelta(minutes=1):%Y-%m-%dT%H:%M}")
    expect(dialog).to_contain_text("3 dropped deliveries will be replayed")
    dialog.get_by_role("button", name="Replay", exact=True).click()
    person.sees_toast("Replay started.")
    server.live_through(minutes=1)
    assert len(receiver.came) == 4
    assert person.clicks() <= 4


@pytest.mark.long
def test_a_person_tests_and_enables_a_url_from_its_incident(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page, client = person.page, server.client
    receiver.status = 503
    client.subscribe(receiver.url, ["*"])
    for number in range(12):
        client.publish("invoice.paid", {"id": number})
    server.settle()
    person.sign_in()
    person.presses("g", "i")
    incident = page.locator("article.incident")
    expect(incident).to_contain_text("wait for a successful probe (one every 10 min)")
    person.presses("j", "r")
    dialog = page.get_by_role("dialog", name="Replay dropped deliveries?")
    dialog.get_by_role("heading").click()  # A click in a dialog is none on the row behind it.
    expect(dialog).to_be_visible()
    person.presses("Escape")
    incident.get_by_role("button", name="Test").click()
    person.sees_toast("The test event failed: 503 Service Unavailable")
    receiver.status = 204
    incident.get_by_role("button", name="Test").click()
    person.sees_toast("responded with 204")
    person.confirms("Enable…", "Enable this URL?", "Enable")
    person.sees_toast("Enabled.")
    server.live_through(minutes=2)
    person.sees("Nothing fails now")  # Nobody has loaded the page again.
    person.sees("Ended in the last 24 hours")


@pytest.mark.long
def test_the_page_stands_wide_and_narrow_light_and_dark_without_barriers(
    person: Person, server: HomingServer
) -> None:
    page, client = person.page, server.client
    person.sign_in()
    person.open("/incidents")
    person.sees("Nothing fails now")
    person.finds_no_barrier()
    person.keeps("incidents-empty")
    with ExitStack() as stack:
        hooks = [stack.enter_context(hook(status)) for status in (503, 404, 500)]
        for it in hooks:
            client.subscribe(f"{it.url}/api/integrations/events?customer=4711", ["invoice.*"])
        client.subscribe(hooks[0].url.replace("http:", "https:"), ["invoice.*"], tenant="acme")
        for number in range(6):
            for tenant in ("default", "acme"):
                client.publish("invoice.paid", {"id": number}, tenant=tenant)
        server.live_through(minutes=5)
        hooks[1].status = 401
        hooks[2].status = 204
        server.live_through(minutes=30)
    page.clock.set_fixed_time(server.clock.utc())
    person.open("/incidents")
    expect(page.locator("article.incident")).to_have_count(4)
    person.sees("Ended in the last 24 hours")
    person.finds_no_barrier()
    person.keeps("incidents")
    page.locator("article.incident").filter(has_text="401").get_by_role("link").first.click()
    expect(page.locator("#causes")).to_contain_text("404 Not Found")
    person.finds_no_barrier()
    person.keeps("endpoint-causes")
