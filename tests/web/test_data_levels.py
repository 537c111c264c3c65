"""The data of an event has at most 100 levels, by whatever way it comes, and is carried whole."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from homing.engine.relay import Relay
from homing.policy.nesting import LEVELS_MAX
from homing.ports import OutboxRow, RelayedRows
from homing.web.relay import publish_here
from homing.web.workfront.api import BASE
from web.asgi import Got
from web.browse import Browser, text
from web.house import House, live
from web.test_workfront import URL, create

RULE = f"must be nested at most {LEVELS_MAX} levels deep"
LINES = (("content-type", "application/x-ndjson"),)
CLOUD = (("content-type", "application/cloudevents+json"),)
CLOUDS = (("content-type", "application/cloudevents-batch+json"),)
BINARY = (
    ("content-type", "application/json"),
    ("ce-specversion", "1.0"),
    ("ce-id", "c1"),
    ("ce-source", "s"),
    ("ce-type", "PROJ.UPDATE"),
)
DEPTHS = pytest.mark.parametrize("depth", [LEVELS_MAX + 1, 974, 5_000])


def nested(depth: int) -> bytes:
    """Both states of a project with a value so deep that the data has this many levels."""
    inner = b'{"a":' * (depth - 2) + b"1" + b"}" * (depth - 2)
    state = b'{"ID":"5e7","objCode":"PROJ","deep":%b}' % inner
    return b'{"newState":%b,"oldState":%b}' % (state, state)


def event(depth: int, key: str = "k1") -> bytes:
    return b'{"type":"PROJ.UPDATE","id":"%b","data":%b}' % (key.encode(), nested(depth))


def cloud_event(depth: int) -> bytes:
    head = b'{"specversion":"1.0","id":"c1","source":"s","type":"PROJ.UPDATE","data":'
    return head + nested(depth) + b"}"


async def post(house: House, body: bytes, headers: Any = ()) -> Got:
    return await house.client.post("/v1/events", body=body, headers=headers)


WAYS: dict[str, Any] = {
    "one": lambda depth: (event(depth), ()),
    "array": lambda depth: (b"[%b,%b]" % (event(1, "k0"), event(depth)), ()),
    "lines": lambda depth: (b"%b\n%b\n" % (event(1, "k0"), event(depth)), LINES),
    "CloudEvent": lambda depth: (cloud_event(depth), CLOUD),
    "CloudEvents": lambda depth: (b"[%b]" % cloud_event(depth), CLOUDS),
    "binary CloudEvent": lambda depth: (nested(depth), BINARY),
}


@DEPTHS
@pytest.mark.parametrize("way", WAYS)
def test_data_that_is_too_deep_is_refused_with_its_field_and_the_limit(
    way: str, depth: int
) -> None:
    async def story(house: House) -> None:
        got = await post(house, *WAYS[way](depth))
        assert got.status == 422, got.body
        (problem,) = got.problem.problems
        index = 1 if way in {"array", "lines"} else 0
        unread = depth > LEVELS_MAX + 1 and way in {"array", "CloudEvents"}
        assert problem.field == ("events" if unread else f"events[{index}].data")
        assert RULE in problem.reason
        for key in ("k0", "k1", "c1"):
            assert (await house.client.get(f"/v1/events/{key}")).status == 404

    live(story)


@pytest.mark.parametrize("way", WAYS)
def test_data_of_all_levels_is_accepted(way: str) -> None:
    async def story(house: House) -> None:
        assert (await post(house, *WAYS[way](LEVELS_MAX))).status == 202

    live(story)


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("base64", [False, True])
def test_the_workfront_format_carries_all_levels(version: str, base64: bool) -> None:
    async def story(house: House) -> None:
        made = await create(house, base64Encoding=base64)
        if version == "v1":
            await house.client.call("PUT", f"{BASE}/{made}/version", json={"version": version})
            await house.world.wait(10 * 60_000)
        assert (await post(house, event(LEVELS_MAX))).status == 202
        await house.settled()
        (hit,) = house.world.sender.hits
        sent: dict[str, Any] = json.loads(hit.body)
        for side, state in json.loads(nested(LEVELS_MAX)).items():
            wanted = b64encode(msg(state)).decode() if base64 else state
            assert sent[side] == wanted

    live(story)


def msg(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize("format_", ["standard", "raw", "cloudevents", "cloudevents-binary"])
def test_every_format_a_filter_a_schema_and_an_export_carry_all_levels(format_: str) -> None:
    async def story(house: House) -> None:
        path = "deep" + ".a" * 14  # as many names as a filter may have
        filters = [{"fieldName": path, "comparison": "exists"}] if format_ == "raw" else []
        await house.subscribe(URL, format=format_, **({"filters": filters} if filters else {}))
        schema = {"$ref": "#/$defs/any", "$defs": {"any": {"additionalProperties": True}}}
        made = {"name": "PROJ.UPDATE", "schema": schema, "check": "refuse"}
        assert (await house.client.post("/v1/event-types", made)).status == 201
        got = await post(house, event(LEVELS_MAX))
        assert got.status == 202, got.body
        await house.settled()
        (hit,) = house.world.sender.hits
        assert nested(LEVELS_MAX) in hit.body
        assert nested(LEVELS_MAX) in (await house.client.get("/v1/events/k1")).body

    live(story)


class Outbox:
    """An outbox with these rows, which keeps the results."""

    def __init__(self, *rows: OutboxRow) -> None:
        self._rows, self.results = rows, RelayedRows((), ())

    async def relay(self, take: Any, *, limit: int, bytes_max: int) -> int:
        assert (limit, bytes_max) > (0, 0)
        self.results = await take(self._rows)
        return len(self._rows)


@DEPTHS
def test_a_row_of_an_outbox_that_is_too_deep_is_refused_alone(depth: int) -> None:
    async def story(house: House) -> None:
        rows = [
            OutboxRow(number, f"id{number}", "default", "a", nested(deep), None, None)
            for number, deep in ((1, LEVELS_MAX), (2, depth), (3, 3))
        ]
        outbox: Any = Outbox(*rows)
        publish = publish_here(house.use_cases.publishing)
        relay = Relay(outbox, publish, clock=house.world.clock, random=lambda: 0.5)
        await relay.step()
        assert outbox.results.published == (1, 3)
        ((number, reason),) = outbox.results.refused
        assert number == 2
        assert RULE in reason

    live(story)


@DEPTHS
def test_a_sample_tried_data_and_a_test_event_have_the_same_limit(depth: int) -> None:
    async def story(house: House) -> None:
        kinds = (("/v1/event-types", b'{"name":"a","sample":%b}', 201, "sample"),)
        tries = (("/v1/filters/try", b'{"filters":[],"data":%b}', 200, "data"),)
        for at, body, status, field in kinds + tries:
            got = await house.client.post(at, body=body % nested(depth))
            assert got.status == 422, got.body
            (problem,) = got.problem.problems
            assert problem.field == (field if depth == LEVELS_MAX + 1 else "body")
            assert RULE in problem.reason
            assert (await house.client.post(at, body=body % nested(LEVELS_MAX))).status == status
        browser = Browser(house.app)
        await browser.sign_in()
        sent = {"type": "a", "tenant": "default", "data": nested(depth).decode()}
        got = await browser.form("/events", "/events", **sent)
        assert got.status == 422
        assert RULE in text(got)
        got = await browser.form(
            "/events", "/events", **{**sent, "data": nested(LEVELS_MAX).decode()}
        )
        assert got.status == 303

    live(story)
