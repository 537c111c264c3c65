"""Event types: what a tenant says about its events, and the checks of a new or changed type."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from homing.errors import FieldProblem
from homing.languages.sentences import say
from homing.policy.admission import (
    RESERVED_RULE,
    RESERVED_TYPES,
    TYPE_RULE,
    is_type,
    tenant_problem,
)
from homing.policy.event_check_rules import Check
from homing.policy.nesting import LEVELS_RULE, is_deep
from homing.policy.text import storable

TYPES_MAX = 1_000  # of one tenant
TENANT_BYTES_MAX = 4 * 1024 * 1024  # of all texts of a tenant's types
DESCRIPTION_CHARS_MAX = 2_000
SCHEMA_BYTES_MAX = 64 * 1024
SAMPLE_BYTES_MAX = 64 * 1024
WARNING_CHARS_MAX = 500
OPENAPI = "openapi.json"  # at the address where a type of this name would be

_ANY = msgspec.json.Decoder()


class EventType(Struct, frozen=True, kw_only=True):
    """A type of a tenant's events. Its texts are kept as they were given."""

    tenant: str
    name: str
    description: str = ""
    schema: str = ""  # JSON Schema; empty: none
    sample: str = ""  # JSON, the data of an event; empty: none
    check: Check | None = None  # None: as the settings say
    created_at: int = 0
    updated_at: int = 0
    version: int = 0  # of the catalog, when it last changed

    @property
    def bytes(self) -> int:
        """The size of its texts, for the limit of a tenant."""
        texts = (self.name, self.description, self.schema, self.sample)
        return sum(len(it.encode()) for it in texts)


class TypeSummary(Struct, frozen=True):
    """A type in a list, and all that a publish needs to know before it reads the schema."""

    tenant: str
    name: str
    description: str
    check: Check | None
    has_schema: bool
    has_sample: bool
    updated_at: int
    version: int


class TypePlace(Struct, frozen=True, array_like=True):
    """The place after a type, in the list by tenant and name."""

    tenant: str
    name: str


def type_problems(draft: EventType) -> list[FieldProblem]:
    """Every problem of a type, but for those that its schema has as a JSON Schema."""
    problems = list(tenant_problem(draft.tenant))
    if not is_type(draft.name):
        problems.append(FieldProblem("name", TYPE_RULE))
    elif draft.name.startswith(RESERVED_TYPES):
        problems.append(FieldProblem("name", RESERVED_RULE))
    elif draft.name == OPENAPI:
        reason = say("must not be {name}: the document of all types has this address", name=OPENAPI)
        problems.append(FieldProblem("name", reason))
    if len(draft.description) > DESCRIPTION_CHARS_MAX:
        reason = say("must be at most {limit} characters", limit=DESCRIPTION_CHARS_MAX)
        problems.append(FieldProblem("description", reason))
    if draft.description != storable(draft.description):
        problems.append(FieldProblem("description", say("must not contain a NUL character")))
    problems += _json_problems("schema", draft.schema, SCHEMA_BYTES_MAX)
    problems += _json_problems("sample", draft.sample, SAMPLE_BYTES_MAX)
    return problems


def _json_problems(field: str, text: str, bytes_max: int) -> list[FieldProblem]:
    if not text:
        return []
    if len(text.encode(errors="replace")) > bytes_max:
        return [FieldProblem(field, say("must be at most {kib} KiB", kib=bytes_max // 1024))]
    if text != storable(text):
        reason = say("must not contain a NUL character or half a surrogate pair")
        return [FieldProblem(field, reason)]
    try:
        _ANY.decode(text)
        if field == "sample" and is_deep(text.encode()):
            return [FieldProblem(field, LEVELS_RULE)]
    except RecursionError:
        return [FieldProblem(field, LEVELS_RULE)]
    except msgspec.DecodeError as error:
        return [FieldProblem(field, say("must be JSON: {error}", error=str(error)))]
    return []


def cut(text: str, chars_max: int = WARNING_CHARS_MAX) -> str:
    """A reason, or a part of one, of bounded length and on one line."""
    text = " ".join(storable(text).split())
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"
