"""``homing simulate``: play a scenario on virtual time and print it as a timeline or as JSON."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from homing.cli.errors import Failed, Usage
from homing.cli.import_structlog import import_structlog_alone
from homing.cli.output import checked_output, plain
from homing.errors import BadScenario
from homing.languages.language import LANGUAGES

if TYPE_CHECKING:
    from structlog.typing import EventDict

    from homing.sim.play import Played
    from homing.sim.scenario import Scenario
    from homing.sim.summary import Summary

_CHUNK = 50_000
_GC_THRESHOLD = (200_000, 20, 20)  # Nearly all objects are kept to the end: collect seldom.


def simulate(
    scenario: Annotated[Path, typer.Argument(help="The scenario, a TOML file; see examples/.")],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print only JSON lines: the trace, then a summary.")
    ] = False,
    compare: Annotated[
        str | None,
        typer.Option("--compare", help="Also play it with this policy, and show both."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Write a drawing to this SVG file.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write a drawing to this self-contained HTML page."),
    ] = None,
    language: Annotated[
        str, typer.Option(help="The language of the SVG file: en, nl, it, ja or zh.")
    ] = "en",
) -> None:
    """Play a scenario on virtual time: what would happen to my endpoint if it were down?"""
    if language not in LANGUAGES:
        raise typer.BadParameter(f"must be one of {', '.join(LANGUAGES)}", param_hint="--language")
    scenarios = _scenarios(scenario, compare)
    for path in (svg, html):
        _check_writable(path)
    _silence_logs()
    gc.set_threshold(*_GC_THRESHOLD)
    played = [_play(one) for one in scenarios]
    unwritten = _draw(played, svg, html, language)
    with checked_output():
        _print_lines(played) if as_json else _print_timeline(played)
    if unwritten:
        raise Failed(" ".join(unwritten))


def _scenarios(path: Path, compare: str | None) -> list[Scenario]:
    from homing.policy.presets import PRESETS
    from homing.sim.read import read_scenario, with_policy

    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Usage(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise BadScenario(f"{path} is not UTF-8 text.") from None
    if compare is not None and compare not in PRESETS:
        known = ", ".join(PRESETS)
        raise Usage(
            f'There is no policy "{plain(compare)}" to compare with; known policies: {known}.'
        )
    first = read_scenario(text, source=str(path))
    return [first] if compare is None else [first, with_policy(first, compare)]


def _check_writable(path: Path | None) -> None:
    """Fail before a long run if a drawing cannot be written; a pipe or device fails later."""
    if path is None:
        return
    try:
        new = not os.path.lexists(path)
        if new or path.is_file() or path.is_dir():
            path.open("ab").close()
            if new:
                path.unlink()
    except OSError as error:
        raise Usage(_unwritten(path, error)) from None


def _unwritten(path: Path, error: OSError) -> str:
    return f"{path} cannot be written: {error.strerror}."


def _silence_logs() -> None:
    """Drop the engine's log, whose times are real; only exceptions, which are bugs, are shown."""
    import_structlog_alone()
    import structlog

    def bugs_only(_logger: object, _method: str, event: EventDict) -> EventDict:
        if not event.get("exc_info"):
            raise structlog.DropEvent
        return event

    structlog.configure(
        processors=[bugs_only, *structlog.get_config()["processors"]],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _play(scenario: Scenario) -> tuple[Played, Summary]:
    from homing.sim.play import play
    from homing.sim.summary import summarize

    with _progress(scenario) as on_progress:
        played = play(scenario, on_progress)
    return played, summarize(played)


@contextmanager
def _progress(scenario: Scenario) -> Iterator[Callable[[float], None]]:
    """A progress bar on standard error, if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"playing with {scenario.schedule.name}", total=1.0)
        yield lambda share: progress.update(task, completed=share)


def _draw(
    played: list[tuple[Played, Summary]], svg: Path | None, html: Path | None, language: str
) -> list[str]:
    """Write the drawings; the errors, to be raised after the result is printed."""
    unwritten: list[str] = []
    for path, kind in ((svg, "svg"), (html, "html")):
        if path is None:
            continue
        if kind == "svg":
            from homing.sim.draw_svg import picture

            text = picture(played, LANGUAGES[language])
        else:
            from homing.sim.draw_html import page

            text = page(played)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            unwritten.append(_unwritten(path, error))
    return unwritten


def _print_timeline(played: list[tuple[Played, Summary]]) -> None:
    from rich.console import Console

    from homing.sim.draw_terminal import draw

    draw(Console(highlight=False), played)


def _print_lines(played: list[tuple[Played, Summary]]) -> None:
    """With two traces every line names its policy; with one, only the summary does."""
    from homing.sim.record import encode
    from homing.sim.summary import summary_line

    out = sys.stdout.buffer
    for one, summary in played:
        lines = one.trace.lines
        end = b"}\n"
        if len(played) > 1:
            end = b',"policy":%b}\n' % msgspec.json.encode(summary.policy)
        for begin in range(0, len(lines), _CHUNK):
            out.write(encode(lines[begin : begin + _CHUNK]).replace(b"}\n", end))
        out.write(summary_line(summary) + b"\n")
