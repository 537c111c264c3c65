"""The Workfront door: documented requests and responses, word for word, and what we chose."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID, uuid4

import pytest

from homing.web.workfront.api import BASE
from web.asgi import KEY, Client
from web.house import House, live

URL = "https://receiver.example/workfront"
PROJECT: dict[str, Any] = {
    "objCode": "PROJ",
    "eventType": "UPDATE",
    "url": URL,
    "authToken": "token-for-tests-1234",
}
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}").fullmatch


async def create(house: House, **more: Any) -> str:
    got = await house.client.post(BASE, {**PROJECT, **more})
    assert got.status == 201, got.body
    return str(got.json["id"])


def test_create_responds_with_id_version_and_the_absolute_location() -> None:
    async def story(house: House) -> None:
        got = await house.client.post(BASE, PROJECT, headers=[("host", "homing.example:8000")])
        assert got.status == 201
        assert set(got.json) == {"id", "version"}
        assert got.json["version"] == "v2"
        place = f"http://homing.example:8000{BASE}/{got.json['id']}"
        assert got.headers["location"] == place
        assert (await house.client.get(f"{BASE}/{got.json['id']}")).status == 200

    live(story)


def test_an_id_is_a_uuid_and_both_forms_are_accepted_in_every_api() -> None:
    async def story(house: House) -> None:
        made = await create(house)
        assert str(UUID(made)) == made
        assert UUID(made).version == 8
        own = (await house.client.get(f"/v1/subscriptions/{made}")).json
        assert own["id"].startswith("sub_")
        assert own["workfront"]["id"] == made
        for name in (made, made.upper(), own["id"]):
            assert (await house.client.get(f"{BASE}/{name}")).json["id"] == made
            found = await house.client.get(f"/v1/deliveries?subscription={name}")
            assert found.status == 200
        body = {"subscriptionIds": [own["id"]], "version": "v1"}
        got = await house.client.call("PUT", f"{BASE}/version", json=body)
        assert got.json["subscription_ids"] == [made]
        hits = (await house.client.get(f"/v1/search?q={made}")).json
        assert own["id"] in str(hits)
        assert (await house.client.delete(f"{BASE}/{own['id']}")).status == 200

    live(story)


def test_a_foreign_uuid_is_unknown() -> None:
    async def story(house: House) -> None:
        made = await create(house)
        other = made[:-1] + ("0" if made[-1] != "0" else "1")
        for name in (other, str(uuid4()), made.replace("-", ""), "750a636c-5628-48f5-ba26"):
            got = await house.client.get(f"{BASE}/{name}")
            assert (got.status, got.problem.code) == (404, "not_found")
            assert (await house.client.delete(f"{BASE}/{name}")).status == 404
            body = {"subscriptionIds": [made, name], "version": "v1"}
            wrong = await house.client.call("PUT", f"{BASE}/version", json=body)
            assert (wrong.status, wrong.fields) == (400, ["subscriptionIds[1]"])

    live(story)


def test_what_adobe_would_not_honour_is_a_warning_at_create_and_change() -> None:
    async def story(house: House) -> None:
        filters = [{"fieldName": "groups", "fieldValue": "x", "comparison": "contains"}]
        got = await house.client.post(BASE, {**PROJECT, "objCode": "DOCU", "filters": filters})
        assert got.status == 201
        (warning,) = got.json["warnings"]
        assert warning == {
            "field": "filters[0].fieldName",
            "reason": "Adobe cannot filter DOCU by groups: this filter never matches there",
        }
        made = got.json["id"]
        assert (await house.client.get(f"{BASE}/{made}")).json["warnings"] == [warning]
        assert "warnings" not in (await house.client.get(BASE)).json["subscriptions"][0]
        own = f"/v1/subscriptions/{made}"
        assert (await house.client.get(own)).json["workfront"]["warnings"] == [warning]
        listed = (await house.client.get("/v1/subscriptions")).json["items"]
        assert "warnings" not in listed[0]["workfront"]
        changed = await house.client.patch(own, {"filters": []})
        assert changed.json["workfront"]["warnings"] == []

    live(story)


def test_get_shows_the_documented_fields() -> None:
    async def story(house: House) -> None:
        filters = [{"fieldName": "status", "fieldValue": "CUR", "comparison": "eq"}]
        made = await create(house, objId="5e7", filters=filters, base64Encoding="true")
        got = await house.client.get(f"{BASE}/{made}")
        assert got.headers["content-type"] == "application/json;charset=UTF-8"
        told = got.json
        dates = ("date_created", "date_modified", "dateCreated", "dateModified")
        assert all(DATE(told.pop(name)) for name in dates)
        assert DATE(told["subscription_url"].pop("date_created"))
        assert told == {
            "id": made,
            "version": "v2",
            "dateVersionUpdated": None,
            "customerId": "default",
            "objId": "5e7",
            "objCode": "PROJ",
            "url": URL,
            "eventType": "UPDATE",
            "authToken": "****1234",
            "base64Encoding": True,
            "filters": filters,
            "filterConnector": "AND",
            "subscription_url": {
                "url": URL,
                "successes": 0,
                "failures": 0,
                "disabled_at": None,
                "frozen_at": None,
            },
        }

    live(story)


@pytest.mark.parametrize(
    ("token", "shown"),
    [("12345678", "****"), ("123456789", "****6789"), (None, None), ("", None)],
)
def test_a_token_is_masked(token: str | None, shown: str | None) -> None:
    async def story(house: House) -> None:
        made = await create(house, authToken=token)
        assert (await house.client.get(f"{BASE}/{made}")).json["authToken"] == shown
        (old,) = (await house.client.get(f"{BASE}/list")).json
        assert old["auth_token"] == shown

    live(story)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"url": "not a url"}, ["url"]),
        ({"url": "http://127.0.0.1/"}, ["url"]),
        ({"colour": "red"}, ["colour"]),
        ({"objCode": ""}, ["objCode"]),
        ({"objCode": "A.B"}, ["objCode"]),
        ({"eventType": "SHARE"}, ["eventType"]),
        ({"eventType": "update"}, ["eventType"]),
        ({"authToken": "x" * 255}, ["authToken"]),
        ({"authToken": "with space"}, ["authToken"]),
        ({"base64Encoding": "yes"}, ["base64Encoding"]),
        ({"objId": "x" * 257}, ["objId"]),
        ({"filterConnector": "NOT"}, ["filterConnector"]),
        ({"filters": [{"fieldName": "a"}]}, ["filters[0].fieldValue"]),
        ({"filters": [{"fieldName": "a", "comparison": "is"}]}, ["filters[0].comparison"]),
        (
            {
                "eventType": "CREATE",
                "filters": [{"fieldName": "a", "fieldValue": 1, "state": "oldState"}],
            },
            ["filters[0].state"],
        ),
    ],
)
def test_what_is_wrong_is_a_400_with_the_field(changes: dict[str, Any], fields: list[str]) -> None:
    async def story(house: House) -> None:
        got = await house.client.post(BASE, {**PROJECT, **changes})
        assert (got.status, got.fields) == (400, fields)
        assert got.json["error"]["message"]
        assert (await house.client.get(BASE)).json["meta"]["total_count"] == 0

    live(story)


@pytest.mark.parametrize("value", [True, "true", "TRUE"])
def test_base64_may_be_a_word(value: Any) -> None:
    async def story(house: House) -> None:
        made = await create(house, base64Encoding=value)
        assert (await house.client.get(f"{BASE}/{made}")).json["base64Encoding"] is True
        for off in (False, "false", "", None):
            other = await create(house, base64Encoding=off, url=f"{URL}?{off}")
            assert (await house.client.get(f"{BASE}/{other}")).json["base64Encoding"] is False

    live(story)


def test_a_duplicate_is_a_409_and_any_difference_is_none() -> None:
    async def story(house: House) -> None:
        first = await create(house)
        got = await house.client.post(BASE, PROJECT)
        assert (got.status, got.problem.code) == (409, "duplicate_subscription")
        same = await house.client.post(BASE, {**PROJECT, "url": URL.replace("https", "HTTPS")})
        assert same.status == 409
        for change in (
            {"authToken": "another"},
            {"objId": "1"},
            {"eventType": "DELETE"},
            {"objCode": "TASK"},
            {"base64Encoding": True},
            {"filters": [{"fieldName": "a", "fieldValue": 1}]},
            {"filters": [{"fieldName": "a", "fieldValue": 1}], "filterConnector": "OR"},
        ):
            await create(house, **change)
        await house.client.call("DELETE", f"{BASE}/{first}")
        await create(house)

    live(story)


def test_the_list_has_pages_in_an_envelope() -> None:
    async def story(house: House) -> None:
        ids = [await create(house, url=f"{URL}?{number}") for number in range(5)]
        await house.subscribe()  # not made here, not seen here
        told = (await house.client.get(BASE)).json
        assert [one["id"] for one in told["subscriptions"]] == ids
        assert told["meta"] == {"page": 1, "page_count": 1, "limit": 100, "total_count": 5}
        told = (await house.client.get(f"{BASE}?page=2&limit=2")).json
        assert [one["id"] for one in told["subscriptions"]] == ids[2:4]
        assert told["meta"] == {"page": 2, "page_count": 3, "limit": 2, "total_count": 5}
        beyond = (await house.client.get(f"{BASE}?page=9&limit=2")).json
        assert beyond["subscriptions"] == []
        for query, page, limit in (("page=0", 1, 100), ("limit=5000", 1, 1000), ("limit=0", 1, 1)):
            meta = (await house.client.get(f"{BASE}?{query}")).json["meta"]
            assert (meta["page"], meta["limit"]) == (page, limit)
        assert (await house.client.get(f"{BASE}?page=x")).status == 400

    live(story)


def test_the_deprecated_list_is_a_bare_array_in_snake_case() -> None:
    async def story(house: House) -> None:
        made = await create(house)
        assert (await house.client.get(f"{BASE}/list")).json == [
            {
                "id": made,
                "customer_id": "default",
                "obj_id": None,
                "obj_code": "PROJ",
                "url": URL,
                "event_type": "UPDATE",
                "auth_token": "****1234",
            }
        ]

    live(story)


def test_delete_responds_with_200_with_nothing_and_then_404() -> None:
    async def story(house: House) -> None:
        made = await create(house)
        got = await house.client.delete(f"{BASE}/{made}")
        assert (got.status, got.body) == (200, b"")
        for method in ("GET", "DELETE"):
            gone = await house.client.call(method, f"{BASE}/{made}")
            assert (gone.status, gone.json["error"]["class"]) == (404, "NotFound")
        native = await house.subscribe()
        assert (await house.client.get(f"{BASE}/{native['id']}")).status == 404

    live(story)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("sessionid", KEY)], 200),
        ([("x-user-token", KEY)], 200),
        ([("authorization", KEY)], 200),
        ([("authorization", f"Bearer {KEY}")], 200),
        ([("sessionid", KEY), ("authorization", "Bearer other")], 200),
        ([("sessionid", ""), ("x-user-token", KEY)], 200),
        ([("sessionid", "wrong")], 401),
        ([("sessionid", "")], 401),
        ([], 401),
    ],
)
def test_a_key_comes_in_any_of_the_three_headers(
    headers: list[tuple[str, str]], status: int
) -> None:
    async def story(house: House) -> None:
        got = await Client(house.app, key=None).get(BASE, headers=headers)
        assert got.status == status
        if status == 401:
            message = "The apiKey provided was empty or deemed invalid."
            assert got.json["error"]["message"] == message
        got = await Client(house.app, key=None).get("/v1/events", headers=[("sessionid", KEY)])
        assert got.status == 401

    live(story)


def test_a_key_of_a_tenant_has_that_customer_and_a_viewer_may_not_create() -> None:
    async def story(house: House) -> None:
        keys = {}
        for role, tenant in (("manager", "acme"), ("viewer", "acme"), ("manager", "zenith")):
            body = {"name": "x", "role": role, "tenant": tenant}
            made = await house.client.post("/v1/keys", body)
            keys[role, tenant] = Client(house.app, key=made.json["key"])
        got = await keys["manager", "acme"].post(BASE, PROJECT)
        shown = await keys["viewer", "acme"].get(f"{BASE}/{got.json['id']}")
        assert shown.json["customerId"] == "acme"
        assert (await keys["viewer", "acme"].post(BASE, PROJECT)).status == 403
        other = keys["manager", "zenith"]
        assert (await other.get(f"{BASE}/{got.json['id']}")).status == 404
        assert (await other.get(BASE)).json["subscriptions"] == []
        assert (await other.get(f"{BASE}?customerId=acme")).json["subscriptions"] == []
        assert (await other.post(f"{BASE}?customerId=acme", PROJECT)).status == 403
        wanted = {"subscriptionIds": [got.json["id"]], "version": "v1"}
        assert (await other.call("PUT", f"{BASE}/version", json=wanted)).status == 400
        assert (await house.client.get(BASE)).json["subscriptions"] == []
        seen = (await house.client.get(f"{BASE}?customerId=acme")).json["subscriptions"]
        assert [one["id"] for one in seen] == [got.json["id"]]

    live(story)


def test_unknown_methods_and_bodies_that_are_no_json_are_refused() -> None:
    async def story(house: House) -> None:
        assert (await house.client.patch(BASE, {})).status == 405
        assert (await house.client.post(BASE, body=b"{")).status == 400
        assert (await house.client.post(BASE, {"objCode": "PROJ"})).status == 400

    live(story)
