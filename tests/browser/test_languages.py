"""Languages in a browser: the first one of its list, another by choice, and no text cut off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from browser.conftest import PATIENCE_MS
from browser.person import Person
from client.hooks import hook
from homing.languages.language import LANGUAGES
from homing.testing import HomingServer
from homing_client import Event

LOCALES = {"en": "en-GB", "nl": "nl-NL", "it": "it-IT", "ja": "ja-JP", "zh": "zh-CN"}
OVERVIEW = {"en": "Overview", "nl": "Overzicht", "it": "Panoramica", "ja": "概要", "zh": "概览"}
# Words of buttons, labels and headings that do not fit into their box.
CUT_OFF = """() => [...document.querySelectorAll(
    "button, a.button, th, label, h1, h2, dt, summary, .badge, .figure-name, nav a, .choices a"
)].filter(it => it.offsetParent && !it.classList.contains("hidden")
    && it.scrollWidth > it.clientWidth + 1
    && getComputedStyle(it).overflowX !== "visible").map(it => it.textContent.trim())"""


@contextmanager
def speaking(chromium: Browser, server: HomingServer, code: str) -> Iterator[Person]:
    """Somebody whose browser asks for this language, signed in."""
    size = {"width": 1440, "height": 900}
    context = chromium.new_context(viewport=size, locale=LOCALES[code])  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    person = Person(context.new_page(), server, shots=None)
    page = person.page
    page.goto(f"{server.url}/sign-in")
    page.locator("#key").fill(server.key)
    page.locator("form.sign-in button").click()
    expect(page.get_by_role("heading", name=OVERVIEW[code], level=1)).to_be_visible()
    yield person
    context.close()
    assert not person.complaints, person.complaints


def _language(page: Page) -> str:
    return str(page.evaluate("document.documentElement.lang"))


def test_a_page_is_in_the_language_of_the_browser_until_another_is_chosen(
    chromium: Browser, server: HomingServer
) -> None:
    with speaking(chromium, server, "nl") as person:
        page = person.page
        assert _language(page) == "nl"
        person.open("/endpoints?state=frozen")
        page.get_by_label("Taal").select_option("ja")
        expect(page.locator("html")).to_have_attribute("lang", "ja")
        assert page.url.endswith("/endpoints?state=frozen"), "the page stays"
        person.open("/")
        expect(page.get_by_role("heading", name="概要", level=1)).to_be_visible()
        page.locator("form[action='/sign-out'] button").click()
        expect(page.locator("html")).to_have_attribute("lang", "ja")
        page.locator("[data-language]").select_option("en")
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()


@pytest.mark.long
def test_a_subscription_that_was_paused_says_so_at_once(
    chromium: Browser, server: HomingServer
) -> None:
    made = server.client.subscribe("https://receiver.example/hook", ["*"])
    with speaking(chromium, server, "en") as person:
        person.open(f"/subscriptions/{made.id}")
        person.confirms("Pause…", "Pause this subscription?", "Pause")
        person.sees("This subscription has been paused since")
        expect(person.page.get_by_role("button", name="Resume…")).to_be_visible()


@pytest.mark.long
def test_numbers_and_times_are_written_in_the_language(
    chromium: Browser, server: HomingServer
) -> None:
    with hook() as receiver:
        server.client.subscribe(receiver.url, ["*"])
        for count in (1_000, 234):
            server.client.publish_many(Event(type="order.paid", data=it) for it in range(count))
        server.settle()
    with speaking(chromium, server, "it") as person:
        expect(person.page.locator(".figures")).to_contain_text("1.234")
    with speaking(chromium, server, "zh") as person:
        expect(person.page.locator(".figures")).to_contain_text("1,234")


@pytest.mark.long
@pytest.mark.parametrize("code", LANGUAGES)
def test_every_page_fits_in_every_language_and_has_no_barrier(
    chromium: Browser, server: HomingServer, code: str
) -> None:
    client = server.client
    with hook() as receiver, hook(status=503) as broken:
        made = client.subscribe(receiver.url, ["order.*"], description="warehouse")
        failing = client.subscribe(f"{broken.url}/orders/of/a/rather/long/path", ["*"])
        for number in range(4):
            client.publish("order.paid", {"number": number, "total": 99.5})
        server.settle()
    delivery = next(it.id for it in client.deliveries() if it.status == "pending")
    paths = (
        "/",
        "/incidents",
        "/endpoints",
        f"/endpoints/{failing.endpoint}",
        "/deliveries",
        f"/deliveries/{delivery}",
        "/events",
        "/event-types",
        "/subscriptions",
        f"/subscriptions/{made.id}",
        "/subscriptions/new",
        "/notices",
        "/erasures",
        "/customer-portal",
        "/keys",
        "/audit",
        "/simulator",
        "/system",
        "/tenants",
        "/bulk?q=",
    )
    with speaking(chromium, server, code) as person:
        for path in paths:
            person.open(path)
            person.page.wait_for_load_state()
            assert _language(person.page) == code
            for width in (1440, 390):
                person.page.set_viewport_size({"width": width, "height": 900})
                person.page.wait_for_timeout(50)
                cut = person.page.evaluate(CUT_OFF)
                assert not cut, (code, path, width, cut)
            person.keeps(f"{code}-{path.strip('/')}")
            if code in {"nl", "ja"}:
                person.finds_no_barrier()
