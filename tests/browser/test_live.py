"""Pages that change by themselves: no two parts disagree, and what moves can be clicked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from browser.person import Person
from client.hooks import Hook, hook
from homing.testing import HomingServer

REFRESH = "document.body.dispatchEvent(new Event('refresh'))"
# How often the page asked the server for itself while 5 ticks came.
ASKED = """async () => {
  const before = performance.getEntriesByType("resource").length;
  document.body.dispatchEvent(new Event("refresh"));
  await new Promise((done) => addEventListener("updated", done, { once: true }));
  const path = location.pathname;
  return performance.getEntriesByType("resource").slice(before)
    .filter((it) => new URL(it.name).pathname === path).length;
}"""


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


def rows(page: Page) -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        "tr[data-row]", "all => all.map(it => it.dataset.row)"
    )
    return found


def test_after_a_replay_badge_sentence_details_and_actions_agree(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    receiver.status = 500
    made = server.client.subscribe(receiver.url, ["invoice.*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.live_through(hours=49)
    receiver.status = 204
    server.client.freeze_endpoint(made.endpoint)
    (old,) = server.client.deliveries()
    person.sign_in()
    person.open(f"/deliveries/{old.id}")
    person.confirms("Replay…", "Replay this delivery?", "Replay it")
    person.sees("started by a person")
    expect(page.locator("h1 .badge")).to_have_text("pending")
    expect(page.get_by_role("button", name="Cancel…")).to_be_visible()
    page.get_by_text("No attempts yet.").wait_for()
    server.client.enable_endpoint(made.endpoint)
    server.settle()
    expect(page.locator("#explanation")).to_contain_text("Delivered")
    # One response changed all of them, so there is nothing to wait for.
    assert page.locator("h1 .badge").inner_text() == "delivered"
    assert page.get_by_role("button", name="Cancel…").count() == 0
    assert page.get_by_role("button", name="Replay…").count() == 1
    assert page.locator(".attempt").count() == 1
    assert page.get_by_text("Window ends").count() == 0


@pytest.mark.long
def test_a_finished_bulk_replay_does_not_offer_to_stop_it(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    receiver.status = 500
    server.client.subscribe(receiver.url, ["invoice.*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.live_through(hours=49)
    person.sign_in()
    person.open("/bulk?q=status%3Adropped")
    page.get_by_role("button", name="Replay 1").click()
    expect(page.locator("#job .badge")).to_have_text("done")
    assert page.get_by_role("button", name="Stop…").count() == 0
    person.finds_no_barrier()
    person.keeps("replay-job")


def test_one_request_renders_a_whole_page_and_what_is_equal_is_not_touched(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    made = server.client.subscribe(receiver.url, ["*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.settle()
    person.sign_in()
    person.open(f"/endpoints/{made.endpoint}")
    expect(page.locator(".plot canvas").first).to_be_visible()
    page.evaluate(
        "document.querySelector('.rules').marked = document.querySelector('canvas').marked = true"
    )
    assert page.evaluate(ASKED) == 1
    server.client.publish("invoice.sent", {"id": 8})
    server.settle()
    expect(page.locator("#attempts tr[data-row]")).to_have_count(2)
    assert page.evaluate("document.querySelector('.rules').marked")
    assert page.evaluate("document.querySelector('canvas').marked"), "the chart was drawn again"
    assert page.locator("[role=status]:not(.banner)").count() == 1


def test_what_a_person_opened_and_typed_stays_while_the_page_changes(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    receiver.status = 500
    server.client.subscribe(receiver.url, ["*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.live_through(minutes=5)
    (delivery,) = server.client.deliveries()
    person.sign_in()
    person.open(f"/deliveries/{delivery.id}")
    page.locator("#event-data").get_by_role("button", name="As sent").click()
    page.locator("#attempt-1 > summary").click()
    page.locator("#attempt-1").get_by_text("Copy as curl").click()
    command = page.locator("#sent-1 code").first
    expect(command).to_contain_text("webhook-signature: v1,")
    person.finds_no_barrier()
    person.keeps("delivery-curl")
    page.mouse.move(5, 5)
    page.evaluate("scrollTo(0, 0)")
    page.locator("#main").focus()
    server.live_through(minutes=10)
    expect(page.locator(".attempt")).to_have_count(4)
    assert page.locator("#attempt-1").get_attribute("open") is not None
    expect(command).to_be_visible()
    as_sent = page.locator("#event-data").get_by_role("button", name="As sent")
    expect(as_sent).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#attempt-4")).to_have_attribute("open", "")


def test_a_list_does_not_move_under_the_pointer_and_a_pill_shows_what_is_new(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    server.client.subscribe(receiver.url, ["*"])
    for number in range(3):
        server.client.publish("invoice.paid", {"id": number})
    server.settle()
    person.sign_in()
    person.open("/deliveries")
    expect(page.locator("tr[data-row]")).to_have_count(3)
    before = rows(page)
    page.locator("tr[data-row]").nth(1).hover()
    for number in range(4):
        server.client.publish("invoice.sent", {"id": number})
    server.settle()
    pill = page.get_by_role("button", name="4 new")
    expect(pill).to_be_visible()
    assert rows(page) == before
    person.finds_no_barrier()
    pill.click()
    expect(page.locator("tr[data-row]")).to_have_count(7)
    expect(page.locator(".pill")).to_have_count(0)
    page.locator("tr[data-row] a").nth(2).focus()
    page.mouse.move(5, 5)
    server.client.publish("invoice.void", {"id": 9})
    server.settle()
    expect(page.get_by_role("button", name="1 new")).to_be_visible()  # It has the focus.
    page.locator("#main").focus()
    expect(page.locator("tr[data-row]")).to_have_count(8)  # As soon as nobody uses it.


@pytest.mark.long
def test_a_list_stays_while_text_in_it_is_selected_or_its_first_row_is_scrolled_past(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    server.client.subscribe(receiver.url, ["*"])
    for number in range(40):
        server.client.publish("invoice.paid", {"id": number})
    server.settle()
    person.sign_in()
    person.open("/deliveries")
    expect(page.locator("tr[data-row]")).to_have_count(40)
    page.evaluate("getSelection().selectAllChildren(document.querySelector('tr[data-row] .mono'))")
    server.client.publish("invoice.sent", {"id": 1})
    server.settle()
    expect(page.get_by_role("button", name="1 new")).to_be_visible()
    selected = page.evaluate("getSelection().toString()")
    assert selected
    page.evaluate("getSelection().removeAllRanges()")
    expect(page.locator("tr[data-row]")).to_have_count(41)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    top = page.locator("tr[data-row]").last.bounding_box()
    server.client.publish("invoice.sent", {"id": 2})
    server.settle()
    pill = page.get_by_role("button", name="1 new")
    expect(pill).to_be_in_viewport()
    assert page.locator("tr[data-row]").last.bounding_box() == top
    pill.click()
    expect(page.locator("tr[data-row]")).to_have_count(42)
    expect(page.locator("tr[data-row]").first).to_be_in_viewport()
    page.locator("tr[data-row] a").first.focus()
    server.client.publish("invoice.void", {"id": 3})
    server.settle()
    expect(pill).to_be_visible()
    person.keeps("deliveries-paused")


@pytest.mark.long
def test_rows_of_a_list_that_stays_still_tell_the_truth(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    receiver.status = 500
    server.client.subscribe(receiver.url, ["*"])
    server.client.publish("invoice.paid", {"id": 1})
    server.settle()
    person.sign_in()
    person.open("/deliveries")
    page.locator("tr[data-row]").hover()
    expect(page.locator("tr[data-row] .badge")).to_have_text("pending")
    receiver.status = 204
    server.client.publish("invoice.sent", {"id": 2})
    server.live_through(minutes=2)
    expect(page.get_by_role("button", name="1 new")).to_be_visible()
    expect(page.locator("tr[data-row] .badge")).to_have_text("delivered")
    expect(page.locator("tr[data-row]")).to_have_count(1)


def test_an_open_dialog_outlives_the_reason_for_it(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    receiver.status = 500
    server.client.subscribe(receiver.url, ["*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.settle()
    (delivery,) = server.client.deliveries()
    person.sign_in()
    person.open(f"/deliveries/{delivery.id}")
    page.get_by_role("button", name="Cancel…").click()
    receiver.status = 204
    server.live_through(minutes=2)
    expect(page.locator("h1 .badge")).to_have_text("delivered")
    box = page.get_by_role("dialog", name="Cancel this delivery?")
    expect(box).to_be_visible()
    box.get_by_role("button", name="Keep delivery").click()
    page.evaluate(REFRESH)
    expect(page.locator("#cancel")).to_have_count(0)


def test_a_person_has_a_pending_delivery_tried_now(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page = person.page
    receiver.status = 500
    made = server.client.subscribe(receiver.url, ["*"])
    server.client.publish("invoice.paid", {"id": 7})
    server.settle()
    (delivery,) = server.client.deliveries()
    server.client.freeze_endpoint(made.endpoint)
    person.sign_in()
    person.open(f"/deliveries/{delivery.id}")
    expect(page.locator("h1 .badge")).to_have_text("pending")
    assert page.get_by_role("button", name="Try now").count() == 0
    assert page.locator(".timeline-ahead").count() == 0
    server.client.enable_endpoint(made.endpoint)
    button = page.get_by_role("button", name="Try now")
    expect(button).to_be_visible()
    expect(page.locator(".timeline-ahead")).to_have_count(11)
    person.finds_no_barrier()
    person.keeps("delivery-try-now")
    receiver.status = 204
    button.click()
    server.settle()
    expect(page.locator("h1 .badge")).to_have_text("delivered")
    assert len(receiver.came) == 2
