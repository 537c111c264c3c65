"""Event types in a real browser: a person describes one, publishes its sample, edits, deletes."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from browser.person import Person
from homing.testing import HomingServer

SCHEMA = {
    "type": "object",
    "required": ["id", "amount"],
    "properties": {
        "id": {"type": "integer", "description": "The number of the invoice."},
        "amount": {"type": "number", "minimum": 0},
        "paid_at": {"type": "string", "format": "date-time"},
    },
}


@pytest.mark.long
def test_a_person_describes_a_type_publishes_its_sample_edits_and_deletes_it(
    person: Person, server: HomingServer
) -> None:
    page, client = person.page, server.client
    person.sign_in()
    page.get_by_role("link", name="Event types").click()
    person.sees("No event types yet")
    person.finds_no_barrier()
    person.keeps("event-types-empty")
    page.get_by_role("link", name="New event type").click()
    page.get_by_label("Type", exact=True).fill("invoice.paid")
    page.get_by_label("Description").fill("An invoice was paid in full.\nSent once per invoice.")
    page.get_by_label("Schema (optional)").fill(json.dumps({**SCHEMA, "type": "thing"}))
    page.get_by_label("Sample").fill('{"id": 4711, "amount": 12.5}')
    page.get_by_role("button", name="Create").click()
    person.sees("is not a valid JSON Schema: at /type")
    person.finds_no_barrier()
    person.keeps("event-type-form-refused")
    page.get_by_label("Schema (optional)").fill(json.dumps(SCHEMA))
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="invoice.paid")).to_be_visible()
    person.sees("Sent once per invoice.")
    person.finds_no_barrier()
    person.keeps("event-type")
    person.confirms("Publish the sample…", "Publish the sample?", "Publish")
    expect(page).to_have_url(f"{server.url}/events/default/{next(iter(client.events())).id}")
    client.publish("invoice.paid", {"id": "4711"}, id="wrong")
    person.open("/events/default/wrong")
    person.sees("This event does not match its event type.")
    person.finds_no_barrier()
    person.keeps("event-with-warning")
    client.create_event_type("order.placed", description="x" * 300, check="refuse")
    person.open("/event-types")
    person.finds_no_barrier()
    person.keeps("event-types")
    page.get_by_role("link", name="invoice.paid").click()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("An event that does not match the schema").select_option("refuse")
    person.finds_no_barrier()
    page.get_by_role("button", name="Save").click()
    person.sees("invoice.paid changed.")
    assert client.event_type("invoice.paid").check == "refuse"
    person.confirms("Delete…", "Delete this event type?", "Delete")
    expect(page).to_have_url(f"{server.url}/event-types")
    assert [it.name for it in client.event_types()] == ["order.placed"]
