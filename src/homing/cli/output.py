"""How commands print: tables for people, JSON for programs, times and sizes in one unit.

Green is good, yellow waits, red needs attention, dim is secondary. Rich leaves colours out if the
output is not a terminal or ``NO_COLOR`` is set. Text from outside is printed without its control
characters, so that it cannot control the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from homing.cli.errors import Failed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from homing_client import Attempt, AttemptLine, SentencePart

T = TypeVar("T")

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SECONDS_WITHIN_MS = 120_000
WIDTH = 220  # columns if the output is not a terminal: nothing is cut for a program or a file

SHRINKING = ("url", "last failure", "cause", "description", "types", "type", "object", "change", "")
SHRUNK_MIN = 16  # columns that a shortened text keeps

STYLES = {
    "enabled": "green",
    "disabled": "yellow",
    "frozen": "red",
    "delivered": "green",
    "pending": "yellow",
    "dropped": "red",
    "cancelled": "dim",
    "superseded": "dim",
    "failed": "red",
    "sender_error": "magenta",
    "retry": "yellow",
    "unchanged": "yellow",
    "wait": "magenta",
    "running": "yellow",
    "done": "green",
}


def print_json(value: Any) -> None:
    """One JSON document on one line."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_list(
    items: Iterable[T],
    *,
    columns: Sequence[str],
    row: Callable[[T], Sequence[object]],
    empty: str,
    right: Sequence[str] = (),
    json: bool,
) -> None:
    """The items as a table, or as lines of JSON; ``empty`` on standard error if there are none."""
    items = list(items)
    if json:
        for one in items:
            print_json(one)
    elif not items:
        note(empty)
    else:
        made = table(*columns, right=right)
        for one in items:
            add_row(made, *row(one))
        out = console()
        needed = fit(made, out.width if out.is_terminal else None)
        out.print(made, width=max(needed, out.width), crop=False)


@contextmanager
def checked_output() -> Iterator[None]:
    """Flushes standard output at the end; raises Failed if it cannot be written."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # The exit must not fail again.
        raise Failed(f"Standard output cannot be written: {error.strerror}.") from None


def console(*, stderr: bool = False) -> Console:
    """Rich's console on standard output or standard error."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDTH
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def note(sentence: str) -> None:
    """A remark on standard error, so that a pipe gets only data."""
    console(stderr=True).print(sentence, style="dim")


def plain(value: object) -> str:
    """Text with its control characters escaped."""
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def coloured(value: str, *, text: object = None) -> Text:
    """A state, status or outcome in its colour; or another text in that colour."""
    from rich.text import Text

    return Text(plain(value if text is None else text), style=STYLES.get(value, ""))


def dim(value: object) -> Text:
    from rich.text import Text

    return Text(plain(value), style="dim")


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table without lines; ``right`` names the right-aligned columns."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(
            name, justify="right" if name in right else "left", no_wrap=True, overflow="ellipsis"
        )
    return made


def add_row(made: Table, *cells: object) -> None:
    """Add a row; a cell that is not Rich's own text is printed without markup."""
    from rich.text import Text

    made.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell)) for cell in cells))


def fit(made: Table, width: int | None) -> int:
    """Shorten URLs, then other long texts, until the table fits; returns the width it needs.

    Every column stays: a table that is still too wide is printed wider than the terminal. None: for
    a program or a file, nothing is shortened.
    """
    from rich.cells import cell_len
    from rich.text import Text

    widths = [
        max(cell_len(str(it)) for it in (column.header, *column.cells)) for column in made.columns
    ]
    gaps = 2 * (len(widths) - 1)
    names = [str(column.header) for column in made.columns]
    for index in sorted(
        (it for it, name in enumerate(names) if name in SHRINKING),
        key=lambda it: SHRINKING.index(names[it]),
    ):
        over = 0 if width is None else sum(widths) + gaps - width
        if over > 0:
            widths[index] = max(widths[index] - over, min(widths[index], SHRUNK_MIN))
    for column, needed in zip(made.columns, widths, strict=True):
        column.min_width = column.max_width = max(needed, 1)
        for cell in column.cells:
            if isinstance(cell, Text):
                cell.plain = shortened(cell.plain, max(needed, 1))
    return sum(widths) + gaps


