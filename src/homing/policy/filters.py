"""Filters: which events of its types a subscription wants, decided by their data.

A condition can be written in two forms, side by side and in groups:

    {"fieldName": "status", "fieldValue": "CUR", "comparison": "eq", "state": "newState"}
    {"field": "data.amount", "op": "gt", "value": 100}

The first form is Workfront's: its field is looked up in ``data.newState`` or ``data.oldState``. In
the second form the field begins at ``data``, or, with a ``state``, is looked up as in the first.
A wrong filter is refused with its place and the reason, so that no filter silently never matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Struct

from homing.errors import FieldProblem, Invalid
from homing.languages.sentences import Sentence, say
from homing.model import Connector
from homing.policy import exact
from homing.policy.exact import Number

PARTS_MAX = 50  # filters and groups side by side
GROUPS_MAX = 10
GROUP_MIN, GROUP_MAX = 2, 5
BYTES_MAX = 32 * 1024
NAME_CHARS_MAX = 256
NAME_PARTS_MAX = 16
VALUE_DEPTH_MAX = 8
VALUE_ITEMS_MAX = 100
COMPARISONS_MAX = 1_000  # values that are compared, in all filters of a subscription
OBJECT_SEARCHES_MAX = 20  # filters that may look for an object in every item of a list
NO_FILTERS = "[]"


class Op(StrEnum):
    """How a field is compared."""

    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    CONTAINS = "contains"
    NOT_CONTAINS = "notContains"
    CONTAINS_ONLY = "containsOnly"
    CHANGED = "changed"
    EXISTS = "exists"
    NOT_EXISTS = "notExists"


class Side(StrEnum):
    """Before the change, or after it."""

    NEW = "newState"
    OLD = "oldState"


class Condition(Struct, frozen=True):
    """One comparison. Without a side the field begins at the event's data."""

    at: str  # "filters[0].filters[1]"
    field: str  # as it was written
    op: Op
    value: Any = None  # a JSON value
    side: Side | None = None


class Group(Struct, frozen=True):
    """Conditions under a connector of their own."""

    at: str
    connector: Connector
    conditions: tuple[Condition, ...]


class Filters(Struct, frozen=True):
    """All of a subscription's filters; without any, everything matches."""

    connector: Connector = Connector.AND
    parts: tuple[Condition | Group, ...] = ()


ORDERING = frozenset({Op.GT, Op.GTE, Op.LT, Op.LTE})
WITHOUT_VALUE = frozenset({Op.CHANGED, Op.EXISTS, Op.NOT_EXISTS})
_HOLDING = frozenset({Op.CONTAINS, Op.NOT_CONTAINS})
_SEARCHING = _HOLDING | {Op.CONTAINS_ONLY}
_EQUALITY = frozenset({Op.EQ, Op.NE})
_WORKFRONT = ("fieldName", "comparison", "fieldValue", "state")
_NATIVE = ("field", "op", "value", "state")
_GROUP = ("type", "connector", "filters")
_W = TypeVar("_W", bound=StrEnum)
_NUMBER_MAX = Decimal("1e308")  # Programs that read a subscription read it as a binary float.


