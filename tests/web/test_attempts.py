"""The stream of attempts over HTTP."""

from __future__ import annotations

from engine.world import always
from web.house import URL, House, live

OTHER = "https://other.example/hook"


def test_attempts_are_streamed_in_order_and_each_once() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        await house.publish(type="a.b", id="first")
        await house.settled()
        got = (await house.client.get("/v1/attempts")).json
        (line,) = got["items"]
        assert (line["event"], line["type"], line["url"]) == ("first", "a.b", URL)
        assert (line["number"], line["lane"], line["outcome"]) == (1, "fresh", "delivered")
        assert (line["code"], line["endpoint"]) == (200, made["endpoint"])
        assert got["missed"] == 0
        cursor = got["next_cursor"]
        assert (await house.client.get(f"/v1/attempts?cursor={cursor}")).json["items"] == []
        await house.publish(id="second")
        await house.settled()
        again = (await house.client.get(f"/v1/attempts?cursor={cursor}")).json
        assert [one["event"] for one in again["items"]] == ["second"]

    live(story)


def test_a_failed_attempt_says_what_was_decided() -> None:
    async def story(house: House) -> None:
        house.world.sender.scripts[URL] = always(503)
        await house.subscribe()
        await house.publish()
        await house.settled()
        (line,) = (await house.client.get("/v1/attempts")).json["items"]
        assert (line["outcome"], line["code"], line["decided"]) == ("failed", 503, "retry")
        assert line["retry"] == 1
        assert line["due_at"] is not None

    live(story)


def test_conditions_pass_attempts_over_and_the_cursor_still_moves() -> None:
    async def story(house: House) -> None:
        made = await house.subscribe()
        await house.subscribe(OTHER, tenant="acme")
        await house.publish(id="ours")
        await house.publish(id="theirs", tenant="acme")
        await house.settled()

        async def events(query: str) -> list[str]:
            got = (await house.client.get(f"/v1/attempts?{query}")).json
            assert got["next_cursor"] == everything["next_cursor"]
            return [one["event"] for one in got["items"]]

        everything = (await house.client.get("/v1/attempts")).json
        assert await events("tenant=acme") == ["theirs"]
        assert await events(f"endpoint={made['endpoint']}") == ["ours"]
        assert await events(f"subscription={made['id']}") == ["ours"]
        assert (await house.client.get("/v1/attempts?cursor=x")).status == 422

    live(story)