def shortened(text: str, width: int) -> str:
    """The text with its middle left out: the begin and the end of a URL say the most."""
    from rich.cells import cell_len

    kept = width - 1
    shown = text
    while cell_len(shown) > width and kept >= 0:  # Letters of some scripts are two columns wide.
        end = kept // 3
        shown = f"{text[: kept - end]}…{text[len(text) - end :]}"
        kept -= 1
    return shown


def fields(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one pair per line; empty values are left out."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, style="dim")
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            made.add_row(name, value if isinstance(value, Text) else Text(plain(value)))
    return made


# --- times and sizes ------------------------------------------------------------------------


def clock_ms() -> int:
    from homing.net.clock import SystemClock

    return SystemClock().now()


def read_ms(text: str) -> int:
    """Milliseconds of an RFC 3339 time."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def ago(text: str | None, *, now: int | None = None) -> str:
    """``12 s ago``, ``in 3 min``; empty if there is no time."""
    if text is None:
        return ""
    ms = (clock_ms() if now is None else now) - read_ms(text)
    return f"in {span(-ms)}" if ms < 0 else f"{span(ms)} ago"


def span(ms: int) -> str:
    """A duration in one unit: ``640 ms``, ``5 s``, ``4 min``, ``3 h``, ``12 days``."""
    for limit, size, unit in (
        (1_000, 1, "ms"),
        (120_000, 1_000, "s"),
        (7_200_000, 60_000, "min"),
        (360_000_000, 3_600_000, "h"),
    ):
        if ms < limit:
            return f"{ms // size} {unit}"
    return f"{ms // 86_400_000} days"


def time_of(ms: int) -> str:
    """``14:02:07.123Z``."""
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{at:%H:%M:%S}.{ms % 1000:03d}Z"


def clock_text(ms: int, *, now: int) -> str:
    """``14:13 UTC``; with seconds if it is near, with the date and year unless they are today's."""
    at, today = datetime.fromtimestamp(ms / 1000, UTC), datetime.fromtimestamp(now / 1000, UTC)
    text = f"{at:%H:%M:%S}" if abs(ms - now) < SECONDS_WITHIN_MS else f"{at:%H:%M}"
    if at.date() != today.date():
        year = "" if at.year == today.year else f" {at.year}"
        text = f"{at.day} {MONTHS[at.month - 1]}{year} {text}"
    return f"{text} UTC"


def sentence(text: str, parts: Iterable[SentencePart], *, now: int | None = None) -> str:
    """A sentence of the API; its times are clock times and, as in tables, relative to now."""
    now = clock_ms() if now is None else now
    shown = "".join(
        part.text
        if part.time is None
        else f"{clock_text(read_ms(part.time), now=now)} ({ago(part.time, now=now)})"
        for part in parts
    )
    return plain(shown or text)


def response_text(attempt: Attempt | AttemptLine) -> Text:
    """The status code, or why there was none, in the colour of the outcome."""
    code = attempt.code if attempt.code is not None else attempt.failure or "–"
    return coloured(attempt.outcome, text=code)


def byte_size(count: int) -> str:
    """``640 bytes``, ``12.3 MB``."""
    for limit, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count} bytes"


def row_counts(rows: Mapping[str, int]) -> str:
    """The contents of a database by its rows per table."""
    return (
        f"{counted(rows['event'], 'event')}, {rows['pending']:,} pending and "
        f"{counted(rows['history'], 'finished delivery')}, {counted(rows['attempt'], 'attempt')}, "
        f"{counted(rows['subscription'], 'subscription')}"
    )


def past_events(count: int, *, exact: bool) -> str:
    """``1 past event``, ``2 past events``, ``2 or more past events``."""
    return counted(count, "past event") if exact else f"{count:,} or more past events"


def counted(count: int, noun: str) -> str:
    """``1 row``, ``2 rows``, ``2 deliveries``, ``2 days``."""
    ends_in_ies = noun.endswith("y") and noun[-2] not in "aeiou"
    plural = f"{noun.removesuffix('y')}ies" if ends_in_ies else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
