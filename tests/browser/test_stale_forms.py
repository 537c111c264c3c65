"""Two tabs: a form that was made before something changed is refused, and says what changed."""

from __future__ import annotations

from playwright.sync_api import expect

from browser.person import Person
from homing.testing import HomingServer

URL = "https://receiver.invalid/hook"


def test_an_old_form_says_what_changed_and_can_be_saved_then(
    person: Person, server: HomingServer
) -> None:
    page, client = person.page, server.client
    made = client.subscribe(URL, ["*"])
    person.sign_in()
    person.open(f"/subscriptions/{made.id}/edit")
    client.change_subscription(made.id, url=f"{URL}/new")
    page.get_by_label("Description").fill("mine")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was saved")
    expect(page.locator("#url-problem")).to_have_text(
        f"Changed meanwhile: this is the present value. The form had: {URL}"
    )
    expect(page.locator("#url")).to_have_value(f"{URL}/new")
    expect(page.get_by_label("Description")).to_have_value("mine")
    person.finds_no_barrier()
    person.keeps("stale-form")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name=f"{URL}/new")).to_be_visible()
    assert client.subscription(made.id).description == "mine"


def test_a_page_of_a_tenant_does_nothing_after_another_tab_shows_all(
    person: Person, server: HomingServer
) -> None:
    page, client = person.page, server.client
    for tenant in ("acme", "globex"):
        client.subscribe(URL, ["*"], tenant=tenant)
        client.publish("a.b", {}, tenant=tenant)
    person.sign_in()
    person.open("/tenants")
    page.get_by_role("row", name="acme").get_by_role("button").click()
    person.open("/bulk?q=status:pending")
    other = page.context.new_page()
    other.goto(f"{server.url}/tenants")
    other.get_by_role("button", name="Show all tenants").first.click()
    other.close()
    page.get_by_role("button", name="Cancel 1").click()
    expect(page.get_by_role("main")).to_contain_text(
        "This page was made for the tenant acme, and now all tenants are shown."
    )
    person.finds_no_barrier()
    person.keeps("stale-tenant")
    assert {it.status for it in client.deliveries()} == {"pending"}
