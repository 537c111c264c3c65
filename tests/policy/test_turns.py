"""Turns are fair: tenants take turns, then endpoints within a tenant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from homing.policy.turns import Turns


def turns(**items: list[str]) -> Turns[str]:
    made: Turns[str] = Turns()
    for tenant, names in items.items():
        for name in names:
            made.add(tenant, name)
    return made


def take(some: Turns[str], count: int) -> list[str | None]:
    return [some.next() for _ in range(count)]


def test_nobody_waiting_means_no_turn() -> None:
    assert Turns[str]().next() is None


def test_tenants_take_turns_and_within_a_tenant_its_endpoints() -> None:
    some = turns(a=["a1", "a2", "a3"], b=["b1"])
    assert take(some, 8) == ["a1", "b1", "a2", "b1", "a3", "b1", "a1", "b1"]


def test_an_item_stays_in_until_it_is_discarded() -> None:
    some = turns(a=["a1"])
    assert take(some, 2) == ["a1", "a1"]
    some.discard("a", "a1")
    assert some.next() is None
    assert len(some) == 0
    assert "a1" not in some


def test_joining_twice_keeps_the_place() -> None:
    some = turns(a=["a1", "a2"])
    some.add("a", "a1")
    assert len(some) == 2
    assert take(some, 2) == ["a1", "a2"]


def test_leaving_and_joining_again_gains_no_place() -> None:
    some = turns(a=["a1", "a2"], b=["b1"])
    some.discard("a", "a1")
    some.add("a", "a1")
    assert take(some, 3) == ["a2", "b1", "a1"]


def test_a_tenant_that_comes_back_joins_at_the_end() -> None:
    some = turns(a=["a1"], b=["b1"])
    some.discard("a", "a1")
    some.add("a", "a1")
    assert take(some, 2) == ["b1", "a1"]


def test_discarding_what_is_not_there_changes_nothing() -> None:
    some = turns(a=["a1"])
    some.discard("a", "a2")
    some.discard("b", "b1")
    assert len(some) == 1
    assert "a1" in some


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["add", "discard"]), st.integers(0, 4), st.integers(0, 5)),
            st.just(("next", 0, 0)),
        ),
        max_size=120,
    )
)
def test_between_two_turns_of_a_tenant_every_other_waiting_tenant_has_one(
    moves: list[tuple[str, int, int]],
) -> None:
    some: Turns[tuple[int, int]] = Turns()
    inside: set[tuple[int, int]] = set()
    # Per tenant: the tenants that have waited all the time since its last turn, without a turn.
    passed_over: dict[int, set[int]] = {}
    for verb, tenant, number in moves:
        item = (tenant, number)
        if verb == "add":
            some.add(str(tenant), item)
            inside.add(item)
        elif verb == "discard":
            some.discard(str(tenant), item)
            inside.discard(item)
        else:
            got = some.next()
            assert (got is None) == (not inside)
            if got is not None:
                assert got in inside
                assert not passed_over.get(got[0], set())
                for others in passed_over.values():
                    others.discard(got[0])
                passed_over[got[0]] = {one for one, _ in inside} - {got[0]}
        waiting = {one for one, _ in inside}
        passed_over = {one: others & waiting for one, others in passed_over.items()}
        assert len(some) == len(inside)
        assert all(one in some for one in inside)


@given(st.integers(1, 20), st.integers(1, 20))
def test_a_tenant_with_many_endpoints_gets_no_more_turns_than_one_with_few(
    many: int, rounds: int
) -> None:
    some = turns(big=[f"big{n}" for n in range(many)], small=["small"])
    taken = take(some, 2 * rounds)
    assert taken.count("small") == rounds
