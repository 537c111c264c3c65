"""Many deliveries at once: counted first, confirmed by their number, stopped at any time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from browser.person import Person
from client.hooks import Hook, hook
from homing.testing import HomingServer
from homing_client import Event


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook(503) as receiver:
        yield receiver


@pytest.mark.long
def test_a_replay_takes_what_was_dropped_unless_the_person_chooses_otherwise(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page, client = person.page, server.client
    client.subscribe(receiver.url, ["*"])
    client.subscribe(receiver.url, ["*"], tenant="acme")
    for number in range(3):
        client.publish("invoice.paid", {"id": number})
    client.publish("invoice.paid", {"id": 9}, tenant="acme")
    server.live_through(hours=49)
    receiver.status = 204
    for endpoint in client.endpoints():
        client.enable_endpoint(endpoint.id)
    client.publish("invoice.sent", {"id": 4})
    server.settle()
    person.sign_in()
    person.open("/deliveries")
    page.get_by_role("link", name="Replay or cancel these deliveries…").click()
    choices = page.get_by_role("navigation", name="Status")
    expect(choices.locator("[aria-current]")).to_have_text("dropped 4")
    expect(choices).to_contain_text("delivered 1")
    replay = page.locator("#replay")
    expect(replay.get_by_role("row", name="default 3")).to_be_visible()
    expect(replay.get_by_role("row", name="acme 1")).to_be_visible()
    expect(replay.get_by_role("row", name="503 Service Unavailable 4")).to_be_visible()
    person.finds_no_barrier()
    person.keeps("bulk-dropped")
    receiver.came.clear()
    page.get_by_role("button", name="Replay 4").click()
    expect(page.locator("#job .badge")).to_have_text("done")
    server.settle()
    assert len(receiver.came) == 4
    assert page.get_by_role("button", name="Stop…").count() == 0


@pytest.mark.long
def test_more_than_a_thousand_are_cancelled_only_by_their_number_and_can_be_stopped(
    person: Person, server: HomingServer, receiver: Hook
) -> None:
    page, client = person.page, server.client
    made = client.subscribe(receiver.url, ["*"])
    client.freeze_endpoint(made.endpoint)
    for _ in range(2):
        client.publish_many(
            Event(type="invoice.paid", data={"id": number}) for number in range(600)
        )
    person.sign_in()
    person.open("/bulk?q=status%3Apending")
    page.get_by_label("Type 1200 to confirm").fill("1000")
    person.keeps("bulk-many")
    page.get_by_role("button", name="Cancel 1,200").click()
    person.sees("confirm must be 1200, the number of deliveries.")
    assert client.ledger()[0].cancelled == 0
    page.get_by_label("Type 1200 to confirm").fill("1,200")
    page.get_by_role("button", name="Cancel 1,200").click()
    page.get_by_role("link", name="Stop").click()
    expect(page.get_by_role("heading", name="Replay or cancel")).to_be_visible()
    (ledger,) = client.ledger()
    assert 0 < ledger.cancelled < 1_200, "it was stopped"
    assert ledger.cancelled + ledger.pending == 1_200
