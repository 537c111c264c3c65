"""Overview, endpoints and system in a real browser: looked at, clicked, live."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Route, expect

from browser.person import Person
from client.hooks import Hook, hook
from homing.policy.health import HealthRules
from homing.server.settings import Settings
from homing.testing import HomingServer, running_server

PAYLOAD = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture
def server() -> Iterator[HomingServer]:
    """One that disables after a few failures."""
    rules = HealthRules(rate_after_attempts=3)
    settings = Settings.of(listen="127.0.0.1:0", allow_loopback=True, grace_ms=1_000, health=rules)
    with running_server(settings) as server:
        yield server


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


def test_a_url_goes_disabled_live_and_a_person_enables_it(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    server.client.subscribe(receiver.url, ["*"])
    server.client.publish("invoice.paid", {"text": PAYLOAD})
    server.settle()
    person.sign_in()
    expect(person.page.locator("#live")).to_have_attribute("data-state", "live")
    person.sees("1 in the last hour")
    person.page.get_by_role("link", name="Endpoints", exact=True).click()
    row = person.page.locator("tr[data-row]")
    expect(row).to_contain_text("enabled")
    receiver.status = 500
    for _ in range(12):
        server.client.publish("invoice.paid", {"text": PAYLOAD})
    server.settle()
    expect(row).to_contain_text("disabled")  # Nobody has loaded the page again.
    row.get_by_role("link").click()
    person.sees("disabled above 70 %")
    person.keeps("endpoint")
    person.finds_no_barrier()
    receiver.status = 204
    person.confirms("Enable", "Enable this endpoint?", "Enable")
    person.sees_toast("Enabled.")
    expect(person.page.locator("#top .badge").first).to_have_text("enabled")
    person.sees("the admin key")


def test_a_person_freezes_tests_and_replays(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    made = server.client.subscribe(receiver.url, ["*"], description=PAYLOAD)
    person.sign_in()
    person.open(f"/endpoints/{made.endpoint}")
    person.confirms("Freeze", "Freeze this endpoint?", "Freeze")
    person.sees_toast("Frozen.")
    expect(person.page.locator("#top .badge").first).to_have_text("frozen")
    person.confirms("Send a test event", "Send a test event?", "Send a test event")
    person.sees_toast("responded with 204")
    person.page.get_by_role("button", name="Replay dropped…").click()
    person.sees("No delivery was dropped in this time range")
    person.page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    person.keeps("endpoint-frozen")


@pytest.mark.long
def test_the_pages_stand_wide_and_narrow_light_and_dark_without_barriers(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    person.open("/sign-in")
    person.finds_no_barrier()
    person.keeps("sign-in")
    person.sign_in()
    person.sees("Your first delivery")
    person.finds_no_barrier()
    person.keeps("overview-empty")
    server.client.subscribe(receiver.url, ["*"])
    with hook(503) as bad:
        server.client.subscribe(bad.url, ["*"])
        for _ in range(20):
            server.client.publish("order.placed", {"text": PAYLOAD})
        server.settle()
    for path, name in (("/", "overview"), ("/endpoints", "endpoints"), ("/system", "system")):
        person.open(path)
        expect(person.page.get_by_role("heading", level=1)).to_be_visible()
        if path == "/":
            expect(person.page.locator(".plot canvas").first).to_be_visible()
        person.finds_no_barrier()
        person.keeps(name)


def test_a_dialog_that_was_opened_during_a_refresh_stays_open(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    made = server.client.subscribe(receiver.url, ["*"])
    page, held, holding = person.page, list[Route](), [True]
    person.sign_in()
    person.open(f"/endpoints/{made.endpoint}")

    def hold(route: Route) -> None:
        if holding and "hx-request" in route.request.headers:
            held.append(route)
        else:
            route.continue_()

    page.route(f"**/endpoints/{made.endpoint}*", hold)
    for _ in range(120):  # A tick that comes before the scripts of the page have run is lost.
        page.evaluate("document.body.dispatchEvent(new Event('refresh'))")
        page.wait_for_timeout(500)
        if held:
            break
    assert held
    dialog = page.get_by_role("dialog", name="Freeze this endpoint?")
    page.get_by_role("button", name="Freeze", exact=True).first.click()
    expect(dialog).to_be_visible()
    holding.clear()
    for route in held:
        with page.expect_response(lambda response: "hx-request" in response.request.headers):
            route.continue_()
    page.wait_for_timeout(200)  # Long enough for the page to put the response in.
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Freeze", exact=True).click()
    expect(page.locator("#top .badge").first).to_have_text("frozen")


def test_the_keyboard_searches_walks_and_helps(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    for path in ("a", "b"):
        server.client.subscribe(f"{receiver.url}/{path}", ["*"])
    person.sign_in()
    person.open("/endpoints")
    page = person.page
    person.presses("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    person.presses("Escape", "j", "j")
    expect(page.locator("tr[data-selected]")).to_contain_text("/hook/a")
    person.presses("k")
    expect(page.locator("tr[data-selected]")).to_contain_text("/hook/b")
    page.get_by_label("Search by URL").focus()
    page.keyboard.type("hook/a")
    person.presses("Enter")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    page.locator("body").click()
    person.presses("j", "Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("/hook/a")


def test_the_theme_is_chosen_and_kept(person: Person) -> None:
    person.sign_in()
    html = person.page.locator("html")
    person.page.get_by_role("button", name="Change the theme").click()
    expect(html).to_have_attribute("data-theme", "dark")
    person.open("/endpoints")
    expect(html).to_have_attribute("data-theme", "dark")
    shade = person.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert shade == "rgb(19, 21, 24)"


def test_a_customer_enters_by_a_link_sees_its_tenant_and_changes_nothing(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    mine = server.client.subscribe(f"{receiver.url}/mine", ["*"], tenant="acme")
    server.client.subscribe(f"{receiver.url}/other", ["*"])
    key = server.client.create_key("the customer", "viewer", tenant="acme").key
    person.open(f"/sign-in#{key}")
    expect(person.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert key not in person.page.url
    person.open("/endpoints")
    expect(person.page.locator("tr[data-row]")).to_have_count(1)
    person.open(f"/endpoints/{mine.endpoint}")
    expect(person.page.get_by_role("button", name=re.compile("Freeze|Replay|Reset"))).to_have_count(
        0
    )
    expect(person.page.get_by_role("link", name="System")).to_have_count(0)
