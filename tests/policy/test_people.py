"""Rules for people whom a proxy names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homing.policy.keys import Role
from homing.policy.people import PersonRule, is_name, read_groups, read_rule, rule_of


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("ada@example.com=admin", PersonRule("ada@example.com", Role.ADMIN, None)),
        (" *@acme.example=manager:acme ", PersonRule("*@acme.example", Role.MANAGER, "acme")),
        ("group:ops team=viewer:acme", PersonRule("group:ops team", Role.VIEWER, "acme")),
        ("ada", None),
        ("=admin", None),
        ("ada=", None),
        ("ada=admin:acme", None),  # an admin has all tenants
        ("ada=manager", None),  # every other role needs a tenant
        ("ada=publisher:acme", None),  # may not use the dashboard
        ("ada=boss", None),
        ("ada=manager:no tenant", None),
        ("group:*=admin", None),
        ("ada=viewer:a=viewer:b", None),
    ],
)
def test_a_rule_is_read_or_refused(text: str, rule: PersonRule | None) -> None:
    assert read_rule(text) == rule


@pytest.mark.parametrize(
    ("who", "person", "groups", "fits"),
    [
        ("ada@example.com", "Ada@Example.com", (), True),
        ("ada@example.com", "ada@example.com.evil", (), False),
        ("ada.b@example.com", "adaxb@example.com", (), False),
        ("*@acme.example", "bob@acme.example", (), True),
        ("*@acme.example", "bob@acme.example.evil", (), False),
        ("*@acme.example", "bob@evil.example\n@acme.example", (), False),
        ("*", "anybody", (), True),
        ("group:ops", "bob", ("dev", "OPS"), True),
        ("group:ops", "group:ops", (), False),
        ("ops", "bob", ("ops",), False),
        # Unicode folds these characters to ASCII; a directory may have both names.
        ("boss@example.com", "bo\u017fs@example.com", (), False),  # long s
        ("kim@example.com", "\u212aim@example.com", (), False),  # the sign of Kelvin
        ("strasse@example.com", "straße@example.com", (), False),
        ("*@kb.example", "ada@\u212ab.example", (), False),
        ("group:ops", "bob", ("op\u017f",), False),
        ("\u017fam@example.com", "sam@example.com", (), False),
        ("ärztin@example.com", "Ärztin@example.com", (), False),  # only ASCII letters are folded
        ("ärztin@example.com", "ärztIN@example.com", (), True),
    ],
)
def test_whom_a_rule_fits(who: str, person: str, groups: tuple[str, ...], fits: bool) -> None:
    assert PersonRule(who, Role.VIEWER, "acme").fits(person, groups) is fits


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_two_names_are_one_person_only_if_they_differ_in_ascii_letters(one: str, two: str) -> None:
    for person in (two, one.upper(), one.lower(), one.casefold(), one.swapcase()):
        fits = PersonRule(one.replace("*", "x"), Role.ADMIN, None).fits(person, ())
        same = one.replace("*", "x").encode("utf-8", "surrogatepass").lower()
        assert fits is (person.encode("utf-8", "surrogatepass").lower() == same)


def test_the_first_rule_that_fits_decides() -> None:
    rules = [PersonRule("ada", Role.ADMIN, None), PersonRule("*", Role.VIEWER, "acme")]
    assert rule_of(rules, "ada", ()) is rules[0]
    assert rule_of(rules, "bob", ()) is rules[1]
    assert rule_of(rules[:1], "bob", ()) is None


@given(st.text(max_size=300))
def test_a_name_is_printable_and_has_no_outer_spaces(text: str) -> None:
    if is_name(text):
        assert text.isprintable()
        assert text.strip() == text != ""


def test_groups_are_separated_by_commas() -> None:
    assert read_groups(" ops, dev ,,") == ("ops", "dev")
    assert len(read_groups("g," * 10_000)) <= 200
