"""Sample events of Workfront, made from the public list of fields (``policy.workfront_objects``).

A sample has every field that Adobe documents for its object, as Adobe's messages do: null where a
value is rare. The values are made up. On UPDATE both states are there and differ in a few fields;
on CREATE the old state is empty, on DELETE the new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from difflib import get_close_matches
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from homing.errors import FieldProblem, Invalid
from homing.model import Event, id_floor
from homing.policy.workfront import V1, V2, Frame, workfront_body
from homing.policy.workfront_ids import show_uuid
from homing.policy.workfront_objects import EVENT_TYPES, OBJECTS, WorkfrontObject

CUSTOMER = "default"  # in a message
_HOUR_MS = 3_600_000
_WORDS = ("Launch", "Rebrand", "Spring", "Catalog", "Website", "Partner", "Trade fair", "Video")
_THINGS = ("campaign", "brief", "review", "landing page", "mailing", "storyboard", "report")
_PEOPLE = ("Ada Lovelace", "Alan Turing", "Grace Hopper", "Katherine Johnson", "Linus Pauling")
_STATUSES = {  # before and after a change
    "PROJ": ("PLN", "CUR"),
    "TASK": ("NEW", "INP"),
    "OPTASK": ("NEW", "INP"),
    "ASSGN": ("AA", "AD"),
    "HOUR": ("SUB", "APV"),
    "TSHET": ("O", "S"),
}
# References that most objects have; the others are null in a sample.
_SET = re.compile(
    r"(ID|id|customerI[Dd]|ownerID|enteredByID|lastUpdatedByID|projectID|taskID|documentID|userID"
    r"|assignedToID|objID|groupID|accessLevelID|homeGroupID|categoryID|roleID|recordTypeId"
    r"|primaryFieldId|approverID|requesterID|hourTypeID|expenseTypeID)"
).fullmatch
# An UPDATE changes the first of these that the object has.
_CHANGING = (
    "status",
    "name",
    "displayName",
    "noteText",
    "fileName",
    "actualAmount",
    "isAwaitingDecision",
    "data",
)


class Sample(Struct, frozen=True):
    """An event to publish: its type and its data."""

    type: str
    data: dict[str, Any]


def known_names() -> list[str]:
    """The names that have a sample, like ``PROJ.UPDATE``."""
    return [f"{code}.{kind}" for code, it in OBJECTS.items() if it.fields for kind in EVENT_TYPES]


def sample(name: str, random: Random, *, now: int, user: str | None = None) -> Sample:
    """A sample of this name; raises Invalid with the names that are known."""
    code, _, kind = name.rpartition(".")
    known = OBJECTS.get(code)
    if known is None or not known.fields or kind not in EVENT_TYPES:
        raise Invalid(problems=(FieldProblem("NAME", _unknown(name)),))
    person = user if user is not None else _hex(random)
    after = _state(code, known, random, now=now, person=person)
    before = {} if kind == "CREATE" else _before(code, after, random, now=now)
    if kind == "DELETE":
        after, before = {}, after
    return Sample(name, {"userId": person, "newState": after, "oldState": before})


def sample_message(it: Sample, *, now: int, version: str = V2, base64: bool = False) -> bytes:
    """The message that a receiver gets for a sample, as Homing's own format writes it."""
    event = Event(1, CUSTOMER, "sample", it.type, "", now, encode(it.data))
    number = show_uuid(id_floor(now))
    frame = Frame(encode(number), encode(version), base64, version == V1)
    return workfront_body(event, frame)


def _unknown(name: str) -> str:
    codes = [code for code, it in OBJECTS.items() if it.fields]
    code, dot, kind = name[:64].upper().partition(".")
    close = get_close_matches(code, codes, n=1, cutoff=0.6)
    kinds = get_close_matches(kind, EVENT_TYPES, n=1) if dot else ["UPDATE"]
    meant = f" Did you mean {close[0]}.{(kinds or ['UPDATE'])[0]}?" if close else ""
    return (
        f"must be an object code, a dot and CREATE, UPDATE or DELETE, not {name[:64]!r}.{meant}"
        f" The codes with a public list of fields are {', '.join(codes)}"
    )


def _state(
    code: str, known: WorkfrontObject, random: Random, *, now: int, person: str
) -> dict[str, Any]:
    state = {name: _value(name, code, random, now=now) for name in known.fields}
    for name in ("lastUpdatedByID", "updatedBy"):
        if name in state:
            state[name] = person
    return state


