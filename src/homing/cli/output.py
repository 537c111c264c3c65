"""How commands speak: tables for people, JSON for programs, colours that mean something.

Green is well, yellow waits, red needs somebody, dim is beside the point. Rich leaves colours out
where output is no terminal or ``NO_COLOR`` is set. What comes from outside is shown as plain text:
it can neither colour a line nor steer a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from homing.cli.trouble import Failed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WIDE = 220  # columns where there is no terminal: nothing is cut for a program or a file

STYLES = {
    "enabled": "green",
    "disabled": "yellow",
    "frozen": "red",
    "delivered": "green",
    "pending": "yellow",
    "dropped": "red",
    "cancelled": "dim",
    "failed": "red",
    "ours": "magenta",
    "retry": "yellow",
    "unchanged": "yellow",
    "wait": "magenta",
    "running": "yellow",
    "done": "green",
}


def say_json(value: Any) -> None:
    """One JSON document on one line."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


@contextmanager
def printing() -> Iterator[None]:
    """What is printed within has arrived at its end; raises Failed where it cannot."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())  # The rest shall not fail again.
        raise Failed(f"Standard output cannot be written: {error.strerror}.") from None


def console(*, stderr: bool = False) -> Console:
    """The terminal, or the pipe that stands for it."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def plain(value: object) -> str:
    """Text from outside, without what could steer a terminal."""
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def word(value: str) -> Text:
    """A house word in its colour."""
    from rich.text import Text

    return Text(plain(value), style=STYLES.get(value, ""))


def dim(value: object) -> Text:
    from rich.text import Text

    return Text(plain(value), style="dim")


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """A table without lines, as terminals are used to."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold dim", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(
            name, justify="right" if name in right else "left", no_wrap=True, overflow="ellipsis"
        )
    return made


def row(made: Table, *cells: object) -> None:
    """Add a row; text that is not Rich's own is shown as it is, without markup."""
    from rich.text import Text

    made.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell)) for cell in cells))


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values, one under the other; what is empty is left out."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True, style="dim")
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            made.add_row(name, value if isinstance(value, Text) else Text(plain(value)))
    return made


def nothing(sentence: str) -> None:
    """An empty list is said, on standard error, so that a pipe stays empty."""
    console(stderr=True).print(sentence, style="dim")


# --- times ----------------------------------------------------------------------------------


def clock_ms() -> int:
    from homing.net.clock import SystemClock

    return SystemClock().now()


def read_ms(text: str) -> int:
    """RFC 3339, as the API shows it, in milliseconds."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def ago(text: str | None, *, now: int) -> str:
    """``12 s ago``, ``in 3 min``; empty where there is no time."""
    if text is None:
        return ""
    ms = now - read_ms(text)
    return f"in {span(-ms)}" if ms < 0 else f"{span(ms)} ago"


def span(ms: int) -> str:
    """``640 ms``, ``5 s``, ``4 min``, ``3 h``, ``12 days``: one unit is enough at a glance."""
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
    """``14:02:07.123`` UTC."""
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{at:%H:%M:%S}.{ms % 1000:03d}"
