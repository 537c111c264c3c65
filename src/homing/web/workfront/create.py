"""Reads a subscription from a request of the Workfront-compatible API."""

from __future__ import annotations

import re

from homing.errors import FieldProblem, Invalid
from homing.model import Connector, Format, Workfront
from homing.policy.admission import SubscriptionDraft
from homing.policy.exact import encode
from homing.policy.filters import Condition, Filters, Side, read_filters
from homing.web.workfront.schemas import WorkfrontSubscriptionIn

EVENT_TYPES = ("CREATE", "UPDATE", "DELETE")
TOKEN_CHARS_MAX = 254
OBJECT_CHARS_MAX = 256
_OBJ_CODE = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
_TRUE, _FALSE = frozenset({"true"}), frozenset({"false", ""})
# Fields that have another name in the Workfront API.
_NAMES = {"token": "authToken", "types": "objCode", "tenant": "customerId"}


def draft_from(given: WorkfrontSubscriptionIn, tenant: str) -> SubscriptionDraft:
    """The draft of a subscription; raises Invalid with the problems of Workfront's own fields."""
    problems: list[FieldProblem] = []
    if _OBJ_CODE(given.obj_code) is None:
        problems.append(FieldProblem("objCode", "must be a code like PROJ"))
    if given.event_type not in EVENT_TYPES:
        problems.append(FieldProblem("eventType", f"must be one of {', '.join(EVENT_TYPES)}"))
    if len(given.auth_token or "") > TOKEN_CHARS_MAX:
        problems.append(FieldProblem("authToken", "must be under 255 characters"))
    if len(given.obj_id or "") > OBJECT_CHARS_MAX:
        problems.append(FieldProblem("objId", f"must be at most {OBJECT_CHARS_MAX} characters"))
    base64 = _flag(given.base64_encoding)
    if base64 is None:
        problems.append(FieldProblem("base64Encoding", "must be true, false or blank"))
    connector = given.filter_connector or Connector.AND
    filters = encode(given.filters or []).decode()
    try:
        problems += _impossible(read_filters(filters, connector), given.event_type)
    except Invalid as error:
        problems += error.problems
    if problems:
        raise Invalid(problems=tuple(problems))
    return SubscriptionDraft(
        tenant=tenant,
        url=given.url,
        types=(f"{given.obj_code}.{given.event_type}",),
        format=Format.WORKFRONT,
        token=given.auth_token or None,
        filters=filters,
        filter_connector=Connector(connector),
        workfront=Workfront(base64=bool(base64), object_id=given.obj_id or None),
    )


def with_workfront_names(error: Invalid) -> Invalid:
    """The same problems, with the names that the fields have in the Workfront API."""
    return Invalid(
        problems=tuple(
            FieldProblem(_NAMES.get(problem.field, problem.field), problem.reason)
            for problem in error.problems
        )
    )


def _flag(given: bool | str | None) -> bool | None:
    if given is None or isinstance(given, bool):
        return bool(given)
    text = given.strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _impossible(filters: Filters, event_type: str) -> list[FieldProblem]:
    """Problems of conditions on the old state of an object that is being created."""
    if event_type != "CREATE":
        return []
    return [
        FieldProblem(f"{one.at}.state", "must not be oldState: it is empty on CREATE")
        for part in filters.parts
        for one in ((part,) if isinstance(part, Condition) else part.conditions)
        if one.side is Side.OLD
    ]
