"""Order by key through the API and the dashboard."""

from __future__ import annotations

from engine.world import always
from web.browse import Browser, text
from web.house import URL, House, live


async def publish(house: House, key: str, n: int) -> str:
    got = await house.client.post(
        "/v1/events", {"type": "a.b", "data": {"n": n}, "key": key, "id": f"{key}-{n}"}
    )
    assert got.status == 202
    return f"{key}-{n}"


def test_a_subscription_has_an_order_and_another_word_is_refused() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe(order="key")
        assert made["order"] == "key"
        got = await house.client.patch(f"/v1/subscriptions/{made['id']}", {"order": "none"})
        assert got.json["order"] == "none"
        bad = await house.client.patch(f"/v1/subscriptions/{made['id']}", {"order": "newest"})
        assert bad.status == 422
        assert "order" in bad.problem.problems[0].field

    live(story)


def test_a_subscription_that_is_read_has_no_order() -> None:
    async def story(house: House) -> None:
        got = await house.client.post("/v1/subscriptions", {"types": ["*"], "order": "key"})
        assert got.status == 422
        assert [it.field for it in got.problem.problems] == ["order"]

    live(story)


def test_a_blocked_delivery_names_the_one_that_it_waits_for() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(500)
        await house.subscribe(order="key")
        await publish(house, "x", 1)
        await publish(house, "x", 2)
        await house.settled()
        second, first = (await house.client.get("/v1/deliveries")).json["items"]
        assert (first["key"], second["key"]) == ("x", "x")
        shown = (await house.client.get(f"/v1/deliveries/{second['id']}")).json
        assert shown["waits_for"] == first["id"]
        assert f"waits for {first['id']} of the same key" in shown["explanation"]
        assert shown["schedule"] == []
        assert (await house.client.get(f"/v1/deliveries/{first['id']}")).json["waits_for"] is None
        browser = Browser(house.app)
        await browser.sign_in()
        page = text(await browser.get(f"/deliveries/{second['id']}"))
        assert first["id"] in page

    live(story)


def test_a_superseded_delivery_is_shown_with_the_event_that_is_sent_instead() -> None:
    async def story(house: House) -> None:
        await house.subscribe(order="latest")
        for n in (1, 2, 3):
            await publish(house, "x", n)
        await house.settled()
        query = "/v1/deliveries?status=superseded"
        older = (await house.client.get(query)).json["items"]
        assert older
        shown = (await house.client.get(f"/v1/deliveries/{older[0]['id']}")).json
        assert shown["superseded_by"] in {"x-2", "x-3"}
        assert f"by {shown['superseded_by']}" in shown["explanation"]
        (ledger,) = (await house.client.get("/v1/ledger")).json["items"]
        assert ledger["superseded"] == len(older)
        assert ledger["balanced"]
        browser = Browser(house.app)
        await browser.sign_in()
        assert shown["superseded_by"] in text(await browser.get(f"/deliveries/{shown['id']}"))

    live(story)
