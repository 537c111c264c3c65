"""Spans of publishes, commits and attempts, and the traceparent that receivers get."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.world import HOUR, SECOND, World, always, live
from homing.engine.options import EngineOptions
from homing.policy.trace import TRACEPARENT_CHARS, attempt_span, publish_span, read_traceparent
from homing.ports.tracing import Span
from web.house import House

URL = "https://receiver.example/hook"
GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = GIVEN[:-2] + "00"
ALL = EngineOptions(trace_share=1.0)


class Kept:
    """Keeps all spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, spans: Sequence[Span]) -> None:
        self.spans += spans


async def traced(world: World) -> Kept:
    """The world's engine, started again with an exporter."""
    world.exporter = kept = Kept()
    await world.crash()
    return kept


def test_a_publish_its_commit_and_its_attempts_are_one_trace() -> None:
    async def story(world: World) -> None:
        kept = await traced(world)
        world.sender.scripts[URL] = always(503, latency_ms=20)
        await world.subscribe(URL)
        await world.publish(key="one", trace=GIVEN)
        await world.wait(SECOND)
        world.sender.scripts[URL] = always(200)
        await world.wait(HOUR)
        publish, commit, first, second = kept.spans
        assert {it.trace_id for it in kept.spans} == {GIVEN[3:35]}
        assert (publish.name, publish.parent_id) == ("publish a.b", GIVEN[36:52])
        assert (commit.name, commit.parent_id) == ("commit", publish.span_id)
        assert publish.began_at <= commit.began_at <= commit.ended_at == publish.ended_at
        assert first.parent_id == second.parent_id == publish.span_id
        assert (first.link_id, second.link_id) == ("", first.span_id)
        assert (first.error, second.error) == ("503", "")
        assert first.ended_at - first.began_at == 20
        assert second.began_at - first.ended_at == 84_800
        assert dict(first.attributes)["http.response.status_code"] == 503
        assert dict(second.attributes)["homing.attempt"] == 2
        assert dict(publish.attributes)["messaging.message.id"] == "one"
        sent = [hit.headers["traceparent"] for hit in world.sender.hits]
        assert [it[36:52] for it in sent] == [first.span_id, second.span_id]
        assert all(read_traceparent(it) == it for it in sent)

    live(story, ALL)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_publishers_decision_not_to_sample_is_kept(share: float) -> None:
    async def story(world: World) -> None:
        kept = await traced(world)
        await world.subscribe(URL)
        await world.publish(trace=UNSAMPLED)
        await world.wait(SECOND)
        assert kept.spans == []
        assert [hit.headers["traceparent"] for hit in world.sender.hits] == [UNSAMPLED]

    live(story, EngineOptions(trace_share=share))


def test_an_event_without_a_trace_gets_its_own_if_it_is_sampled() -> None:
    async def story(world: World) -> None:
        kept = await traced(world)
        await world.subscribe(URL)
        await world.publish()
        await world.wait(SECOND)
        publish, _, attempt = kept.spans
        (hit,) = world.sender.hits
        sent = hit.headers["traceparent"]
        assert (sent[3:35], sent[36:52]) == (publish.trace_id, attempt.span_id)
        assert publish.parent_id == ""
        row = await world.only_delivery()
        assert attempt.span_id == attempt_span(row.delivery.id, 1)
        assert publish.span_id == publish_span(row.delivery.event_id)

    live(story, ALL)


def test_where_nothing_is_traced_a_traceparent_is_passed_on_as_it_came() -> None:
    async def story(world: World) -> None:
        world.sender.scripts[URL] = always(503)
        await world.subscribe(URL)
        await world.publish(trace=GIVEN)
        await world.publish()
        await world.settled()
        await world.crash()  # It is stored with the event.
        world.sender.scripts[URL] = always(200)
        await world.wait(HOUR)
        sent = [hit.headers.get("traceparent") for hit in world.sender.hits]
        assert sent == [GIVEN, None, GIVEN, None]

    live(story, ALL)


@pytest.mark.parametrize(
    ("header", "kept"),
    [(GIVEN, GIVEN), ("x", None), (GIVEN.upper(), None), ("y" * TRACEPARENT_CHARS, None)],
)
def test_the_header_of_a_publish_is_the_trace_of_all_its_events(
    header: str, kept: str | None
) -> None:
    async def story(world: World) -> None:
        house = House(world)
        await house.subscribe()
        batch = [{"type": "a.b", "data": 1}, {"type": "a.c", "data": 2}]
        got = await house.client.post("/v1/events", batch, headers=[("traceparent", header)])
        assert got.status == 202
        await world.wait(SECOND)
        assert [hit.headers.get("traceparent") for hit in world.sender.hits] == [kept, kept]

    live(story)
