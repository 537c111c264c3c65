"""The pages of keys and of the audit log in a browser: long names, wide and narrow."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from browser.person import Person
from homing.testing import HomingServer

NAME = "A key with a long name that a person wrote without a thought about narrow screens"
TENANT = "a-tenant-with-a-rather-long-name-0123456789"


@pytest.mark.long
def test_a_person_creates_and_revokes_a_key_and_finds_both_in_the_audit_log(
    person: Person, server: HomingServer
) -> None:
    page = person.page
    person.sign_in()
    person.open("/keys")
    person.sees("No keys yet")
    person.keeps("keys-empty")
    page.get_by_role("button", name="New key…").click()
    dialog = page.get_by_role("dialog", name="New key")
    heights = [
        dialog.get_by_label(name).evaluate("it => it.offsetHeight")
        for name in ("Tenant", "Expires (optional)")
    ]
    assert heights[0] == heights[1]
    dialog.get_by_label("What it is for").fill(NAME)
    dialog.get_by_label("Role").select_option("manager")
    dialog.get_by_label("Tenant").fill(TENANT)
    dialog.get_by_label("Expires (optional)").fill("90d")
    person.finds_no_barrier()
    person.keeps("keys-new")
    dialog.get_by_role("button", name="Create").click()
    person.sees("This is the new key. It is not shown again.")
    shown = page.locator("#secret pre")
    page.set_viewport_size({"width": 390, "height": 900})
    assert shown.evaluate("it => it.scrollWidth <= it.clientWidth"), "the whole key is to be seen"
    person.finds_no_barrier()
    person.keeps("keys-made")
    person.confirms("Revoke…", dialog="Revoke this key?", confirm="Revoke")
    expect(page.get_by_text("revoked", exact=True)).to_be_visible()

    client = server.client
    made = client.subscribe("https://hooks.warehouse.example/in?customer=4711", ["order.*"])
    client.freeze_endpoint(made.endpoint)
    person.open("/audit")
    for action in ("keys.create", "keys.revoke", "subscriptions.create", "endpoints.freeze"):
        expect(page.get_by_text(action, exact=True)).to_be_visible()
    page.locator("details").evaluate_all("all => all.forEach(it => it.open = true)")
    expect(page.get_by_text(NAME).first).to_be_visible()
    person.finds_no_barrier()
    person.keeps("audit")
