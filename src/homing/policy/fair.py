"""Fair groups: first attempts of one endpoint take turns by a value in the data of their events.

The operator names a path, such as ``data.userId`` (the setting ``fair_by``). Publishing hashes the
value at this path into one of ``GROUPS`` groups. A group has a part of its own among the pending
rows of an endpoint (``Delivery.fair_part``), so the store reads the next rows of every group with
the index that it has anyway, and nothing is written or read more while the setting is off. Events
without a value are a group, too (``PART_FIRST``).

So a bulk edit by one person does not delay the events of the others: a person waits for one
delivery of each other person. Within a group the order of acceptance holds. Two persons share a
group by chance, once in ``GROUPS`` pairs.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec
from msgspec import Raw

from homing.model import PART_FAIR, PART_FIRST, Work
from homing.policy.payload_fields import path_problem

GROUPS = 4_096  # The store visits every waiting group of an endpoint when it reads its rows.
VALUE_BYTES_MAX = 1_024  # of a text; a longer one counts by its beginning
BYTES_A_STEP = 512  # of data that is skipped count as one step: only the path is decoded
PATH_RULE = "empty, or a path like data.userId: data, then 1 to 16 names, without spaces and commas"


def fair_problem(path: str) -> str | None:
    """Why the deliveries of an endpoint cannot take turns by this path; None if they can."""
    return PATH_RULE if path and path_problem((path,)) is not None else None


class FairBy:
    """A path, compiled: the part of the deliveries of an event. Without a path all are alike."""

    __slots__ = ("_decode", "_depth", "path")

    def __init__(self, path: str = "") -> None:
        self.path = path
        names = path.split(".")[1:]
        self._depth = len(names)
        self._decode: Callable[[bytes], Any] | None = _decoder(names) if names else None

    def __bool__(self) -> bool:
        return self._decode is not None

    def __repr__(self) -> str:
        return f"FairBy({self.path})"

    def steps(self, data: bytes) -> int:
        """About how many steps it takes to find the value in this data."""
        return len(data) // BYTES_A_STEP if self._decode is not None else 0

    def part(self, data: bytes) -> int:
        """The part of the deliveries of an event with this data, until their first attempt."""
        if self._decode is None:
            return PART_FIRST
        try:
            found = self._decode(data)
            for _ in range(self._depth):
                found = found.value
            text = _text(bytes(found))
        except (msgspec.DecodeError, RecursionError):  # A list on the path, or null.
            return PART_FIRST
        if not text:
            return PART_FIRST
        digest = hashlib.blake2b(text, digest_size=4).digest()
        return PART_FAIR + int.from_bytes(digest) % GROUPS


def _decoder(names: list[str]) -> Callable[[bytes], Any]:
    """A function that decodes nothing but the value at this path: objects in objects."""
    kind: Any = Raw
    empty: Any = Raw()
    for name in reversed(names):
        default = msgspec.field(name=name, default=empty)
        kind = msgspec.defstruct("At", [("value", kind, default)], frozen=True)
        empty = kind()
    return msgspec.json.Decoder(kind).decode


def _text(raw: bytes) -> bytes:
    """The bytes that identify a value, such as a text's characters; empty if it has none."""
    if raw[:1] == b'"':
        given: str = msgspec.json.decode(raw)
        return given[:VALUE_BYTES_MAX].encode("utf-8", "surrogatepass")
    return b"" if raw[:1] in {b"", b"{", b"[", b"n"} else raw[:VALUE_BYTES_MAX]


class FairLane:
    """A queue of deliveries in which groups take turns; it has the methods of a deque.

    ``after`` is the group that had the last turn: the next rows are read from the group after it.
    """

    __slots__ = ("_count", "_groups", "after")

    def __init__(self, works: Iterable[Work] = ()) -> None:
        # The first group has the next turn. A plain dict would scan its deleted entries.
        self._groups: OrderedDict[int, deque[Work]] = OrderedDict()
        self._count = 0
        self.after = 0
        self.extend(works)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Work]:
        return chain.from_iterable(self._groups.values())

    def __getitem__(self, index: int) -> Work:
        assert index == 0
        return next(iter(self._groups.values()))[0]

    def has_group(self, group: int) -> bool:
        return group in self._groups

    def append(self, work: Work) -> None:
        group = work.delivery.fair_part
        there = self._groups.get(group)
        if there is None:
            there = self._groups[group] = deque()
        there.append(work)
        self._count += 1

    def extend(self, works: Iterable[Work]) -> None:
        for work in works:
            self.append(work)

    def appendleft(self, work: Work) -> None:
        """Put a delivery first: it, and so its group, has the next turn."""
        group = work.delivery.fair_part
        self._groups.setdefault(group, deque()).appendleft(work)
        self._groups.move_to_end(group, last=False)
        self._count += 1

    def popleft(self) -> Work:
        """Take the first delivery of the group whose turn it is; then that group is last."""
        group, there = next(iter(self._groups.items()))
        work = there.popleft()
        if there:
            self._groups.move_to_end(group)
        else:
            del self._groups[group]
        self._count -= 1
        self.after = group
        return work

    def pop(self) -> Work:
        """Take the last delivery of the group whose turn is last."""
        group = next(reversed(self._groups))
        there = self._groups[group]
        work = there.pop()
        if not there:
            del self._groups[group]
        self._count -= 1
        return work

    def clear(self) -> None:
        self._groups.clear()
        self._count = 0
