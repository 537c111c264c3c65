"""Schemas of event types: which are accepted, how long a check may take, and the check itself.

A schema comes from a tenant, and so does the data. Their check runs on the event loop, so its time
has a limit that is known before it starts. A schema is accepted only if the number of its parts
that apply to one value of the data has a limit (``_most``), whatever the data. That refuses the
schemas whose time grows exponentially: references that lead back to the same value, and recursion
that applies twice to the same value. The patterns run in linear time (no look-around, no
back-references), but some of them slowly. The limit times the number of values in the data is the
cost of a check.

The compilation runs on the event loop, too. Nearly all of its time goes into patterns: a set of
characters, such as white space, costs a hundred times as much as a letter, and several thousand
times as much if case is ignored. So the time is counted from the texts of the patterns
(``_compile_ns``), and a schema above the limit is refused before anything is compiled.

``jsonschema_rs`` compiles and checks. It is imported with the first schema: an installation without
event types does not pay for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from homing.languages.sentences import Sentence, say
from homing.policy.event_types import cut
from homing.policy.nesting import LEVELS_MAX, LEVELS_RULE, is_deep

PARTS_MAX = 2_000  # schemas within a schema
NESTING_MAX = 64  # of the JSON of a schema
PASSES_MAX = 100  # until the cost of a schema is found
CHAIN_MAX = 16  # schemas that apply to the same value because of one another
COST_MAX = 4_000  # keywords, names and values of the schema that apply to one value of the data
PATTERN_CHARS_MAX = 200
PATTERN_BYTES_MAX = 15_000  # of a compiled pattern
TEXT_COST_MAX = 1_000  # of the patterns and formats that apply to one text
_PLACE_CHARS_MAX = 200  # of a place in a reason
_TEXT_CHARS_MAX = 440  # of a text of the library in a reason, with its place
DIGITS_MAX = 100  # of a number in data that is not small
AT_ONCE_NS = 3_000_000  # A check that may take longer waits for its turn.
LONGEST_NS = 25_000_000
COMPILE_NS_MAX = 25_000_000

# How long things take at most, measured with jsonschema-rs 0.60 on a small machine.
_CONTAINER_NS = 300  # to read an array or an object of the data
_SCALAR_NS = 100  # to read another value
_UNIT_NS = 15  # to look at one keyword, name or value of the schema
_TEXT_BYTE_NS = 10  # to look for one simple pattern in one byte of text
_UNIQUE_NS = 80  # to compare one value within an array whose items are unique
_ERROR_VALUE_NS = 2_000  # to describe an error, per value of the data
_ERROR_UNIT_NS = 15_000  # the same for alternatives: the errors of all of them are collected
_PART_NS = 10_000  # to compile a schema within the schema
_PATTERN_NS = 40_000  # … and a pattern, whatever its repetitions,
_CHAR_NS = 3_000  # each of its characters,
_SMALL_SET_NS = 50_000  # each set of characters with few ranges,
_SET_NS = 160_000  # each other one,
_FOLDED_NS = 3_000_000  # and each that may be large, if case is ignored

_FORMAT = 3  # a format costs as much as this many simple patterns
_COMPLEX = 200  # … and a pattern that may have many states
_CONSTANT = 20  # keywords that cost as much as the comparison with one constant that is no text
_FRACTION = 2_000  # keywords that cost as much as multipleOf with a fraction
_FRACTION_MIN = 1e-9

_SMALL_BYTES = 2_048
_DIGITS = bytes(ord("0") if chr(it) in "0123456789" else ord(" ") for it in range(256))
_MANY_DIGITS = b"0" * (DIGITS_MAX + 1)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')

_small_sets = re.compile(r"\\[Bbdfnrtvw]").findall
_sets = re.compile(r"\\[^Bbdfnrtvw\W]|[^\x00-\x7f]", re.ASCII).findall
_ignores_case = re.compile(r"\([?][A-Za-z-]*[ix]").search  # x: then there may be spaces before i

# A pattern that has as many states as characters: of fixed length, but for its last part. There is
# one way only to read a pattern, and no way back: a tenant writes it.
_ITEM = (
    r"(?:\\[dDwWsS.\\/+*?^$()\[\]{}|-]"
    r"|\[\^?+(?:[^\]\\\[]|\\.)++\]"
    r"""|[\w\s.:/@#%&=!~,;<>"'-])"""
)
_is_simple = re.compile(
    rf"\^(?:{_ITEM}(?:\{{\d+\}})?+(?![*+?{{]))*+(?:{_ITEM}(?:[*+?]|\{{\d+,\d*\}}))?+\$?"
).fullmatch
_SIMPLE_BYTES_MAX = 1_000  # A compiled pattern of this size has few states, whatever it is.

