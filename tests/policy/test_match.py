"""An event goes to the active subscriptions of its tenant whose types it matches.

Promised: what-homing-promises.md#matching.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.model import Subscription
from homing.policy.match import Index, type_matches
from policy.build import NOW, a_subscription


@pytest.mark.parametrize(
    ("pattern", "event_type", "matches"),
    [
        pytest.param("order.paid", "order.paid", True, id="exact"),
        pytest.param("order.paid", "order.paid.late", False, id="exact is not a prefix"),
        pytest.param("order.paid", "Order.paid", False, id="case matters"),
        pytest.param("*", "anything", True, id="a star alone is all"),
        pytest.param("a.*", "a.b", True, id="a.* takes a.b"),
        pytest.param("a.*", "a.b.c", True, id="a.* takes a.b.c"),
        pytest.param("a.*", "a", False, id="a.* does not take a"),
        pytest.param("a.*", "ab", False, id="a.* does not take ab"),
        pytest.param("a.*", "ab.c", False, id="a.* does not take ab.c"),
        pytest.param("a.*", "a.", False, id="a.* wants something after the dot"),
        pytest.param("a.*", "a..", True, id="a further dot is something"),
        pytest.param("a.b.*", "a.c", False, id="a.b.* does not take a.c"),
        pytest.param("a*", "ab", False, id="a star without its dot is no wildcard"),
    ],
)
def test_a_pattern_matches(pattern: str, event_type: str, matches: bool) -> None:
    assert type_matches(pattern, event_type) is matches
    index = index_of(a_subscription(types=(pattern,)))
    assert bool(index.match("acme", event_type)) is matches


def index_of(*subscriptions: Subscription) -> Index:
    index = Index()
    for one in subscriptions:
        index.add(one)
    return index


def ids(found: list[Subscription]) -> list[int]:
    return [one.id for one in found]


def test_matches_come_in_order_of_id_whatever_pattern_found_them() -> None:
    index = index_of(
        a_subscription(id=5, types=("a.b",)),
        a_subscription(id=4, types=("*",)),
        a_subscription(id=3, types=("a.*",)),
        a_subscription(id=6, types=("a.*",)),
    )
    assert ids(index.match("acme", "a.b")) == [3, 4, 5, 6]


def test_a_subscription_that_matches_by_several_patterns_appears_once() -> None:
    index = index_of(a_subscription(id=1, types=("a.b.c", "a.*", "a.b.*", "*", "*")))
    assert ids(index.match("acme", "a.b.c")) == [1]


def test_another_tenant_gets_nothing() -> None:
    assert index_of(a_subscription(tenant="acme")).match("other", "a") == []


@pytest.mark.parametrize(
    "silent",
    [
        pytest.param(a_subscription(active=False), id="inactive"),
        pytest.param(a_subscription(deleted_at=NOW), id="deleted"),
    ],
)
def test_what_is_not_active_gets_nothing(silent: Subscription) -> None:
    index = index_of(a_subscription())
    index.replace(silent)
    assert index.match("acme", "a") == []


def test_an_event_about_an_endpoint_does_not_go_to_that_endpoint() -> None:
    index = index_of(a_subscription(id=1, endpoint_id=8), a_subscription(id=2, endpoint_id=9))
    assert ids(index.match("acme", "homing.endpoint.disabled", not_to_endpoint=8)) == [2]


def test_a_replaced_subscription_matches_as_it_is_now() -> None:
    index = index_of(a_subscription(types=("a", "b.*", "*")))
    index.replace(a_subscription(types=("c",), tenant="other"))
    assert index.match("acme", "a") == []
    assert ids(index.match("other", "c")) == [2]


def test_removing_twice_or_the_unknown_changes_nothing() -> None:
    index = index_of(a_subscription(id=1))
    index.remove(9)
    index.remove(1)
    index.remove(1)
    assert index.match("acme", "a") == []


def test_of_what_was_removed_nothing_is_left_and_the_rest_stays() -> None:
    index = index_of(a_subscription(id=1, types=("a", "b.*", "*")), a_subscription(id=2))
    other = a_subscription(id=3, types=("a", "b.*"))
    index.add(other)
    index.remove(1)
    index.remove(2)
    assert ids(index.match("acme", "a")) == ids(index.match("acme", "b.c")) == [3]
    own = index._by_tenant["acme"]
    assert (own.exact, own.prefix, own.all) == ({"a": [other]}, {"b": [other]}, [])
    index.remove(3)
    assert index._by_tenant == {}  # Tenants come and go; what is empty is not kept.


@pytest.mark.parametrize("pattern", ["a", "a.*", "*"])
def test_a_tenant_stays_as_long_as_one_subscription_does(pattern: str) -> None:
    index = index_of(*(a_subscription(id=number, types=(pattern,)) for number in (1, 2)))
    index.remove(1)
    assert ids(index.match("acme", "a" if pattern == "a" else "a.b")) == [2]


def test_the_response_is_the_callers_to_keep() -> None:
    index = index_of(a_subscription(id=1))
    index.match("acme", "a").clear()
    assert ids(index.match("acme", "a")) == [1]


WORDS = st.sampled_from(["a", "b", "ab", "a-b", ""])
TYPES = st.lists(WORDS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.one_of(TYPES, TYPES.map(lambda text: text + ".*"), st.just("*"))
SUBSCRIPTIONS = st.builds(
    lambda number, tenant, types, active, endpoint: a_subscription(
        id=number, tenant=tenant, types=tuple(types), active=active, endpoint_id=endpoint
    ),
    st.integers(1, 8),
    st.sampled_from(["acme", "other"]),
    st.lists(PATTERNS, min_size=1, max_size=4),
    st.booleans(),
    st.integers(1, 3),
)


@given(
    st.lists(st.one_of(SUBSCRIPTIONS, st.integers(1, 8)), max_size=25),
    TYPES,
    st.sampled_from([None, 1, 2]),
)
def test_the_index_finds_what_looking_at_every_subscription_finds(
    changes: list[Subscription | int], event_type: str, not_to: int | None
) -> None:
    index = Index()
    known: dict[int, Subscription] = {}
    for change in changes:
        if isinstance(change, int):
            index.remove(change)
            known.pop(change, None)
        else:
            index.replace(change)
            known[change.id] = change
    expected = [
        known[number]
        for number in sorted(known)
        if known[number].tenant == "acme"
        and known[number].active
        and known[number].endpoint_id != not_to
        and any(type_matches(pattern, event_type) for pattern in known[number].types)
    ]
    assert index.match("acme", event_type, not_to_endpoint=not_to) == expected


def test_a_type_is_named_by_a_tenant_or_by_any_of_those_searched() -> None:
    index = Index()
    for number, tenant in enumerate(("a", "b"), start=1):
        index.add(a_subscription(id=number, tenant=tenant, types=(f"{tenant}.made",)))
    assert index.names("a.made", tenant="a", tenants_max=1) is True
    assert index.names("a.made", tenant="b", tenants_max=1) is False
    assert index.names("a.made", tenant=None, tenants_max=1) is True
    assert index.names("b.made", tenant=None, tenants_max=1) is None  # b was not searched
    assert index.names("b.made", tenant=None, tenants_max=2) is True
    assert index.names("c.made", tenant=None, tenants_max=2) is False
