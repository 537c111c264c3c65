"""Part i, continued: what filters cost a publish, in microseconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import msgspec

from homing.policy.filters import read_filters
from homing.policy.filters_run import compiled, read_data

_CALLS = 20_000
_REPETITIONS = 7
_STATE: dict[str, Any] = {
    "ID": "5e7f0c1a",
    "objCode": "PROJ",
    "name": "Launch of the spring collection",
    "status": "CUR",
    "priority": 2,
    "percentComplete": 42.5,
    "plannedCompletionDate": "2026-03-01T17:00:00.000-0600",
    "groups": ["red", "green", "blue"],
    "parameterValues": {f"DE:Field {number}": f"value {number}" for number in range(20)},
}
_DATA = msgspec.json.encode({"newState": _STATE, "oldState": {**_STATE, "status": "PLN"}})
_FILTERS: dict[str, dict[str, Any]] = {
    "eq": {"fieldName": "status", "fieldValue": "CUR"},
    "gt, a number": {"fieldName": "percentComplete", "comparison": "gt", "fieldValue": "10"},
    "gt, a date": {
        "fieldName": "plannedCompletionDate",
        "comparison": "gt",
        "fieldValue": "2026-01-01T00:00:00.000+0100",
    },
    "contains": {"fieldName": "groups", "comparison": "contains", "fieldValue": "blue"},
    "changed": {"fieldName": "status", "comparison": "changed"},
    "a dotted path": {"field": "data.newState.parameterValues.DE:Field 7", "value": "value 7"},
    "an object": {"fieldName": "parameterValues", "fieldValue": {"DE:Field 7": "value 7"}},
}


def measure() -> dict[str, float]:
    """Reading the data, once per event; then each kind of filter, and the mean of them."""
    costs = {f"reading {len(_DATA)} bytes of data": _cost_us(lambda: read_data(_DATA))}
    data = read_data(_DATA)
    each = {}
    for name, one in _FILTERS.items():
        test = compiled(read_filters(msgspec.json.encode([one]).decode()))
        assert test(data)
        each[f"a filter: {name}"] = _cost_us(lambda test=test: test(data))  # type: ignore[misc]
    return {**costs, **each, "a filter, on average": sum(each.values()) / len(each)}


def _cost_us(call: Callable[[], Any]) -> float:
    costs = []
    for _ in range(_REPETITIONS):
        began = time.perf_counter()
        for _ in range(_CALLS):
            call()
        costs.append((time.perf_counter() - began) / _CALLS * 1e6)
    return median(costs)