DRAFTS = frozenset(
    {
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
    }
)

# Keywords whose schemas apply to the same value.
_HERE = ("not", "if", "then", "else")
_HERE_LISTS = ("allOf", "anyOf", "oneOf")
_HERE_NAMED = ("dependentSchemas", "dependencies")
# Keywords with a schema for those values in an object or an array that no other one names.
_OTHERS = {
    "additionalProperties": "object",
    "propertyNames": "object",
    "items": "array",
    "prefixItems": "array",
    "additionalItems": "array",
}
_KINDS = ("object", "array")
_DEFINITIONS = ("$defs", "definitions")
_SCHEMAS = frozenset((*_HERE, *_HERE_LISTS, *_OTHERS, "contains"))
_MAPS = frozenset((*_HERE_NAMED, *_DEFINITIONS, "properties", "patternProperties"))
_USE_REF = say("use $ref with a JSON pointer, like #/$defs/address")
_REFUSED = {
    "$anchor": _USE_REF,
    "$dynamicAnchor": _USE_REF,
    "$dynamicRef": _USE_REF,
    "$recursiveAnchor": _USE_REF,
    "$recursiveRef": _USE_REF,
    "$vocabulary": say("remove it"),
    "unevaluatedProperties": say("use {keyword}", keyword="additionalProperties"),
    "unevaluatedItems": say("use {keyword}", keyword="items"),
}

_DEAR = say(
    "would take too long to compile: it has too many patterns, or too many sets of characters in "
    "them. Use fewer and shorter patterns, and do not ignore case; equal patterns count once"
)

_decode = msgspec.json.Decoder().decode


