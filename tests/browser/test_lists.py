"""Lists: sorted, kept under a name, exported, of one tenant; paths of other scripts can be read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

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
def test_rows_are_sorted_and_a_view_is_kept_under_a_name(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    server.client.subscribe(receiver.url, ["*"])
    for kind in ("b.two", "c.three", "a.one"):
        server.client.publish(kind, {})
    server.settle()
    person.sign_in()
    person.open("/deliveries")
    names = page.locator("#rows tbody td:nth-child(2) b")
    expect(names).to_have_text(["a.one", "c.three", "b.two"])
    page.locator("[data-sort]", has_text="Event").click()
    expect(names).to_have_text(["a.one", "b.two", "c.three"])
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Event")
    server.client.publish("a.zero", {})
    server.settle()
    page.mouse.move(5, 5)
    page.locator("#main").focus()
    expect(names).to_have_text(["a.one", "a.zero", "b.two", "c.three"])  # live, and still sorted
    person.open("/deliveries?q=type%3Aa.one")
    page.get_by_role("button", name="Save this view…").click()
    page.get_by_label("Name of this view").fill("Only a.one")
    page.keyboard.press("Enter")
    person.finds_no_barrier()
    person.keeps("deliveries-views")
    person.open("/deliveries")
    page.get_by_role("link", name="Only a.one").click()
    expect(page).to_have_url(f"{server.url}/deliveries?q=type%3Aa.one")
    expect(names).to_have_text(["a.one"])
    page.get_by_role("button", name="Forget the view Only a.one").click()
    expect(page.get_by_role("link", name="Only a.one")).to_have_count(0)


@pytest.mark.long
def test_a_list_is_exported_and_a_cell_is_never_a_formula(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    server.client.subscribe(receiver.url, ["*"], description="=HYPERLINK(1)")
    server.client.publish("a.one", {})
    server.client.publish("a.two", {})
    server.settle()
    person.sign_in()
    person.open("/deliveries?q=type%3Aa.one")
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(started.value.path().read_text())))
    assert [it["type"] for it in rows] == ["a.one"]
    with page.expect_download() as started:
        page.get_by_role("link", name="NDJSON").click()
    (line,) = started.value.path().read_text().splitlines()
    assert json.loads(line)["url"] == receiver.url
    exported = page.request.get(f"{server.url}/subscriptions.csv").text()
    (row,) = csv.DictReader(io.StringIO(exported))
    assert row["description"] == "'=HYPERLINK(1)"


@pytest.mark.long
def test_an_operator_sees_one_tenant_and_those_that_need_attention_first(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page, client = person.page, server.client
    path = "/%E6%B3%A8%E6%96%87/%E2%80%AE"
    client.subscribe(receiver.url + path, ["*"], tenant="acme")
    frozen = client.subscribe("https://receiver.example/old", ["*"], tenant="acme")
    client.subscribe(receiver.url, ["*"], tenant="globex")
    client.freeze_endpoint(frozen.endpoint)
    client.publish("a.b", {}, tenant="acme")
    client.publish("a.b", {}, tenant="globex")
    server.settle()
    person.sign_in()
    person.open("/endpoints")
    expect(page.locator("#list tbody tr")).to_have_count(3)
    expect(page.locator("#list tbody tr").first).to_contain_text("receiver.example")
    expect(page.locator("#list")).to_contain_text("/注文/%E2%80%AE")
    page.get_by_role("link", name="All tenants").click()
    person.finds_no_barrier()
    person.keeps("tenants")
    page.locator("tr", has_text="globex").get_by_role("button", name="Show only this").click()
    expect(page.locator(".switcher")).to_contain_text("tenant globex")
    for path in ("/endpoints", "/deliveries", "/subscriptions", "/events"):
        person.open(path)
        expect(page.locator("main tbody tr")).to_have_count(1)
        assert "acme" not in page.locator("main").inner_text()
    person.open("/bulk?q=")
    assert "acme" not in page.locator("main").inner_text()
    assert "acme" not in page.request.get(f"{server.url}/deliveries.ndjson").text()
    page.get_by_role("button", name="Show all tenants").click()
    expect(page.locator(".switcher")).to_contain_text("All tenants")
