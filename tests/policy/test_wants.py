"""What a subscription wants beyond its types, and the sentence that says why it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from homing.model import Subscription, Workfront
from homing.policy.filters_reading import Reading
from homing.policy.filters_run import read_data
from homing.policy.wants import TenantWants, picked, wants_of, why_not, why_unmatched
from policy.build import NOW, a_subscription, an_event

DEAR = json.dumps([{"field": "data.amount", "op": "gt", "value": 100}])
READY = json.dumps([{"fieldName": "status", "fieldValue": "a"}])
OBJECT = {"newState": {"ID": "5e7"}, "oldState": None}
BEFORE = {"oldState": {"ID": "5e7"}}
OTHERS: list[Any] = [OBJECT, {}, [], "5e8", {"ID": "5e8"}, {"newState": ["5e8"]}]


def test_without_filters_every_event_is_wanted_and_nothing_is_read() -> None:
    assert wants_of(a_subscription()) is None
    found = [a_subscription(id=1), a_subscription(id=2)]
    assert picked(found, TenantWants(), b"no JSON at all", now=NOW) is found


def test_those_with_filters_are_asked_and_the_others_are_not() -> None:
    dear, all_of_it = a_subscription(id=1, filters=DEAR), a_subscription(id=2)
    test = wants_of(dear)
    assert test is not None
    found, wants = [dear, all_of_it], TenantWants()
    wants.put(1, test)
    assert picked(found, wants, b'{"amount":101}', now=NOW) == found
    assert picked(found, wants, b'{"amount":100}', now=NOW) == [all_of_it]


@pytest.mark.parametrize(
    ("own", "filters", "data", "reason"),
    [
        pytest.param(None, DEAR, {"amount": 101}, None, id="its filters match"),
        pytest.param(
            None,
            DEAR,
            {"amount": 100},
            "It does not match: filters[0]: data.amount is greater than 100: no, it is 100.",
            id="its filters do not match",
        ),
        pytest.param(Workfront(), "[]", OBJECT, None, id="of any object"),
        pytest.param(Workfront(object_id="5e7"), "[]", OBJECT, None, id="of its object"),
        pytest.param(Workfront(object_id="5e7"), "[]", BEFORE, None, id="of its object, deleted"),
        *(
            pytest.param(
                Workfront(object_id="5e8"),
                "[]",
                data,
                'It is for the object "5e8" only.',
                id=f"of another object: {data}",
            )
            for data in OTHERS
        ),
        pytest.param(Workfront(until=NOW + 1), "[]", OBJECT, None, id="it still stands in"),
        *(
            pytest.param(
                Workfront(until=until),
                "[]",
                OBJECT,
                "It stood in for the old version, for five minutes.",
                id=f"it stood in: {until - NOW}",
            )
            for until in (NOW, NOW - 1)
        ),
        pytest.param(
            Workfront(version="v1"), READY, {"newState": {"status": ["a"]}}, None, id="v1 collapses"
        ),
        pytest.param(
            Workfront(version="v2"),
            READY,
            {"newState": {"status": ["a"]}},
            'It does not match: filters[0]: newState.status equals "a": no, it is ["a"].',
            id="v2 does not",
        ),
    ],
)
def test_it_wants_an_event_or_says_why_not(
    own: Workfront | None, filters: str, data: Any, reason: str | None
) -> None:
    one = a_subscription(workfront=own, filters=filters)
    wants = wants_of(one)
    assert wants is not None
    assert wants.ask(data, NOW, None) is (reason is None)
    assert wants.ask(data, NOW, Reading(data)) is (reason is None)
    assert why_not(one, an_event(), Reading(data), now=NOW) == reason


@pytest.mark.parametrize(
    ("types", "reason"),
    [
        (("order.*",), None),
        (("a", "order.paid"), None),
        (("a", "invoice.*"), "Its types do not match order.paid."),
        (("order.paid.late",), "Its types do not match order.paid."),
    ],
)
def test_one_of_its_types_must_match(types: tuple[str, ...], reason: str | None) -> None:
    assert why_not(a_subscription(types=types), an_event(), Reading({}), now=NOW) == reason


CHANGED = "It was changed after the event was accepted; as it is now, it would match."
OLDER = a_subscription(id=2, created_at=NOW - 10, updated_at=NOW - 10)


@pytest.mark.parametrize(
    ("subscription", "reason"),
    [
        pytest.param(OLDER, None, id="nothing speaks against it"),
        pytest.param(
            replace(OLDER, id=4), "It was created after the event was accepted.", id="younger"
        ),
        pytest.param(replace(OLDER, id=3), None, id="not younger than itself"),
        pytest.param(replace(OLDER, types=("a",)), "Its types do not match order.paid.", id="type"),
        pytest.param(replace(OLDER, active=False), "It is not active.", id="not active"),
        pytest.param(replace(OLDER, updated_at=NOW), CHANGED, id="changed at that moment"),
        pytest.param(replace(OLDER, updated_at=NOW + 1), CHANGED, id="changed later"),
        pytest.param(replace(OLDER, updated_at=NOW - 1), None, id="changed before"),
        pytest.param(
            replace(OLDER, created_at=NOW, updated_at=NOW), None, id="never changed since"
        ),
    ],
)
def test_why_an_event_of_the_past_did_not_go_to_it(
    subscription: Subscription, reason: str | None
) -> None:
    event = an_event(id=3)
    reading = Reading(read_data(event.data))
    assert why_unmatched(subscription, event, reading, now=NOW) == reason
