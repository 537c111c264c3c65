"""What if this endpoint is down: its own traffic, policy and counters, and an outage by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from browser.person import Person
from client.hooks import Hook, hook
from homing.testing import HomingServer

PLAY_MS = 120_000  # A simulation is a process, and the machine may be busy.


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


@pytest.mark.long
def test_what_if_it_is_down_for_30_hours_takes_four_clicks(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    server.client.subscribe(receiver.url, ["*"])
    for _ in range(6):
        for number in range(10):
            server.client.publish("invoice.paid", {"id": number})
        server.live_through(hours=1)
    person.sign_in()
    page.get_by_role("link", name="Endpoints", exact=True).click()
    page.get_by_role("link", name=re.compile("127")).first.click()
    page.get_by_role("link", name="What if…").click()
    person.sees("60 deliveries")
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("Nothing is lost", timeout=PLAY_MS)  # It began by itself.
    page.get_by_role("button", name="30 h", exact=True).click()
    assert person.clicks() == 4
    expect(page).to_have_url(re.compile("outage=30h"), timeout=PLAY_MS)
    expect(verdict).to_contain_text("after recovery", timeout=PLAY_MS)
    expect(page.get_by_label("Down until").first).to_have_value("1d7h")
    # The outage is dragged: its end goes to the right, past the end of the run.
    end = page.get_by_role("slider", name="Down until")
    end.scroll_into_view_if_needed()
    box = end.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 30, steps=4)
    page.mouse.up()
    expect(page.locator("#to")).not_to_have_value("1d7h")
    expect(page).not_to_have_url(re.compile("outage=30h"), timeout=PLAY_MS)
    expect(verdict).to_be_visible(timeout=PLAY_MS)
    end = page.get_by_role("slider", name="Down from")
    end.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#from")).not_to_have_value("1h", timeout=PLAY_MS)
    expect(verdict).to_be_visible(timeout=PLAY_MS)
    person.finds_no_barrier()
    person.keeps("what-if")


@pytest.mark.long
def test_an_outage_longer_than_the_run_extends_the_run(
    person: Person, server: HomingServer
) -> None:
    page = person.page
    person.sign_in()
    fields = "policy=workfront&compare=&run_for=2h&from=1h&to=4h&does=503&percent=100&every=30m"
    person.open(f"/simulator?{fields}&seed=7")
    expect(page.locator("#run_for")).to_have_value("2d5h")  # to 4 h, and the window of 48 h 13 min
    expect(page.locator(".verdict")).to_contain_text("Nothing is lost")
