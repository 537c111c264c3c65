"""Notices and counters of the engine after a settle."""

from __future__ import annotations

from engine.world import SECOND, World, always, live
from homing.engine.options import EngineOptions
from homing.policy.health import HealthRules

URL = "https://receiver.example/hook"
OTHER = "https://other.example/hook"


def test_half_of_a_limit_is_told_once_and_not_to_the_endpoint_that_it_is_about() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL, "a.b", "homing.*")
        await world.subscribe(OTHER, "homing.*")
        for _ in range(3):
            await world.publish()
            await world.wait(SECOND)
        told = [(hit.url, hit.headers["homing-event-type"]) for hit in world.sender.hits]
        assert [it for it in told if it[0] == OTHER] == [(OTHER, "homing.endpoint.warning")]
        assert {it for it in told if it[0] == URL} == {(URL, "a.b")}

    live(story, EngineOptions(health=HealthRules(consecutive_disable=4)))


def test_what_was_settled_is_counted() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(500)
        await world.subscribe(URL, "bad")
        await world.subscribe(OTHER, "good")
        for event_type in ("bad", "good", "good"):
            await world.publish(event_type)
        await world.written()
        pulse = world.engine.pulse()
        assert pulse.finished["delivered"] == 2
        assert pulse.attempts == {
            ("fresh", "failed", "http_status"): 1,
            ("fresh", "delivered", ""): 2,
        }
        assert pulse.commits["settle"] >= 1

    live(story)
