"""How the outbox relay reacts to refused batches and to failures.

A batch is refused as a whole, but one bad row must not hold back the others. The rows that a
refusal names are published one by one; if it names none, the batch is halved. Only a row that was
refused on its own is refused for good.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from homing.errors import FieldProblem

T = TypeVar("T")

PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 30.0
RETRY_AFTER_MAX_S = 300.0
_DOUBLINGS_MAX = 10
_INDEX = re.compile(r"events\[(\d+)\]")


def named(problems: Iterable[FieldProblem]) -> set[int]:
    """The indexes of the rows that a refusal names: ``events[3].type`` names 3."""
    return {int(found[1]) for one in problems if (found := _INDEX.match(one.field))}


def apart(rows: Sequence[T], bad: set[int]) -> list[Sequence[T]]:
    """The smaller batches to publish, in this order, instead of a refused one.

    Of two rows with the same id a refusal names the later one: the earlier is published first.
    """
    assert len(rows) > 1, "a single row cannot be split"
    inside = {index for index in bad if index < len(rows)}
    if not inside:
        middle = len(rows) // 2
        return [rows[:middle], rows[middle:]]
    good = [row for index, row in enumerate(rows) if index not in inside]
    alone = [rows[index : index + 1] for index in sorted(inside)]
    return [good, *alone] if good else alone


def pause_s(failures: int, *, retry_after_s: float | None, random: float) -> float:
    """The pause after this many failures in a row; ``random`` (0 to 1) gives its jitter."""
    longest = min(PAUSE_FIRST_S * (1 << min(failures, _DOUBLINGS_MAX)), PAUSE_MAX_S)
    return longest * (1 + random) / 2 + min(retry_after_s or 0.0, RETRY_AFTER_MAX_S)


def reason_text(problems: Sequence[FieldProblem], otherwise: str) -> str:
    """Why a single row was refused, without its index in the batch."""
    parts = [f"{_INDEX.sub('', one.field).lstrip('.')} {one.reason}".strip() for one in problems]
    return "; ".join(parts) or otherwise
