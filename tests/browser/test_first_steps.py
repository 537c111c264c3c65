"""The first minutes: a link that signs in, three steps with a receiver built in, a first filter."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from browser.person import Person
from client.hooks import hook
from homing.cli.sign_in_link import link_to
from homing.server.settings import Settings
from homing.testing import HomingServer, running_server


@pytest.fixture
def server() -> Iterator[HomingServer]:
    """One that may not connect to loopback addresses, as every new installation."""
    with running_server(Settings.of(listen="127.0.0.1:0")) as server:
        yield server


def test_a_link_signs_in_once(person: Person, server: HomingServer) -> None:
    page = person.page
    link = link_to(server.url, server.key)
    page.goto(link)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert "hl_" not in page.url
    page.get_by_role("button", name="Sign out").click()
    page.goto(link)
    expect(page.get_by_role("alert")).to_contain_text("used before")
    page.goto(link_to(server.url, "hk_another"))
    expect(page.get_by_role("alert")).to_contain_text("used before, or it is too old")


def test_the_first_delivery_takes_two_clicks_in_the_page(
    person: Person, server: HomingServer
) -> None:
    page = person.page
    person.sign_in()
    person.sees("Your first delivery")
    person.finds_no_barrier()
    person.keeps("first-steps")
    page.get_by_role("button", name="Add the built-in receiver").click()
    person.sees("gets every event")
    page.get_by_role("button", name="Send me a test event").click()
    server.settle()
    person.sees("Their SHA-256 is the one that was sent.")
    expect(page.locator("#first-steps pre").first).to_contain_text("webhook-signature: v1,")
    expect(page.locator("#first-steps pre").first).to_contain_text("Hello from Homing")
    assert person.clicks() == 2
    person.finds_no_barrier()
    person.keeps("first-steps-done")
    commands = page.locator("#first-steps .command code").all_text_contents()
    assert all(f"--server {server.url}" in it for it in commands)
    assert any(it.startswith("homing publish") for it in commands)


@pytest.mark.long
def test_a_filtered_subscription_is_added_and_tested_in_four_clicks(
    person: Person, server: HomingServer
) -> None:
    page = person.page
    with hook() as receiver, running_server() as other:  # which may connect to loopback
        person.server = other
        person.sign_in()
        page.get_by_role("link", name="Subscriptions", exact=True).click()
        page.get_by_role("link", name="New subscription").first.click()
        page.get_by_label("URL", exact=True).fill(receiver.url)
        filters = page.get_by_label("Filters", exact=True)
        filters.focus() if filters.is_visible() else page.locator("#filters").evaluate(
            "it => { it.closest('details').open = true }"
        )
        page.locator("#filters").fill('[{"fieldName": "country", "fieldValue": "SE"}]')
        page.get_by_role("button", name="Create").click()
        expect(page.locator("#secret code")).to_be_visible()
        page.get_by_role("button", name=re.compile("test event", re.IGNORECASE)).first.click()
        assert person.clicks() <= 4
        person.sees_toast("The receiver responded with 204")
        assert len(receiver.came) == 1


@pytest.mark.long
def test_a_secret_is_rotated_in_four_clicks(person: Person, server: HomingServer) -> None:
    page = person.page
    server.client.subscribe("https://receiver.example/hook", ["*"])
    person.sign_in()
    page.get_by_role("link", name="Subscriptions", exact=True).click()
    page.get_by_role("link", name=re.compile("receiver.example")).click()
    person.confirms("Rotate the secret…", "Rotate the signing secret?", "Rotate")
    expect(page.locator("#secret code")).to_contain_text("whsec_")
    assert person.clicks() == 4
