"""What the text of a search may name."""

from __future__ import annotations

import pytest

from homing.errors import Invalid
from homing.model import show_id
from homing.policy.search import QUERY_CHARS_MAX, SearchQuery, read_query

FIELDS = ("data.invoice.id", "data.a")


def read(text: str) -> SearchQuery:
    return read_query(text, fields=FIELDS)


def query(**named: object) -> SearchQuery:
    return SearchQuery(**named)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("data.invoice.id:4711", query(field=("data.invoice.id", "4711"))),
        ("data.a: x:y ", query(field=("data.a", "x:y"))),
        ("event:order:17", query(key="order:17")),
        ("type:a.b", query(type="a.b")),
        ("url:ACME", query(part="acme")),
        ("acme.example", query(part="acme.example", type="acme.example")),
        ("order:17", query(key="order:17", part="order:17")),
        ("inv-17", query(key="inv-17", part="inv-17", type="inv-17")),
        ("100%_", query(key="100%_", part="100%_")),
        (
            "HTTPS://Acme.example:443",
            query(url="https://acme.example/", part="https://acme.example/"),
        ),
        ("bücher.example", query(part="xn--bcher-kva.example")),
        ("two words", query()),
        ("\u202etfel", query()),
        ("a\x07b", query()),
        ("event:", query()),
        ("event:with.dot", query()),
        ("type:no type", query()),
    ],
)
def test_a_text_names_what_it_can(text: str, named: SearchQuery) -> None:
    assert read(text) == named


@pytest.mark.parametrize("prefix", ["dlv", "sub", "ep"])
def test_an_id_names_its_object(prefix: str) -> None:
    assert read(f"  {show_id(prefix, 77)} ").id == (prefix, 77)


def test_the_tenant_stands_before_the_text() -> None:
    found = read("tenant:acme  event:17")
    assert (found.tenant, found.key) == ("acme", "17")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must say what to search for"),
        ("  ", "must say what to search for"),
        ("tenant:acme", "must say what to search for"),
        ("tenant:no.such x", "must have the name of a tenant after tenant:"),
        ("x" * (QUERY_CHARS_MAX + 1), "must be at most 2,200 characters"),
        ("x" * 8_192, "must be at most 2,200 characters"),
        ("data.b:7", "of the payload fields only data.invoice.id, data.a can be searched"),
        ("data.a:", "must have a value of 1 to 256 characters after data.a:"),
        ("data.a:" + "x" * 257, "must have a value of 1 to 256 characters after data.a:"),
    ],
)
def test_a_text_that_cannot_be_searched_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Invalid) as refused:
        read(text)
    (problem,) = refused.value.problems
    assert problem.field == "q"
    assert reason in problem.reason


def test_without_fields_the_refusal_says_so() -> None:
    with pytest.raises(Invalid) as refused:
        read_query("data.a:1", fields=())
    assert (
        "must not name data.a: of the payload fields none can be searched"
        in refused.value.problems[0].reason
    )
