"""Schemas of event types: which are refused, what a check says, and what it costs at most."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homing.policy.event_schema import (
    COST_MAX,
    LONGEST_NS,
    SOMEWHERE,
    TOO_LARGE,
    BadSchema,
    Schema,
    compile_schema,
    with_references,
)

INVOICE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["id", "customer"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "customer": {"$ref": "#/$defs/customer"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}, "maxItems": 100},
        "paid_at": {"type": "string", "format": "date-time"},
        "currency": {"enum": ["EUR", "USD"]},
        "number": {"type": "string", "pattern": "^INV-[0-9]{4,10}$"},
    },
    "$defs": {
        "customer": {"type": "object", "required": ["email"], "properties": {"email": {}}},
        "line": {"type": "object", "properties": {"amount": {"type": "number"}}},
    },
}
TREE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "children": {"type": "array", "items": {"$ref": "#"}},
        "left": {"$ref": "#"},
        "right": {"$ref": "#"},
    },
    "additionalProperties": {"$ref": "#"},
}


def compiled(schema: Any) -> Schema:
    return compile_schema(json.dumps(schema))


def problem(schema: Any, data: Any) -> str:
    return compiled(schema).problem(json.dumps(data).encode())


def refusal(schema: Any) -> str:
    with pytest.raises(BadSchema) as caught:
        compiled(schema)
    return str(caught.value)


def test_data_that_matches_has_no_problem() -> None:
    data = {"id": 1, "customer": {"email": "a@b.example"}, "lines": [{"amount": 1.5}]}
    assert problem(INVOICE, data) == ""
    assert compiled(INVOICE).matches(json.dumps(data).encode())


@pytest.mark.parametrize(
    ("data", "where", "why"),
    [
        ({"id": "1", "customer": {"email": ""}}, "/id", "integer"),
        ({"id": 1}, "", "customer"),
        ({"id": 1, "customer": {}}, "/customer", "email"),
        ({"id": 1, "customer": {"email": ""}, "x": 1}, "", "x"),
        (
            {"id": 1, "customer": {"email": ""}, "lines": [{}, {"amount": "a"}]},
            "/lines/1/amount",
            "number",
        ),
        ({"id": 1, "customer": {"email": ""}, "paid_at": "yesterday"}, "/paid_at", "date-time"),
        ({"id": 1, "customer": {"email": ""}, "currency": "GBP"}, "/currency", "EUR"),
        ({"id": 1, "customer": {"email": ""}, "number": "INV-x"}, "/number", "INV-"),
        (7, "", "object"),
    ],
)
def test_a_problem_names_the_place_and_the_reason(data: Any, where: str, why: str) -> None:
    found = problem(INVOICE, data)
    assert found.startswith("does not match its schema: ")
    assert f"at {where}, " in found if where else " at /" not in found
    assert why in found


def test_a_problem_repeats_no_value_of_the_data_and_has_a_limit() -> None:
    found = problem({"type": "object", "properties": {"s": {"const": 1}}}, {"s": "secret-7"})
    assert "secret-7" not in found
    found = problem({"propertyNames": {"maxLength": 3}}, {"x" * 10_000: 1})
    assert len(found) <= 500


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"1" + b"0" * 5_000, "100 digits"),
        (b'["' + b"0" * 5_000 + b'"]', "/0"),
        (b"[" * 99 + b"]" * 99, ""),
        (b"[" * 300 + b"]" * 300, "100 levels"),
        (b"[" * 3_000 + b"]" * 3_000, "100 levels"),
    ],
)
def test_absurd_data_is_a_problem_and_no_crash(data: bytes, why: str) -> None:
    found = compiled({"items": {"$ref": "#"}, "type": ["array", "integer"]})
    assert why in found.problem(data) if why else found.problem(data) == ""
    assert found.matches(data) is (why == "")


@pytest.mark.parametrize("draft", ["2020-12", "2019-09"])
def test_newer_drafts_are_supported(draft: str) -> None:
    schema = {"$schema": f"https://json-schema.org/draft/{draft}/schema", "type": "integer"}
    assert problem(schema, 1) == ""


def test_draft_7_is_supported_with_its_own_keywords() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://acme.example/invoice.json",
        "definitions": {"id": {"type": "integer"}},
        "items": [{"$ref": "#/definitions/id"}],
        "additionalItems": {"type": "string"},
    }
    assert problem(schema, [1, "a"]) == ""
    assert "/1" in problem(schema, [1, 2])


def test_a_recursive_schema_is_accepted_where_each_value_is_checked_once() -> None:
    assert problem(TREE, {"children": [{"children": [{"name": "x"}]}]}) == ""
    assert "/children/0/name" in problem(TREE, {"children": [{"name": 1}]})


def branches(width: int, depth: int) -> dict[str, Any]:
    """Each definition refers twice to the next one, for the same value."""
    defs: dict[str, Any] = {
        f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}] * width} for at in range(depth)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{depth}": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ([], "must be a JSON object"),
        ({"type": "no-such-type"}, "not a valid JSON Schema"),
        ({"minimum": "1"}, "not a valid JSON Schema"),
        ({"properties": {"a": 1}}, "not a valid JSON Schema"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "$schema"),
        ({"$schema": "https://acme.example/own-meta-schema"}, "$schema"),
        ({"$ref": "https://acme.example/other.json"}, "only to itself"),
        ({"$ref": "file:///etc/passwd"}, "only to itself"),
        ({"$ref": "other.json#/x"}, "only to itself"),
        ({"$ref": "#anchor"}, "only to itself"),
        ({"$ref": "#/$defs/none"}, "not there"),
        ({"$ref": "#/default", "default": {"type": "string"}}, "not a schema"),
        ({"properties": {"a": {"$id": "https://x.example/"}}}, "$id"),
        ({"$dynamicRef": "#x"}, "$dynamicRef"),
        ({"$ref": "#"}, "refer to itself"),
        ({"allOf": [{"anyOf": [{"$ref": "#"}]}]}, "refer to itself"),
        ({"not": {"$ref": "#"}}, "refer to itself"),
        ({"if": True, "then": {"$ref": "#"}}, "refer to itself"),
        ({"dependentSchemas": {"a": {"$ref": "#"}}}, "refer to itself"),
        (branches(4, 6), "too long to check"),
        (branches(1, 40), "from schema to schema"),
        ({"items": {"$ref": "#"}, "contains": {"$ref": "#"}}, "too long to check"),
        ({"anyOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}, "too long to check"),
        ({"oneOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}, "too long to check"),
        ({"patternProperties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}, "too long to check"),
        (
            {"properties": {"a": {"$ref": "#"}}, "patternProperties": {"a": {"$ref": "#"}}},
            "too long",
        ),
        ({"enum": list(range(COST_MAX))}, "too long to check"),
        ({"allOf": [{"type": "string", "minLength": 1}] * 1_400}, "too long to check"),
        ({"allOf": [{"pattern": f"(a|b)*{n}(a|b){{9}}"} for n in range(9)]}, "too long to check"),
        ({"multipleOf": 1e-300}, "multipleOf"),
        ({"properties": {f"p{n}": {} for n in range(3_000)}}, "schemas within it"),
        ({"pattern": "(a+)+\\1"}, "linear time"),
        ({"pattern": "(?=a)b"}, "linear time"),
        ({"pattern": "(?<!a)b"}, "linear time"),
        ({"pattern": "("}, "pattern"),
        ({"pattern": "(((a{100}){100}){100}){100}"}, "linear time"),
        ({"patternProperties": {"(?!x)": {}}}, "linear time"),
        ({"pattern": "a" * 300}, "200 characters"),
        ({"unevaluatedProperties": False}, "additionalProperties"),
    ],
    ids=lambda it: json.dumps(it)[:60] if not isinstance(it, str) else it,
)
def test_a_schema_is_refused_that_is_wrong_or_could_take_long(schema: Any, why: str) -> None:
    assert why in refusal(schema)


def test_a_schema_that_is_nested_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"not": deep}
    assert "nested" in refusal(deep)


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(BadSchema, match="must be JSON"):
        compile_schema("{")


def test_data_is_never_compiled_as_a_pattern() -> None:
    schema = compiled({"items": {"format": "regex"}})
    assert schema.problem(json.dumps(["((((a{1000}){1000}){1000}"] * 10).encode()) == ""


def test_data_with_too_many_values_for_its_schema_is_a_problem_without_a_check() -> None:
    schema = compiled({"items": {"enum": list(range(1_000))}})
    data = b"[" + b"1," * 100_000 + b"1]"
    assert schema.cost.of(data) > LONGEST_NS
    assert schema.problem(data) == TOO_LARGE
    assert schema.problem(b"[1,2,3]") == ""


RANDOM = random.Random(1)


def deep_and_wide(count: int) -> Any:
    value: Any = list(range(count))
    for _ in range(90):
        value = [value, *range(1, 17)]
    return value


def test_an_error_that_takes_long_to_describe_is_reported_without_its_place() -> None:
    found = compiled({"anyOf": [{"items": {"const": i}} for i in range(20)]})
    assert found.problem(b'["a"]').startswith("does not match its schema: ")
    assert found.problem(json.dumps([str(it) for it in range(400)]).encode()) == SOMEWHERE


@pytest.mark.parametrize("pattern", ["^[0-9a-f]{8}-[0-9a-f]{4}$", "^INV-[0-9]{4,10}$", "^[A-Z]+$"])
def test_plain_patterns_are_cheap(pattern: str) -> None:
    assert compiled({"pattern": pattern}).cost.text == 1
    assert compiled({"pattern": f"(x|y)*{pattern[1:-1]}[xy]{{30}}z"}).cost.text > 100


HOSTILE: dict[str, tuple[dict[str, Any], Callable[[int], Any]]] = {
    "unique numbers": ({"uniqueItems": True}, lambda n: list(range(n))),
    "unique objects": ({"uniqueItems": True}, lambda n: [{"a": [i]} for i in range(n)]),
    "unique at every level": (
        {"uniqueItems": True, "items": {"$ref": "#"}},
        lambda n: [[[[[i], [-i]]]] for i in range(n)],
    ),
    "long enum": ({"items": {"enum": [f"v{i}" for i in range(900)]}}, lambda n: ["v899"] * n),
    "alternatives": (
        {"items": {"anyOf": [{"const": i} for i in range(150)]}},
        lambda n: [149] * n,
    ),
    "alternatives that fail": (
        {"anyOf": [{"items": {"const": i}} for i in range(20)]},
        lambda n: [str(i) for i in range(n)],
    ),
    "many names": (
        {"items": {"properties": {f"p{i}": {} for i in range(500)}, "required": ["p1"]}},
        lambda n: [{}] * n,
    ),
    "wide pattern": ({"items": {"pattern": "[ab]*a[ab]{60}$"}}, lambda n: ["ab" * (n // 2)]),
    "names by patterns": (
        {"patternProperties": {f"[a-z]*{i}$": {} for i in range(15)}},
        lambda n: {f"name{i}": 1 for i in range(n)},
    ),
    "large constant": (
        {"items": {"const": list(range(150))}},
        lambda n: [list(range(149))] * (n // 150),
    ),
    "multiples": ({"items": {"multipleOf": 0.01}}, lambda n: [1e300] * n),
    "multiples of large numbers": (
        {"items": {"multipleOf": 0.01}},
        lambda n: [10**4_000 + it for it in range(n // 16)],
    ),
    "unique at many levels": (
        {"uniqueItems": True, "items": {"$ref": "#"}},
        deep_and_wide,
    ),
    "pattern with many states": (
        {"items": {"not": {"pattern": "([ab]{1,8}a){1,8}c"}}},
        lambda n: ["".join(RANDOM.choices("ab", k=50)) for _ in range(n)],
    ),
    "patterns of names with many states": (
        {"patternProperties": {"[ab]*a[ab]{30}c": False}},
        lambda n: {"".join(RANDOM.choices("ab", k=50)): 1 for _ in range(n)},
    ),
    "errors of alternatives": (
        {"oneOf": [{"items": {"type": ["string", "null"], "maxLength": 2}}] * 5},
        lambda n: list(range(n)),
    ),
    "one error in large data": ({"required": ["x"]}, lambda n: {f"n{i}": i for i in range(n)}),
    "deep alternatives": (
        {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "null"}]},
        lambda n: nested(min(n, 95)),
    ),
    "formats": ({"items": {"format": "email"}}, lambda n: ["a" * 60 + "@b.example"] * n),
    "tree": (TREE, lambda n: {"children": [{"name": "x"}] * n}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_check_takes_at_most_about_what_was_computed(name: str) -> None:
    """Up to the largest data that is checked; the limit here leaves room for a busy machine."""
    schema, make = HOSTILE[name]
    found = compiled(schema)
    count = 16
    data = json.dumps(make(count)).encode()
    while True:
        larger = json.dumps(make(count * 2)).encode()
        if found.cost.of(larger) > LONGEST_NS or count > 1 << 17 or len(larger) > 1_000_000:
            break
        count, data = count * 2, larger
    best = min(_seconds(found, data) for _ in range(3))
    print(f"{name}: {len(data):,} bytes, {best * 1000:.1f} of {found.cost.of(data) / 1e6:.1f} ms")
    assert best < 4 * LONGEST_NS / 1e9


def _seconds(schema: Schema, data: bytes) -> float:
    began = time.process_time()
    schema.problem(data)
    return time.process_time() - began


def test_the_library_is_not_imported_without_a_schema() -> None:
    import subprocess
    import sys

    code = (
        "import sys, homing.engine.engine, homing.app.app, homing.web.routes;"
        "print('jsonschema_rs' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def _patterns(make: Callable[[int], str], count: int) -> dict[str, Any]:
    return {"properties": {f"p{number}": {"pattern": make(number)} for number in range(count)}}


@pytest.mark.parametrize(
    "schema",
    [
        _patterns(lambda number: f"(a|b{number})", 1_800),
        _patterns(lambda number: r"\s{0}" * 38 + str(number), 300),
        _patterns(lambda number: r"(?i)" + r"\p{Any}{0}" * 17 + str(number), 300),
        _patterns(lambda number: "(?i:[ -\U0010ffff])" * 10 + str(number), 300),
        {"patternProperties": {f"^(a|b{number})": True for number in range(1_800)}},
        _patterns(lambda number: "^" + "[^a]" * 40 + f"({number})", 300),
        {"pattern": "^" + "[^a]" * 49 + "("},
        {"$defs": _patterns(lambda number: rf"\w{{{number}}}", 1_800)["properties"]},
    ],
)
def test_a_schema_that_takes_long_to_compile_is_refused_before_it_is_compiled(
    schema: dict[str, Any],
) -> None:
    before = time.thread_time()
    with pytest.raises(BadSchema):
        compile_schema(json.dumps(schema))
    assert time.thread_time() - before < 0.1


def test_usual_patterns_are_compiled() -> None:
    uuid = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
    compiled(_patterns(lambda _: uuid, 1_000))
    compiled(_patterns(lambda number: uuid.replace("8", str(8 + number)), 60))
    compiled(_patterns(lambda number: rf"^\w+@example\.com{number}$", 60))
    compiled(_patterns(lambda number: f"^(?i)inv-{number}-[a-z]+$", 60))


def test_references_of_a_schema_within_a_document() -> None:
    schema = {
        "$id": "https://x.example/",
        "properties": {"$ref": {"$ref": "#/$defs/a"}, "b": {"items": [{"$ref": "#"}]}},
        "allOf": [{"$ref": "#/$defs/a"}],
        "const": {"$ref": "#/$defs/a"},
        "$defs": {"a": {"default": {"$ref": "#"}}},
    }
    assert with_references(schema, "#/s/x") == {
        "properties": {"$ref": {"$ref": "#/s/x/$defs/a"}, "b": {"items": [{"$ref": "#/s/x"}]}},
        "allOf": [{"$ref": "#/s/x/$defs/a"}],
        "const": {"$ref": "#/$defs/a"},
        "$defs": {"a": {"default": {"$ref": "#"}}},
    }


_leaf = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["object", "array", "string", "integer"]),
        "$ref": st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/$defs/c"]),
        "pattern": st.sampled_from(["a+", "^b$", "[ab]*c"]),
        "uniqueItems": st.booleans(),
        "required": st.just(["a"]),
    },
)
_schema = st.recursive(
    _leaf,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "items": inner,
            "contains": inner,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=3),
            "not": inner,
            "if": inner,
            "then": inner,
        },
    ),
    max_leaves=12,
)
_deep = st.recursive(
    st.sampled_from([1, "a", "abc", None]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=30,
)


def nested(depth: int) -> Any:
    value: Any = "a"
    for at in range(depth):
        value = [value] if at % 2 else {"a": value}
    return value


@settings(max_examples=60, deadline=None)
@given(root=_schema, a=_schema, b=_schema, c=_schema, data=_deep)
def test_any_schema_that_is_accepted_is_checked_within_its_cost(
    root: dict[str, Any], a: Any, b: Any, c: Any, data: Any
) -> None:
    try:
        schema = compiled({**root, "$defs": {"a": a, "b": b, "c": c}})
    except BadSchema:
        return
    for value in (data, nested(40)):
        text = json.dumps(value).encode()
        assert _seconds(schema, text) < 0.05 + 20 * schema.cost.of(text) / 1e9