class BadSchema(Exception):
    """Why a schema is refused."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Part:
    """One schema within a schema, and those that it applies to its value or to values below."""

    __slots__ = ("at", "each", "here", "looks", "names", "some", "text")

    def __init__(self, at: str) -> None:
        self.at = at  # a JSON pointer
        self.looks = 1  # keywords, and values that they list: for any value
        self.names = 0  # further names that are looked up in an object
        self.text = 0  # the cost of patterns and formats
        self.here: list[_Part] = []
        # For one value in an object or an array: at most one of ``some``, and all of ``each``.
        self.some: dict[str, list[_Part]] = {kind: [] for kind in _KINDS}
        self.each: dict[str, list[_Part]] = {kind: [] for kind in _KINDS}

    def all(self) -> list[_Part]:
        """All parts that this one applies."""
        below = [it for kind in _KINDS for it in (*self.some[kind], *self.each[kind])]
        return [*self.here, *below]


class Cost(Struct, frozen=True):
    """The most that a check does for one value of the data, or one byte of a text."""

    scalar: int  # keywords, and values that they list
    container: int  # the same, with the names that are looked up
    text: int  # simple patterns
    unique: int = 0  # levels of arrays whose items are unique
    alternatives: bool = False  # anyOf or oneOf: an error has those of all of them

    def of(self, data: bytes) -> int:
        """How long a check of this data takes at most, in nanoseconds on a small machine."""
        containers, scalars = _count(data)
        unique_ns = _UNIQUE_NS * self.unique
        return (
            containers * (_CONTAINER_NS + _UNIT_NS * self.container + unique_ns)
            + scalars * (_SCALAR_NS + _UNIT_NS * self.scalar + unique_ns)
            + len(data) * (1 + _TEXT_BYTE_NS * self.text)
        )

    def per_byte(self) -> int:
        """The most that one byte of data can add; cheaper to know than ``of``."""
        most = max(_CONTAINER_NS + _UNIT_NS * self.container, _SCALAR_NS + _UNIT_NS * self.scalar)
        return most + _UNIQUE_NS * self.unique + 1 + _TEXT_BYTE_NS * self.text

    def of_error(self, data: bytes) -> int:
        """How long it takes at most to find out why the data does not match."""
        containers, scalars = _count(data)
        values_ns = (containers + scalars) * _ERROR_VALUE_NS
        if not self.alternatives:
            return values_ns
        units = containers * self.container + scalars * self.scalar
        return values_ns + units * _ERROR_UNIT_NS


def _count(data: bytes) -> tuple[int, int]:
    """The largest possible number of containers, and that of other values and names."""
    containers = data.count(b"[") + data.count(b"{")
    return containers, data.count(b",") + data.count(b":") + 1


class Schema:
    """A compiled schema."""

    __slots__ = ("_quick_bytes", "_validator", "cost")

    def __init__(self, validator: Any, cost: Cost) -> None:
        self._validator, self.cost = validator, cost
        self._quick_bytes = AT_ONCE_NS // cost.per_byte()

    def cost_of(self, data: bytes) -> int:
        """How long a check takes at most, in nanoseconds; of small data roughly."""
        size = len(data)
        if size <= self._quick_bytes:
            return size * (AT_ONCE_NS // self._quick_bytes)
        return self.cost.of(data)

    def matches(self, data: bytes) -> bool:
        """Whether the data certainly matches; ``problem`` says more."""
        try:
            if _has_long_number(data):
                return False
            return not is_deep(data) and self._validator.is_valid(_decode(data)) is True
        except (ValueError, RecursionError):
            return False
        except BaseException as error:  # noqa: BLE001 - a panic is no Exception
            _raise_unless_panic(error)
            return False

    def problem(self, data: bytes) -> str:
        """Why the data does not match: its place as a JSON pointer and the reason; empty: it does.

        The reason contains no value of the data.
        """
        if self.cost.of(data) > LONGEST_NS:
            return TOO_LARGE
        if _has_long_number(data):
            return TOO_LONG
        try:
            if is_deep(data):
                return LEVELS_RULE
            value = _decode(data)
            if self._validator.is_valid(value) is True:
                return ""
            if self.cost.of_error(data) > LONGEST_NS:
                return SOMEWHERE
            self._validator.validate(value)
        except (ValueError, RecursionError) as error:
            is_problem = isinstance(error, _library().ValidationError)
            if is_problem:
                return _mismatch(error)
            return say("cannot be checked: {error}", error=cut(str(error), _TEXT_CHARS_MAX))
        except BaseException as error:  # noqa: BLE001 - a panic is no Exception
            _raise_unless_panic(error)
            return say("cannot be checked: the checking library failed")
        return ""


def _has_long_number(data: bytes) -> bool:
    """Whether the data has a number with so many digits that it takes long to compare.

    One such number in small data does no harm.
    """
    if len(data) <= _SMALL_BYTES or _MANY_DIGITS not in data.translate(_DIGITS):
        return False
    return _MANY_DIGITS in _STRING.sub(b"", data).translate(_DIGITS)


def _raise_unless_panic(error: BaseException) -> None:
    """A panic of the library, which is written in Rust, is no reason to stop the server."""
    if type(error).__name__ != "PanicException":
        raise error


TOO_LARGE = say(
    "cannot be checked against its schema: it has too many values for a schema of this size; "
    "publish less data in one event, make the schema simpler, or set the check of the type to off"
)
TOO_LONG = say("cannot be checked: it has a number with more than {limit} digits", limit=DIGITS_MAX)
SOMEWHERE = say(
    "does not match its schema; it has too many values, or the schema too many alternatives, to "
    "say where"
)


def _library() -> Any:
    import jsonschema_rs

    return jsonschema_rs


def compile_schema(text: str) -> Schema:
    """The compiled schema; raises BadSchema."""
    root = _read(text)
    cost = _cost_of(root)
    library = _library()
    try:
        validator = library.validator_for(
            root,
            validate_formats=True,
            formats={"regex": _is_text},  # Data must not be compiled.
            mask="the value",
            pattern_options=library.RegexOptions(size_limit=PATTERN_BYTES_MAX),
            offline=True,
        )
    except library.ValidationError as error:
        raise BadSchema(_refusal(error)) from None
    except (ValueError, library.ReferencingError) as error:
        reason = say("is not a valid JSON Schema: {error}", error=cut(str(error), _TEXT_CHARS_MAX))
        raise BadSchema(reason) from None
    except BaseException as error:  # noqa: BLE001 - a panic is no Exception
        _raise_unless_panic(error)
        raise BadSchema(say("cannot be compiled")) from None
    return Schema(validator, cost)


def _compile_ns(pattern: str) -> int:
    """How long it takes at most to compile a pattern."""
    own_ns = _FOLDED_NS if _ignores_case(pattern) else _SET_NS
    found_ns = _PATTERN_NS + _CHAR_NS * len(pattern)
    found_ns += _SMALL_SET_NS * len(_small_sets(pattern)) + own_ns * len(_sets(pattern))
    # One that is not simple is compiled twice: its size says more about it.
    return found_ns if _is_simple(pattern) else 2 * found_ns


@lru_cache(maxsize=256)
def _is_small(pattern: str) -> bool:
    """Whether a compiled pattern is so small that it has few states."""
    library = _library()
    try:
        library.validator_for(
            {"pattern": pattern},
            pattern_options=library.RegexOptions(size_limit=_SIMPLE_BYTES_MAX),
            offline=True,
        )
    except ValueError:
        return False
    return True


def _is_text(_text: str) -> bool:
    return True


def _refusal(error: Any) -> Sentence:
    where = _pointer(error.instance_path) or "/"
    if getattr(error.kind, "format", "") == "regex":
        return say(
            "has a pattern at {place} that is not valid, or cannot run in linear time: "
            "use no look-around and no back-references, and keep it short",
            place=where,
        )
    place = cut(where, _PLACE_CHARS_MAX)
    return say(
        "is not a valid JSON Schema: at {place}, {error}",
        place=place,
        error=cut(error.message, _TEXT_CHARS_MAX - len(place)),
    )


def _mismatch(error: Any) -> Sentence:
    place = cut(_pointer(error.instance_path), _PLACE_CHARS_MAX)
    text = cut(error.message, _TEXT_CHARS_MAX - len(place))
    if not place:
        return say("does not match its schema: {error}", error=text)
    return say("does not match its schema: at {place}, {error}", place=place, error=text)


def _pointer(path: list[str | int]) -> str:
    return "".join(f"/{str(it).replace('~', '~0').replace('/', '~1')}" for it in path)


# --- what is accepted -----------------------------------------------------------------------


def _read(text: str) -> dict[str, Any]:
    """The schema as a dict; raises BadSchema."""
    try:
        root = _decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadSchema(
            say("must be JSON: {error}", error=cut(str(error), _TEXT_CHARS_MAX))
        ) from None
    if not isinstance(root, dict):
        raise BadSchema(say("must be a JSON object"))
    if _nesting(root, NESTING_MAX) > NESTING_MAX:
        raise BadSchema(say("must be nested at most {limit} levels deep", limit=NESTING_MAX))
    draft = root.get("$schema")
    if draft is not None and (not isinstance(draft, str) or draft.rstrip("#") not in DRAFTS):
        raise BadSchema(say("has a $schema that is not supported: use draft 2020-12, 2019-09 or 7"))
    return root


def _nesting(root: Any, limit: int) -> int:
    """How deep a value is nested; stops above the limit."""
    depth, level = 0, [root]
    while level and depth <= limit:
        depth += 1
        level = [
            child
            for value in level
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, dict | list)
        ]
    return depth


def _cost_of(root: dict[str, Any]) -> Cost:
    """The cost of a schema; raises BadSchema if it has no limit, or one that is too high."""
    reader = _Reader(root)
    parts = _in_order(reader.read())
    unique = reader.unique
    if unique and _is_recursive(parts):
        unique = LEVELS_MAX  # a check of each is a call within the one above
    return Cost(
        scalar=_most(parts, lambda part: part.looks, COST_MAX),
        container=_most(parts, lambda part: part.looks + part.names, COST_MAX),
        text=_most(parts, lambda part: part.text, TEXT_COST_MAX),
        unique=unique,
        alternatives=reader.alternatives,
    )


def _is_recursive(parts: list[_Part]) -> bool:
    """Whether a part applies to a value below one that it applies to."""
    needed = dict.fromkeys(parts, 0)
    for part in parts:
        for following in part.all():
            needed[following] += 1
    free = [part for part, count in needed.items() if not count]
    seen = 0
    while free:
        seen += 1
        for following in free.pop().all():
            needed[following] -= 1
            if not needed[following]:
                free.append(following)
    return seen < len(parts)


class _Reader:
    """Finds all parts of a schema, and follows its references."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._parts: dict[int, _Part] = {}  # by the identity of the dict
        self._waiting: list[tuple[dict[str, Any], _Part]] = []
        self._references: list[tuple[_Part, Any]] = []
        self._patterns: dict[str, int] = {}  # what each adds to the cost of a text
        self._compile_ns = 0
        self.unique = 0  # parts whose items are unique
        self.alternatives = False

    def read(self) -> list[_Part]:
        self._part(self._root, "")
        while self._waiting:
            schema, part = self._waiting.pop()
            self._fill(schema, part)
        for part, reference in self._references:
            target = self._target(reference, part.at)
            part.here += [] if target is None else [target]
        return list(self._parts.values())

    def _part(self, schema: Any, at: str) -> _Part | None:
        """The part of a schema; None for true, false, and what the library will refuse."""
        if not isinstance(schema, dict):
            return None
        found = self._parts.get(id(schema))
        if found is None:
            if len(self._parts) >= PARTS_MAX:
                raise BadSchema(say("must have at most {limit} schemas within it", limit=PARTS_MAX))
            self._add_compile(_PART_NS)
            found = self._parts[id(schema)] = _Part(at)
            self._waiting.append((schema, found))
        return found

    def _fill(self, schema: dict[str, Any], part: _Part) -> None:
        self._check_keywords(schema, part)
        for name, value in schema.items():
            part.looks += 1
            at = f"{part.at}/{_escaped(name)}"
            if name in _HERE or name in _HERE_LISTS:
                self.alternatives = self.alternatives or name in {"anyOf", "oneOf"}
                part.here += self._schemas(value, at)
            elif name in _HERE_NAMED and isinstance(value, dict):
                part.names += _size(value)
                part.here += self._named(value, at)
            elif name in _DEFINITIONS and isinstance(value, dict):
                self._named(value, at)
            elif not self._fill_below(name, value, part, at):
                self._add_cost(name, value, part, at)

    def _fill_below(self, name: str, value: Any, part: _Part, at: str) -> bool:
        """Add the schemas of a keyword for the values in an object or an array."""
        if name == "properties" and isinstance(value, dict):
            part.names += len(value)
            part.some["object"] += self._named(value, at)
        elif name == "patternProperties" and isinstance(value, dict):
            part.names += len(value)
            part.text += sum(2 * self._pattern(it, at) for it in value)
            part.each["object"] += self._named(value, at)
        elif name in _OTHERS:
            part.some[_OTHERS[name]] += self._schemas(value, at)
        elif name == "contains":
            part.each["array"] += self._schemas(value, at)
        else:
            return False
        return True

    def _add_cost(self, name: str, value: Any, part: _Part, at: str) -> None:
        match name:
            case "pattern":
                part.text += self._pattern(value, at)
            case "format":
                part.text += _FORMAT
            case "multipleOf":
                part.looks += self._multiple(value, at)
            case "enum":
                part.looks += _size(value)
            case "const":
                part.looks += 1 if isinstance(value, str) else _CONSTANT * _size(value)
            case "required" | "dependentRequired":
                part.names += _size(value)
            case "uniqueItems":
                self.unique += value is True
            case _:
                pass

    def _check_keywords(self, schema: dict[str, Any], part: _Part) -> None:
        for name, advice in _REFUSED.items():
            if name in schema:
                raise BadSchema(
                    say(
                        "must not contain {name}, at {place}: {advice}",
                        name=name,
                        place=part.at or "/",
                        advice=advice,
                    )
                )
        if part.at:
            for name in ("$id", "$schema"):
                if name in schema:
                    raise BadSchema(
                        say(
                            "must not contain {name} at {place}, only at its root",
                            name=name,
                            place=part.at,
                        )
                    )
        if "$ref" in schema:
            self._references.append((part, schema["$ref"]))

    def _target(self, reference: Any, at: str) -> _Part | None:
        """The part that a reference names; None for true and false. Raises BadSchema."""
        where = f"{at or '/'}/$ref"
        if not isinstance(reference, str) or not (reference == "#" or reference[:2] == "#/"):
            raise BadSchema(
                say(
                    "must refer only to itself, at {place}: use a JSON pointer like "
                    "#/$defs/address; nothing is fetched from elsewhere",
                    place=where,
                )
            )
        value: Any = self._root
        for token in reference[2:].split("/") if reference != "#" else ():
            key = _unescaped(token)
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
                value = value[int(key)]
            else:
                raise BadSchema(
                    say(
                        "refers to {target}, at {place}, which is not there",
                        target=cut(reference, _PLACE_CHARS_MAX),
                        place=cut(where, _PLACE_CHARS_MAX),
                    )
                )
        if isinstance(value, bool):
            return None
        if id(value) not in self._parts:
            raise BadSchema(
                say(
                    "refers to {target}, at {place}, which is not a schema: put it below $defs",
                    target=cut(reference, _PLACE_CHARS_MAX),
                    place=cut(where, _PLACE_CHARS_MAX),
                )
            )
        return self._parts[id(value)]

    def _schemas(self, value: Any, at: str) -> list[_Part]:
        """The parts of a schema, or of a list of them."""
        if isinstance(value, list):
            found = [self._part(one, f"{at}/{place}") for place, one in enumerate(value)]
        else:
            found = [self._part(value, at)]
        return [it for it in found if it is not None]

    def _named(self, schemas: dict[str, Any], at: str) -> list[_Part]:
        found = [self._part(one, f"{at}/{_escaped(name)}") for name, one in schemas.items()]
        return [it for it in found if it is not None]

    def _pattern(self, pattern: Any, at: str) -> int:
        if isinstance(pattern, str) and len(pattern) > PATTERN_CHARS_MAX:
            raise BadSchema(
                say(
                    "has a pattern at {place} that is longer than {limit} characters",
                    place=at,
                    limit=PATTERN_CHARS_MAX,
                )
            )
        if not isinstance(pattern, str):
            return 1
        if pattern not in self._patterns:  # Equal ones are compiled once.
            self._add_compile(_compile_ns(pattern))
            simple = _is_simple(pattern) or _is_small(pattern)
            self._patterns[pattern] = 1 if simple else _COMPLEX
        return self._patterns[pattern]

    def _add_compile(self, ns: int) -> None:
        self._compile_ns += ns
        if self._compile_ns > COMPILE_NS_MAX:
            raise BadSchema(_DEAR)

    def _multiple(self, value: Any, at: str) -> int:
        if not isinstance(value, float) or value.is_integer():
            return 0
        if 0 < value < _FRACTION_MIN:
            raise BadSchema(
                say(
                    "has a multipleOf at {place} that is less than {limit}",
                    place=at,
                    limit=str(_FRACTION_MIN),
                )
            )
        return _FRACTION


