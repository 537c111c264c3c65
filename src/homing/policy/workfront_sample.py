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


def sample(name: str, rng: Random, *, now: int, user: str | None = None) -> Sample:
    """A sample of this name; raises Invalid with the names that are known."""
    code, _, kind = name.rpartition(".")
    known = OBJECTS.get(code)
    if known is None or not known.fields or kind not in EVENT_TYPES:
        raise Invalid(problems=(FieldProblem("NAME", _unknown(name)),))
    person = user if user is not None else _hex(rng)
    after = _state(code, known, rng, now=now, person=person)
    before = {} if kind == "CREATE" else _before(code, after, rng, now=now)
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
    code: str, known: WorkfrontObject, rng: Random, *, now: int, person: str
) -> dict[str, Any]:
    state = {name: _value(name, code, rng, now=now) for name in known.fields}
    for name in ("lastUpdatedByID", "updatedBy"):
        if name in state:
            state[name] = person
    return state


def _before(code: str, after: dict[str, Any], rng: Random, *, now: int) -> dict[str, Any]:
    """The state before a change of one field, and of the fields that name its time and person."""
    before = dict(after)
    changing = next(name for name in _CHANGING if name in after)
    while before[changing] == after[changing]:
        before[changing] = _value(changing, code, rng, now=now, old=True)
    for name in ("lastUpdateDate", "updatedAt"):
        if name in after:
            before[name] = _date(now - rng.randint(1, 72) * _HOUR_MS)
    for name in ("lastUpdatedByID", "updatedBy"):
        if name in after:
            before[name] = _hex(rng)
    return before


def _value(name: str, code: str, rng: Random, *, now: int, old: bool = False) -> Any:
    if name == "objCode":
        return code
    if name == "status":
        return _STATUSES.get(code, ("NEW", "CPL"))[0 if old else 1]
    make = _NAMED.get(name)
    if make is not None:
        return make(rng)
    if name == "parameterValues":
        return {"DE:Region": rng.choice(("EMEA", "Americas", "APAC")), "DE:Channels": ["Web"]}
    if name.endswith("IDs"):
        return [_hex(rng)]
    if name in {"lastUpdateDate", "updatedAt"}:
        return _date(now)
    if name.endswith(("Date", "At")):
        return _date(now - rng.randint(-500, 500) * _HOUR_MS)
    if _SET(name) or name in {"createdBy", "updatedBy"}:
        return _hex(rng)
    if re.match(r"(is|has)[A-Z]", name):
        return rng.choice((True, False))
    return None


def _hex(rng: Random) -> str:
    return f"{rng.getrandbits(128):032x}"


def _date(at_ms: int) -> str:
    """A date as Workfront writes it, like ``2017-10-06T13:48:07.776-0600``."""
    shown = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{shown:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}+0000"


def _title(rng: Random) -> str:
    return f"{rng.choice(_WORDS)} {rng.choice(_THINGS)} {rng.randint(1, 99)}"


_NAMED: dict[str, Callable[[Random], Any]] = {
    "name": _title,
    "displayName": _title,
    "subject": _title,
    "proofName": _title,
    "referenceObjectName": _title,
    "description": lambda rng: f"The {rng.choice(_THINGS)} for {rng.choice(_PEOPLE)}.",
    "noteText": lambda rng: f"{rng.choice(_PEOPLE)}, please have a look.",
    "title": lambda rng: rng.choice(("Designer", "Producer", "Copywriter")),
    "emailAddr": lambda rng: f"person{rng.randint(1, 999)}@example.com",
    "fileName": lambda rng: f"draft-{rng.randint(1, 99)}",
    "ext": lambda rng: rng.choice(("pdf", "docx", "png")),
    "fileType": lambda rng: rng.choice(("pdf", "docx", "png")),
    "docSize": lambda rng: rng.randint(10_000, 5_000_000),
    "version": lambda rng: str(rng.randint(1, 9)),
    "priority": lambda rng: rng.randint(0, 4),
    "referenceNumber": lambda rng: rng.randint(1_000, 99_999),
    "currency": lambda rng: rng.choice(("USD", "EUR", "GBP")),
    "hours": lambda rng: rng.randint(1, 16) / 2,
    "totalHours": lambda rng: rng.randint(60, 90) / 2,
    "regularHours": lambda rng: rng.randint(60, 80) / 2,
    "overtimeHours": lambda rng: rng.randint(0, 10) / 2,
    "workHoursPerDay": lambda _: 8.0,
    "actualCost": lambda rng: rng.randint(100, 90_000) / 100,
    "actualAmount": lambda rng: rng.randint(100, 90_000) / 100,
    "plannedAmount": lambda rng: rng.randint(100, 90_000) / 100,
    "work": lambda rng: rng.randint(1, 80),
    "workRequired": lambda rng: rng.randint(60, 4_800),
    "assignmentPercent": lambda _: 100.0,
    "icon": lambda _: "calendar",
    "color": lambda _: "#4b8bbe",
    "type": lambda rng: rng.choice(("text", "number", "date")),
    "data": lambda rng: {"name": _title(rng)},
    "groups": lambda rng: [_hex(rng)],
    "fields": lambda rng: [{"id": _hex(rng), "displayName": _title(rng)}],
    "recordTypes": lambda rng: [_hex(rng)],
    "recordsCount": lambda rng: rng.randint(0, 500),
    "userRoles": lambda rng: [_hex(rng)],
    "proofPages": lambda rng: rng.randint(1, 40),
}
