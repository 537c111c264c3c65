"""Causes over HTTP: what fails, why, since when; lists by failure class and status code."""

from __future__ import annotations

import pytest

from engine.world import always, failing_with
from homing.model import Failure
from web.asgi import Client
from web.house import URL, House, live

OTHER = "https://other.example/hook"


async def fail(house: House) -> str:
    """Two failures with 503 and one with a refused connection; returns the endpoint."""
    made = await house.subscribe()
    house.world.sender.scripts[URL] = always(503, excerpt=b"overloaded")
    for _ in range(2):
        await house.publish()
        await house.settled()
    house.world.sender.scripts[URL] = failing_with(Failure.REFUSED)
    await house.publish(id="refused")
    await house.settled()
    return str(made["endpoint"])


def test_a_cause_says_what_fails_since_when_and_how_often() -> None:
    async def story(house: House) -> None:
        endpoint = await fail(house)
        refused, unavailable = (await house.client.get("/v1/causes?open=true")).json["items"]
        assert unavailable["id"].startswith("cau_")
        assert (unavailable["endpoint"], unavailable["url"]) == (endpoint, URL)
        assert (unavailable["failure"], unavailable["code"]) == ("http_status", 503)
        assert unavailable["title"] == "503 Service Unavailable"
        assert (unavailable["attempts"], unavailable["attempts_in_all"]) == (2, 3)
        assert (unavailable["deliveries"], unavailable["waiting"]) == (2, 3)
        assert unavailable["open"] is True
        assert unavailable["example"]["code"] == 503
        assert unavailable["example"]["excerpt"] == "overloaded"
        assert unavailable["sentence"].startswith(
            "503 Service Unavailable, 2 of 3 failed attempts since 20"
        )
        assert (refused["failure"], refused["title"]) == ("refused", "connection refused")
        got = (await house.client.get(f"/v1/endpoints/{endpoint}")).json
        assert [it["title"] for it in got["causes"]] == [
            "connection refused",
            "503 Service Unavailable",
        ]
        assert "Last failure: connection refused, 1 of 3 failed attempts since" in got["sentence"]

    live(story)


def test_a_success_closes_the_causes() -> None:
    async def story(house: House) -> None:
        await fail(house)
        house.world.sender.scripts[URL] = always(200)
        await house.publish()
        await house.settled()
        assert (await house.client.get("/v1/causes?open=true")).json["items"] == []
        closed = (await house.client.get("/v1/causes?open=false")).json["items"]
        assert [it["open"] for it in closed] == [False, False]
        assert all(it["closed_at"] for it in closed)

    live(story)


def test_a_delivery_names_its_last_failure() -> None:
    async def story(house: House) -> None:
        await fail(house)
        page = (await house.client.get("/v1/deliveries?code=503")).json["items"]
        assert [it["last_failure"]["title"] for it in page] == ["503 Service Unavailable"] * 2
        page = (await house.client.get("/v1/deliveries?failure=refused")).json["items"]
        assert [it["event"] for it in page] == ["refused"]
        one = (await house.client.get(f"/v1/deliveries/{page[0]['id']}")).json
        assert "Its last failure: connection refused, 1 of 3 failed attempts" in one["explanation"]

    live(story)


@pytest.mark.parametrize(
    ("query", "field", "reason"),
    [
        ("/v1/causes?open=yes", "open", "must be true or false"),
        ("/v1/causes?endpoint=x", "endpoint", "must be an id like ep_"),
        ("/v1/deliveries?failure=bad", "failure", "must be one of http_status, timeout, "),
        ("/v1/deliveries?code=99", "code", "must be a status code from 100 to 599"),
        ("/v1/deliveries?code=600", "code", "must be a status code from 100 to 599"),
        ("/v1/deliveries?code=٥٠٣", "code", "must be a status code from 100 to 599"),
    ],
)
def test_a_wrong_condition_is_refused_with_what_is_allowed(
    query: str, field: str, reason: str
) -> None:
    async def story(house: House) -> None:
        got = await house.client.get(query)
        assert got.status == 422
        (problem,) = got.json["problems"]
        assert problem["field"] == field
        assert problem["reason"].startswith(reason)

    live(story)


def test_a_tenant_sees_only_its_own_causes() -> None:
    async def story(house: House) -> None:
        endpoint = await fail(house)
        made = await house.client.post(
            "/v1/keys", {"name": "n", "role": "viewer", "tenant": "other"}
        )
        theirs = Client(house.app)
        theirs.key = made.json["key"]
        for query in ("", "?tenant=default", f"?endpoint={endpoint}", "?open=true"):
            got = await theirs.get(f"/v1/causes{query}")
            assert (got.status, got.json["items"]) == (200, [])

    live(story)


def test_the_attempts_of_an_endpoint_are_listed_newest_first() -> None:
    async def story(house: House) -> None:
        endpoint = await fail(house)
        house.world.sender.scripts[URL] = always(200)
        await house.publish(id="arrived")
        await house.settled()
        path = f"/v1/endpoints/{endpoint}/attempts"
        got = (await house.client.get(path)).json
        assert [it["code"] for it in got["items"]] == [200, None, 503, 503]
        assert got["items"][0]["event"] == "arrived"
        first = (await house.client.get(f"{path}?limit=3")).json
        more = (await house.client.get(f"{path}?limit=3&cursor={first['next_cursor']}")).json
        assert first["items"] + more["items"] == got["items"]
        assert more["next_cursor"] is None
        refused = (await house.client.get(f"{path}?failure=refused")).json["items"]
        assert [it["event"] for it in refused] == ["refused"]
        assert len((await house.client.get(f"{path}?code=503&since=1h")).json["items"]) == 2
        latest = (await house.client.get("/v1/attempts?code=503")).json["items"]
        assert [it["code"] for it in latest] == [503, 503]
        for wrong in ("AAAA", "x", "%00"):
            assert (await house.client.get(f"{path}?cursor={wrong}")).status == 422

    live(story)


def test_a_test_send_is_listed_and_belongs_to_no_cause() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        house.world.sender.scripts[URL] = always(500)
        assert (await house.client.post(f"/v1/subscriptions/{made['id']}/test")).status == 200
        (line,) = (await house.client.get(f"/v1/endpoints/{made['endpoint']}/attempts")).json[
            "items"
        ]
        assert (line["lane"], line["event"], line["url"]) == ("test", "", URL)
        assert (await house.client.get("/v1/causes")).json["items"] == []

    live(story)
