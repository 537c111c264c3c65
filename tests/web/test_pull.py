"""Subscriptions without a URL: their events are read, acknowledged, and never sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from homing.app import pull as use_cases
from homing.app.access import Caller
from homing.engine.options import HOUR_MS, EngineOptions
from homing.errors import TooMany
from homing.model import read_id
from homing.policy.keys import Role
from web.asgi import Client, Got
from web.house import House, live

ADMIN = Caller("admin", Role.ADMIN, None)


class Reading:
    """A subscription without a URL, as its reader sees it."""

    def __init__(self, house: House, subscription: str) -> None:
        self.house, self.id = house, subscription
        self.path = f"/v1/subscriptions/{subscription}"

    @classmethod
    async def begin(cls, house: House, **given: Any) -> Reading:
        got = await house.client.post("/v1/subscriptions", {"types": ["*"], **given})
        assert got.status == 201, got.body
        assert (got.json["url"], got.json["endpoint"]) == ("", "")
        return cls(house, got.json["id"])

    async def get(self, query: str = "") -> Got:
        return await self.house.client.get(f"{self.path}/events{query}")

    async def keys(self, query: str = "") -> list[str]:
        got = await self.get(query)
        assert got.status == 200, got.body
        return [it["id"] for it in got.json["events"]]

    async def ack(self, cursor: str, **given: Any) -> Got:
        return await self.house.client.post(f"{self.path}/ack", {"cursor": cursor, **given})


def test_events_are_read_in_order_with_their_data_byte_for_byte_and_never_sent() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        await house.client.post(
            "/v1/events", body=b'{"type": "a.b", "id": "k0", "data": {"n": 1.00,  "e": "\\u00e9"}}'
        )
        await house.publish(id="k1", type="c.d", time="2025-01-31T12:00:00Z")
        got = await reading.get()
        assert b'"data":{"n": 1.00,  "e": "\\u00e9"}' in got.body
        first, second = got.json["events"]
        assert (first["id"], first["type"]) == ("k0", "a.b")
        assert (second["id"], second["time"]) == ("k1", "2025-01-31T12:00:00Z")
        assert got.json["lag"] == 0
        assert got.json["cursor"] == second["cursor"]
        await house.settled()
        assert await house.deliveries() == []
        assert house.world.sender.hits == []

    live(story)


def test_only_matching_events_can_be_read() -> None:
    async def story(house: House) -> None:
        filters = [{"field": "data.n", "op": "gt", "value": 1}]
        reading = await Reading.begin(house, types=["order.*"], filters=filters)
        await house.publish(id="small", type="order.paid", data={"n": 1})
        await house.publish(id="large", type="order.paid", data={"n": 2})
        await house.publish(id="other", type="invoice.paid", data={"n": 2})
        assert await reading.keys() == ["large"]

    live(story)


def test_a_reader_goes_on_after_its_acknowledged_events() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        for n in range(4):
            await house.publish(id=f"k{n}")
        page = (await reading.get("?limit=2")).json
        assert page["lag"] == 2
        got = await reading.ack(page["events"][0]["cursor"])
        assert got.status == 200
        assert (got.json["name"], got.json["lag"]) == ("default", 3)
        assert await reading.keys() == ["k1", "k2", "k3"]
        assert await reading.keys(f"?after={page['cursor']}") == ["k2", "k3"]
        assert await reading.keys("?reader=other") == ["k0", "k1", "k2", "k3"]
        listed = (await house.client.get(f"{reading.path}/readers")).json["items"]
        assert [(it["name"], it["lag"]) for it in listed] == [("default", 3)]
        await house.world.engine.stop(grace_ms=0)
        await house.world.start()
        assert await Reading(House(house.world), reading.id).keys() == ["k1", "k2", "k3"]

    live(story)


def test_a_reader_that_is_removed_begins_again() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        await house.publish(id="k0")
        await reading.ack((await reading.get()).json["cursor"])
        assert await reading.keys() == []
        got = await house.client.delete(f"{reading.path}/readers")
        assert got.status == 204
        assert await reading.keys() == ["k0"]
        assert (await house.client.delete(f"{reading.path}/readers")).status == 404

    live(story)


def test_a_new_reader_may_begin_with_the_next_event() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        await house.publish(id="old")
        assert await reading.keys("?from=now") == []
        await house.publish(id="new")
        assert await reading.keys() == ["new"]

    live(story)


def test_a_read_waits_for_the_next_event() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        waiting = asyncio.create_task(reading.keys("?wait=20s"))
        await house.world.wait(1_000)
        assert not waiting.done()
        await house.publish(id="k0")
        assert await waiting == ["k0"]
        began = house.world.clock.now()
        cursor = (await reading.get()).json["cursor"]
        assert await reading.keys(f"?after={cursor}&wait=3s") == []
        assert house.world.clock.now() - began == 3_000

    live(story)


def test_a_wait_ends_when_the_server_stops() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        waiting = asyncio.create_task(reading.get("?wait=60s"))
        await house.world.wait(10)
        began = house.world.clock.now()
        house.world.engine.pulls.stop()
        assert (await waiting).json["events"] == []
        assert house.world.clock.now() == began

    live(story)


@pytest.mark.parametrize("most", ["WAITING_OF_TENANT_MAX", "WAITING_OF_KEY_MAX"])
def test_too_many_reads_do_not_wait(most: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_cases, most, 2)

    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        waiting = [asyncio.create_task(reading.get("?wait=5s")) for _ in range(2)]
        await house.world.wait(10)
        refused = await reading.get("?wait=5s")
        assert refused.status == 429
        assert "2 reads wait for events already" in refused.problem.detail
        assert (await reading.get()).status == 200  # It does not wait.
        for one in waiting:
            assert (await one).status == 200
        assert (await reading.get("?wait=1s")).status == 200

    live(story)


def test_a_tenant_of_which_no_read_waits_finds_a_place_whatever_others_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(use_cases, "WAITING_MAX", 20)
    monkeypatch.setattr(use_cases, "WAITING_OF_TENANT_MAX", 8)

    async def story(house: House) -> None:
        waiting, counts = [], list[int]()
        for number in range(6):
            name = f"t{number}"
            reading = await Reading.begin(house, tenant=name)
            made = {"name": name, "role": "manager", "tenant": name}
            key = (await house.client.post("/v1/keys", made)).json["key"]
            client = Client(house.app, key=key)
            asked = [
                asyncio.create_task(client.get(f"{reading.path}/events?wait=5s")) for _ in range(30)
            ]
            await house.world.wait(10)
            refused = [it for it in asked if it.done()]
            assert {it.result().status for it in refused} <= {429}
            counts.append(len(asked) - len(refused))
            waiting += asked
        assert counts[0] == 8
        assert min(counts) >= 1
        assert sum(counts) <= 20
        for one in waiting:
            assert (await one).status in {200, 429}

    live(story)


def test_a_cursor_is_of_one_subscription_and_cannot_be_made_up() -> None:
    async def story(house: House) -> None:
        reading, other = await Reading.begin(house), await Reading.begin(house)
        await house.publish()
        cursor = (await reading.get()).json["cursor"]
        for wrong in (
            cursor[:-2] + "AA",
            cursor + "A",
            "x",
            "=",
            "é",
            (await other.get()).json["cursor"],
        ):
            got = await reading.ack(wrong)
            assert (got.status, got.fields) == (422, ["cursor"]), wrong
        got = await reading.get("?after=AAAAAAAAAAk")
        assert (got.status, got.fields) == (422, ["after"])
        got = await reading.get("?reader=a%20b")
        assert (got.status, got.fields) == (422, ["reader"])
        got = await reading.get("?from=yesterday")
        assert (got.status, got.fields) == (422, ["from"])
        assert (await reading.ack(cursor)).status == 200

    live(story)


def test_a_cursor_behind_the_retention_is_a_410_that_names_the_oldest() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        await house.publish(id="old")
        before = (await reading.get("?limit=1")).json["cursor"]
        await reading.ack(before)
        await house.publish(id="older")
        await house.world.wait(2 * HOUR_MS)
        await house.publish(id="new")
        got = await reading.get()
        assert got.status == 410
        oldest = got.problem.detail.rpartition(" ")[2].rstrip(".")
        assert await reading.keys(f"?after={oldest}") == ["new"]
        assert (await reading.ack(oldest)).status == 200
        assert await reading.keys() == ["new"]

    live(story, EngineOptions(retention_ms=HOUR_MS))


def test_what_says_how_to_send_is_refused_without_a_url() -> None:
    async def story(house: House) -> None:
        got = await house.client.post(
            "/v1/subscriptions",
            {"types": ["*"], "format": "raw", "token": "t", "headers": {"x-a": "b"}},
        )
        assert got.status == 422
        assert sorted(got.fields) == ["format", "headers", "token"]

    live(story)


def test_a_subscription_keeps_its_kind() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        sent = await house.subscribe()
        for path, url in (
            (reading.path, "https://receiver.example/in"),
            (f"/v1/subscriptions/{sent['id']}", None),
        ):
            got = await house.client.patch(path, {"url": url})
            assert (got.status, got.fields) == (422, ["url"])
        got = await house.client.patch(reading.path, {"description": "for reports"})
        assert got.json["description"] == "for reports"
        for path in ("/events", "/readers", "/stream"):
            got = await house.client.get(f"/v1/subscriptions/{sent['id']}{path}")
            assert got.status == 409, path
        assert (await house.client.post(f"{reading.path}/test")).status == 409

    live(story)


def test_a_deleted_subscription_cannot_be_read() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        await house.publish()
        waiting = asyncio.create_task(reading.get("?reader=w&wait=5s&from=now"))
        await house.world.wait(10)
        assert (await house.client.delete(reading.path)).status == 204
        assert (await waiting).status == 404
        assert (await reading.get()).status == 404
        await house.publish()

    live(story)


def test_server_sent_events_have_their_cursor_as_id() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house)
        await house.publish(id="k0")
        number = read_id("sub", reading.id)
        assert number is not None
        pages = await house.use_cases.pull.stream(ADMIN, number, reader="r", limit=10)
        assert [it.event.key for it in (await anext(pages)).events] == ["k0"]
        following = asyncio.create_task(cast("Any", anext(pages)))
        await house.world.wait(1_000)
        await house.publish(id="k1")
        page = await following
        assert [it.event.key for it in page.events] == ["k1"]
        quiet = asyncio.create_task(cast("Any", anext(pages)))
        await house.world.wait(use_cases.STREAM_WAIT_MS + 1)
        assert (await quiet).events == []
        await cast("AsyncGenerator[Any]", pages).aclose()

    live(story)


def test_homings_own_notices_can_be_read() -> None:
    async def story(house: House) -> None:
        reading = await Reading.begin(house, types=["homing.*"])
        sent = await house.subscribe(types=["a.b"])
        got = await house.client.post(f"/v1/endpoints/{sent['endpoint']}/freeze")
        assert got.status == 200
        assert [it["type"] for it in (await reading.get()).json["events"]] == [
            "homing.endpoint.frozen"
        ]

    live(story)


def test_a_subscription_that_can_read_an_event_is_not_said_to_miss_it() -> None:
    async def story(house: House) -> None:
        await Reading.begin(house, types=["a.b"])
        other = await Reading.begin(house, types=["c.d"])
        key = await house.publish()
        got = await house.client.get(f"/v1/events/{key}")
        assert [it["subscription"] for it in got.json["unmatched"]] == [other.id]

    live(story)


def test_streams_that_nobody_reads_hold_no_more_than_the_share_of_their_tenant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(use_cases, "MEMORY_WAIT_S", 0.01)

    async def story(house: House) -> None:
        greedy = await Reading.begin(house, tenant="greedy")
        other = await Reading.begin(house, tenant="other")
        for tenant in ("greedy", "other"):
            await house.publish(id="k0", tenant=tenant, data="x" * 1_000_000)
        pull = house.use_cases.pull
        held: list[use_cases.Pulled] = []
        memory = pull._memory.share
        refused, number = 0, read_id("sub", greedy.id)
        assert number is not None
        for _ in range(90):
            try:
                held.append(await pull.read(ADMIN, number, reader="r", limit=1))
            except TooMany:
                refused += 1
        assert 10 < len(held) < 20
        assert refused == 90 - len(held)
        assert memory.held_by("greedy") <= use_cases.MEMORY_MAX // 2
        assert await other.keys() == ["k0"]
        got = await greedy.get()
        assert got.status == 429
        assert "read them to the end" in got.json["detail"]
        held.clear()
        assert memory.free == memory.total
        assert await greedy.keys() == ["k0"]
        stream = await pull.stream(ADMIN, number, reader="r", limit=1)
        del stream
        assert memory.free == memory.total
        stream = await pull.stream(ADMIN, number, reader="r", limit=1)
        page = await anext(stream)
        assert memory.held_by("greedy") > 0
        waiting = asyncio.create_task(cast("Any", anext(stream)))
        del page
        await asyncio.sleep(0.1)
        assert memory.free == memory.total, "a stream that waits holds nothing"
        waiting.cancel()

    live(story)
