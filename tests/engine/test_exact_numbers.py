"""Numbers of an event are sent as they came and compared exactly, however long or large."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.world import SECOND, World, live
from homing.model import Format, Workfront
from homing.policy.admission import EventDraft

URL = "https://receiver.example/hook"
LONG = b"7" * 5_000
SENT = b"7" * 4_000  # The receiver's library reads no longer numbers.
STATE = (
    b'{ "ID":"5e7","huge":1e400, "price" : 1.10,"long":%b,"tiny":-1e-400,'
    b'"exact":9007199254740993.0,"name":"caf\\u00e9 [\\"x\\"]","twice":1,"twice":2,'
    b'"sizes":[ "S" ],"deep":{"one":["a\\"]"],"two":["a","b"],"list":[["a"],{"x":["y"]}]} }' % LONG
)
COLLAPSED = STATE.replace(b'[ "S" ]', b'"S"').replace(b'["a\\"]"]', b'"a\\"]"')


def draft(data: bytes) -> EventDraft:
    return EventDraft(tenant="default", type="PROJ.UPDATE", data=data)


def test_v1_of_workfront_changes_lists_of_one_text_and_no_other_byte() -> None:
    async def story(world: World) -> None:
        for version in ("v1", "v2"):
            await world.subscribe(
                f"{URL}/{version}", format=Format.WORKFRONT, workfront=Workfront(version=version)
            )
        sent = STATE.replace(LONG, SENT)
        await world.engine.publish([draft(b'{"newState":%b,"oldState":null}' % sent)])
        await world.wait(SECOND)
        bodies = {hit.url[-2:]: hit.body for hit in world.sender.hits}
        for version, state in (("v1", COLLAPSED), ("v2", STATE)):
            expected = b',"newState":%b,"oldState":{}}' % state.replace(LONG, SENT)
            assert expected in bodies[version]

    live(story)


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize(
    ("field", "op", "value", "expected"),
    [
        ("ID", "eq", "5e7", True),
        ("huge", "gt", 10**308, True),
        ("huge", "eq", "1e400", True),
        ("huge", "lt", "1e401", True),
        ("price", "eq", "1.1", True),
        ("price", "eq", 1.1, True),
        ("price", "lt", 1.1, False),
        ("long", "gt", 10**4_000, True),
        ("long", "exists", None, True),
        ("tiny", "lt", 0, True),
        ("tiny", "eq", 0, False),
        ("exact", "eq", 9007199254740993, True),
        ("exact", "eq", 9007199254740992, False),
        ("exact", "gt", 9007199254740992, True),
        ("deep.one", "contains", 'a"]', True),
        ("twice", "eq", 2, True),
    ],
)
def test_filters_compare_numbers_exactly(
    version: str, field: str, op: str, value: Any, expected: bool
) -> None:
    filters = json.dumps([{"fieldName": field, "comparison": op, "fieldValue": value}])

    async def story(world: World) -> None:
        own = Workfront(version=version)
        await world.subscribe(URL, filters=filters, workfront=own)
        (receipt,) = await world.engine.publish([draft(b'{"newState":%b}' % STATE)])
        assert receipt.deliveries == expected

    live(story)


def test_data_of_any_depth_that_was_accepted_is_read() -> None:
    deep = b"[" * 900 + b"]" * 900

    async def story(world: World) -> None:
        filters = '[{"field":"data.b","value":"x"},{"field":"data.a","op":"exists"}]'
        await world.subscribe(URL, filters=filters)
        (receipt,) = await world.engine.publish([draft(b'{"a":%b,"b":"x"}' % deep)])
        assert receipt.deliveries == 1

    live(story)
