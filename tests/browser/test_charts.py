"""Charts say what they show, and a time that is chosen on one leads to its deliveries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlparse

import pytest
from playwright.sync_api import expect

from browser.person import Person
from client.hooks import Hook, hook
from homing.testing import HomingServer


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


@pytest.mark.long
def test_a_span_on_a_chart_is_put_into_words_and_leads_to_its_deliveries_and_their_replay(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page, client = person.page, server.client
    made = client.subscribe(receiver.url, ["*"])
    for number in range(3):
        client.publish("invoice.paid", {"id": number})
    server.settle()
    receiver.status = 503
    client.publish("invoice.paid", {"id": 4})
    server.settle()
    page.clock.set_fixed_time(server.clock.utc())
    person.sign_in()
    person.open(f"/endpoints/{made.endpoint}")
    words = page.locator(".chart-words")
    expect(words).to_contain_text("3 delivered, 1 failed; 75.0 % delivered")
    person.keeps("endpoint-chart")
    plot = page.locator("[data-plot=outcomes] .u-over")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    expect(words).to_contain_text("no attempts")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 30, steps=5)
    page.mouse.up()
    expect(words).to_contain_text("3 delivered, 1 failed")
    expect(page.locator(".chart-causes")).to_contain_text("503 Service Unavailable 1 pending")
    chosen = words.inner_text()
    client.publish("invoice.paid", {"id": 5})  # The page changes; the span stays.
    server.settle()
    expect(page.locator("#attempts tr[data-row]")).to_have_count(5)
    expect(words).to_contain_text("3 delivered, 2 failed")
    assert words.inner_text().partition(": ")[0] == chosen.partition(": ")[0]
    person.finds_no_barrier()  # in both themes: the chart is drawn again
    width = "Number.parseFloat(document.querySelector('.u-select').style.width)"
    assert page.evaluate(width) > box["width"] / 3
    person.keeps("endpoint-chart-span")
    plot.scroll_into_view_if_needed()
    expect(page.locator("[data-plot=outcomes] .u-select")).to_be_in_viewport(ratio=0.9)
    replay = page.get_by_role("link", name="Replay what was dropped…").get_attribute("href")
    assert replay is not None
    query = parse_qs(urlparse(replay).query)["q"][0]
    assert re.fullmatch(rf"status:dropped since:\S+Z until:\S+Z endpoint:{made.endpoint}", query)
    page.get_by_role("link", name="Deliveries accepted then").click()
    expect(page.locator("tr[data-row]")).to_have_count(5)
    page.go_back()
    expect(words).to_contain_text("3 delivered")


@pytest.mark.long
def test_since_a_time_of_day_is_in_the_viewers_zone(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    server.client.subscribe(receiver.url, ["*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.settle()
    person.sign_in()
    person.open("/deliveries")
    field = page.get_by_label("Search deliveries")
    field.fill("since:00:00 status:delivered")
    field.press("Enter")
    midnight = page.evaluate("new Date(new Date().setHours(0, 0, 0, 0)).toISOString()")
    expect(field).to_have_value(f"since:{midnight} status:delivered")
    expect(page.locator("tr[data-row]")).to_have_count(1)