def read_filters(text: str, connector: str = Connector.AND) -> Filters:
    """The filters in this JSON text; raises Invalid with all problems.

    Their cost is not checked: filters that were stored before there was a limit are read, too.
    """
    reader = _Reader()
    if len(text.encode()) > BYTES_MAX:
        reader.wrong("filters", say("must be at most {kib} KiB of JSON", kib=BYTES_MAX // 1024))
        raise Invalid(problems=tuple(reader.problems))
    joined = reader.choice(connector, Connector, "filterConnector") or Connector.AND
    parts = reader.parts(exact.decode(text))
    if reader.problems:
        raise Invalid(problems=tuple(reader.problems))
    return Filters(joined, parts)


def filter_problems(text: str, connector: str) -> tuple[FieldProblem, ...]:
    """All problems of new filters, their cost included."""
    try:
        read_affordable(text, connector)
    except Invalid as error:
        return error.problems
    return ()


def read_affordable(text: str, connector: str = Connector.AND) -> Filters:
    """As ``read_filters``; also raises Invalid if the filters would cost too much."""
    filters = read_filters(text, connector)
    problems = []
    if (count := comparisons(filters)) > COMPARISONS_MAX:
        reason = say(
            "must compare at most {limit} values in all, these compare {found}: "
            "shorten their lists and objects, or divide them among several subscriptions",
            limit=COMPARISONS_MAX,
            found=count,
        )
        problems.append(FieldProblem("filters", reason))
    if (count := sum(_searches(one) for one in conditions(filters))) > OBJECT_SEARCHES_MAX:
        reason = say(
            "must have at most {limit} objects under contains, notContains and containsOnly, "
            "these have {found}: put several names into one object, "
            "or divide them among several subscriptions",
            limit=OBJECT_SEARCHES_MAX,
            found=count,
        )
        problems.append(FieldProblem("filters", reason))
    if problems:
        raise Invalid(problems=tuple(problems))
    return filters


def conditions(filters: Filters) -> Iterator[Condition]:
    """All conditions, inside and outside of groups."""
    for part in filters.parts:
        if isinstance(part, Condition):
            yield part
        else:
            yield from part.conditions


def comparisons(filters: Filters) -> int:
    """The largest number of values that an event is compared with."""
    return sum(_leaves(one.value) for one in conditions(filters))


def _leaves(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_leaves, value.values())) or 1
    return (sum(map(_leaves, value)) or 1) if isinstance(value, list) else 1


def _searches(condition: Condition) -> bool:
    return isinstance(condition.value, dict) and condition.op in _SEARCHING


class _Reader:
    """Reads filters and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[FieldProblem] = []

    def wrong(self, at: str, reason: str) -> None:
        self.problems.append(FieldProblem(at, reason))

    def choice(self, given: object, choices: type[_W], at: str) -> _W | None:
        try:
            return choices(str(given))
        except ValueError:
            self.wrong(at, _either(choices))
            return None

    def parts(self, given: object) -> tuple[Condition | Group, ...]:
        if not isinstance(given, list):
            self.wrong("filters", say("must be a list"))
            return ()
        if len(given) > PARTS_MAX:
            self.wrong("filters", say("must be at most {limit}", limit=PARTS_MAX))
            return ()
        groups = sum(isinstance(part, dict) and _is_group(part) for part in given)
        if groups > GROUPS_MAX:
            self.wrong("filters", say("must have at most {limit} groups", limit=GROUPS_MAX))
        found = [self.part(part, f"filters[{index}]") for index, part in enumerate(given)]
        return tuple(part for part in found if part is not None)

    def part(self, given: object, at: str) -> Condition | Group | None:
        if isinstance(given, dict) and _is_group(given):
            return self.group(given, at)
        return self.condition(given, at)

    def group(self, given: Mapping[str, Any], at: str) -> Group | None:
        self.known(given, _GROUP, at)
        if given.get("type") != "group":
            self.wrong(f"{at}.type", say("must be {value}", value="group"))
        connector = self.choice(given.get("connector", Connector.AND), Connector, f"{at}.connector")
        members = given.get("filters")
        if not isinstance(members, list) or not GROUP_MIN <= len(members) <= GROUP_MAX:
            reason = say("must be {min} to {max} filters", min=GROUP_MIN, max=GROUP_MAX)
            self.wrong(f"{at}.filters", reason)
            return None
        found = []
        for index, member in enumerate(members):
            place = f"{at}.filters[{index}]"
            if isinstance(member, dict) and _is_group(member):
                self.wrong(place, say("must be a filter: a group holds no groups"))
            else:
                found.append(self.condition(member, place))
        conditions = tuple(condition for condition in found if condition is not None)
        return None if connector is None else Group(at, connector, conditions)

    def condition(self, given: object, at: str) -> Condition | None:
        if not isinstance(given, dict):
            self.wrong(at, say("must be an object"))
            return None
        workfront = "fieldName" in given
        names = _WORKFRONT if workfront else _NATIVE
        field_name, op_name, value_name, _ = names
        self.known(given, names, at)
        op = self.choice(given.get(op_name, Op.EQ), Op, f"{at}.{op_name}")
        side: Side | None = Side.NEW if workfront or op is Op.CHANGED else None
        sided = side is not None or given.get("state") is not None
        if given.get("state") is not None:
            side = self.choice(given["state"], Side, f"{at}.state")
        field = self.field(given.get(field_name), f"{at}.{field_name}", sided=sided)
        if op is None or field is None:
            return None
        if op in WITHOUT_VALUE:
            return Condition(at, field, op, None, side)
        if value_name not in given:
            self.wrong(f"{at}.{value_name}", say("must be given for {value}", value=op.value))
            return None
        value = given[value_name]
        if reason := _value_reason(op, value):
            self.wrong(f"{at}.{value_name}", reason)
        return Condition(at, field, op, value, side)

    def field(self, given: object, at: str, *, sided: bool) -> str | None:
        if not isinstance(given, str) or not 0 < len(given) <= NAME_CHARS_MAX:
            reason = say(
                "must be the name of a field, 1 to {limit} characters", limit=NAME_CHARS_MAX
            )
            self.wrong(at, reason)
            return None
        if given.count(".") >= NAME_PARTS_MAX:
            self.wrong(at, say("must be at most {limit} names deep", limit=NAME_PARTS_MAX))
            return None
        if not sided and given != "data" and not given.startswith("data."):
            self.wrong(at, say("must begin with data. (or name a state: newState or oldState)"))
            return None
        return given

    def known(self, given: Mapping[str, Any], names: tuple[str, ...], at: str) -> None:
        for name in given:
            if name not in names:
                listed = ", ".join(names)
                reason = (
                    say("is unknown: a group has {names}", names=listed)
                    if names is _GROUP
                    else say("is unknown: a filter has {names}", names=listed)
                )
                self.wrong(f"{at}.{name[:64]}", reason)


def _is_group(given: Mapping[str, Any]) -> bool:
    return "filters" in given or given.get("type") == "group"


def _either(choices: type[StrEnum]) -> Sentence:
    if len(choices) == 2:
        one, other = choices
        return say("must be {one} or {other}", one=one.value, other=other.value)
    return say("must be one of {names}", names=", ".join(choices))


def _value_reason(op: Op, value: Any, depth: int = 1) -> str | None:
    """Why a field cannot be compared with this value, or None."""
    if depth > VALUE_DEPTH_MAX:
        return say("must be at most {limit} deep", limit=VALUE_DEPTH_MAX)
    if isinstance(value, dict):
        if not value and op not in _EQUALITY:
            return say("must not be an empty object")
        if len(value) > VALUE_ITEMS_MAX:
            return say("must have at most {limit} names", limit=VALUE_ITEMS_MAX)
        return _first_reason(op, list(value.values()), depth)
    if isinstance(value, list):
        return _list_reason(op, value, depth)
    if isinstance(value, Decimal) and value.copy_abs() > _NUMBER_MAX:
        return say(
            "must be a number of at most {limit}: give a larger one as an integer",
            limit=str(_NUMBER_MAX),
        )
    if op in ORDERING and (isinstance(value, bool) or not isinstance(value, str | Number)):
        return say("must be text or a number for {op}", op=op.value)
    if value is None and op not in _EQUALITY:
        return say("must not be null for {op}", op=op.value)
    return None


def _list_reason(op: Op, value: list[Any], depth: int) -> str | None:
    if op in ORDERING:
        return say("must be text or a number: {op} takes no list", op=op.value)
    if op in _HOLDING:
        return say("must be text, a number, true or false: {op} takes no list", op=op.value)
    if len(value) > VALUE_ITEMS_MAX:
        return say("must have at most {limit} items", limit=VALUE_ITEMS_MAX)
    if op is Op.CONTAINS_ONLY:
        plain = all(isinstance(item, str | Number) for item in value)
        return None if plain else say("must hold text, a number, true or false only")
    return _first_reason(op, value, depth)


def _first_reason(op: Op, values: list[Any], depth: int) -> str | None:
    for value in values:
        if reason := _value_reason(op, value, depth + 1):
            return reason
    return None
