"""What a subscription says that Adobe Workfront would refuse, ignore or never match.

Homing accepts more than Adobe does: it has more operators, and it reports a wrong filter where
Adobe's never matches. An integration that is developed here should also work there, so each
difference is a warning: the field, and what happens at Adobe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import chain, islice
from typing import Any

from homing.errors import FieldProblem
from homing.model import Format, SubscriptionSpec, Workfront
from homing.policy.exact import decode
from homing.policy.filters import WITHOUT_VALUE, Condition, Op, Side, conditions, read_filters
from homing.policy.filters_values import read_moment
from homing.policy.workfront_objects import OBJECTS, WorkfrontObject

_ADOBE_DEADLINE_MS = 5_000
_ADOBE_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4}").fullmatch
_BEYOND_ADOBE = frozenset({Op.EXISTS, Op.NOT_EXISTS})
_CUSTOM = "parameterValues"
WARNINGS_MAX = 20  # of a subscription; the next ones are shown once these are gone
_MEANT_CHARS_MAX = 40  # of a name that is compared with others: that takes time


def workfront_warnings(
    subscription: SubscriptionSpec, own: Workfront | None = None
) -> list[FieldProblem]:
    """The differences between this subscription and what Adobe would do with it.

    ``own`` is what the Workfront-compatible API adds to a subscription: the version first of all.
    """
    own = own or Workfront()
    code, _, event_type = subscription.types[0].rpartition(".")
    known = OBJECTS.get(code)
    found = chain(
        _of_object(code, known, own),
        _of_fields(subscription),
        _of_filters(subscription, code, known, event_type),
    )
    return list(islice(found, WARNINGS_MAX))


def _of_object(code: str, known: WorkfrontObject | None, own: Workfront) -> Iterator[FieldProblem]:
    if known is None:
        yield FieldProblem("objCode", f"is not in Adobe's list of objects{_meant(code, OBJECTS)}")
    if own.version == "v1":
        reason = "v1 ended at Adobe in January 2026, when all subscriptions were changed to v2"
        if known is not None and known.needs_v2:
            reason = f"Adobe sends no events of {code} in v1: this object needs v2"
        yield FieldProblem("version", reason)


def _of_fields(subscription: SubscriptionSpec) -> Iterator[FieldProblem]:
    """Fields of Homing that were changed through another API, and the token."""
    if len(subscription.types) > 1 or "*" in subscription.types[0]:
        yield FieldProblem("types", "Adobe has one kind of event of one object per subscription")
    if subscription.format is not Format.WORKFRONT:
        yield FieldProblem("format", f"Adobe has one format of messages, not {subscription.format}")
    if not subscription.token:
        yield FieldProblem("authToken", "is required by Adobe: such a request would be refused")
    if subscription.headers:
        yield FieldProblem("headers", "Adobe sends no headers of a subscription")
    if subscription.deadline_ms is not None and subscription.deadline_ms > _ADOBE_DEADLINE_MS:
        yield FieldProblem("deadline_ms", "Adobe waits five seconds for a response, not longer")
    if subscription.rate_per_second is not None:
        yield FieldProblem("rate_per_second", "Adobe keeps to no rate: events come as they happen")


def _of_filters(
    subscription: SubscriptionSpec, code: str, known: WorkfrontObject | None, event_type: str
) -> Iterator[FieldProblem]:
    filters = read_filters(subscription.filters, subscription.filter_connector)
    written = dict(_written(decode(subscription.filters), "filters"))
    for one in conditions(filters):
        if "fieldName" not in written[one.at]:
            yield FieldProblem(
                one.at,
                "has Homing's form: Adobe knows fieldName, fieldValue, comparison and state, and"
                " a filter without them never matches",
            )
            continue
        yield from _of_name(one, code, known)
        yield from _of_comparison(one, code, known, event_type)


def _of_name(one: Condition, code: str, known: WorkfrontObject | None) -> Iterator[FieldProblem]:
    at, name = f"{one.at}.fieldName", one.field
    if known is None or not known.fields or name in known.fields:
        pass
    elif "." in name and name.partition(".")[0] in known.fields:
        yield FieldProblem(
            at,
            f"Adobe takes a field inside {name.partition('.')[0]} as an object in fieldValue, and"
            " no path: this filter never matches there",
        )
    elif name.startswith("DE:"):
        yield FieldProblem(
            at, f"Adobe has custom fields in {_CUSTOM}: put {name} into an object in fieldValue"
        )
    elif not name.endswith("ID"):  # Adobe sends every field whose name ends in ID.
        yield FieldProblem(
            at, f"is not in Adobe's list of the fields of {code}{_meant(name, known.fields)}"
        )
    if known is not None and name.partition(".")[0] in known.unfilterable:
        yield FieldProblem(
            at, f"Adobe cannot filter {code} by {name}: this filter never matches there"
        )
    if (code, name) == ("PTLTAB", "lastUpdateDate"):
        yield FieldProblem(at, "Adobe reports a change of this field only once a day")


def _of_comparison(
    one: Condition, code: str, known: WorkfrontObject | None, event_type: str
) -> Iterator[FieldProblem]:
    at = f"{one.at}.comparison"
    if one.op in _BEYOND_ADOBE:
        yield FieldProblem(
            at, f"Adobe's API has no comparison {one.op}: this filter never matches there"
        )
    elif known is not None and one.field in known.only_changed and one.op is not Op.CHANGED:
        yield FieldProblem(
            at, f"Adobe compares {one.field} of {code} by changed only, not by {one.op}"
        )
    if one.op is Op.CHANGED and event_type != "UPDATE":
        yield FieldProblem(at, f"changed is for UPDATE: a {event_type} has one state only")
    elif one.side is Side.NEW and event_type == "DELETE":
        yield FieldProblem(
            f"{one.at}.state",
            "Adobe sends the data of a deleted object in oldState: compare with that state",
        )
    if one.op not in WITHOUT_VALUE and _is_other_date(one.value):
        yield FieldProblem(
            f"{one.at}.fieldValue", "Adobe writes dates like 2026-11-17T08:30:00.000-0700"
        )


def _is_other_date(value: Any) -> bool:
    """Whether a value is a date that Adobe writes in another way."""
    return isinstance(value, str) and not _ADOBE_DATE(value) and read_moment(value) is not None


def _written(parts: Any, at: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The conditions as they were written, with their places."""
    for index, part in enumerate(parts):
        place = f"{at}[{index}]"
        if "filters" in part:
            yield from _written(part["filters"], f"{place}.filters")
        else:
            yield place, part


def _meant(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """``: did you mean …?`` for a name that was probably mistyped."""
    if len(name) > _MEANT_CHARS_MAX:
        return ""
    by_lower = {it.lower(): it for it in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
    return f": did you mean {by_lower[close[0]]}?" if close else ""