def with_references(schema: Any, base: str) -> Any:
    """A copy of a schema within a larger document: its references begin with ``base``.

    ``$id`` is left out, because the references are those of the document now.
    """
    if not isinstance(schema, dict):
        return schema
    copy: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "$ref" and isinstance(value, str):
            copy[name] = base + value.removeprefix("#")
        elif name in _MAPS and isinstance(value, dict):
            copy[name] = {key: with_references(one, base) for key, one in value.items()}
        elif name in _SCHEMAS and isinstance(value, list):
            copy[name] = [with_references(one, base) for one in value]
        elif name in _SCHEMAS:
            copy[name] = with_references(value, base)
        elif name != "$id":
            copy[name] = value
    return copy


def _size(value: Any) -> int:
    """The number of values in a value, itself included."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        count += 1
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return count


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescaped(token: str) -> str:
    return unquote(token).replace("~1", "/").replace("~0", "~")


def _in_order(parts: list[_Part]) -> list[_Part]:
    """The parts, each after all that apply to the same value because of it.

    Raises BadSchema if a schema leads back to itself at the same value, or in too many steps.
    """
    length: dict[_Part, int] = {}  # of the longest chain from a part; 0: it is being followed
    for start in parts:
        if start in length:
            continue
        length[start] = 0
        path: list[tuple[_Part, Iterator[_Part]]] = [(start, iter(start.here))]
        while path:
            part, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                del length[part]  # It is put after those that it needs.
                length[part] = 1 + max((length[it] for it in part.here), default=0)
                if length[part] > CHAIN_MAX:
                    raise BadSchema(
                        say(
                            "must not lead from schema to schema more than {limit} times for one "
                            "value, at {place}",
                            limit=CHAIN_MAX,
                            place=part.at or "/",
                        )
                    )
            elif following not in length:
                length[following] = 0
                path.append((following, iter(following.here)))
            elif not length[following]:
                raise BadSchema(
                    say(
                        "must not refer to itself for the same value, at {place}",
                        place=following.at or "/",
                    )
                )
    return list(length)


def _most(parts: list[_Part], own: Callable[[_Part], int], limit: int) -> int:
    """The largest total of ``own`` over all parts that apply to one value of the data.

    It is the largest sum for any data. Raises BadSchema if the sum has no limit, because a
    recursion applies more than once to a value, or is above ``limit``.
    """
    here: dict[_Part, int] = {}  # at the value that a part applies to
    for part in parts:
        here[part] = own(part) + sum(here[it] for it in part.here)
        _check(part, here[part], limit)
    most = dict(here)  # there, or anywhere below
    for _ in range(PASSES_MAX):
        below: dict[_Part, int] = {}
        changed = False
        for part in parts:
            below[part] = _below(part, most) + sum(below[it] for it in part.here)
            if below[part] > most[part]:
                _check(part, below[part], limit)
                most[part], changed = below[part], True
        if not changed:
            return max(most.values(), default=0)
    raise BadSchema(_too_much(parts[-1]))


def _below(part: _Part, most: dict[_Part, int]) -> int:
    """The most that a part alone applies to one value right below, and below that."""
    return max(
        max((most[it] for it in part.some[kind]), default=0)
        + sum(most[it] for it in part.each[kind])
        for kind in _KINDS
    )


def _check(part: _Part, value: int, limit: int) -> None:
    if value > limit:
        raise BadSchema(_too_much(part))


def _too_much(part: _Part) -> Sentence:
    return say(
        "would take too long to check, at {place}: too many of its parts apply to one "
        "value. Use fewer alternatives and patterns, and let a recursion apply only once to a "
        "value",
        place=part.at or "/",
    )
