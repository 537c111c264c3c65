"""Notices in a real browser: a person adds, changes, tests and deletes a target."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browser.person import Person
from client.hooks import hook
from homing.testing import HomingServer


@pytest.mark.long
def test_a_person_adds_changes_tests_and_deletes_a_target(
    person: Person, server: HomingServer
) -> None:
    page, client = person.page, server.client
    person.sign_in()
    person.open("/notices")
    person.sees("Nobody is told when a URL fails")
    person.finds_no_barrier()
    person.keeps("notices-empty")
    with hook(200) as people:
        page.get_by_role("button", name="New target…").click()
        dialog = page.locator("#new-target")
        dialog.get_by_label("Kind").select_option("slack")
        dialog.get_by_label("E-mail address or URL").fill(people.url)
        dialog.get_by_label("Name").fill("On call")
        person.finds_no_barrier()
        dialog.get_by_role("button", name="Create").click()
        expect(page.locator("#notices")).to_contain_text("On call")
        page.get_by_role("button", name="Change…").click()
        dialog = page.get_by_role("dialog", name="Change this target")
        dialog.get_by_label("Name").fill("The night shift")
        dialog.get_by_label("frozen").check()
        person.finds_no_barrier()
        dialog.get_by_role("button", name="Save").click()
        expect(page.locator("#notices")).to_contain_text("The night shift")
        expect(dialog).to_be_hidden()
        page.get_by_role("button", name="Send a test notice").click()
        person.sees("Test notice to The night shift: arrived.")
        made = client.subscribe("https://shop.invalid/hook", ["*"])
        client.freeze_endpoint(made.endpoint)
        person.open("/notices")
        person.sees("shop.invalid is frozen")
        person.finds_no_barrier()
        person.keeps("notices")
        page.get_by_role("button", name="Delete…").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        person.sees("Nobody is told when a URL fails")
