"""Builds the OpenAPI 3.1 document from the table of operations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from msgspec import Struct
from msgspec.json import schema_components

from homing import __version__
from homing.errors import Forbidden, HomingError, NotAuthorized, TooMany, UrlTooLong
from homing.policy.cloudevents import REQUIRED, SPEC_VERSION
from homing.web.api.cloudevents import BATCHED, STRUCTURED
from homing.web.operation import Operation
from homing.web.problems import CONTENT_TYPE, Problem
from homing.web.schemas import EventIn

_REF = "#/components/schemas/{name}"
_NDJSON = "application/x-ndjson"
_CLOUDEVENT: dict[str, Any] = {
    "type": "object",
    "description": "A CloudEvent 1.0 in the JSON format; other names are extension attributes.",
    "required": list(REQUIRED),
    "properties": {
        "specversion": {"const": SPEC_VERSION},
        **{it: {"type": "string"} for it in ("id", "source", "type", "subject", "time")},
        **{it: {"type": "string"} for it in ("datacontenttype", "dataschema")},
        "data": {},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
    },
}


def openapi(operations: Sequence[Operation]) -> dict[str, Any]:
    """The whole document."""
    kinds = _kinds(operations)
    schemas, components = schema_components(kinds, ref_template=_REF)
    refs = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _entry(operation, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Homing",
            "version": __version__,
            "description": "Sends every event to every matching URL.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                **{
                    name: {"type": "apiKey", "in": "header", "name": name}
                    for name in _key_headers(operations)
                },
            },
        },
        "security": [{"key": []}],
    }


def _kinds(operations: Sequence[Operation]) -> list[type[Struct]]:
    found: dict[type[Struct], None] = {Problem: None}
    for operation in operations:
        kinds = (operation.request, operation.response, operation.each, *operation.also.values())
        for kind in (*kinds, _problem(operation)):
            if kind is not None:
                found[kind] = None
    return list(found)


def _problem(operation: Operation) -> type[Struct]:
    return Problem if operation.auth_scheme is None else operation.auth_scheme.problem


def _key_headers(operations: Sequence[Operation]) -> list[str]:
    """Headers besides Authorization that may contain a key."""
    schemes = [
        operation.auth_scheme for operation in operations if operation.auth_scheme is not None
    ]
    return list(dict.fromkeys(name for scheme in schemes for name in scheme.key_headers))


def _entry(operation: Operation, refs: dict[type[Struct], dict[str, Any]]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": [
            *(_path_parameter(name) for name in re.findall(r"{(\w+)}", operation.path)),
            *(
                {
                    "name": param.name,
                    "in": "query",
                    "required": False,
                    "description": param.sentence,
                    "schema": param.schema,
                }
                for param in operation.params
            ),
        ],
        "responses": _responses(operation, refs),
    }
    if operation.request is not None:
        content = {
            kind: {"schema": _request_schema(operation.request, kind, refs)}
            for kind in operation.request_types
        }
        entry["requestBody"] = {"required": True, "content": content}
    if operation.open:
        entry["security"] = []
    elif operation.auth_scheme is not None:
        entry["security"] = [{name: []} for name in ("key", *operation.auth_scheme.key_headers)]
    return entry


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _request_schema(
    request: type[Struct], kind: str, refs: dict[type[Struct], dict[str, Any]]
) -> dict[str, Any]:
    if kind == _NDJSON:
        return {"type": "string", "description": "One event per line."}
    if kind == STRUCTURED:
        return _CLOUDEVENT
    if kind == BATCHED:
        return {"type": "array", "items": _CLOUDEVENT, "minItems": 1, "maxItems": 1000}
    if request is EventIn:
        batch = {"type": "array", "items": refs[request], "minItems": 1, "maxItems": 1000}
        return {"anyOf": [refs[request], batch]}
    return refs[request]


def _responses(operation: Operation, refs: dict[type[Struct], dict[str, Any]]) -> dict[str, Any]:
    responses: dict[str, Any] = {str(operation.status): _good(operation, operation.response, refs)}
    for status, kind in operation.also.items():
        responses[str(status)] = _good(operation, kind, refs)
    errors: list[type[HomingError]] = list(operation.errors)
    if not operation.open:
        errors += [NotAuthorized, Forbidden, TooMany]
    if operation.params:
        errors.append(UrlTooLong)
    problem = refs[_problem(operation)]
    by_status: dict[int, list[str]] = {}
    for error in errors:
        by_status.setdefault(error.http_status, []).append((error.__doc__ or "").strip())
    for status, titles in sorted(by_status.items()):
        responses[str(status)] = {
            "description": " ".join(titles),
            "content": {CONTENT_TYPE.decode(): {"schema": problem}},
        }
    default = {"description": "A problem document.", "content": {}}
    default["content"] = {CONTENT_TYPE.decode(): {"schema": problem}}
    return {**responses, "default": default}


def _good(
    operation: Operation, kind: type[Struct] | None, refs: dict[type[Struct], dict[str, Any]]
) -> dict[str, Any]:
    description = HTTPStatus(operation.status).phrase
    if kind is not None:
        return {
            "description": (kind.__doc__ or description).strip(),
            "content": {operation.response_type: {"schema": refs[kind]}},
        }
    if operation.each is not None:
        rows = {"type": "array", "items": refs[operation.each]}
        return {"description": description, "content": {operation.response_type: {"schema": rows}}}
    if operation.status == 204 or operation.method == "DELETE":
        return {"description": description}
    content = {operation.response_type: {"schema": {"type": "string"}}}
    return {"description": description, "content": content}
