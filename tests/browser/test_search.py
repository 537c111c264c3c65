"""The search field of every page, as people use it: with the keyboard, by ids, URLs and values."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from browser.person import Person
from client.hooks import Hook, hook
from homing.server.settings import Settings
from homing.testing import HomingServer, running_server

PAGES = (
    "/",
    "/incidents",
    "/endpoints",
    "/deliveries",
    "/events",
    "/subscriptions",
    "/simulator",
    "/system",
)


@pytest.fixture
def server() -> Iterator[HomingServer]:
    settings = Settings.of(
        listen="127.0.0.1:0", allow_loopback=True, search_fields=("data.invoice.id",)
    )
    with running_server(settings) as server:
        yield server


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


def field(person: Person) -> Locator:
    return person.page.get_by_label("Find anything", exact=True)


def searches(person: Person, text: str) -> None:
    person.presses("Control+k")
    expect(field(person)).to_be_focused()
    person.page.keyboard.type(text)
    person.presses("Enter")


def test_an_invoice_is_found_from_any_page_with_the_keyboard(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page, client = person.page, server.client
    made = client.subscribe(receiver.url, ["invoice.*"])
    client.publish("invoice.paid", {"invoice": {"id": 4711}}, id="inv-4711")
    server.settle()
    (delivery,) = client.deliveries()
    person.sign_in()
    for path in PAGES:
        person.open(path)
        person.presses("Meta+k")
        expect(field(person)).to_be_focused()
        person.presses("Escape")
        expect(field(person)).not_to_be_focused()
        person.presses("/")
        expect(field(person)).to_be_focused()
        expect(field(person)).to_have_value("")
    for text, address in (
        ("data.invoice.id:4711", "/events/default/inv-4711"),
        ("inv-4711", "/events/default/inv-4711"),
        (delivery.id, f"/deliveries/{delivery.id}"),
        (made.id, f"/subscriptions/{made.id}"),
        (receiver.url, f"/endpoints/{made.endpoint}"),
        ("invoice.paid", "/events?q=invoice.paid"),
    ):
        searches(person, text)
        expect(page).to_have_url(server.url + address)


@pytest.mark.long
def test_several_are_listed_and_opened_with_the_keyboard(
    person: Person, server: HomingServer
) -> None:
    page, client = person.page, server.client
    for number in range(3):
        client.subscribe(f"http://127.0.0.1:9009/shop-{number}", ["invoice.*"])
    for tenant in ("acme", "other"):
        client.publish("invoice.paid", {"invoice": {"id": "x"}}, id="same", tenant=tenant)
    person.sign_in()
    searches(person, "SHOP-")
    expect(page.locator("#hits tr[data-row]")).to_have_count(3)
    expect(field(person)).to_have_value("SHOP-")
    person.finds_no_barrier()
    person.keeps("search-list")
    page.locator("main").focus()
    person.presses("j", "Enter")
    expect(page).to_have_url(re.compile(r"/endpoints/ep_"))
    searches(person, "same")
    expect(page.locator("#hits .lead").first).to_have_text("event")
    searches(person, "tenant:other same")
    expect(page).to_have_url(f"{server.url}/events/other/same")


def test_nothing_found_shows_examples_that_work(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page, client = person.page, server.client
    client.subscribe(receiver.url, ["invoice.*"])
    client.publish("invoice.paid", {"invoice": {"id": 4711}}, id="inv-4711")
    server.settle()
    person.sign_in()
    searches(person, "<script>alert(1)</script>\u202e{{7*7}}")
    person.sees("Nothing found for")
    person.finds_no_barrier()
    searches(person, "no such thing")
    person.sees("Nothing found for no such thing")
    person.keeps("search-nothing")
    links = page.locator(".examples a")
    count = links.count()
    assert count == 6
    for number in range(count):
        person.open("/search?q=zzz")
        links.nth(number).click()
        expect(page).not_to_have_url(re.compile("/search"))
    searches(person, "data.customer:7")
    person.sees("of the payload fields only data.invoice.id can be searched")
    person.keeps("search-refused")