def _before(code: str, after: dict[str, Any], random: Random, *, now: int) -> dict[str, Any]:
    """The state before a change of one field, and of who changed it when."""
    before = dict(after)
    changing = next(name for name in _CHANGING if name in after)
    while before[changing] == after[changing]:
        before[changing] = _value(changing, code, random, now=now, old=True)
    for name in ("lastUpdateDate", "updatedAt"):
        if name in after:
            before[name] = _date(now - random.randint(1, 72) * _HOUR_MS)
    for name in ("lastUpdatedByID", "updatedBy"):
        if name in after:
            before[name] = _hex(random)
    return before


def _value(name: str, code: str, random: Random, *, now: int, old: bool = False) -> Any:
    if name == "objCode":
        return code
    if name == "status":
        return _STATUSES.get(code, ("NEW", "CPL"))[0 if old else 1]
    make = _NAMED.get(name)
    if make is not None:
        return make(random)
    if name == "parameterValues":
        return {"DE:Region": random.choice(("EMEA", "Americas", "APAC")), "DE:Channels": ["Web"]}
    if name.endswith("IDs"):
        return [_hex(random)]
    if name in {"lastUpdateDate", "updatedAt"}:
        return _date(now)
    if name.endswith(("Date", "At")):
        return _date(now - random.randint(-500, 500) * _HOUR_MS)
    if _SET(name) or name in {"createdBy", "updatedBy"}:
        return _hex(random)
    if re.match(r"(is|has)[A-Z]", name):
        return random.random() < 0.5
    return None


def _hex(random: Random) -> str:
    return f"{random.getrandbits(128):032x}"


def _date(at_ms: int) -> str:
    """A date as Workfront writes it, like ``2017-10-06T13:48:07.776-0600``."""
    shown = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{shown:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}+0000"


def _title(random: Random) -> str:
    return f"{random.choice(_WORDS)} {random.choice(_THINGS)} {random.randint(1, 99)}"


_NAMED: dict[str, Callable[[Random], Any]] = {
    "name": _title,
    "displayName": _title,
    "subject": _title,
    "proofName": _title,
    "referenceObjectName": _title,
    "description": lambda random: f"The {random.choice(_THINGS)} for {random.choice(_PEOPLE)}.",
    "noteText": lambda random: f"{random.choice(_PEOPLE)}, please have a look.",
    "title": lambda random: random.choice(("Designer", "Producer", "Copywriter")),
    "emailAddr": lambda random: f"person{random.randint(1, 999)}@example.com",
    "fileName": lambda random: f"draft-{random.randint(1, 99)}",
    "ext": lambda random: random.choice(("pdf", "docx", "png")),
    "fileType": lambda random: random.choice(("pdf", "docx", "png")),
    "docSize": lambda random: random.randint(10_000, 5_000_000),
    "version": lambda random: str(random.randint(1, 9)),
    "priority": lambda random: random.randint(0, 4),
    "referenceNumber": lambda random: random.randint(1_000, 99_999),
    "currency": lambda random: random.choice(("USD", "EUR", "GBP")),
    "hours": lambda random: random.randint(1, 16) / 2,
    "totalHours": lambda random: random.randint(60, 90) / 2,
    "regularHours": lambda random: random.randint(60, 80) / 2,
    "overtimeHours": lambda random: random.randint(0, 10) / 2,
    "workHoursPerDay": lambda _: 8.0,
    "actualCost": lambda random: random.randint(100, 90_000) / 100,
    "actualAmount": lambda random: random.randint(100, 90_000) / 100,
    "plannedAmount": lambda random: random.randint(100, 90_000) / 100,
    "work": lambda random: random.randint(1, 80),
    "workRequired": lambda random: random.randint(60, 4_800),
    "assignmentPercent": lambda _: 100.0,
    "icon": lambda _: "calendar",
    "color": lambda _: "#4b8bbe",
    "type": lambda random: random.choice(("text", "number", "date")),
    "data": lambda random: {"name": _title(random)},
    "groups": lambda random: [_hex(random)],
    "fields": lambda random: [{"id": _hex(random), "displayName": _title(random)}],
    "recordTypes": lambda random: [_hex(random)],
    "recordsCount": lambda random: random.randint(0, 500),
    "userRoles": lambda random: [_hex(random)],
    "proofPages": lambda random: random.randint(1, 40),
}
