"""The OpenAPI document has every route, and every reference in it leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from homing.web.openapi import openapi
from homing.web.routes import OPERATIONS as API_OPERATIONS
from homing.web.workfront.api import OPERATIONS as DOOR
from web.house import House, live

OPERATIONS = (*API_OPERATIONS, *DOOR)
DOCUMENT = openapi(OPERATIONS)


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for child in value.values():
            yield from walk(child)
    elif isinstance(value, list):
        for child in value:
            yield from walk(child)


def test_it_is_served_to_everyone() -> None:
    async def story(house: House) -> None:
        house.client.key = None
        got = await house.client.get("/openapi.json")
        assert got.json == DOCUMENT
        assert got.json["openapi"].startswith("3.1.")

    live(story)


def test_every_route_is_in_it_once() -> None:
    described = {
        (method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item
    }
    assert described == {(one.method, one.path) for one in OPERATIONS}
    ids = [one.id for one in OPERATIONS]
    assert len(set(ids)) == len(ids)


def test_every_route_of_it_is_answered() -> None:
    async def story(house: House) -> None:
        for operation in OPERATIONS:
            got = await house.client.call(operation.method, operation.path.replace("{id}", "x"))
            assert got.status != 405, operation.id
            if got.status == 404:
                assert got.problem.code == "not_found", operation.id

    live(story)


def test_every_reference_leads_to_a_schema() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    refs = {found["$ref"] for found in walk(DOCUMENT) if "$ref" in found}
    assert refs
    assert {ref.removeprefix("#/components/schemas/") for ref in refs} == set(schemas)


def test_path_parameters_are_described() -> None:
    for path, item in DOCUMENT["paths"].items():
        for entry in item.values():
            named = {one["name"] for one in entry["parameters"] if one["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))


def test_requests_refuse_unknown_fields() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for operation in OPERATIONS:
        if operation.request is not None:
            assert schemas[operation.request.__name__]["additionalProperties"] is False


def test_only_the_health_checks_and_the_source_addresses_need_no_key() -> None:
    free = {
        path
        for path, item in DOCUMENT["paths"].items()
        for entry in item.values()
        if entry.get("security") == []
    }
    assert free == {"/healthz", "/readyz", "/.well-known/jwks.json", "/v1/egress"}
    assert DOCUMENT["security"] == [{"key": []}]


def test_the_workfront_door_takes_keys_and_refuses_in_its_own_way() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert set(schemes) == {"key", "sessionID", "X-User-Token"}
    for operation in DOOR:
        entry = DOCUMENT["paths"][operation.path][operation.method.lower()]
        assert entry["security"] == [{name: []} for name in schemes]
        (refused,) = entry["responses"]["401"]["content"].values()
        assert refused["schema"] == {"$ref": "#/components/schemas/WorkfrontProblem"}


def test_an_operation_with_parameters_says_that_its_url_may_be_too_long() -> None:
    for operation in OPERATIONS:
        responses = DOCUMENT["paths"][operation.path][operation.method.lower()]["responses"]
        assert ("414" in responses) is bool(operation.params), operation.id
