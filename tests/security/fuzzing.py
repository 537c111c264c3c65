"""Every operation of the API with input that its schema allows and forbids, on a real server.

The cases are made by schemathesis from the OpenAPI document. A response is wrong if it is a 5xx,
if its status is not documented for that operation (the catch-all ``default`` does not count), or if
its body does not fit the documented schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok

from homing.web.openapi import openapi
from homing.web.routes import OPERATIONS
from homing.web.workfront.api import BASE
from homing.web.workfront.api import OPERATIONS as DOOR

EVERY = (*OPERATIONS, *DOOR)


@dataclass
class Tally:
    """The number of requests, and the wrong responses."""

    cases: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def bad(self) -> int:
        return len(self.wrong)


def seeded(url: str, key: str) -> dict[str, list[str]]:
    """Make objects of each kind, so that ids exist; returns ids by the begin of the path."""
    ids: dict[str, list[str]] = {}
    with requests.Session() as session:
        session.headers["authorization"] = f"Bearer {key}"
        for n in range(3):
            document = {"url": f"http://127.0.0.1:{1030 + n}/", "types": ["*"]}
            session.post(f"{url}/v1/subscriptions", json=document).raise_for_status()
        session.post(f"{url}/v1/events", json={"type": "a.b", "data": [1]}).raise_for_status()
        project = {"objCode": "PROJ", "eventType": "UPDATE", "url": "http://127.0.0.1:1040/"}
        made = session.post(url + BASE, json=project)
        ids[BASE + "/"] = [made.json()["id"]]
        for path in ("subscriptions", "endpoints", "deliveries", "events"):
            items = session.get(f"{url}/v1/{path}").json()["items"]
            ids[f"/v1/{path}/"] = [one["id"] for one in items]
    return ids


def fuzz(url: str, key: str, *, examples: int, number: int) -> Tally:
    """Ask every operation so many times in either mode."""
    tally = Tally()
    document = openapi(EVERY)
    for part in (
        document,
        *(entry for item in document["paths"].values() for entry in item.values()),
    ):
        part.pop(
            "security", None
        )  # Or a third of the cases leave the key out, or give a wrong one.
    schema = schemathesis.openapi.from_dict(document)
    ids = seeded(url, key)
    with requests.Session() as session:
        for found in schema.get_all_operations():
            assert isinstance(found, Ok), found
            operation = found.ok()
            known = next((ids[at] for at in ids if operation.path.startswith(at)), [])
            for mode in _modes(operation.definition.raw):
                strategy = operation.as_strategy(generation_mode=mode)
                _ask(strategy, known, tally, (url, key, session), examples, number)
    return tally


def _modes(entry: dict[str, Any]) -> Iterator[Any]:
    """The modes for an operation: one without query and body cannot get wrong input."""
    yield schemathesis.GenerationMode.POSITIVE
    if "requestBody" in entry or any(one["in"] == "query" for one in entry["parameters"]):
        yield schemathesis.GenerationMode.NEGATIVE


def _ask(
    strategy: Any,
    known: list[str],
    tally: Tally,
    where: tuple[str, str, requests.Session],
    examples: int,
    number: int,
) -> None:
    url, key, session = where

    @seed(number)
    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy, one=st.sampled_from([None, *known]))
    def ask(case: Any, one: str | None) -> None:
        if one is not None and "id" in case.path_parameters:
            case.path_parameters["id"] = one
        key_header = {"authorization": f"Bearer {key}"}
        response = case.call(base_url=url, session=session, headers=key_header, timeout=60)
        _judge(case, response, tally)

    ask()


def _judge(case: Any, response: Any, tally: Tally) -> None:
    tally.cases += 1
    code = response.status_code
    tally.codes[code] += 1
    operation = case.operation
    tally.operations[operation.label] += 1
    said = f"{operation.label} {case.path_parameters} {case.query} {str(case.body)[:200]}"
    if code >= 500:
        tally.wrong.append(f"{code}: {said}")
        return
    if str(code) not in operation.definition.raw["responses"]:
        tally.wrong.append(f"{code} is not written down: {said}: {response.text[:200]}")
        return
    try:
        case.validate_response(
            response,
            checks=[
                schemathesis.checks.content_type_conformance,
                schemathesis.checks.response_schema_conformance,
            ],
        )
    except FailureGroup as group:
        tally.wrong.append(f"{code}: {said}: {group.exceptions[0]}"[:600])
