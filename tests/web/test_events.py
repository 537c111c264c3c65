"""Events as people see them."""

from __future__ import annotations

from urllib.parse import quote

from web.house import House, live


def test_events_are_listed_newest_first_without_their_data() -> None:
    async def story(house: House) -> None:
        await house.subscribe()
        for n in range(3):
            await house.publish(id=f"k{n}", type=f"t{n}", time="2025-01-31T12:00:00Z")
        got = await house.client.get("/v1/events")
        assert [one["id"] for one in got.json["items"]] == ["k2", "k1", "k0"]
        newest = got.json["items"][0]
        assert (newest["type"], newest["deliveries"]) == ("t2", 1)
        assert newest["time"] == "2025-01-31T12:00:00Z"
        assert "data" not in newest

    live(story)


def test_a_list_goes_on_where_its_cursor_says() -> None:
    async def story(house: House) -> None:
        for n in range(5):
            await house.publish(id=f"k{n}")
        seen: list[str] = []
        cursor = ""
        while True:
            got = await house.client.get(f"/v1/events?limit=2{cursor}")
            seen += [one["id"] for one in got.json["items"]]
            await house.publish(id=f"later{len(seen)}")
            if got.json["next_cursor"] is None:
                break
            cursor = f"&cursor={got.json['next_cursor']}"
        assert seen == ["k4", "k3", "k2", "k1", "k0"]

    live(story)


def test_lists_are_narrowed_by_tenant_and_type() -> None:
    async def story(house: House) -> None:
        await house.publish(id="a", type="x")
        await house.publish(id="b", type="y")
        await house.publish(id="c", type="x", tenant="acme")
        for query, expected in (
            ("", ["c", "b", "a"]),
            ("?type=x", ["c", "a"]),
            ("?tenant=acme", ["c"]),
            ("?tenant=default&type=y", ["b"]),
            ("?tenant=nobody", []),
        ):
            got = await house.client.get(f"/v1/events{query}")
            assert [one["id"] for one in got.json["items"]] == expected, query

    live(story)


def test_an_event_is_found_in_its_own_tenant_only() -> None:
    async def story(house: House) -> None:
        await house.publish(id="k", tenant="acme")
        assert (await house.client.get("/v1/events/k")).status == 404
        assert (await house.client.get("/v1/events/k?tenant=acme")).status == 200
        assert (await house.client.get("/v1/events/no.dots")).status == 404

    live(story)


def test_an_id_may_hold_slashes_and_signs() -> None:
    async def story(house: House) -> None:
        key = "orders/17?x=#%2F"
        await house.publish(id=key)
        got = await house.client.get(f"/v1/events/{quote(key, safe='')}")
        assert (got.status, got.json["id"]) == (200, key)

    live(story)


def test_an_event_is_shown_with_its_deliveries() -> None:
    async def story(house: House) -> None:
        await house.subscribe()
        await house.subscribe("https://other.example/")
        await house.publish(id="k", data={"n": 1})
        await house.settled()
        got = await house.client.get("/v1/events/k")
        assert got.json["data"] == {"n": 1}
        assert [one["status"] for one in got.json["deliveries"]] == ["delivered", "delivered"]
        assert got.json["deliveries_more"] is False

    live(story)
