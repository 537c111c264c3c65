"""Payload fields: values in the data of events by which events are found (``data.invoice.id``).

The operator lists the paths. Publishing hashes the value of each path with a key that the database
holds only encrypted (``policy.hash_keys``), and stores the hash. A search hashes the given value in
the same way, so the index neither contains nor reveals a value. Texts, numbers, ``true`` and
``false`` are indexed; null, lists, objects, empty texts, values of more than ``VALUE_CHARS_MAX``
characters, and fractions above 10²⁰⁰ or below 10⁻²⁰⁰ are not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Sequence
from decimal import Decimal
from typing import Any

from homing.policy.exact import decoding
from homing.policy.filters_reading import SLICE_STEPS, OutOfSteps
from homing.policy.filters_run import getter, read_data
from homing.policy.filters_values import read_number
from homing.policy.wants import AT_ONCE_BYTES, BYTES_A_STEP

FIELDS_MAX = 8
PATH_CHARS_MAX = 128
VALUE_CHARS_MAX = 256
HASH_BYTES = 16
PATH_RULE = (
    f"at most {FIELDS_MAX} different paths like data.invoice.id, each of at most {PATH_CHARS_MAX} "
    "characters: data, then 1 to 16 names, without spaces, colons and commas"
)

_PATH = re.compile(r"data(?:\.[^\s.,:\"'\\\x00-\x1f\x7f]{1,120}){1,16}").fullmatch
_INT_BITS_MAX = 851  # 256 digits; a longer integer takes long to write
_EXPONENT_MAX = 200


def path_problem(paths: Sequence[str]) -> str | None:
    """Why these paths cannot be the payload fields of an installation; None if they can."""
    if len(paths) > FIELDS_MAX:
        return f"at most {FIELDS_MAX} paths, not {len(paths)}"
    for place, path in enumerate(paths):
        if len(path) > PATH_CHARS_MAX or _PATH(path) is None or not path.isprintable():
            return PATH_RULE
        if path in paths[:place]:
            return f"{PATH_RULE}; {path} is listed twice"
    return None


class PayloadFields:
    """The paths of an installation, and the keys of the hashes.

    New hashes are made with the first key; a search uses all of them. Without paths nothing is read
    or indexed.
    """

    __slots__ = ("_fields", "_keys", "paths")

    def __init__(self, paths: tuple[str, ...] = (), keys: Sequence[bytes] = ()) -> None:
        assert keys or not paths, "values are never indexed without a key"
        self.paths = paths
        self._keys = keys
        self._fields = tuple((_hasher(path, keys[0]), getter(path, None)) for path in paths)

    def __bool__(self) -> bool:
        return bool(self._fields)

    def __repr__(self) -> str:
        return f"PayloadFields({', '.join(self.paths)})"

    def steps(self, data: bytes) -> int:
        """About how many steps it takes to read and hash the values in this data."""
        return len(self._fields) + len(data) // BYTES_A_STEP

    def at_once(self, data: bytes) -> tuple[bytes, ...]:
        """The hashes of an event's values; raises OutOfSteps if its data takes long to read."""
        if len(data) > AT_ONCE_BYTES:
            raise OutOfSteps
        return self._hashes(read_data(data))

    def reading(
        self, data: bytes, steps: int
    ) -> Generator[None, int, tuple[tuple[bytes, ...], int]]:
        """The hashes as by ``at_once``, in slices, and the steps left of the last slice.

        The first slice has ``steps``; the caller sends the steps of each further slice.
        """
        if steps < SLICE_STEPS // 2:  # Data is decoded with a whole slice.
            steps = yield
        seen, steps = yield from decoding(data, steps)
        return self._hashes(seen), steps - len(self._fields)

    def wanted(self, path: str, value: str) -> list[bytes]:
        """The hashes to search for: an event whose data has this value at ``path`` has one of them.

        A text that is a number also finds the number, however the number was written.
        """
        texts = {value: None}
        if (number := read_number(value)) is not None and (text := _text(number)) is not None:
            texts[text] = None
        return [_hash(_hasher(path, key), text) for key in self._keys for text in texts]

    def values(self, data: bytes) -> list[tuple[str, str]]:
        """The paths that have a value in this data, with the values; none if the data is long."""
        if not self._fields or len(data) > AT_ONCE_BYTES:
            return []
        seen = read_data(data)
        texts = ((path, _text(getter(path, None)(seen))) for path in self.paths)
        return [(path, text) for path, text in texts if text is not None]

    def _hashes(self, data: Any) -> tuple[bytes, ...]:
        found = []
        for hasher, get in self._fields:
            if (text := _text(get(data))) is not None:
                found.append(_hash(hasher, text))
        return tuple(found)


def _hasher(path: str, key: bytes) -> Any:
    return hashlib.blake2b(path.encode() + b"\0", digest_size=HASH_BYTES, key=key)


def _hash(hasher: Any, text: str) -> bytes:
    made = hasher.copy()
    made.update(text.encode("utf-8", "surrogatepass"))
    digest: bytes = made.digest()
    return digest


def _text(value: Any) -> str | None:
    """The text that a value is found by; None if the value is not indexed."""
    match value:
        case str():
            return _short(value)
        case bool():
            return "true" if value else "false"
        case int():
            return _short(str(value)) if value.bit_length() <= _INT_BITS_MAX else None
        case Decimal():
            return _plain(value)
        case _:
            return None


def _plain(value: Decimal) -> str | None:
    """A number without an exponent and without zeros at its end: 4711.0 and 4.711e3 are 4711."""
    if not value:
        return "0"
    digits, exponent = len(value.as_tuple().digits), value.adjusted()
    if digits > VALUE_CHARS_MAX or not -_EXPONENT_MAX <= exponent <= _EXPONENT_MAX:
        return None
    text = f"{value:f}"
    return _short(text.rstrip("0").rstrip(".") if "." in text else text)


def _short(text: str) -> str | None:
    return text if 0 < len(text) <= VALUE_CHARS_MAX else None
