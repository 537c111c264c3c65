"""Event types: the API, the check at every way in, the OpenAPI document, the pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from homing.engine.options import EngineOptions
from homing.policy.event_check_rules import Check, CheckRules, Unknown
from homing.ports import OutboxRow, RowsRefused
from homing.testing import running_server
from homing.web.relay import publish_here
from homing_client import Invalid as ClientInvalid
from web.asgi import Client
from web.browse import Browser, text
from web.house import House, live

SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "to": {"$ref": "#/$defs/person"}},
    "$defs": {"person": {"type": "object", "properties": {"email": {"type": "string"}}}},
}
PAID: dict[str, Any] = {
    "name": "invoice.paid",
    "description": "An invoice was paid.\nIn full.",
    "schema": SCHEMA,
    "sample": {"id": 4711, "to": {"email": "a@b.example"}},
    "check": "refuse",
}
TYPES = "/v1/event-types"


def event(data: Any, **more: Any) -> dict[str, Any]:
    return {"type": "invoice.paid", "data": data, **more}


async def describe(house: House, **more: Any) -> None:
    got = await house.client.post(TYPES, {**PAID, **more})
    assert got.status == 201, got.body


def test_a_type_is_described_shown_listed_changed_and_deleted() -> None:
    async def story(house: House) -> None:
        body = json.dumps({**PAID, "sample": None}).encode()
        body = body.replace(b'"sample": null', b'"sample": {"id" :  4711, "x": 1.50}')
        made = await house.client.post(TYPES, body=body)
        assert made.status == 201
        assert b'{"id" :  4711, "x": 1.50}' in made.body
        shown = await house.client.get(f"{TYPES}/invoice.paid")
        assert shown.json == made.json
        assert shown.json["schema"] == SCHEMA
        assert shown.json["check"] == "refuse"
        listed = await house.client.get(TYPES)
        (one,) = listed.json["items"]
        assert one["name"] == "invoice.paid"
        assert (one["has_schema"], one["has_sample"]) == (True, True)
        assert "schema" not in one
        changed = await house.client.patch(
            f"{TYPES}/invoice.paid", {"sample": None, "check": None, "description": "Paid."}
        )
        assert changed.status == 200
        assert (changed.json["sample"], changed.json["check"]) == (None, None)
        assert changed.json["schema"] == SCHEMA
        assert (await house.client.post(TYPES, PAID)).status == 409
        assert (await house.client.delete(f"{TYPES}/invoice.paid")).status == 204
        assert (await house.client.get(f"{TYPES}/invoice.paid")).status == 404
        assert (await house.client.delete(f"{TYPES}/invoice.paid")).status == 404

    live(story)


def test_a_list_has_pages() -> None:
    async def story(house: House) -> None:
        for number in range(5):
            await describe(house, name=f"t{number}")
        await describe(house, name="t9", tenant="acme")
        names: list[str] = []
        cursor = ""
        while True:
            got = await house.client.get(f"{TYPES}?limit=2{cursor}")
            names += [it["name"] for it in got.json["items"]]
            if got.json["next_cursor"] is None:
                break
            cursor = f"&cursor={got.json['next_cursor']}"
        assert names == ["t9", "t0", "t1", "t2", "t3", "t4"]
        assert (await house.client.get(f"{TYPES}?cursor=x")).fields == ["cursor"]
        got = await house.client.get(f"{TYPES}?tenant=acme")
        assert [it["name"] for it in got.json["items"]] == ["t9"]

    live(story)


@pytest.mark.parametrize(
    ("wrong", "field", "why"),
    [
        ({"name": "no spaces"}, "name", "must be 1 to 256"),
        ({"name": "homing.x"}, "name", "Homing's own"),
        ({"name": "openapi.json"}, "name", "address"),
        ({"tenant": "no/slash"}, "tenant", "must be 1 to 64"),
        ({"description": "x" * 2_001}, "description", "2,000"),
        ({"schema": {"x": "y" * 70_000}}, "schema", "64 KiB"),
        ({"sample": "y" * 70_000}, "sample", "64 KiB"),
        ({"schema": {"$ref": "https://x.example/"}}, "schema", "nothing is fetched"),
        ({"schema": {"pattern": "(?=x)"}}, "schema", "linear time"),
        ({"sample": {"id": "x"}}, "sample", "must match the schema: does not match"),
    ],
)
def test_a_wrong_type_is_refused_by_the_name_of_its_field(
    wrong: dict[str, Any], field: str, why: str
) -> None:
    async def story(house: House) -> None:
        got = await house.client.post(TYPES, {**PAID, **wrong})
        assert got.status == 422
        (problem,) = got.problem.problems
        assert problem.field == field
        assert why in problem.reason
        assert (await house.client.get(TYPES)).json["items"] == []

    live(story)


def test_an_event_that_does_not_match_is_refused_with_its_place_and_reason() -> None:
    async def story(house: House) -> None:
        await house.subscribe()
        await describe(house)
        got = await house.client.post("/v1/events", event({"id": "x"}))
        assert got.status == 422
        (problem,) = got.problem.problems
        assert problem.field == "events[0].data"
        assert problem.reason.startswith("does not match its schema: at /id, ")
        batch = [event({"id": 1}), event({}), event({"id": 2}), {"type": "other", "data": 1}]
        got = await house.client.post("/v1/events", batch)
        assert got.fields == ["events[1].data"]
        lines = b"\n".join(json.dumps(it).encode() for it in batch)
        kind = [("content-type", "application/x-ndjson")]
        got = await house.client.post("/v1/events", body=lines, headers=kind)
        assert got.fields == ["events[1].data"]
        cloud = {"specversion": "1.0", "id": "1", "source": "x", **event({"id": True})}
        kind = [("content-type", "application/cloudevents+json")]
        got = await house.client.post("/v1/events", body=json.dumps(cloud).encode(), headers=kind)
        assert got.fields == ["events[0].data"]
        assert (await house.client.get("/v1/events")).json["items"] == []
        assert (await house.client.post("/v1/events", event({"id": 1}))).status == 202

    live(story)


def test_a_warning_is_in_the_response_in_the_event_and_in_the_metrics() -> None:
    async def story(house: House) -> None:
        await describe(house, check="warn")
        got = await house.client.post("/v1/events", [event({"id": 1}), event({"id": "x"}, id="w")])
        assert got.status == 202
        good, warned = got.json["events"]
        assert "warning" not in good
        assert warned["warning"].startswith("data does not match its schema: at /id, ")
        shown = await house.client.get("/v1/events/w")
        assert shown.json["warning"] == warned["warning"]
        assert (await house.client.get(f"/v1/events/{good['id']}")).json["warning"] is None
        again = await house.client.post("/v1/events", event({"id": "x"}, id="w"))
        assert again.json["events"][0]["duplicate"]
        metrics = (await house.client.get("/metrics")).body.decode()
        assert 'homing_event_checks_total{result="valid"} 1.0' in metrics
        assert 'homing_event_checks_total{result="warned"} 2.0' in metrics
        browser = Browser(house.app)
        await browser.sign_in()
        page = text(await browser.get("/events/default/w"))
        assert "This event does not match its event type." in page
        assert "at /id," in page

    live(story)


def test_the_default_is_a_warning_and_unknown_types_are_allowed() -> None:
    async def story(house: House) -> None:
        await describe(house, check=None)
        got = await house.client.post("/v1/events", event({"id": "x"}))
        assert got.json["events"][0]["warning"]
        assert (await house.client.post("/v1/events", {"type": "x", "data": 1})).status == 202

    live(story)


def test_unknown_types_are_refused_by_setting() -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/events", event({"id": 1}))
        assert got.fields == ["events[0].type"]
        assert "describe it first" in got.problem.problems[0].reason
        await describe(house)
        assert (await house.client.post("/v1/events", event({"id": 1}))).status == 202

    live(story, EngineOptions(checks=CheckRules(Check.WARN, Unknown.REFUSE)))


def test_a_row_of_an_outbox_that_does_not_match_is_refused_and_names_the_reason() -> None:
    async def story(house: House) -> None:
        await describe(house)
        publish = publish_here(house.use_cases.publishing)
        rows = [
            OutboxRow(number, f"id{number}", "default", "invoice.paid", data, None, None)
            for number, data in ((1, b'{"id":1}'), (2, b'{"id":"x"}'))
        ]
        with pytest.raises(RowsRefused) as refused:
            await publish(rows)
        assert [it.field for it in refused.value.problems] == ["events[1].data"]
        await publish(rows[:1])

    live(story)


def test_a_tenant_has_its_own_types() -> None:
    async def story(house: House) -> None:
        await describe(house, tenant="acme")
        wrong = {"id": "x"}
        assert (await house.client.post("/v1/events", event(wrong, tenant="other"))).status == 202
        assert (await house.client.post("/v1/events", event(wrong, tenant="acme"))).status == 422
        made = await house.client.post(
            "/v1/keys", {"name": "n", "role": "manager", "tenant": "other"}
        )
        other = Client(house.app, key=made.json["key"])
        assert (await other.get(f"{TYPES}/invoice.paid?tenant=acme")).status == 404
        assert (await other.get(f"{TYPES}/openapi.json?tenant=acme")).status == 404
        assert (await other.get(f"{TYPES}?tenant=acme")).json["items"] == []
        assert (await other.patch(f"{TYPES}/invoice.paid?tenant=acme", {})).status == 404

    live(story)


def test_the_document_of_all_types_is_openapi_with_a_webhook_for_each() -> None:
    async def story(house: House) -> None:
        await describe(house)
        await describe(house, name="plain.type", schema=None, sample=None, description="")
        got = await house.client.get(f"{TYPES}/openapi.json")
        assert got.status == 200
        document = got.json
        assert set(document["webhooks"]) == {"invoice.paid", "plain.type"}
        post = document["webhooks"]["invoice.paid"]["post"]
        assert post["summary"] == "An invoice was paid."
        body = post["requestBody"]["content"]["application/json"]
        data = body["schema"]["properties"]["data"]
        assert data == {"$ref": "#/components/schemas/invoice.paid"}
        assert body["example"]["data"] == PAID["sample"]
        stored = document["components"]["schemas"]["invoice.paid"]
        assert stored["properties"]["to"] == {
            "$ref": "#/components/schemas/invoice.paid/$defs/person"
        }
        browser = Browser(house.app)
        await browser.sign_in()
        assert (await browser.get("/event-types/openapi.json")).json == document

    live(story)


def test_the_fast_path_takes_events_that_match_and_no_others() -> None:
    with running_server() as server:
        client = server.client
        client.create_event_type("invoice.paid", schema=SCHEMA, check="warn")
        for _ in range(3):
            assert client.publish("invoice.paid", {"id": 1}).warning == ""
        warned = client.publish("invoice.paid", {"id": "x"})
        assert warned.warning.startswith("data does not match its schema: at /id, ")
        client.change_event_type("invoice.paid", check="refuse")
        with pytest.raises(ClientInvalid, match="at /id"):
            client.publish("invoice.paid", {"id": "x"})
        assert client.publish("invoice.paid", {"id": 2}).warning == ""
        assert [it.name for it in client.event_types()] == ["invoice.paid"]
        assert bytes(client.event_type("invoice.paid").sample) == b"null"
        assert set(client.event_types_openapi()["webhooks"]) == {"invoice.paid"}
        client.delete_event_type("invoice.paid")
        assert client.publish("invoice.paid", {"id": "x"}).warning == ""


# --- the pages ------------------------------------------------------------------------------


def test_a_type_is_described_edited_and_deleted_on_the_dashboard() -> None:
    async def story(house: House) -> None:
        browser = Browser(house.app)
        await browser.sign_in()
        assert "No event types yet" in text(await browser.get("/event-types"))
        new = "/event-types/new"
        wrong = {"name": "invoice.paid", "schema": '{"type": 1}', "tenant": "acme"}
        got = await browser.form(new, "/event-types", **wrong)
        assert got.status == 422
        assert "not a valid JSON Schema" in text(got)
        assert 'value="invoice.paid"' in got.body.decode()
        good = {**wrong, "schema": json.dumps(SCHEMA), "sample": '{"id": 7}', "check": "refuse"}
        got = await browser.form(new, "/event-types", **good, description="First\r\nsecond")
        at = "/event-types/acme/invoice.paid"
        assert (got.status, got.headers["location"]) == (303, at)
        page = text(await browser.get(at))
        for shown in ("invoice.paid", "First", '"id": 7', "refuse", "Publish the sample"):
            assert shown in page
        assert "invoice.paid" in text(await browser.get("/event-types"))
        assert "First" in text(await browser.get(f"{at}/edit"))
        got = await browser.form(f"{at}/edit", at, schema="[]")
        assert got.status == 422
        assert "must be a JSON object" in text(got)
        got = await browser.form(f"{at}/edit", at, schema="", check="", description="Now")
        assert got.status == 303
        found = await house.client.get(f"{TYPES}/invoice.paid?tenant=acme")
        assert (found.json["schema"], found.json["check"]) == (None, None)
        got = await browser.form(at, f"{at}/delete")
        assert got.headers["location"] == "/event-types"
        assert (await browser.get(at)).status == 404

    live(story)


def test_a_test_event_on_the_dashboard_is_checked_too() -> None:
    async def story(house: House) -> None:
        await describe(house)
        browser = Browser(house.app)
        await browser.sign_in()
        sent = {"type": "invoice.paid", "data": '{"id": "x"}', "tenant": "default"}
        got = await browser.form("/events", "/events", **sent)
        assert got.status == 422
        assert "does not match its schema: at /id" in text(got)
        await house.client.patch(f"{TYPES}/invoice.paid", {"check": "warn"})
        got = await browser.form("/events", "/events", **sent)
        assert got.status == 303

    live(story)
